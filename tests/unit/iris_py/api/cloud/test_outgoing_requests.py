"""Requests to other clouds, at the node that asks."""

from __future__ import annotations

import pytest

from iris_py.api.cloud.outgoing_requests import translate
from iris_py.errors import CloudUnavailable, NoMembers, add_surroundings


@pytest.mark.parametrize(("nodes", "is_told"), [(0, True), (3, False)])
def test_nodes_with_another_secret_are_told_of_only_where_no_others_are_known(nodes: int, is_told: bool) -> None:
    """Two clouds on one machine see each other so, and are not to be told to share a secret."""
    error = NoMembers("iris.gateway.eu", nodes)
    add_surroundings(error, {}, ("127.0.0.1",), has_own_secret=None)
    unavailable = translate(error, "databases@eu", 1.0)
    assert isinstance(unavailable, CloudUnavailable)
    assert ("another secret" in str(unavailable)) is is_told
