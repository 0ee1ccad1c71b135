"""Questions of nodes about each other and their answers, encrypted for the ring (docs/design.md 16.2).

They use the keys of the name ``iris.nodes``, which has no members: the network's keys unless the settings give the name its own
secret. They go through the ring, or over an existing link: a question neither opens a link nor keeps one.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import msgspec

from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_py.wire.names import NODES
from iris_py.wire.packets import STATUS
from iris_security import AuthenticationError, GroupOpener, GroupSealer, ReplayError, unicast_associated

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_overlay.overlay import Overlay
    from iris_security import GroupKeys, Keyring

#: kind, group, nonce: the head before the encrypted body
HEAD: Final = struct.Struct(">B16s12s")
#: whether it is an answer, number of the question: the head of the body
BODY: Final = struct.Struct(">BQ")


class NodeAsked(msgspec.Struct):
    """Another node asks about the local node."""

    asker: NodeInfo
    number: int
    question: bytes


class NodeAnswered(msgspec.Struct):
    """A node answers a question, perhaps of the local node."""

    source: NodeId
    number: int
    answer: bytes


class _Generation:
    """The keys of one generation of the secret."""

    def __init__(self, keys: GroupKeys, local: NodeId, epoch: int) -> None:
        self.id = keys.group_id
        self.sealer = GroupSealer(keys, local, epoch)
        self.opener = GroupOpener(keys)


class Questions:
    """The questions of a node about other nodes, and its answers to theirs.

    Args:
        advance: Handles the overlay's output.
        emit: Receives questions and answers.
    """

    def __init__(
        self,
        local: NodeId,
        keyring: Keyring,
        overlay: Overlay,
        advance: Callable[[float], None],
        emit: Callable[[NodeAsked | NodeAnswered], None],
        count_drop: Callable[[str], object],
    ) -> None:
        self._local = local
        self._overlay = overlay
        self._advance = advance
        self._emit = emit
        self._count_drop = count_drop
        self._epoch = 0  # at least the last epoch used for encryption
        self._generations: dict[bytes, _Generation] = {}
        self.rekey(keyring)

    def rekey(self, keyring: Keyring) -> None:
        """Use a new keyring."""
        self._epoch = max([self._epoch, *(each.sealer.epoch for each in self._generations.values())])
        kept: dict[bytes, _Generation] = {}
        for keys in keyring.internal(NODES):
            known = self._generations.get(keys.group_id)
            if known is None:
                self._epoch += 1
                known = _Generation(keys, self._local, self._epoch)
            kept[keys.group_id] = known
        self._generations = kept

    def ask(self, node: NodeInfo, number: int, question: bytes, now: float) -> None:
        """Ask a node; ``NodeAnswered`` follows unless the question or its answer is lost.

        Args:
            node: The node, possibly this one.
            number: A random number below 2^63, which only the asked node learns.
        """
        self._send(node, False, number, question, now)

    def answer(self, asker: NodeInfo, number: int, answer: bytes, now: float) -> None:
        """Answer the question with this number."""
        self._send(asker, True, number, answer, now)

    def find_root(self, key: bytes, number: int, now: float) -> None:
        """Ask for the root of a key; see :meth:`iris_overlay.overlay.Overlay.find_root`."""
        self._overlay.find_root(key, number, now)
        self._advance(now)

    def _send(self, to: NodeInfo, is_answer: bool, number: int, content: bytes, now: float) -> None:
        generation = next(iter(self._generations.values()))
        associated = unicast_associated(generation.id, self._local, to.id)
        nonce, sealed = generation.sealer.seal(BODY.pack(is_answer, number) + content, associated)
        self._overlay.send(to, HEAD.pack(STATUS, generation.id, nonce) + sealed, now)
        self._advance(now)

    def receive(self, source: NodeInfo, packet: bytes) -> None:
        """Handle a ``STATUS`` packet from an authenticated sender."""
        if len(packet) < HEAD.size:
            self._count_drop("malformed")
            return
        _kind, group, nonce = HEAD.unpack_from(packet)
        generation = self._generations.get(group)
        if generation is None:
            self._count_drop("unknown_group")
            return
        associated = unicast_associated(generation.id, source.id, self._local)
        try:
            body = generation.opener.open(source.id, nonce, memoryview(packet)[HEAD.size :], associated)
        except ReplayError:
            self._count_drop("replayed")
        except AuthenticationError:
            self._count_drop("unauthentic")
        else:
            if len(body) < BODY.size:
                self._count_drop("malformed")
                return
            is_answer, number = BODY.unpack_from(body)
            content = body[BODY.size :]
            self._emit(NodeAnswered(source.id, number, content) if is_answer else NodeAsked(source, number, content))
