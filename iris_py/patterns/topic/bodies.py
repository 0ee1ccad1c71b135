"""Batches of publications, and the bodies in which they travel (docs/design.md 8.4).

A *batch* has consecutive publications to one topic. It takes further ones until another message is published, or the turn ends.
The encoded messages of a route form a *segment*, until a message for another route follows. Each target has a list of segments,
so it receives all messages of this node in the order of their numbers. At the flush each target gets one body: FLOW, the COUNTs
of its counted patterns, and its segments. A segment of several targets is joined once.

The group of a promoted entry is a target, too. While the root of the group has not taken earlier casts, its segments are
gathered beyond the turn, so a busy publisher sends few and large casts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias

from iris_py.patterns.topic.counted_patterns import take_counts
from iris_py.patterns.topic.targets import BodySegment, CastTarget
from iris_py.peers.group import BODY_BYTES
from iris_py.wire import packets
from iris_py.wire.flows import encode_moved
from iris_py.wire.headers import HEAD_SIZE, HEADERS_BYTES_MAX
from iris_py.wire.packets import RUN_MESSAGE_COST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from iris_overlay.ids import GroupId
    from iris_py.patterns.topic.names import Tokens
    from iris_py.patterns.topic.targets import PublicationRoute, PublicationTarget
    from iris_py.peers.group import Group
    from iris_py.peers.outbound import Outbound

#: A topic, its tokens, and a payload behind its headers (:func:`iris_py.wire.headers.put_headers`).
HeadedMessage: TypeAlias = "tuple[str, Tokens, bytes]"
#: Batches of more messages are not lengthened: another ``BODY_BYTES`` of empty messages would exceed the maximum number of
#: messages.
LENGTHENED_MESSAGES_MAX: Final = packets.RUN_MESSAGES_MAX - BODY_BYTES // RUN_MESSAGE_COST
#: Casts of this node to one group that its root has not taken yet. Too small: a long way to the root limits the rate. Too
#: large: casts are small, and each is signed and verified.
CASTS_IN_FLIGHT_MAX: Final = 4
#: Bytes of publications in one cast, and of those gathered for a group beyond which publishers wait. Too small: as above. Too
#: large: it delays other messages at each node of the tree.
CAST_BODY_BYTES: Final = packets.RUN_BODY_BYTES_MAX
#: Bytes of a payload with headers that joins a batch. Too small: publications with headers cost more; too large: a copy of a
#: large payload, and batches of one message.
HEADED_BYTES_MAX: Final = 4096
_CONTENT_BYTES_MAX: Final = HEADED_BYTES_MAX + HEADERS_BYTES_MAX
#: Bytes of a batch besides its topic, sizes and payloads.
RUN_BYTES: Final = packets.MESSAGE_BYTES + packets.RUN_COUNT.size


class PublicationBatch:
    """A batch: consecutive publications to one topic, sent with a shared header.

    Attributes:
        head: The topic, and the headers before it.
        payloads: The published payloads.
        room: Bytes left in the body; 0 after the end, negative if the first payload exceeds the body.
        limit: Largest size of the body.
        count: Number of receiving nodes.
        messages_max: The largest number of messages.
    """

    #: Whether nobody gets the messages.
    is_unheard: ClassVar[bool] = False

    #: A member of ``packets.PUBLICATIONS``.
    kind: ClassVar[int] = packets.PUBLICATION

    __slots__ = ("_before", "count", "head", "limit", "messages_max", "payloads", "room")

    def __init__(self, head: bytes, payload: bytes, used: int, count: int) -> None:
        self.head = head
        self.payloads = [payload]
        self.limit = BODY_BYTES
        self.count = count
        self.messages_max = packets.RUN_MESSAGES_MAX
        self._before = used
        self.room = BODY_BYTES - used - RUN_BYTES - len(head) - RUN_MESSAGE_COST - len(payload)

    def append(self, payload: bytes) -> bool:
        """Append a publication; return False if it has no room.

        A batch filled within a single turn means a backlog, which should travel in few bodies. So a full batch is lengthened
        while its receivers get no other message and the payloads are small; a large payload would delay small messages.
        """
        if self.room < 0 or len(payload) > BODY_BYTES:
            return False
        room = self.room - RUN_MESSAGE_COST - len(payload)
        if room < 0:
            more = self._more_bytes()
            room += more
            if room < 0:
                return False
            self.limit += more
        self.room = room
        self.payloads.append(payload)
        return True

    def ends_full(self, payload: bytes) -> bool:
        """Tell whether the batch has several publications, and the next one has no room even in a lengthened batch."""
        room = self.room - RUN_MESSAGE_COST - len(payload)
        return room < 0 and len(self.payloads) > 1 and (room + self._more_bytes() < 0 or len(payload) > BODY_BYTES)

    def _more_bytes(self) -> int:
        """Return by how much the batch can be lengthened."""
        if self._before or len(self.payloads) > LENGTHENED_MESSAGES_MAX:
            return 0
        return min(BODY_BYTES, packets.RUN_BODY_BYTES_MAX - self.limit)

    @property
    def size(self) -> int:
        """The size of the batch so far, about."""
        return self.limit - self.room - self._before

    def encode(self, first: int) -> tuple[list[bytes], int]:
        """End the batch; return its message, in parts, and the size of the message.

        Args:
            first: The number of the first publication.
        """
        count = len(self.payloads)
        if count == 1:  # the usual one of a publisher that changes the topic: as below, without the calls
            head, payload = self.head, self.payloads[0]
            self.room = 0
            start = packets.MESSAGE.pack(self.kind, 0, len(head), len(payload), first, 0)
            return [start, head, payload], packets.MESSAGE_BYTES + len(head) + len(payload)
        # The reserved bytes, without the part that is not on the wire.
        size = self.limit - self.room - self._before - count * (RUN_MESSAGE_COST - packets.RUN_MESSAGE_BYTES)
        self.room = 0
        return packets.encode_run(self.head, self.payloads, first, self.kind), size


class ImportedBatch(PublicationBatch):
    """A batch of publications from another cloud."""

    kind: ClassVar[int] = packets.IMPORTED

    __slots__ = ()


class HeadedBatch(PublicationBatch):
    """A batch of payloads behind their headers, to topics with the same receivers.

    The batch is never lengthened, because receivers read the messages separately.

    Attributes:
        topic: The topic of the last message.
    """

    __slots__ = ("_heads", "topic")

    def __init__(self, head: bytes, payload: bytes, used: int, count: int) -> None:
        super().__init__(head, payload, used, count)
        self.topic = head.decode()
        self._heads = [(head, 0)]  # each topic, with the place of its first payload

    def append_to(self, topic: str, payload: bytes) -> bool:
        """Append a publication with the same receivers; return False without room."""
        return self.append_all([(topic, (), payload)], lambda _topic, _tokens: None, None) == 1

    def append_all(self, messages: Iterable[HeadedMessage], find: Callable[[str, Tokens], object], plan: object) -> int:
        """Append publications up to the first with other receivers or without room; return their number.

        Args:
            messages: The publications. The batch reads no more than fit, and one.
            find: Returns the receivers of a topic.
            plan: The receivers of the batch.
        """
        room, last, payloads = self.room - RUN_MESSAGE_COST, self.topic, self.payloads
        append, before = payloads.append, len(payloads)
        for topic, tokens, content in messages:
            size = len(content)
            if topic != last:
                head = topic.encode()
                more = RUN_BYTES + len(head)
                if room < more + size or size > _CONTENT_BYTES_MAX or find(topic, tokens) is not plan:
                    break
                self._heads.append((head, len(payloads)))
                last = topic
                room -= more
            elif room < size or size > _CONTENT_BYTES_MAX:
                break
            room -= RUN_MESSAGE_COST + size
            append(content)
        self.room, self.topic = room + RUN_MESSAGE_COST, last
        return len(payloads) - before

    def encode(self, first: int) -> tuple[list[bytes], int]:
        """End the batch; return the messages, in parts, and their size. Every topic has its own message."""
        self.room = 0
        payloads, heads, parts = self.payloads, self._heads, list[bytes]()
        pack, kind = packets.MESSAGE.pack, self.kind
        for (head, begin), end in zip(heads, (*(begin for _head, begin in heads[1:]), len(payloads)), strict=True):
            if end - begin > 1:
                parts += packets.encode_run(head, payloads[begin:end], first + begin, kind, packets.EACH_HEADED)
            else:  # the headers stand before the topic
                content = payloads[begin]
                stop = HEAD_SIZE.size + HEAD_SIZE.unpack_from(content)[0]
                start = pack(kind, packets.HEADED, stop + len(head), len(content) - stop, first + begin, 0)
                parts += (start, content[:stop], head, content[stop:])
        return parts, sum(map(len, parts))


class Bodies:
    """The bodies of one publisher that wait for the flush.

    Args:
        outbound: Sends them.
        in_flight: Returns the number of casts to a group that its root has not taken yet.

    Attributes:
        group: The group whose key encrypts them.
    """

    group: Group

    def __init__(self, outbound: Outbound, in_flight: Callable[[GroupId], int]) -> None:
        self._outbound = outbound
        self._in_flight = in_flight
        self._open: BodySegment | None = None  # the last segment
        self._touched: dict[PublicationTarget, None] = {}
        self._gathering: dict[CastTarget, None] = {}

    def used_bytes(self, route: PublicationRoute, size: int, now: float) -> int:
        """Return the size of the largest body that a message to a route continues.

        If the message does not fit such a body, the bodies of the route are sent first.

        Args:
            size: The size of the message.
        """
        if self._open is not None and self._open.route is route:
            used = self._open.used + self._open.size
            if not route.present and self._open.size + size > BODY_BYTES:  # a cast has several segments
                self._close()
                used = 0
        else:
            self._close()
            used = max([target.gathered_bytes for target in route.present], default=0)
        if used and used + size > BODY_BYTES:
            self._close()
            for target in route.present:
                if target.segments:
                    self._send(target, now)
            used = 0
        return used

    def add(self, route: PublicationRoute, parts: list[bytes], size: int, count: int = 1, *, is_long: bool = False) -> None:
        """Add a message to the bodies of a route, after :meth:`used_bytes`.

        Args:
            parts: The encoded message, in parts.
            size: Its size.
            count: The number of publications in it.
            is_long: Whether it is a lengthened batch.
        """
        segment = self._open
        if segment is None or segment.route is not route:
            self._close()
            used = max([target.gathered_bytes for target in route.present], default=0)
            segment = self._open = BodySegment(route, used)
            for target in route.present:
                target.segments.append(segment)
                self._touched[target] = None
            for group in route.casts:
                group.segments.append(segment)
                self._gathering[group] = None
        segment.parts += parts
        segment.size += size
        segment.count += count
        segment.is_long = is_long

    def send_all(self, now: float) -> None:
        """Send the bodies of all targets."""
        self._close()
        for target in list(self._touched):
            self._send(target, now)
        for group in list(self._gathering):
            self._cast(group)

    def tell(self, target: PublicationTarget, messages: list[bytes], now: float) -> None:
        """Send MOVED or COUNTs to a target, behind all publications to it so far."""
        self._close()
        if target.segments:
            self._send(target, now)
        parts = [target.flow.take_header(), *messages]
        self._outbound.send_body(self.group, target.peer, parts, sum(map(len, parts)), now)

    def has_room(self, target: CastTarget) -> bool:
        """Tell whether the messages gathered for a group leave room for further ones."""
        opened = self._open.size if self._open is not None and target in self._open.route.casts else 0
        return target.gathered_bytes + opened < CAST_BODY_BYTES

    def end(self, target: CastTarget, number: int) -> None:
        """Send the messages gathered for a group that gets no more, however many casts are in flight, and say that they end.

        Args:
            number: The number of the last publication.
        """
        self._close()
        while target.segments:
            self._outbound.cast(target.group, target.take_body(CAST_BODY_BYTES))
        self._gathering.pop(target, None)
        if target.flow.count:
            self._outbound.cast(target.group, target.take_body(0) + encode_moved(number, target.flow.count))

    def _close(self) -> None:
        """Close the last segment: later messages follow in other segments."""
        segment, self._open = self._open, None
        if segment is not None:
            for target in segment.route.receivers:
                target.gathered_bytes += segment.size

    def _send(self, target: PublicationTarget, now: float) -> None:
        segments, target.segments = target.segments, []
        target.gathered_bytes = 0
        del self._touched[target]
        parts = [target.flow.take_header()]
        if target.counted:
            parts += take_counts(target.counted)
        size = sum(map(len, parts))
        for segment in segments:
            parts += segment.joined()
            size += segment.size
        self._outbound.send_body(self.group, target.peer, parts, size, now, passes_large=segments[0].is_long)

    def _cast(self, target: CastTarget) -> None:
        """Send the gathered messages of a group as far as its root has taken earlier casts."""
        room = CASTS_IN_FLIGHT_MAX - self._in_flight(target.group.id)
        while target.segments and room > 0:
            self._outbound.cast(target.group, target.take_body(CAST_BODY_BYTES))
            room -= 1
        if not target.segments:
            del self._gathering[target]
