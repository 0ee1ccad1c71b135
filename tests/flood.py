"""Well-formed messages without end: every kind of the overlay, with ever new nodes, groups and numbers, as insiders make."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

from msgspec.structs import replace

from iris_overlay.detector.messages import Ack, Ping, PingRequest, encode_detector_message, pack_address
from iris_overlay.events import DialRequested, LinkReleased, ProtocolViolated
from iris_overlay.groups.messages import (
    BATCH_MAX,
    FANOUT_MAX,
    CastDown,
    CastUp,
    Change,
    Children,
    Copy,
    Doubt,
    Drop,
    Entrust,
    GroupMessage,
    GroupRegistration,
    MemberRecord,
    Register,
    Unregister,
    Unwatch,
    View,
    Watch,
    cast_part,
    encode_group_message,
    member_part,
    user_part,
)
from iris_overlay.ids import GroupId, NodeId
from iris_overlay.node_info import NodeInfo, encode_beacon
from iris_overlay.peers.dial_back import DIAL_BACK
from iris_overlay.ring.messages import (
    Direct,
    JoinAnswer,
    LeafAck,
    LeafProbe,
    Leaving,
    RingMessage,
    Routed,
    RoutedKind,
    encode_ring_message,
)
from iris_py.testing.cores.signer import NamedSigner, signed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from iris_overlay.overlay import Overlay

GROUP_KINDS = get_args(GroupMessage)
#: What may come through the ring in the name of any node.
RELAYED_KINDS = (Direct, LeafProbe, LeafAck, JoinAnswer, Leaving)
#: The kinds that are made by hand, for they carry others or are signed.
BY_HAND = (Direct, Routed)
RING_KINDS = tuple(kind for kind in get_args(RingMessage) if kind not in BY_HAND)


class Insider:
    """Makes messages.

    Args:
        seed: What everything random follows from.
        known: Nodes that there are.
        groups: Groups that the flooded node has to do with.
    """

    def __init__(self, seed: int, known: list[NodeInfo], groups: list[GroupId]) -> None:
        self.rng = random.Random(seed)
        self.known = known
        self.groups = groups
        self.recent: list[NodeInfo] = list(known)
        self.number = 0

    def node(self) -> NodeInfo:
        """Return a node that was never heard of, or one of the last that were."""
        if self.rng.random() < 0.4:
            return self.rng.choice(self.recent)
        node = NodeId(self.rng.randbytes(16))
        # Every other one cannot be dialled.
        addresses = (f"198.51.{node[0]}.{node[1] | 1}:7000",) if node[2] % 2 else ()
        self.recent = [*self.recent[-20:], NodeInfo(node, addresses)]
        return self.recent[-1]

    def group(self) -> GroupId:
        """Return a group that the node has to do with, or any."""
        return self.rng.choice(self.groups) if self.rng.random() < 0.6 else GroupId(self.rng.randbytes(16))

    def next_number(self) -> int:
        """Return a number that was never used, or a small one."""
        self.number += self.rng.randrange(1, 4)
        return self.number if self.rng.random() < 0.7 else self.rng.randrange(4)

    def group_message(self, source: NodeInfo) -> Any:
        """Return a message of groups that a node may send."""
        message = self._struct(self.rng.choice(GROUP_KINDS))
        fields = type(message).__struct_fields__
        spoken: dict[str, Any] = {name: source for name in ("info", "root") if name in fields}
        if isinstance(message, Unwatch):
            spoken["node"] = source.id
        return self._genuine(replace(message, **spoken))

    def ring_message(self, source: NodeInfo, kinds: tuple[Any, ...]) -> Any:
        """Return a message of the ring that a node may send."""
        kind = self.rng.choice(kinds)
        if kind is Direct:
            return Direct(source, encode_group_message(self.group_message(source)))
        message = self._struct(kind)
        return replace(message, info=source) if "info" in kind.__struct_fields__ else message

    def routed(self, via: NodeInfo, source: NodeInfo, to: NodeId | None) -> Routed:
        """Return a message that a node passes on: to a node, in the name of another one; or to the root of a group."""
        self.number += 1
        if to is not None:
            payload = encode_ring_message(self.ring_message(source, RELAYED_KINDS))
            kind, key = RoutedKind.RELAY, bytes(to)
        else:
            message = self.group_message(source)
            payload, key = encode_group_message(message), bytes(getattr(message, "group", None) or self.group())
            kind = self.rng.choice([RoutedKind.PAYLOAD] * 8 + [RoutedKind.JOIN, RoutedKind.SEEK])
        path = (source.id, via.id) if source.id != via.id else (via.id,)
        return signed(Routed(self.number, kind, key, source, self.number, path, (), payload))

    def _struct(self, kind: Any) -> Any:
        hints = get_type_hints(kind, include_extras=True)
        return kind(**{name: self._value(hints[name], name) for name in kind.__struct_fields__})

    def _value(self, annotation: Any, name: str, bounds: Any = None) -> Any:
        origin, arguments = get_origin(annotation), get_args(annotation)
        if origin is Annotated:
            return self._value(arguments[0], name, arguments[1])
        if annotation is NodeInfo:
            return self.node()
        if annotation is NodeId or (annotation is bytes and name in ("node", "to")):
            return self.node().id
        if annotation is GroupId or (annotation is bytes and bounds is not None and bounds.min_length == 16):
            return self.group()
        if annotation is RoutedKind:
            return self.rng.choice(list(RoutedKind))
        if annotation is bool:
            return self.rng.random() < 0.5
        if annotation is int:
            number = self.next_number()
            low = (bounds.ge or 0) if bounds is not None else 0
            high = None if bounds is None else bounds.le if bounds.le is not None else bounds.lt and bounds.lt - 1
            return max(low, number if high is None else min(number, high))
        if annotation is bytes:
            return self.rng.randbytes(8)
        if origin is tuple and arguments[-1] is not Ellipsis:
            return tuple(self._value(each, name) for each in arguments)
        if origin in (list, tuple):
            most = min(16, bounds.max_length or 16) if bounds is not None else 16
            least = (bounds.min_length or 0) if bounds is not None else 0
            return origin(self._value(arguments[0], name) for _ in range(self.rng.randrange(least, most + 1)))
        return self._struct(annotation)

    def _genuine(self, message: Any) -> Any:
        """Return a message with the permits and signatures that whoever is in the groups can make."""
        if isinstance(message, Register):
            items = [self._permitted(item, item.group, message.info.id) for item in message.items]
            return Register(message.info, items)
        if isinstance(message, Watch):
            signer = NamedSigner(message.info.id)
            items = [(group, version, signer.permit(group, user_part(message.info.id))) for group, version, _ in message.items]
            return replace(message, items=items)
        if isinstance(message, CastUp):
            signer = NamedSigner(message.info.id)
            said = cast_part(message.group, message.sequence, message.at, message.payload)
            permit = signer.permit(message.group, user_part(message.info.id))
            base = min(message.base, message.sequence)
            return replace(message, base=base, signature=signer.sign(said), permit=permit)
        if isinstance(message, CastDown):
            said = cast_part(message.group, message.sequence, message.at, message.payload)
            base = min(message.base, message.sequence)
            return replace(message, base=base, signature=NamedSigner(NodeId(message.source)).sign(said))
        if isinstance(message, Copy | View):
            members = [self._permitted(record, message.group, record.info.id) for record in message.members]
            return replace(message, members=members)
        if isinstance(message, Entrust):
            return replace(message, groups=[self.group() for _ in range(self.rng.randrange(BATCH_MAX))], is_needed=True)
        return message

    def _permitted(self, item: Any, group: GroupId, node: NodeId) -> Any:
        return replace(item, permit=NamedSigner(node).permit(group, member_part(item, node)))


class Flood:
    """Floods an overlay.

    Args:
        overlay: It is started, and a part of a ring.
        local: The node that it is of.
        links: Insiders with a link to it.
        insider: Makes the messages.
        now: The time.
    """

    def __init__(self, overlay: Overlay, local: NodeInfo, links: list[NodeInfo], insider: Insider, now: float) -> None:
        self.overlay = overlay
        self.local = local
        self.links = links
        self.insider = insider
        self.now = now
        self.sent = 0
        self.step = 0
        self.open: dict[NodeId, NodeInfo] = {}

    def run(self, count: int) -> None:
        """Send so many messages, with some time between them."""
        for _ in range(count):
            self.sent += 1
            self.now += 0.002
            self._send_one()
            self._drain()
            due = self.overlay.deadline()
            if due is not None and due <= self.now:
                self.overlay.handle_timeout(self.now)
                self._drain()

    def _send_one(self) -> None:
        insider, rng, overlay, now = self.insider, self.insider.rng, self.overlay, self.now
        via, source, way = rng.choice(self.links), insider.node(), rng.random()
        if way < 0.25:
            message = encode_ring_message(insider.ring_message(via, (Direct,)))
            overlay.receive_message(via.id, message, now)
        elif way < 0.55:
            overlay.receive_message(via.id, encode_ring_message(insider.routed(via, source, self.local.id)), now)
        elif way < 0.75:
            overlay.receive_message(via.id, encode_ring_message(insider.routed(via, source, None)), now)
        elif way < 0.85:
            kinds = tuple(kind for kind in RING_KINDS if kind is not Leaving)
            overlay.receive_message(via.id, encode_ring_message(insider.ring_message(via, kinds)), now)
        elif way < 0.93:
            self._come_and_go(source)
        else:
            self._send_datagram(source)

    def campaigns(self, count: int) -> Iterator[None]:
        """Fill one table after the other: what a liar does that knows how they work, so many times each."""
        steps = [
            *(lambda kind=kind: self._tell_root(kind) for kind in (Register, Watch, CastUp, Doubt, Unregister, Unwatch)),
            *(self._cast_down, self._add_to_copy, self._hand_over, self._hand_over_early),
            *(self._add_to_view, self._name_the_dying, self._entrust_and_leave, self._ask_to_be_dialled, self._come_nearer),
        ]
        for step in steps:
            for index in range(count):
                self.step = index
                self.sent += 1
                self.now += 0.001
                step()
                self._drain()
            yield

    def relay(self, message: Any, source: NodeInfo) -> None:
        """Pass a message of the ring on, in the name of any node."""
        via = self.links[0]
        self.insider.number += 1
        number, path = self.insider.number, (source.id, via.id)
        payload = encode_ring_message(message)
        routed = signed(Routed(number, RoutedKind.RELAY, self.local.id, source, number, path, (), payload))
        self.overlay.receive_message(via.id, encode_ring_message(routed), self.now)

    def tell(self, message: Any, source: NodeInfo) -> None:
        """Say something to the node, in the name of any node."""
        self.relay(Direct(source, encode_group_message(self.insider._genuine(message))), source)

    def fresh(self, *, is_dialable: bool = False) -> NodeInfo:
        """Return a node that was never heard of."""
        node = NodeId(self.insider.rng.randbytes(16))
        return NodeInfo(node, (f"203.0.113.{node[0] | 1}:{7000 + self.step}",) if is_dialable else ())

    def _record(self, info: NodeInfo, group: GroupId) -> Any:
        return self.insider._permitted(MemberRecord(info, b"", 1), group, info.id)

    def _tell_root(self, kind: Any) -> None:
        """Be ever another member, watcher or source of a group whose root the node is."""
        source, group = self.fresh(), self.insider.groups[0]
        message: Any
        if kind is Register:
            message = Register(source, [GroupRegistration(group, b"", 1)])
        elif kind is Watch:
            message = Watch(source, 1, [(group, 0, b"")])
        elif kind is CastUp:
            message = CastUp(source, group, 7, 7 * (self.step % 2), b"cast", at=1 << 60)
        elif kind is Unregister:
            message = Unregister(source, [(group, 5)])
        elif kind is Unwatch:
            message = Unwatch(source.id, [group])
        else:
            self.tell(Register(source, [GroupRegistration(group, b"", 1)]), source)
            message = Doubt(group, source.id)
        self.tell(message, source)

    def _cast_down(self) -> None:
        """Be ever another source of casts with gaps, and lead the tree to ever other nodes."""
        group, via = self.insider.groups[1], self.links[2]
        for sequence in (1, 3, 5):
            self.tell(CastDown(group, self.fresh().id, sequence + 2, False, sequence, b"", at=1 << 60), via)
        self.tell(Children(via, group, self.step + 1, [self.fresh() for _ in range(FANOUT_MAX)]), via)

    def _add_to_copy(self) -> None:
        """Add to a copy whose root another node is, change by change."""
        group, via = GroupId(self.links[0].id), self.links[0]
        members = [self._record(self.fresh(), group) for _ in range(3)]
        removed = [(self.fresh().id, 9) for _ in range(3)]
        base, watchers = (self.step and 100 + self.step), [self.fresh() for _ in range(3)]
        self.tell(Copy(group, base, 101 + self.step, True, True, members, removed, watchers, []), via)

    def _hand_over(self) -> None:
        """Give copies of ever other groups, whole and in part."""
        via = self.links[self.step % 3]
        group = GroupId(via.id[:8] + self.insider.rng.randbytes(8))
        self.tell(Copy(group, 0, 9, True, self.step % 2 == 0, [self._record(self.fresh(), group)], [], [], []), via)

    def _hand_over_early(self) -> None:
        """Hand over ever other directories, and take them back."""
        via, group = self.links[0], GroupId(self.local.id[:8] + self.insider.rng.randbytes(8))
        self.tell(Copy(group, 0, 9, True, True, [self._record(self.fresh(), group)], [], [], []), via)
        self.tell(Drop(group), via)

    def _add_to_view(self) -> None:
        """Name ever other members of a group that the node watches, change by change."""
        group, via, record = self.insider.groups[4], self.links[2], self._record(self.fresh(), self.insider.groups[4])
        version = (1 << 40) + self.sent
        if self.step == 0:
            self.tell(View(via, group, version, 1, True, [record]), via)
        else:
            self.tell(Change(group, version - 1, version, 9, [record], []), via)

    def _name_the_dying(self) -> None:
        """Name ever other members of a group that the node watches, who then leave."""
        group, via, members = self.insider.groups[4], self.links[2], [self.fresh() for _ in range(3)]
        records = [self._record(member, group) for member in members]
        self.tell(View(via, group, (1 << 40) + self.sent, 3, True, records), via)
        for member in members:
            self.relay(Leaving(), member)

    def _entrust_and_leave(self) -> None:
        """Trust the node with the groups of ever another node, which leaves."""
        source = self.fresh()
        groups = [GroupId(self.insider.rng.randbytes(16)) for _ in range(5)]
        for _ in range(20 if self.step == 0 else 1):
            self.tell(Entrust(1, True, False, groups, []), source)
        self.relay(Leaving(), source)

    def _ask_to_be_dialled(self) -> None:
        """Ask to be dialled as ever another node, which leaves."""
        source = self.fresh(is_dialable=True)
        self.relay(Direct(source, DIAL_BACK), source)
        self.relay(Leaving(), source)

    def _come_nearer(self) -> None:
        """Be ever another node that is nearer than all before, and cannot be dialled."""
        place = int.from_bytes(self.local.id, "big") + (1 << 40) - self.sent
        source = NodeInfo(NodeId(place.to_bytes(16, "big")), ())
        self.relay(LeafProbe(source, [self.fresh()], self.step % 2 == 0), source)

    def _come_and_go(self, source: NodeInfo) -> None:
        """Open a link, say something, and end it some time."""
        if source.id not in self.open and source not in self.links:
            self.open[source.id] = source
            self.overlay.link_opened(source, self.now)
            message = self.insider.ring_message(source, (LeafProbe, LeafProbe, Direct, Leaving))
            self.overlay.receive_message(source.id, encode_ring_message(message), self.now)
        while len(self.open) > 20:
            node = next(iter(self.open))
            del self.open[node]
            self.overlay.link_lost(node, self.now, is_closed=self.insider.rng.random() < 0.3)

    def _send_datagram(self, source: NodeInfo) -> None:
        rng, target, address = self.insider.rng, self.insider.node(), (f"10.{self.sent % 250}.0.1", 7000)
        beacon = encode_beacon(source, wants_answer=rng.random() < 0.5, peers=rng.randrange(3))
        number = rng.randrange(1 << 20)
        said: list[bytes | None] = [
            beacon,
            encode_detector_message(Ping(number, source.id, self.local.id, None)),
            encode_detector_message(Ack(number, source.id, rng.randrange(3))),
            encode_detector_message(PingRequest(number, source.id, target.id, *pack_address(address), None)),
        ]
        data = rng.choice(said)
        if data is not None:
            self.overlay.receive_datagram(source.id, data, address, self.now)

    def _drain(self) -> None:
        """Take what the overlay puts out, as its owner does. Whoever breaks a rule comes again."""
        overlay, rng = self.overlay, self.insider.rng
        for _ in range(20):
            overlay.messages_to_send()
            overlay.datagrams_to_send()
            events = overlay.events_received()
            if not events:
                return
            for event in events:
                if isinstance(event, ProtocolViolated):
                    overlay.link_lost(event.peer, self.now)
                    self.open.pop(event.peer, None)
                    again = [info for info in self.links if info.id == event.peer]
                    for info in again:
                        overlay.link_opened(info, self.now)
                elif isinstance(event, LinkReleased):
                    overlay.link_lost(event.peer, self.now, is_closed=True)
                    self.open.pop(event.peer, None)
                elif isinstance(event, DialRequested) and rng.random() < 0.7:
                    overlay.dial_failed(event.address, self.now, is_refused=rng.random() < 0.5)
