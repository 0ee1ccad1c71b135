"""One whole node with links to two insiders, who say valid messages of every kind, while its application uses every pattern."""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING, Any, Final, get_args

import msgspec

from iris_overlay.detector.messages import decode_detector_message, is_detector_message
from iris_overlay.groups.entries import checksum, count, pack
from iris_overlay.groups.messages import (
    CastDown,
    CastUp,
    Claim,
    EntryRow,
    GroupMessage,
    GroupRegistration,
    MemberRecord,
    Register,
    TablePart,
    View,
    Watch,
    cast_part,
    encode_group_message,
    member_part,
    user_part,
)
from iris_overlay.ids import GroupId, NodeId
from iris_overlay.node_info import NodeInfo, decode_beacon
from iris_overlay.peers.dial_back import PACKET
from iris_overlay.ring.messages import Direct, LeafAck, Returned, RingMessage, Routed, encode_ring_message
from iris_py.errors import IrisError
from iris_py.link.lanes import TUNNEL, TUNNEL_SEALED
from iris_py.link.link import LinkState
from iris_py.node.core import NodeCore
from iris_py.patterns.request.pending import RequestSpec
from iris_py.patterns.request.registration import Registration, RequestsStarted
from iris_py.patterns.request.retry import retry_of
from iris_py.patterns.topic.names import parse_pattern
from iris_py.patterns.topic.queue import POLICIES, SubscriptionQueue
from iris_py.patterns.topic.shapes import EntryHasher
from iris_py.patterns.tunnel.table import TunnelOpened, TunnelStarted
from iris_py.testing.cores.pair import BUDGET_BYTES, End
from iris_py.wire import packets
from iris_py.wire.cast_pieces import PIECE, cut
from iris_py.wire.flows import MatchesBefore, encode_flow
from iris_py.wire.headers import HEAD_SIZE, NO_HEADERS, encode_headers, put_headers
from iris_py.wire.imported import ImportedHead
from iris_security import Identity, Keyring, Secret
from tests.fuzz.insider import Insider
from tests.fuzz.oracles import Memory, Turn, is_weighed
from tests.fuzz.source import Source
from tests.fuzz.target import Kind, Target
from tests.fuzz.values import Values

if TYPE_CHECKING:
    from iris_py.patterns.request.registration import Execution
    from iris_py.patterns.tunnel.end import TunnelEnd

STEPS_MAX: Final = 60
#: Exchanges between the node and its peers after which neither has anything left to say.
EXCHANGES_MAX: Final = 200
#: Timers of one pause: more, and they come due for ever.
TIMERS_MAX: Final = 2000
KEYRING = Keyring(Secret(bytes(range(32))), network="test")
CLUSTERS, TOPICS = ("cluster", "other"), ("a", "a.b")
KEYS = [*map(KEYRING.cluster, CLUSTERS), KEYRING.realm()]
GROUPS = [GroupId(keys.group_id) for keys in KEYS]
REALM = GROUPS[-1]
HONEST = Identity(b"\x64" * 32)
HEADERS = (b"", encode_headers({"name": "value"}).encoded)
#: The names of other clouds, and what is none.
CLOUDS = ("eu", "asia-1", "", "-")
U64, U32, U16 = (1 << 64) - 1, (1 << 32) - 1, (1 << 16) - 1
TUNNEL_FRAME = struct.Struct(">BI")
GROUP_MESSAGES, RING_MESSAGES = get_args(GroupMessage), get_args(RingMessage)


def _distance(one: bytes, other: bytes) -> int:
    apart = abs(int.from_bytes(one, "big") - int.from_bytes(other, "big"))
    return min(apart, (1 << 128) - apart)


