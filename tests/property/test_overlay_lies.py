"""Whatever peers say, an overlay says nothing that another one would refuse, and remembers no more than its bounds.

Peers send messages of every kind of the ring and of groups, with the numbers at the ends of their ranges, in every order; some
come signed and permitted, as an insider can make them, and some do not. The rule: no message makes an honest node emit what
others refuse.
"""

from __future__ import annotations

import random
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from iris_overlay.detector.messages import decode_detector_message, is_detector_message
from iris_overlay.errors import MessageError
from iris_overlay.events import ProtocolViolated
from iris_overlay.groups import entries
from iris_overlay.groups.entries import ENTRIES_BYTES_MAX
from iris_overlay.groups.messages import (
    STAMP_SHIFT,
    Claim,
    GroupMessage,
    GroupRegistration,
    MemberRecord,
    Register,
    Watch,
    WatchTable,
    decode_group_message,
    encode_group_message,
    member_part,
    user_part,
)
from iris_overlay.ids import GroupId, NodeId
from iris_overlay.node_info import SEQUENCE_MAX, NodeInfo, decode_beacon
from iris_overlay.overlay import Overlay
from iris_overlay.ring.messages import (
    Direct,
    Returned,
    RingMessage,
    Routed,
    RoutedKind,
    decode_ring_message,
    encode_ring_message,
    signed_part,
)
from iris_py.testing.cores.overlay_checks import _SIZES_MAX
from iris_py.testing.cores.signer import NamedSigner, signed
from tests.profiles import examples
from tests.unit.overlay.overlays import CONFIG, LOCAL, make_info

PEERS = [make_info(number) for number in (3, 77, 130, 250)]
GROUPS = [GroupId(bytes((number,)) * 16) for number in (1, 120, 251)]
#: Numbers where something may end, and some that an honest node would say.
NUMBERS = st.sampled_from(
    [0, 1, 2, 1 << STAMP_SHIFT, (1 << STAMP_SHIFT) - 1, (1 << 30) << STAMP_SHIFT, SEQUENCE_MAX - 1, SEQUENCE_MAX]
)
ENTRIES = st.sampled_from([b"", entries.pack([(1, 2, 3)]), entries.pack((number, 0, 0) for number in range(30)), b"x"])
INFOS = st.sampled_from([*PEERS, LOCAL, make_info(9)])


