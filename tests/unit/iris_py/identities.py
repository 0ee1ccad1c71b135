"""Identities of nodes for tests, in the order of their ids: a test can say which of two nodes has the larger one."""

from iris_overlay.ids import NodeId
from iris_security import Identity

IDENTITIES = sorted((Identity(bytes((number,)) * 32) for number in range(256)), key=lambda identity: identity.node_id)
IDENTITY_OF = {NodeId(identity.node_id): identity for identity in IDENTITIES}


def node_id(number: int) -> NodeId:
    """Return the id of an identity: a larger number has a larger one."""
    return NodeId(IDENTITIES[number].node_id)