class World:
    """A node, the application on it, and two insiders."""

    def __init__(self) -> None:
        self.now = 1.0
        self.turn = Turn()
        rng = random.Random(1)
        info = NodeInfo(NodeId(HONEST.node_id), ("198.51.100.100:7000",))
        self.core = NodeCore(info, HONEST, KEYRING, rng=rng, entropy=rng.randbytes)
        self.core.start(self.now, (), (), beacons=False, complete=True)
        self.insiders = [Insider(number, KEYRING, KEYS, info.id, self.now) for number in (1, 2)]
        self.ends: dict[Insider, End | None] = dict.fromkeys(self.insiders)
        self.values = Values([*(insider.info for insider in self.insiders), info, NodeInfo(NodeId(b"?" * 16), ())], GROUPS)
        self.registrations: list[Registration] = []
        self.running: list[Execution] = []
        self.tunnels: list[TunnelEnd] = []
        self.queues: list[SubscriptionQueue] = []
        self.asked: list[int] = []
        self.told = 0
        for insider in self.insiders:
            self.connect(insider)
        self.begin()

    def begin(self) -> None:
        """Let the node serve and subscribe, and know the insiders as members: there is something to talk about."""
        for name in CLUSTERS:
            registration = Registration(self.core.group(name, self.now), 2, 2, 1000)
            registration.tunnels, registration.window_bytes = 2, 1 << 16
            self.registrations.append(registration)
        self.core.join(self.registrations[0], self.now)
        self.core.join(self.registrations[1], self.now)
        tokens = parse_pattern("a.>")
        queue = SubscriptionQueue(tokens, "a.>", "block", 20, 10_000, is_counted=True)
        self.core.subscribe(queue, self.now)
        self.queues.append(queue)
        self.exchange()
        for group in GROUPS:
            self.tell_members(group, Source(b""))
        self.exchange()

    # -- moving bytes

    def connect(self, insider: Insider) -> None:
        """Let an insider dial, and become a neighbour."""
        link = self.core.accepted("198.51.100.1", self.now)
        if link is None:
            return
        if insider.end.link.state is LinkState.CLOSED:
            insider.dial(self.now)
        self.ends[insider] = End(link)
        self.exchange()
        insider.end.link.send_control(encode_ring_message(LeafAck(insider.info, [], True, True)))
        self.exchange()

    def exchange(self) -> None:
        """Carry bytes until nobody has anything to say; each turn of the node is measured."""
        for _ in range(EXCHANGES_MAX):
            with self.turn:
                self.core.flush(self.now)
            links = dict.fromkeys(self.core.links_to_flush())
            moved = False
            for insider, end in self.ends.items():
                if end is not None:
                    moved |= self.carry(insider, end, end.link in links)
            for _to, data in self.core.datagrams.seal([]) or self.core.overlay.datagrams_to_send():
                decode_detector_message(data) if is_detector_message(data) else decode_beacon(data)
            self.take_events()
            if not moved and not self.core.has_output():
                return
        raise AssertionError("the node and its peers do not come to rest")

    def carry(self, insider: Insider, end: End, is_touched: bool) -> bool:
        """Carry bytes between an insider and its end at the node; returns whether any moved."""
        moved = False
        out = b"".join(insider.end.link.data_to_send(BUDGET_BYTES))
        if out:
            moved = True
            self.told += len(out)
            with self.turn:
                end.receive(out, self.now)
                self.core.link_received(end.link, self.now)
        data = b"".join(end.link.data_to_send(BUDGET_BYTES)) if is_touched or moved else b""
        if data:
            moved = True
            insider.end.receive(data, self.now)
        insider.take(self.now)
        if end.link.state is LinkState.CLOSED or insider.end.link.state is LinkState.CLOSED:
            if end.link.state is not LinkState.CLOSED:
                end.receive(None, self.now)
            self.core.link_received(end.link, self.now)
            insider.end.link.abort("the other end has closed it")
            self.ends[insider] = None
            moved = True
        return moved

    def take_events(self) -> None:
        """Do what the application does with what the node tells."""
        self.core.outcomes_received()
        for event in self.core.events_received():
            if isinstance(event, RequestsStarted):
                self.running += event.executions
            elif isinstance(event, TunnelStarted | TunnelOpened):
                self.tunnels.append(event.end)
        self.core.deadline()

    def wait(self, pause_s: float) -> None:
        """Let time pass."""
        until = self.now + pause_s
        for _ in range(TIMERS_MAX):
            due = self.core.deadline()
            if due is None or due > until:
                self.now = until
                return
            self.now = max(self.now, due)
            with self.turn:
                self.core.handle_timeout(self.now)
            self.exchange()
        raise AssertionError("timers come due for ever")

    # -- what happens

    def step(self, source: Source) -> None:
        """Let the next thing happen."""
        choice = source.byte()
        insider = source.choose(self.insiders)
        if choice < 32:
            self.use(source)
        elif choice < 56:
            self.wait(source.pause())
        elif choice < 60:
            self.link(insider, source)
        elif self.ends[insider] is None:
            self.connect(insider)
        elif choice < 160:
            self.send_body(insider, source)
        elif choice < 200:
            message = self.values.message(source.choose(GROUP_MESSAGES), source)
            self.send_control(insider, Direct(insider.info, encode_group_message(self.permitted(insider, message))))
        elif choice < 216:
            self.send_ring(insider, source)
        elif choice < 228:
            self.send_cast(insider, source)
        elif choice < 236:
            self.tell_members(source.choose(GROUPS), source)
        else:
            self.send_chunk(insider, source)
        self.exchange()

    def root_of(self, group: GroupId) -> Insider | None:
        """Return the insider that is the root of a group; None if it is the node."""
        ids = {each.info.id: each for each in self.insiders}
        nearest = min([HONEST.node_id, *ids], key=lambda id_: _distance(id_, group))
        return ids.get(NodeId(nearest))

    def link(self, insider: Insider, source: Source) -> None:
        """Close a link in some way, or open another one."""
        end, choice = self.ends[insider], source.byte() % 3
        if end is None:
            self.connect(insider)
        elif choice == 0:
            end.receive(None, self.now)
            self.core.link_received(end.link, self.now)
        elif choice == 1:
            insider.end.link.abort("it wants so")
        else:
            self.core.handle_resumption(self.now)

    def send_body(self, insider: Insider, source: Source) -> None:
        """Send messages between patterns: over the link, or as if through the ring."""
        group, way = source.choose(GROUPS), source.byte()
        body = b"".join(self.message(insider, group, source) for _ in range(1 + way % 3))
        if source.byte() < 224:
            body = encode_flow(source.number(0, U64), source.number(0, U32)) + body
        if way & 7 == 7:
            body += source.blob()
        if way < 192:
            insider.send_body(group, body, self.now, is_multicast=bool(way & 8))
            return
        kind, nonce, sealed = insider.seal(group, body, is_multicast=bool(way & 8))
        sent_at = int(self.now * 1000) if source.flag() else source.number(0, U64)
        routed = packets.encode_routed(kind, group, nonce, sealed, sent_at)
        self.send_control(insider, Direct(insider.info, PACKET + routed))

    def message(self, insider: Insider, group: GroupId, source: Source) -> bytes:
        """Return a message of some kind, with an id that the node may know."""
        kind = source.byte() % (packets.KINDS + 1)
        id_ = source.choose(insider.heard) if insider.heard and source.flag() else source.number(0, U64)
        flags, head, argument = 0, b"", source.number(0, U32)
        payload = source.blob()
        if kind in packets.PUBLICATIONS:
            flags, head, payload = self.publication(source, payload, is_imported=kind == packets.IMPORTED)
        elif kind in packets.WITH_HEADERS:
            head = source.choose((*HEADERS, source.raw(source.byte() % 16)))
        if kind == packets.REQUEST_ONCE:
            payload = source.raw(1) * packets.IDENTITY_BYTES + payload
        elif kind == packets.TUNNEL_OPEN and source.flag():
            id_ %= 1 << 63
            payload = insider.offer(group, id_, source.number(0, U64))
        elif kind == packets.COUNT and source.flag():
            entry = self.queues[0].entry.hashed.get(group) if self.queues else None
            return MatchesBefore(0 if entry is None else entry.tag, source.number(0, U64), 0, id_).encode()
        elif kind == packets.FAILURE and source.flag():
            payload = packets.encode_failure_of("Error", "text")
        return packets.MESSAGE.pack(kind, flags, len(head), len(payload), id_, argument) + head + payload

    def publication(self, source: Source, payload: bytes, *, is_imported: bool) -> tuple[int, bytes, bytes]:
        """Return flags, head and payload of a publication."""
        flags = source.byte() & 15
        head = source.choose(TOPICS).encode() if source.byte() < 240 else source.blob()
        if flags & packets.EACH_HEADED:
            payload = put_headers(source.choose(HEADERS), payload)
        if flags & packets.HEADED:
            headers = source.choose(HEADERS)
            head = HEAD_SIZE.pack(len(headers)) + headers + head
        if is_imported:
            origin, number, missed = source.raw(1) * 16, source.number(0, U64), source.number(0, U64)
            head = ImportedHead(origin, bytes(4), number, missed, source.choose(CLOUDS)).encode() + head
        if flags & packets.RUN:
            count = source.number(0, 65535) % 3000
            payload = packets.RUN_COUNT.pack(count) + struct.pack(f">{count}I", *([len(payload)] * count)) + payload * count
        return flags, head[:U16], payload[: packets.SHARED_BODY_BYTES_MAX]

    def permitted(self, insider: Insider, message: Any) -> Any:
        """Return a message as an insider makes it, who speaks for itself and has the keys of the groups."""
        mine = insider.info
        if isinstance(message, Register):
            items = []
            for item in message.items:
                attributes = insider.attributes(item.group, item.attributes[:2])
                registration = GroupRegistration(item.group, attributes, item.stamp, b"", item.since)
                permit = insider.permit(item.group, member_part(registration, mine.id))
                items.append(msgspec.structs.replace(registration, permit=permit))
            return Register(mine, items)
        if isinstance(message, Watch):
            watched = [(group, version, insider.permit(group, user_part(mine.id))) for group, version, _ in message.items]
            return Watch(mine, message.stamp, watched)
        if isinstance(message, CastUp):
            signature = insider.sign(cast_part(message.group, message.sequence, message.at, message.payload))
            permit = insider.permit(message.group, user_part(mine.id))
            return msgspec.structs.replace(message, info=mine, signature=signature, permit=permit)
        return message

    def send_ring(self, insider: Insider, source: Source) -> None:
        """Send a message of the ring, signed where the insider is its source."""
        message = self.values.message(source.choose(RING_MESSAGES), source)
        if isinstance(message, Routed | Returned) and message.source.id == insider.info.id:
            message = insider.signed(message)
        self.send_control(insider, message)

    def send_cast(self, insider: Insider, source: Source) -> None:
        """Cast a body, or a piece of one, down the tree of a group."""
        group = source.choose(GROUPS)
        nonce, sealed = insider.seal_cast(group, self.message(insider, group, source))
        piece = cut(nonce, sealed)[0]
        if source.flag():
            piece = PIECE.pack(source.number(0, 65535), source.number(0, 65535), nonce) + sealed
        sequence, at = source.number(0, (1 << 63) - 1), source.number(0, (1 << 63) - 1)
        signature = insider.sign(cast_part(group, sequence, at, piece))
        base = source.number(0, (1 << 63) - 1)
        cast = CastDown(group, insider.info.id, sequence, source.flag(), base, piece, signature, at)
        self.send_control(insider, Direct(insider.info, encode_group_message(cast)))

    def tell_members(self, group: GroupId, source: Source) -> None:
        """Let the node know that the insiders are members of a group: from them if it is the root, from the root otherwise."""
        root, stamp = self.root_of(group), 1 + source.number(0, (1 << 63) - 2)
        records = []
        for insider in self.insiders:
            record = MemberRecord(insider.info, insider.attributes(group, source.raw(2) if source.flag() else b""), stamp)
            permit = insider.permit(group, member_part(record, insider.info.id))
            record = msgspec.structs.replace(record, permit=permit)
            if group == REALM:
                self.tell_entries(insider, record, root)
                continue
            records.append(record)
            if root is None:
                registration = GroupRegistration(group, record.attributes, stamp, permit)
                register = Register(insider.info, [registration])
                self.send_control(insider, Direct(insider.info, encode_group_message(register)))
        if root is not None and records:
            version, size = 1 + source.number(0, (1 << 63) - 2), 2 + source.number(0, (1 << 63) - 3)
            view = View(root.info, group, version, size, not source.flag(), records)
            self.send_control(root, Direct(root.info, encode_group_message(view)))

    def tell_entries(self, insider: Insider, record: MemberRecord, root: Insider | None) -> None:
        """Let the node know entries of an insider in the table of interest: by a claim if it is the root, or as the root."""
        hasher = EntryHasher(KEYRING.realm().interest_key())
        counted = hasher.entry(parse_pattern("a.*"), is_counted=True)
        entries = pack([counted, *[hasher.entry(parse_pattern(pattern)) for pattern in ("a.b", "a.>", ">")]])
        if root is None:
            claim = Claim(
                insider.info,
                REALM,
                record.attributes,
                record.stamp,
                record.permit,
                0,
                count(entries),
                checksum(entries),
                entries,
            )
            self.send_control(insider, Direct(insider.info, encode_group_message(claim)))
            return
        row = EntryRow(insider.info.id, 0, record.stamp, entries, b"")
        part = TablePart(root.info, REALM, 0, record.stamp, 1, True, 0, 1, [record], [row], [])
        self.send_control(root, Direct(root.info, encode_group_message(part)))

    def send_control(self, insider: Insider, message: RingMessage) -> None:
        """Send a message of the ring over the link."""
        insider.end.link.send_control(encode_ring_message(message))

    def send_chunk(self, insider: Insider, source: Source) -> None:
        """Send a chunk of a tunnel: authentic if there is one, with frames that may be none."""
        link = insider.end.link
        if not insider.tunnels:
            kind, chunk = source.choose((TUNNEL, TUNNEL_SEALED)), bytes(16) + source.blob()
            link.send_tunnel(kind, source.number(0, U64).to_bytes(8, "big"), (chunk,), len(chunk), self.now)
            return
        tunnel = source.choose(list(insider.tunnels.values()))
        frames = []
        for _ in range(1 + source.byte() % 3):
            kind = source.byte() % 7
            body = source.number(0, U64).to_bytes(8, "big") if kind in (2, 4) else source.blob()[:20_000]
            frames.append(TUNNEL_FRAME.pack(kind, len(body)) + body)
        if source.byte() < 8:
            frames.append(source.blob())
        kind, chunk = TUNNEL, b"".join(frames)
        if source.flag():
            kind, chunk = TUNNEL_SEALED, tunnel.sealer.seal(chunk)
        link.send_tunnel(kind, tunnel.chunks_id.to_bytes(8, "big"), (chunk,), len(chunk), self.now)

    # -- the application

    def use(self, source: Source) -> None:
        """Let the application do something; it is told when it may not."""
        try:
            USES[source.byte() % len(USES)](self, source)
        except IrisError:
            return

    def join(self, source: Source) -> None:
        group = self.core.group(source.choose(CLUSTERS), self.now)
        if len(self.registrations) < 4:
            registration = Registration(group, 1 + source.byte() % 3, source.byte() % 4, 1000)
            registration.tunnels, registration.window_bytes = source.byte() % 3, 1 << 16
            self.core.join(registration, self.now)
            self.registrations.append(registration)

    def leave(self, source: Source) -> None:
        if self.registrations:
            registration = self.registrations.pop(source.byte() % len(self.registrations))
            self.core.leave(registration, self.now)
            self.core.close_registration(registration, self.now)

    def request(self, source: Source) -> None:
        key = b"key" if source.flag() else None
        cluster, timeout_s, retry = source.choose(CLUSTERS), 0.1 + source.pause(), retry_of(idempotent=source.flag())
        identity = b"" if key is None and retry is None else self.core.identity_of(cluster, key)
        spec = RequestSpec(source.blob(), timeout_s, retry, identity, is_anchored=key is not None, waits=True)
        self.asked.append(self.core.request(cluster, spec, None, self.now))

    def survey(self, source: Source) -> None:
        stop_after = 1 if source.flag() else None
        self.core.survey(source.choose(CLUSTERS), b"question", 0.1 + source.pause(), stop_after, None, self.now, NO_HEADERS)

    def broadcast(self, source: Source) -> None:
        self.core.broadcast(source.choose(CLUSTERS), source.blob(), self.now)

    def publish(self, source: Source) -> None:
        self.core.publish(source.choose(TOPICS), source.blob(), self.now)

    def subscribe(self, source: Source) -> None:
        if len(self.queues) < 4:
            name, policy = source.choose(("a", "a.*", "a.>", ">")), source.choose(POLICIES)
            tokens = parse_pattern(name)
            queue = SubscriptionQueue(tokens, name, policy, 1 + source.byte(), 10_000, is_counted=source.flag())
            self.core.subscribe(queue, self.now)
            self.queues.append(queue)

    def unsubscribe(self, source: Source) -> None:
        if self.queues:
            self.core.unsubscribe(self.queues.pop(source.byte() % len(self.queues)), self.now)

    def read(self, source: Source) -> None:
        if self.queues:
            queue = source.choose(self.queues)
            queue.take()
            self.core.pubsub.deliveries.drained(queue, self.now)

    def open_tunnel(self, source: Source) -> None:
        self.core.open_tunnel(source.choose(CLUSTERS), 0.1 + source.pause(), 1 << 16, None, self.now)

    def answer(self, source: Source) -> None:
        if self.running:
            execution = self.running.pop(source.byte() % len(self.running))
            if source.flag():
                self.core.service.reply(execution, source.blob(), self.now)
            else:
                self.core.service.fail(execution, ValueError("no"), self.now)

    def pass_tunnel(self, source: Source) -> None:
        if self.tunnels:
            end, choice = source.choose(self.tunnels), source.byte() % 5
            if choice == 0 and not end.is_ended and end.failure is None:
                end.write(source.blob()[: max(0, end.credit - 64)], is_last=True)
            elif choice == 1:
                end.end()
            elif choice == 2:
                end.stop()
            else:
                end.take()

    def cancel(self, source: Source) -> None:
        if self.asked:
            self.core.requester.cancel(self.asked.pop(source.byte() % len(self.asked)))


USES = (
    *(World.join, World.leave, World.request, World.request, World.survey, World.broadcast, World.publish),
    *(World.subscribe, World.unsubscribe, World.read, World.open_tunnel, World.answer, World.pass_tunnel, World.cancel),
)


def run(data: bytes) -> None:
    """Let what the input says happen to a node."""
    source, world = Source(data), World()
    for _ in range(STEPS_MAX):
        if source.is_empty:
            break
        world.step(source)
    if is_weighed(data):
        Memory(world.core, world.insiders).check(world.told)


SEEDS = (
    bytes(range(256)),
    bytes(range(255, 0, -1)),
    # A member that is asked, a view, requests, surveys, publications and a tunnel each way.
    b"".join(bytes((0, 0, number)) + bytes(6) for number in range(len(USES))),
    b"\x00\x00\x00\x00\x01\x01\x02" + b"".join(bytes((60, 0, 0, 0, kind)) + bytes(14) for kind in range(packets.KINDS)),
)
TARGETS = (Target("node", run, Kind.NODE, SEEDS, 1500),)
