"""The proofs that both ends of a link give each other, of keys beside the one that the link began under.

Each proof is of the handshake of the link, so it is none on any other link.

**Generations** of the network's secret (docs/design.md 2.9): a link goes on while the peer has proved one that is accepted.

**Groups** (docs/design.md 4.7): where both ends have proved to hold the key of a group, bodies for it need no seal but that of
the records. An end that is about to send for a group offers its proof, once. A peer that holds the key too checks it and
answers with its own; one that does not hold it ignores it, and offers its own when it begins to use the group.
Each end *shares* the group as soon as it has checked the proof of the other, and by then its own is under way in front of
whatever it sends. So a body never comes before the proof that it is accepted for, whoever began. An answer is compared with
what was worked out when the offer was made: the group may have been forgotten meanwhile.
"""

from __future__ import annotations

import hmac
import struct
from typing import TYPE_CHECKING

from iris_py.link.lanes import GENERATION, SHARE
from iris_security.keyring import GROUP_ID_BYTES, KEY_ID_BYTES, PROOF_BYTES

if TYPE_CHECKING:
    from iris_py.link.lanes import Lanes
    from iris_security import GroupKeys, NetworkKeys

#: Groups with proofs on one link; bodies for those beyond it are sealed under the key of the group, as before a proof. Twice as
#: many as a node uses at once, for it may use ever new ones. Too small: a second seal; too large: memory, 200 bytes for each.
GROUPS_PROVEN_MAX = 4096

#: The body of a GENERATION frame: whether it answers one, key id, proof.
CLAIM = struct.Struct(f">?{KEY_ID_BYTES}s{PROOF_BYTES}s")
#: The body of a SHARE frame: whether it answers one, group, proof.
SHARED = struct.Struct(f">?{GROUP_ID_BYTES}s{PROOF_BYTES}s")


class Proofs:
    """The proofs of one link. Use it only while that is open.

    Args:
        lanes: Where frames wait.
        initiator: Whether this side dialled.

    Attributes:
        generations: The key ids of the generations of the secret that the peer has proved to hold.
        shared: The ids of the groups whose key both ends have proved to hold.
    """

    __slots__ = ("_expected", "_handshake_hash", "_initiator", "_lanes", "generations", "shared")

    def __init__(self, lanes: Lanes, *, initiator: bool) -> None:
        self.generations: set[bytes] = set()
        self.shared: set[bytes] = set()
        self._lanes = lanes
        self._initiator = initiator
        self._handshake_hash = b""
        self._expected: dict[bytes, bytes] = {}  # by group id, of all for which this side has shown its own

    def begin(self, handshake_hash: bytes, generation: bytes) -> None:
        """The handshake is over.

        Args:
            handshake_hash: Which both sides know, and of no other link.
            generation: The key id of the generation that it was made under.
        """
        self._handshake_hash = handshake_hash
        self.generations.add(generation)

    # -- generations

    def claim(self, keys: NetworkKeys, *, is_answer: bool = False) -> None:
        """Prove to the peer that this side holds a generation of the secret."""
        proof = keys.prove(self._handshake_hash, initiator=self._initiator)
        self._lanes.add_signal(GENERATION, CLAIM.pack(is_answer, keys.key_id, proof))

    def accept_claim(self, keys: NetworkKeys, proof: bytes) -> bool:
        """Tell whether the peer has proved that it holds a generation of the secret; if it has, that is remembered."""
        if not keys.verify(self._handshake_hash, proof, initiator=not self._initiator):
            return False
        self.generations.add(keys.key_id)
        return True

    # -- groups

    def offer(self, keys: GroupKeys) -> None:
        """Begin to prove to the peer that this side holds the key of a group; harmless if repeated."""
        if keys.group_id not in self._expected and len(self._expected) < GROUPS_PROVEN_MAX:
            self._expected[keys.group_id] = self._proof_of_peer(keys)
            self._show(keys, is_answer=False)

    def receive_share(self, body: bytes, keys: GroupKeys | None) -> bool:
        """Take a SHARE frame of the peer, and answer it if it is the first offer; returns whether the group is shared now.

        Args:
            body: Of the frame, of the right size.
            keys: The keys of its group; None if this side does not hold them, or not any more.
        """
        is_answer, group, proof = SHARED.unpack(body)
        expected = self._expected.get(group)
        if is_answer:
            if expected is None or not hmac.compare_digest(expected, proof):
                return False
            self.shared.add(group)
        elif group not in self.shared:  # or who offers and never reads would fill the lane with answers
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