def values(annotation: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for a field of a message, by its type and the bounds that the decoder checks."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return bounded(arguments[0], arguments[1])
    if annotation is NodeInfo:
        return INFOS
    if annotation is NodeId:
        return INFOS.map(lambda info: info.id)
    if annotation is GroupId:
        return st.sampled_from(GROUPS)
    if annotation is RoutedKind:
        return st.sampled_from(RoutedKind)
    if annotation is bool:
        return st.booleans()
    if annotation is int:
        return NUMBERS
    if annotation is bytes:
        return st.sampled_from([b"", b"x", b"x" * 100])
    if origin is tuple and arguments[-1] is not Ellipsis:
        return st.tuples(*map(values, arguments))
    if origin in (list, tuple):
        return st.lists(values(arguments[0]), max_size=4).map(origin)
    return structs(annotation)


def bounded(annotation: Any, bounds: msgspec.Meta) -> st.SearchStrategy[Any]:
    """Return a strategy for a field with bounds: what breaks them is another test's business."""
    if annotation is bytes and bounds.min_length == 16:
        return st.sampled_from([*GROUPS, *(info.id for info in PEERS), LOCAL.id])
    if annotation is bytes and bounds.max_length == ENTRIES_BYTES_MAX:
        return ENTRIES
    if annotation is int:
        low, high = bounds.ge or 0, bounds.le if bounds.le is not None else (bounds.lt or 1) - 1
        return NUMBERS.map(lambda number: min(max(number, low), high))
    found = values(annotation)
    return (
        found.filter(lambda value: len(value) >= (bounds.min_length or 0))
        if bounds.min_length and annotation is not bytes
        else found
    )


def structs(kind: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for messages of a kind."""
    hints = get_type_hints(kind, include_extras=True)
    return st.builds(kind, **{name: values(hints[name]) for name in kind.__struct_fields__})


def permitted(message: GroupMessage) -> GroupMessage:
    """Return a message as an insider can make it, who holds the keys of the groups and speaks for itself."""
    if isinstance(message, Register):
        signer = NamedSigner(message.info.id)
        items = []
        for item in message.items:
            permit = signer.permit(item.group, member_part(item, message.info.id))
            items.append(GroupRegistration(item.group, item.attributes, item.stamp, permit))
        return Register(message.info, items)
    if isinstance(message, Watch):
        signer = NamedSigner(message.info.id)
        watched = [(group, version, signer.permit(group, user_part(message.info.id))) for group, version, _ in message.items]
        return Watch(message.info, message.stamp, watched)
    if isinstance(message, Claim):
        record = MemberRecord(message.info, message.attributes, message.stamp)
        permit = NamedSigner(message.info.id).permit(message.group, member_part(record, message.info.id))
        return msgspec.structs.replace(message, permit=permit)
    if isinstance(message, WatchTable):
        permit = NamedSigner(message.info.id).permit(message.group, user_part(message.info.id))
        return msgspec.structs.replace(message, permit=permit)
    return message


USES = ("join", "leave", "watch", "cast", "claim", "watch_table")
GROUP_MESSAGES = st.one_of(*map(structs, get_args(GroupMessage)))
RING_MESSAGES = st.one_of(*map(structs, get_args(RingMessage)))
STEPS = st.one_of(
    st.tuples(st.just("group"), st.sampled_from(PEERS), GROUP_MESSAGES, st.booleans()),
    st.tuples(st.just("routed"), st.sampled_from(PEERS), GROUP_MESSAGES, st.sampled_from(GROUPS)),
    st.tuples(st.just("ring"), st.sampled_from(PEERS), RING_MESSAGES, st.booleans()),
    st.tuples(st.just("wait"), st.just(None), st.just(None), st.floats(0.0, 3.0)),
    st.tuples(st.just("use"), st.just(None), st.sampled_from(GROUPS), st.sampled_from(USES)),
)


def is_own(message: Routed | Returned) -> bool:
    """Tell whether the listener has said a message, and does not only pass it on."""
    return NamedSigner(LOCAL.id).verify(LOCAL.id, signed_part(message), message.signature)


class Listener:
    """An honest overlay with a few neighbours, and what it says."""

    def __init__(self) -> None:
        self.now = 1.0
        self.number = 0
        self.joined: set[bytes] = set()
        self.claimed: set[bytes] = set()
        self.watched: set[bytes] = set()
        self.watched_tables: set[bytes] = set()
        self.overlay = Overlay(LOCAL, CONFIG, random.Random(1), NamedSigner(LOCAL.id))
        self.overlay.start(self.now, [], [], False, True)
        for info in PEERS:
            self.overlay.link_opened(info, self.now)
        self.linked = {info.id for info in PEERS}

    def take(self, step: tuple[str, Any, Any, Any]) -> None:
        kind, peer, what, detail = step
        if peer is not None and peer.id not in self.linked:
            self.overlay.link_opened(peer, self.now)  # who was put out comes again
            self.linked.add(peer.id)
        if kind == "wait":
            until = self.now + detail
            while (due := self.overlay.deadline()) is not None and due <= until:
                self.now = max(self.now, due)
                self.overlay.handle_timeout(self.now)
                self.check()
            self.now = until
        elif kind == "use":
            self.use(what, detail)
        elif kind == "group":
            message = permitted(what) if detail else what
            self.overlay.receive_message(peer.id, encode_ring_message(Direct(peer, encode_group_message(message))), self.now)
        elif kind == "routed":
            self.number += 1
            payload = encode_group_message(permitted(what))
            routed = Routed(self.number, RoutedKind.PAYLOAD, detail, peer, SEQUENCE_MAX - self.number, (peer.id,), (), payload)
            self.overlay.receive_message(peer.id, encode_ring_message(signed(routed)), self.now)
        else:
            is_own = isinstance(what, Routed | Returned) and what.source in PEERS  # nobody signs for another node
            message = signed(what) if detail and is_own else what
            self.overlay.receive_message(peer.id, encode_ring_message(message), self.now)

    def use(self, group: GroupId, how: str) -> None:
        """Let the application of the node do something."""
        if how == "join" and group not in self.joined | self.claimed:
            self.joined.add(group)
            self.overlay.join_group(group, b"", self.now)
        elif how == "leave" and group in self.joined | self.claimed:
            self.joined.discard(group)
            self.claimed.discard(group)
            self.overlay.leave_group(group, self.now)
        elif how == "claim" and group not in self.joined:
            self.overlay.claim(group, b"", entries.pack([(1, 2, self.number)]), b"", self.now)
            self.claimed.add(group)
        elif how == "watch" and group not in self.watched_tables:
            self.watched.add(group)
            self.overlay.watch_group(group, self.now, is_doubted=True)
        elif how == "watch_table" and group not in self.watched:
            self.watched_tables.add(group)
            self.overlay.watch_table(group, self.now)
        elif how == "cast" and group in self.joined:
            self.overlay.cast(group, b"cast", self.now)

    def check(self) -> None:
        """Everything that it says is what others take, and nothing that it keeps has grown out of its bounds."""
        for _peer, data in self.overlay.messages_to_send():
            self.check_ring(data)
        for _to, data in self.overlay.datagrams_to_send():
            decode_detector_message(data) if is_detector_message(data) else decode_beacon(data)
        for event in self.overlay.events_received():
            if isinstance(event, ProtocolViolated):
                self.overlay.link_lost(event.peer, self.now)
                self.linked.discard(event.peer)
        sizes = self.overlay.table_sizes()
        assert all(size <= _SIZES_MAX[name] for name, size in sizes.items()), sizes

    def check_ring(self, data: bytes) -> None:
        """Read what was said as its receiver would."""
        message = decode_ring_message(data)  # raises if anybody would refuse it
        if isinstance(message, Direct):
            self.check_group(message.payload, message.source)
        elif isinstance(message, Routed) and is_own(message):
            if message.kind is RoutedKind.RELAY:
                self.check_ring(message.payload)
            elif message.kind is RoutedKind.PAYLOAD:
                self.check_group(message.payload, message.source)
        elif isinstance(message, Returned) and is_own(message):
            self.check_ring(message.payload)

    def check_group(self, payload: bytes, source: NodeInfo) -> None:
        if source.id == LOCAL.id:
            decode_group_message(payload)


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(STEPS, max_size=40))
def test_an_overlay_says_nothing_that_others_refuse(steps: list[tuple[str, Any, Any, Any]]) -> None:
    listener = Listener()
    for step in steps:
        listener.take(step)
        try:
            listener.check()
        except MessageError as exc:
            raise AssertionError(f"others refuse what it says after {step}") from exc
