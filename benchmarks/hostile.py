"""Hostile records: for how long the largest record that a peer may send keeps a node busy, in one piece and in all.

The peer is inside the network, so its records open; it fills them with whatever costs the receiver most for each byte. The node
handles a record piece by piece, and what else waits has its turn in between when a piece has taken long (docs/design.md 3.10).
Both are in one process, without sockets: only the receiver's own work is measured. Then the attacks (`benchmarks/attacks.py`).
"""

from __future__ import annotations

import random
import struct
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from benchmarks import attacks
from benchmarks.harness import Sample, Section, Trial
from iris_overlay.groups.messages import BATCH_MAX, GroupRegistration, Register, encode_group_message, member_part
from iris_overlay.ids import GroupId, NodeId
from iris_overlay.node_info import NodeInfo
from iris_overlay.ring.messages import Direct, Routed, RoutedKind, encode_ring_message
from iris_py.link.lanes import CONTROL, FRAME, PACKET, PACKET_HEADER_BYTES, PING, UNICAST
from iris_py.link.link import RECORD_BYTES_MAX, Link
from iris_py.node.core import NodeCore
from iris_py.patterns.request.registration import Registration as Serving
from iris_py.testing.cores.pair import NodeCores
from iris_py.wire import packets
from iris_security import SIGNATURE_BYTES, Identity, Keyring, Secret

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from iris_py.peers.group import Group

#: The frames of a record, without its tag.
RECORD_BYTES: Final = RECORD_BYTES_MAX - 64
_LENGTH: Final = struct.Struct(">I")


class Pair:
    """A node, and a peer that has a link to it."""

    def __init__(self) -> None:
        self.cores = NodeCores()
        self.node, self.peer = (self._start(number) for number in (1, 2))
        self.node.join(Serving(self.node.group("cluster", 0.0), 1000, 1000), 0.0)
        self.group: Group = self.peer.group("cluster", 0.0)
        self.cores.drive()
        self.incoming, self.outgoing = self._link(self.node, self.peer), self._link(self.peer, self.node)

    def _start(self, number: int) -> NodeCore:
        rng, identity = random.Random(number), Identity(bytes((number,)) * 32)
        info = NodeInfo(NodeId(identity.node_id), (f"node:{number}",))
        keyring = Keyring(Secret(bytes(range(32))), network="benchmark")
        core = NodeCore(info, identity, keyring, rng=rng, entropy=rng.randbytes)
        self.cores.add(core, tuple(self.cores.nodes)[:1])
        return core

    @staticmethod
    def _link(core: NodeCore, peer: NodeCore) -> Link:
        found = core.peers.find(peer.info.id)
        assert found is not None
        assert found.link is not None
        return found.link

    def send(self, frames: bytes) -> tuple[float, float]:
        """Hand the node a record; return the seconds of the longest piece, and of all."""
        sealer = self.outgoing._sealer
        assert sealer is not None
        sealed = sealer.seal(frames)
        pieces: list[float] = []
        data, used = memoryview(_LENGTH.pack(len(sealed)) + sealed), 0
        while not pieces or self.incoming.has_unread:
            began = time.perf_counter()
            used += self.incoming.receive_data(data[used:], 0.0)
            self.node.link_received(self.incoming, 0.0)
            pieces.append(time.perf_counter() - began)
        return max(pieces), sum(pieces)


def section(*, quick: bool) -> Section:
    """Return the kinds of records, and the attacks."""
    size = RECORD_BYTES // 16 if quick else RECORD_BYTES
    trials = [Trial(name, partial(_measure, make, size)) for name, make in KINDS.items()]
    caption = (
        f"Records of {size // 1024} KiB of one peer inside the network. Then its attacks: what it sends, what that costs a "
        "node in memory and connections, and how long it takes until everything is whole."
    )
    return Section("hostile", caption, trials + attacks.trials(quick=quick))


def _measure(make: Callable[[Pair], Iterator[bytes]], size: int) -> Sequence[Sample]:
    pair = Pair()
    frames, filled = [], 0
    for frame in make(pair):
        if filled + len(frame) > size:
            break
        frames.append(frame)
        filled += len(frame)
    longest, whole = pair.send(b"".join(frames))
    return [Sample("longest piece", longest * 1e3, "ms"), Sample("all pieces", whole * 1e3, "ms")]


def _empty_control(pair: Pair) -> Iterator[bytes]:
    while True:
        yield FRAME.pack(CONTROL, 0)


def _pings(pair: Pair) -> Iterator[bytes]:
    while True:
        yield FRAME.pack(PING, 0)


def _packets_that_do_not_open(pair: Pair) -> Iterator[bytes]:
    while True:
        yield PACKET.pack(UNICAST, PACKET_HEADER_BYTES + 16, pair.group.id, bytes(12)) + bytes(16)


def _packet(pair: Pair, messages: int) -> bytes:
    peer = pair.peer.peers.find(pair.node.info.id)
    assert peer is not None
    channel = pair.group.channel(peer)
    channel.parts = [packets.MESSAGE.pack(packets.CANCEL, 0, 0, 0, number, 0) for number in range(messages)]
    nonce, sealed = pair.group.seal(channel)
    return PACKET.pack(UNICAST, PACKET_HEADER_BYTES + len(sealed), pair.group.id, nonce) + sealed


def _packets_of_one_message(pair: Pair) -> Iterator[bytes]:
    while True:
        yield _packet(pair, 1)


def _packets_full_of_messages(pair: Pair) -> Iterator[bytes]:
    while True:
        yield _packet(pair, packets.SHARED_BODY_BYTES_MAX // packets.MESSAGE_BYTES)


def _control(message: bytes) -> bytes:
    return FRAME.pack(CONTROL, len(message)) + message


def _signed_by_nobody(pair: Pair) -> Iterator[bytes]:
    """Yield messages through the ring whose signatures have to be checked to be refused."""
    source, number = pair.peer.info, 1_000_000
    while True:
        number += 1
        key, path, signature = bytes(pair.node.info.id), (source.id,), bytes(SIGNATURE_BYTES)
        routed = Routed(number, RoutedKind.PAYLOAD, key, source, number, path, (), b"", [], signature)
        yield _control(encode_ring_message(routed))


def _registrations(pair: Pair) -> Iterator[bytes]:
    """Yield registrations in groups of the node's own part of the ring, each with a permit of another group."""
    peer, number = pair.peer.info, 0
    base = int.from_bytes(pair.node.info.id, "big")
    while True:
        items = []
        for _ in range(BATCH_MAX):
            number += 1
            group = GroupId((base ^ number).to_bytes(16, "big"))
            said = GroupRegistration(group, b"", number)
            permit = pair.group.keys.permit(member_part(said, peer.id))
            items.append(GroupRegistration(group, b"", number, permit))
        yield _control(encode_ring_message(Direct(peer, encode_group_message(Register(peer, items)))))


KINDS: Final = {
    "empty messages of the overlay": _empty_control,
    "pings": _pings,
    "packets that do not open": _packets_that_do_not_open,
    "packets of one message": _packets_of_one_message,
    "packets full of messages": _packets_full_of_messages,
    "wrong signatures": _signed_by_nobody,
    "registrations without permits": _registrations,
}
