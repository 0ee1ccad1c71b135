"""Proofs that both ends of a link hold further keys beside the key of the handshake.

A proof covers the handshake hash of the link, and is invalid on any other link.

**Generations** of the network's secret (docs/design.md 2.9): a link continues while the peer has proved an accepted generation.

**Groups** (docs/design.md 4.7): once both ends have proved to hold a group's key, bodies for the group are encrypted by the
records alone. An end that is about to send for a group offers its proof, once. A peer with the key checks the proof and answers
with its own. A peer without the key ignores the offer, and makes an offer when it begins to use the group.

Each end *shares* the group as soon as it has verified the other's proof. By then its own proof is queued ahead of all bodies,
so the proof always arrives before a body that depends on it. An answer is compared with the value computed at the offer,
because the group may have been forgotten meanwhile.
"""

from __future__ import annotations

import hmac
import struct
from functools import lru_cache
from typing import TYPE_CHECKING

from iris_py.link.events import GenerationClaimed
from iris_py.link.handshake import ProtocolError
from iris_py.link.lanes import GENERATION, SHARE
from iris_security.keyring import GROUP_ID_BYTES, KEY_ID_BYTES, PROOF_BYTES

if TYPE_CHECKING:
    from iris_py.link.lanes import Lanes
    from iris_security import GroupKeys, NetworkKeys

#: Largest number of groups proved on one link; bodies for further groups are encrypted under the group's key, as before a
#: proof. Twice the number of groups a node uses at once, because the groups in use change. Too small: bodies are encrypted
#: twice; too large: memory, 200 bytes for each group.
GROUPS_PROVEN_MAX = 4096

#: The body of a GENERATION frame: whether the frame is an answer, key id, proof.
CLAIM = struct.Struct(f">?{KEY_ID_BYTES}s{PROOF_BYTES}s")
#: The body of a SHARE frame: whether the frame is an answer, group id, proof.
SHARED = struct.Struct(f">?{GROUP_ID_BYTES}s{PROOF_BYTES}s")


@lru_cache(maxsize=8)
def _alone(generation: bytes) -> frozenset[bytes]:
    """Return the set of one generation, which nearly all links of a process share."""
    return frozenset((generation,))


class Proofs:
    """The proofs of further keys that both ends of a link have given each other, while the link is open.

    Attributes:
        generations: Key ids of the secret's generations the peer has proved to hold.
        shared: Ids of the groups whose key both ends have proved to hold.
    """

    __slots__ = ("_expected", "_handshake_hash", "_initiator", "_lanes", "generations", "shared")

    def __init__(self, lanes: Lanes, *, initiator: bool) -> None:
        self.generations: frozenset[bytes] = frozenset()
        self.shared: set[bytes] = set()
        self._lanes = lanes
        self._initiator = initiator
        self._handshake_hash = b""
        self._expected: dict[bytes, bytes] = {}  # by group id, for each group that this side has proved

    def begin(self, handshake_hash: bytes, generation: bytes) -> None:
        """Record the handshake, which proves one generation of the network's secret to both sides.

        Args:
            handshake_hash: The hash, known to both sides and unique to this link.
            generation: The key id of the generation used in the handshake.
        """
        self._handshake_hash = handshake_hash
        self.generations = _alone(generation)

    # -- generations

    def claim(self, keys: NetworkKeys, *, is_answer: bool = False) -> None:
        """Send the peer a proof that this side holds a generation of the network's secret."""
        proof = keys.prove(self._handshake_hash, initiator=self._initiator)
        self._lanes.add_signal(GENERATION, CLAIM.pack(is_answer, keys.key_id, proof))

    def accept_claim(self, keys: NetworkKeys, proof: bytes) -> bool:
        """Verify and record the peer's proof that it holds a generation of the secret; return whether the proof is valid."""
        if not keys.verify(self._handshake_hash, proof, initiator=not self._initiator):
            return False
        self.generations |= {keys.key_id}
        return True

    # -- groups

    def offer(self, keys: GroupKeys) -> None:
        """Offer the peer a proof that this side holds the key of a group; harmless if repeated."""
        if keys.group_id not in self._expected and len(self._expected) < GROUPS_PROVEN_MAX:
            self._expected[keys.group_id] = self._proof_of_peer(keys)
            self._show(keys, is_answer=False)

    def receive_share(self, body: bytes, keys: GroupKeys | None) -> bool:
        """Handle the peer's proof that it holds a group's key. Send this side's proof, unless the frame was an answer.

        Returns whether both sides have now proved to hold the key.

        Args:
            body: The body of the frame, of the right size.
            keys: The keys of its group; None if unknown.
        """
        is_answer, group, proof = SHARED.unpack(body)
        expected = self._expected.get(group)
        if is_answer:
            if expected is None or not hmac.compare_digest(expected, proof):
                return False
            self.shared.add(group)
        elif group not in self.shared:  # otherwise a peer that repeats offers and never reads would fill the lane with answers
            if keys is None or (expected is None and len(self._expected) >= GROUPS_PROVEN_MAX):
                return False
            expected = expected or self._proof_of_peer(keys)
            if not hmac.compare_digest(expected, proof):
                return False
            self._expected[group] = expected
            self.shared.add(group)
            self._show(keys, is_answer=True)
        return True

    def _proof_of_peer(self, keys: GroupKeys) -> bytes:
        return keys.prove(self._handshake_hash, initiator=not self._initiator)

    def _show(self, keys: GroupKeys, *, is_answer: bool) -> None:
        proof = keys.prove(self._handshake_hash, initiator=self._initiator)
        self._lanes.add_signal(SHARE, SHARED.pack(is_answer, keys.group_id, proof))


def read_claim(body: bytes) -> GenerationClaimed:
    """Read a GENERATION frame.

    Raises:
        ProtocolError: The frame is malformed.
    """
    if len(body) != CLAIM.size:
        raise ProtocolError("a malformed claim")
    is_answer, key_id, proof = CLAIM.unpack(body)
    return GenerationClaimed(key_id, proof, is_answer)


def group_of_share(body: bytes) -> bytes:
    """Return the id of the group in a SHARE frame.

    Raises:
        ProtocolError: The frame is malformed.
    """
    if len(body) != SHARED.size:
        raise ProtocolError("a malformed proof")
    group: bytes = SHARED.unpack(body)[1]
    return group
