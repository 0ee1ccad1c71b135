"""Tests of iris_py/link/link.py."""

import itertools
import struct
import tracemalloc
from collections.abc import Callable

import msgspec
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

from iris_py.link import link as link_module
from iris_py.link.config import CONTROL_WORK_BYTES, PACKET_WORK_BYTES, WORK_MAX, LinkConfig
from iris_py.link.events import CloseReason, LinkClosed, LinkDrained, LinkOpened, LinkVerified, PeerIdentified
from iris_py.link.handshake import DEFAULT_OFFER, HANDSHAKE_BYTES_MAX, LinkHandshake, Offer
from iris_py.link.lanes import (
    BODY,
    BULK_EVERY,
    CLOSE,
    CONTROL,
    FLUSH,
    FLUSHED,
    FRAGMENT,
    FRAGMENT_BYTES,
    FRAGMENT_BYTES_MIN,
    FRAGMENT_END,
    GENERATION,
    HELLO,
    LARGE_BODY,
    LARGE_RECORD_BYTES,
    LAST_KIND,
    MULTICAST,
    PACKET_BYTES_MAX,
    PING,
    PONG,
    RANK,
    RECORD_BYTES,
    SIGNED,
    TAKEN,
    TUNNEL,
    UNICAST,
)
from iris_py.link.link import (
    LINK_ID_BYTES,
    NO_LINK,
    RECORD_BYTES_MAX,
    Link,
    LinkState,
    Packet,
)
from iris_py.link.record_buffers import JOINED_BYTES_MAX
from iris_py.testing.cores.pair import End, LinkPair
from iris_security import SIGNATURE_BYTES, Identity, Keyring, RecordOpener, RecordSealer, Secret, Suite

SECRET = Secret(bytes(range(32)))
KEYRING = Keyring(SECRET, network="test")
IDENTITY = Identity(b"\x03" * 32)
GROUP = b"g" * 16
NONCE = b"n" * 12
CONFIG = LinkConfig()


def opened(**arguments: float | LinkConfig | Callable[[], int]) -> LinkPair:
    pair = LinkPair(KEYRING, **arguments)  # type: ignore[arg-type] # its own keywords
    pair.open()
    return pair


def body(size: int, mark: int = 0) -> bytes:
    return bytes((mark % 256,)) * size


def closed(end: End) -> LinkClosed:
    """Return how a link ended, which is the last thing it said."""
    last = end.events[-1]
    assert isinstance(last, LinkClosed), end.events
    assert end.link.state is LinkState.CLOSED
    assert end.link.deadline() is None
    assert end.link.queued_bytes == 0
    assert not end.link.has_output()
    assert end.link.data_to_send(1 << 20) == []
    return last


def frame(kind: int, content: bytes = b"") -> bytes:
    return struct.pack(">BI", kind, len(content)) + content


def record_lengths(end: End) -> list[int]:
    """Return the sizes of the records in what an end has written since it opened."""
    data, lengths = b"".join(end.written), []
    while data:
        (length,) = struct.unpack_from(">I", data)
        lengths.append(length)
        data = data[4 + length :]
    return lengths


class Rogue:
    """A peer that holds the secret and writes whatever records it likes."""

    def __init__(self, pair: LinkPair, end: End) -> None:
        self.pair = pair
        self.end = end
        sealer = end.link._sealer
        assert sealer is not None
        self.sealer: RecordSealer = sealer

    def record(self, plaintext: bytes) -> bytes:
        sealed = self.sealer.seal(plaintext)
        return struct.pack(">I", len(sealed)) + sealed

    def send(self, plaintext: bytes) -> None:
        self.pair.send(self.end, self.record(plaintext))


# -- opening


def test_both_open_after_two_round_trips() -> None:
    pair = LinkPair(KEYRING, latency_s=1.0)
    moments: dict[int, float] = {}
    while pair.step():
        for end in (pair.initiator, pair.responder):
            if end.link.state is LinkState.OPEN:
                moments.setdefault(id(end), pair.now)
    assert moments[id(pair.responder)] == 3.0
    assert moments[id(pair.initiator)] == 4.0
    assert pair.initiator.events == [PeerIdentified(pair.identities[1].node_id, b"responder", NO_LINK), LinkOpened()]
    assert pair.responder.events == [PeerIdentified(pair.identities[0].node_id, b"initiator", NO_LINK), LinkOpened()]


def test_both_sides_call_the_link_by_one_id() -> None:
    pair = opened()
    assert pair.initiator.link.id == pair.responder.link.id != NO_LINK
    assert len(pair.initiator.link.id) == LINK_ID_BYTES


def test_the_hello_names_the_lost_link() -> None:
    pair = LinkPair(KEYRING, confirms=False)
    pair.drive()
    pair.initiator.link.confirm(pair.now, b"the lost")
    pair.drive()
    assert pair.responder.events == [PeerIdentified(pair.identities[0].node_id, b"initiator", b"the lost")]


def test_nothing_flows_before_it_is_open() -> None:
    pair = LinkPair(KEYRING, confirms=False)
    for _ in range(3):
        for end in (pair.initiator, pair.responder):
            end.link.send_control(b"early")
            end.link.send_packet(UNICAST, GROUP, NONCE, body(100))
            assert end.link.queued_bytes == 0
        pair.drive()
        if pair.initiator.link.state is LinkState.IDENTIFIED:
            pair.initiator.link.confirm(pair.now)
    pair.responder.link.confirm(pair.now)
    pair.drive()
    assert pair.initiator.link.state is pair.responder.link.state is LinkState.OPEN
    assert not pair.initiator.packets
    assert not pair.responder.packets


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 64])
def test_chunks_of_any_size_tell_the_same(size: int) -> None:
    def run(pair: LinkPair) -> LinkPair:
        pair.drive()
        for number in range(20):
            pair.initiator.link.send_packet(UNICAST, GROUP, NONCE, body(100 + number, number))
            pair.responder.link.send_control(body(50, number))
        pair.initiator.link.send_packet(MULTICAST, GROUP, NONCE, body(FRAGMENT_BYTES + 1))
        pair.drive()
        pair.responder.link.close(CloseReason.NORMAL, pair.now)
        pair.drive()
        return pair

    whole, cut = run(LinkPair(KEYRING)), run(LinkPair(KEYRING, chunk_bytes=lambda: size))
    for one, other in ((whole.initiator, cut.initiator), (whole.responder, cut.responder)):
        assert one.events == other.events
        assert one.packets == other.packets
        assert b"".join(one.written) == b"".join(other.written)
    assert closed(cut.initiator).clean
    assert closed(cut.responder).clean


# -- refusal


def make_link(*, initiator: bool, offer: Offer = DEFAULT_OFFER) -> Link:
    handshake = LinkHandshake(
        initiator=initiator,
        keyring=KEYRING,
        identity=IDENTITY,
        hello=b"me",
        ephemeral_private=(b"\x01" if initiator else b"\x02") * 32,
        offer=offer,
    )
    return Link(handshake=handshake, now=0.0, config=CONFIG)


def test_bytes_are_counted_as_they_pass() -> None:
    pair = LinkPair(KEYRING, chunk_bytes=lambda: 7)
    pair.drive()
    for size in (0, 10, 3 * RECORD_BYTES):
        pair.initiator.link.send_packet(UNICAST, GROUP, NONCE, bytes(16 + size))
        pair.initiator.link.wake(pair.now)
        pair.drive()
        for end in (pair.initiator, pair.responder):
            written = sum(map(len, end.written))
            assert pair.other(end).link.received_bytes == written
            assert end.link.sent_bytes == written - len(end.written[0])  # the message of the handshake is no record


def responder() -> End:
    return End(make_link(initiator=False))


FIRST = b"".join(make_link(initiator=True).data_to_send(1))


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        bytes(100),
        b"IRIS\x02" + FIRST[5:],
        FIRST[:5] + b"\x02\x09" + FIRST[7:],
        FIRST[:7] + b"\x04" + FIRST[8:],
        FIRST[:9] + bytes(8) + FIRST[17:],
        FIRST[:17] + b"\xff\xff",
        FIRST[:-1] + bytes((FIRST[-1] ^ 1,)),
        FIRST[:19] + bytes(48),
    ],
    ids=["http", "zeros", "format", "versions", "suites", "key id", "length", "tag", "key"],
)
@pytest.mark.parametrize("size", [1, 10, 10_000])
def test_a_stranger_hears_nothing(data: bytes, size: int) -> None:
    end = responder()
    for at in range(0, len(data), size):
        end.receive(data[at : at + size], 0.0)
        assert end.link.data_to_send(1000) == []
    end.take()
    assert not closed(end).clean


class Flipping(LinkPair):
    """Somebody on the line flips a bit of what one end says, counted from its first one on."""

    def __init__(self, *, is_of_initiator: bool, bit: int) -> None:
        super().__init__(KEYRING)
        self.victim = self.initiator if is_of_initiator else self.responder
        self._bit = bit

    def send(self, end: End, data: bytes) -> None:
        changed = bytearray(data)
        if end is self.victim and 0 <= self._bit < 8 * len(data):
            changed[self._bit // 8] ^= 1 << self._bit % 8
        self._bit -= 8 * len(data) * (end is self.victim)
        super().send(end, bytes(changed))


@pytest.mark.parametrize("is_of_initiator", [True, False], ids=["of the initiator", "of the responder"])
def test_each_flipped_bit_of_a_handshake_leads_to_nothing(is_of_initiator: bool) -> None:
    whole = Flipping(is_of_initiator=is_of_initiator, bit=-1)
    whole.drive()
    assert whole.other(whole.victim).link.state is LinkState.OPEN
    bits = 8 * len(b"".join(whole.victim.written))
    assert bits > 1_000
    for bit in range(bits):
        pair = Flipping(is_of_initiator=is_of_initiator, bit=bit)
        pair.drive(until=2 * CONFIG.handshake_timeout_s)
        for end in (pair.initiator, pair.responder):
            assert end.link.state is LinkState.CLOSED, bit
        assert LinkOpened() not in pair.other(pair.victim).events, bit


def test_a_truncated_first_message_waits_and_then_ends_without_a_word() -> None:
    end = responder()
    end.receive(FIRST[:-1], 0.0)
    assert end.link.state is LinkState.HANDSHAKE
    assert not end.link.has_output()
    end.receive(None, 0.0)
    end.take()
    assert not closed(end).clean


@pytest.mark.parametrize(
    "other",
    [Keyring(Secret(b"o" * 32), network="test"), Keyring(SECRET, network="other")],
    ids=["another secret", "another network"],
)
def test_the_initiator_hears_that_it_was_refused(other: Keyring) -> None:
    pair = LinkPair(KEYRING, other)
    pair.drive()
    assert closed(pair.initiator).refused
    assert not pair.responder.written
    closed(pair.responder)


def test_a_wrong_answer_is_a_refusal() -> None:
    for data in (bytes(100), b"\xff\xff", struct.pack(">H", 60) + bytes(60)):
        pair = LinkPair(KEYRING)
        pair.flush()
        pair.initiator.receive(data, 0.0)
        pair.initiator.take()
        assert closed(pair.initiator).refused


def test_a_replayed_first_message_gets_no_further_than_the_handshake() -> None:
    end = responder()
    end.receive(FIRST, 0.0)
    assert end.link.data_to_send(1000)
    end.take()
    assert end.link.state is LinkState.HANDSHAKE
    assert not end.events
    end.receive(struct.pack(">I", 64) + bytes(64), 0.0)  # without the key there is no first record
    end.take()
    closed(end)
    assert len(end.events) == 1


@pytest.mark.parametrize("length", [HANDSHAKE_BYTES_MAX + 1, RECORD_BYTES_MAX, 0xFFFF_FFFF])
def test_a_stranger_cannot_make_a_responder_wait_for_a_large_record(length: int) -> None:
    end = responder()
    end.receive(FIRST + struct.pack(">I", length), 0.0)
    end.take()
    closed(end)  # and even the answer to the first message was not written


def test_a_large_hello_is_accepted() -> None:
    pair = LinkPair(KEYRING, hello=bytes(HANDSHAKE_BYTES_MAX - 64 - SIGNATURE_BYTES))
    pair.drive()
    assert pair.responder.link.state is LinkState.OPEN


def test_a_hello_over_the_limit_is_refused() -> None:
    pair = LinkPair(KEYRING, hello=bytes(HANDSHAKE_BYTES_MAX))
    pair.drive()
    assert not any(isinstance(event, PeerIdentified) for event in pair.responder.events)
    closed(pair.responder)


@pytest.mark.parametrize(
    "first",
    [
        frame(PING),
        frame(CONTROL, body(60)),
        frame(HELLO, b"short"),
        frame(HELLO),
        frame(UNICAST, body(60)),
        b"\x00",
        frame(99, body(60)),
        frame(CLOSE, body(60)),
    ],
    ids=["ping", "control", "short hello", "empty hello", "packet", "truncated frame", "unknown", "close"],
)
def test_only_a_hello_begins(first: bytes) -> None:
    pair = LinkPair(KEYRING, confirms=False)
    pair.drive()
    Rogue(pair, pair.initiator).send(first)
    pair.drive()
    assert not any(isinstance(event, PeerIdentified) for event in pair.responder.events)
    closed(pair.responder)


def test_what_follows_the_hello_ends_the_link_and_the_owner_may_still_confirm() -> None:
    """The events of one read are handled after it: the link may have ended by then."""
    pair = LinkPair(KEYRING, confirms=False)
    pair.drive()
    hello = pair.initiator.link
    hello.confirm(pair.now)
    data = b"".join(hello.data_to_send(10_000)) + struct.pack(">I", 30) + bytes(30)
    pair.responder.receive(data, pair.now)
    pair.responder.take()
    assert [type(event) for event in pair.responder.events] == [PeerIdentified, LinkClosed]
    pair.responder.link.confirm(pair.now)
    pair.responder.link.close(CloseReason.DUPLICATE, pair.now)
    pair.responder.take()
    closed(pair.responder)


def test_frames_before_the_confirmation_end_the_link() -> None:
    for content in (frame(CONTROL, b"x"), frame(UNICAST, body(60)), frame(PING), frame(HELLO, body(20))):
        pair = LinkPair(KEYRING, confirms=False)
        pair.drive()
        pair.initiator.link.confirm(pair.now)
        pair.drive()
        assert pair.responder.link.state is LinkState.IDENTIFIED
        for end in (pair.responder, pair.initiator):
            other = pair.other(end)
            other.receive(Rogue(pair, end).record(content), pair.now)
            other.take()
            closed(other)
            assert not any(isinstance(event, LinkOpened) for event in other.events)


@pytest.mark.parametrize("steps", [0, 1, 2, 3])
def test_a_handshake_that_stalls_is_given_up(steps: int) -> None:
    pair = LinkPair(KEYRING, latency_s=0.1, confirms=False)
    for _ in range(steps):
        pair.step()
        if pair.initiator.link.state is LinkState.IDENTIFIED:
            pair.initiator.link.confirm(pair.now)
    pair.initiator.is_held = pair.responder.is_held = True
    pair.drive(CONFIG.handshake_timeout_s - 0.001)
    assert pair.initiator.link.state is not LinkState.CLOSED
    pair.drive(CONFIG.handshake_timeout_s)
    assert "too long" in closed(pair.initiator).reason
    assert "too long" in closed(pair.responder).reason


def test_a_handshake_is_not_too_long_because_this_side_stood_still() -> None:
    """The answer of the peer may lie unread in the socket."""
    pair = LinkPair(KEYRING, latency_s=0.1)
    pair.step()
    pair.initiator.is_held = pair.responder.is_held = True
    late = CONFIG.handshake_timeout_s + CONFIG.keepalive_interval_s + 0.1
    link = pair.initiator.link
    link.handle_timeout(late)
    assert link.deadline() == late + CONFIG.keepalive_interval_s
    link.handle_timeout(late + CONFIG.keepalive_interval_s)
    assert link.state is LinkState.CLOSED


def test_a_duplicate_is_told_before_anything_flows() -> None:
    pair = LinkPair(KEYRING, confirms=False)
    pair.drive()
    pair.initiator.link.confirm(pair.now)
    pair.drive()
    pair.responder.link.close(CloseReason.DUPLICATE, pair.now)
    pair.drive()
    assert closed(pair.initiator).duplicate
    closed(pair.responder)
    assert not any(isinstance(event, LinkOpened) for event in pair.initiator.events + pair.responder.events)


def test_a_node_that_leaves_says_so_on_a_link_that_its_peer_may_have_opened() -> None:
    pair = LinkPair(KEYRING, confirms=False)
    pair.drive()
    pair.initiator.link.confirm(pair.now)
    pair.drive()
    pair.responder.link.confirm(pair.now)
    pair.responder.link.send_control(b"x")
    pair.initiator.link.close(CloseReason.LEAVING, pair.now)
    pair.drive()
    for end, is_opened in ((pair.initiator, False), (pair.responder, True)):
        assert closed(end).clean
        assert any(isinstance(event, LinkOpened) for event in end.events) is is_opened
    assert pair.responder.link.is_peer_leaving


def test_an_initiator_abandons_without_a_word() -> None:
    pair = LinkPair(KEYRING, confirms=False)
    pair.drive()
    written = list(pair.initiator.written)
    pair.initiator.link.close(CloseReason.NORMAL, pair.now)
    pair.drive()
    closed(pair.initiator)
    closed(pair.responder)
    assert pair.initiator.written == written
    assert not any(isinstance(event, PeerIdentified) for event in pair.responder.events)


# -- records


def test_a_tampered_record_ends_the_link() -> None:
    for position in (4, 20, -1):
        pair = opened()
        pair.initiator.link.send_packet(UNICAST, GROUP, NONCE, body(100))
        data = bytearray(b"".join(pair.initiator.link.data_to_send(10_000)))
        data[position] ^= 1
        pair.responder.receive(bytes(data), pair.now)
        pair.responder.take()
        assert not closed(pair.responder).clean
        assert not closed(pair.responder).refused
        assert not pair.responder.packets


@pytest.mark.parametrize("order", [(0, 0), (1, 0), (1,), (0, 2)], ids=["replayed", "reordered", "dropped", "gap"])
def test_records_come_once_and_in_order(order: tuple[int, ...]) -> None:
    pair = opened()
    records = []
    for number in range(3):
        pair.initiator.link.send_packet(UNICAST, GROUP, NONCE, body(100, number))
        records.append(b"".join(pair.initiator.link.data_to_send(10_000)))
    for number in order:
        pair.responder.receive(records[number], pair.now)
    pair.responder.take()
    closed(pair.responder)
    assert [packet[3][0] for packet in pair.responder.packets] == ([0] if order[0] == 0 else [])


def test_what_is_behind_a_bad_record_is_not_read() -> None:
    pair = opened()
    pair.initiator.link.send_packet(UNICAST, GROUP, NONCE, body(100))
    good = b"".join(pair.initiator.link.data_to_send(10_000))
    used = pair.responder.link.receive_data(memoryview(struct.pack(">I", 30) + bytes(30) + good), pair.now)
    pair.responder.take()
    assert used == 34 + len(good)
    assert not pair.responder.packets
    assert pair.responder.link.receive_data(memoryview(good), pair.now) == len(good)


@pytest.mark.parametrize(
    "content",
    [
        b"\x01",
        struct.pack(">BI", PING, 1),
        struct.pack(">BI", UNICAST, 0xFFFF_FFFF),
        frame(UNICAST, body(43)),
        frame(MULTICAST),
        frame(FRAGMENT_END),
        frame(FRAGMENT_END, bytes((PING,))),
        frame(FRAGMENT_END, bytes((UNICAST,)) + body(43)),
        frame(HELLO, body(20)),
        frame(TUNNEL),
        frame(GENERATION, body(24)),
        frame(RANK, body(11)),
        frame(FLUSH, body(7)),
        frame(FLUSH, body(9)),
        frame(FRAGMENT_END, bytes((SIGNED,)) + body(25)),
        frame(FRAGMENT_END, bytes((GENERATION,)) + body(25)),
    ],
)
def test_malformed_frames_end_the_link(content: bytes) -> None:
    pair = opened()
    Rogue(pair, pair.initiator).send(content)
    pair.drive()
    assert not closed(pair.responder).clean
    assert not pair.responder.packets


@pytest.mark.parametrize("content", [frame(LAST_KIND + 1), frame(255, body(50)), frame(FRAGMENT_END, bytes((99,)) + body(50))])
def test_frames_of_newer_versions_are_counted_and_change_nothing(content: bytes) -> None:
    pair = opened()
    Rogue(pair, pair.initiator).send(content)
    pair.drive()
    assert pair.responder.link.is_open
    (packet,) = pair.responder.packets
    assert packet[0] > LAST_KIND
    assert packet[1:] == (b"", b"", b"")


@pytest.mark.parametrize("preferred", list(itertools.product(Suite, Suite)))
def test_chacha_is_taken_if_either_side_prefers_it(preferred: tuple[Suite, Suite]) -> None:
    links = [
        make_link(initiator=initiator, offer=Offer(preferred=each))
        for initiator, each in zip((True, False), preferred, strict=True)
    ]
    answered = b"".join(links[0].data_to_send(1 << 20))
    links[1].receive_data(memoryview(answered), 0.0)
    links[0].receive_data(memoryview(b"".join(links[1].data_to_send(1 << 20))), 0.0)
    links[0].confirm(0.0)
    record = b"".join(links[0].data_to_send(1 << 20))
    links[1].receive_data(memoryview(record), 0.0)
    assert all(isinstance(link.events_received()[0], PeerIdentified) for link in links)
    suite = max(preferred)
    assert {link._sealer._keys._suite for link in links if link._sealer is not None} == {suite}
    assert isinstance(suite.cipher(bytes(32)), AESGCM if suite is Suite.AES_256_GCM else ChaCha20Poly1305)


@pytest.mark.parametrize("length", [RECORD_BYTES_MAX + 1, 0xFFFF_FFFF])
def test_a_record_over_the_limit_ends_the_link_at_once(length: int) -> None:
    pair = opened()
    pair.responder.receive(struct.pack(">I", length), pair.now)
    pair.responder.take()
    closed(pair.responder)


def test_a_record_too_short_for_a_tag_ends_the_link() -> None:
    for length in (0, 15):
        pair = opened()
        pair.responder.receive(struct.pack(">I", length) + bytes(length), pair.now)
        pair.responder.take()
        closed(pair.responder)


def test_records_stay_below_what_the_peer_reads() -> None:
    """Also when a node that joins a thousand groups has a backlog of overlay messages."""
    pair = opened()
    link = pair.initiator.link
    for number in range(3000):
        link.send_control(body(300, number))
        link.send_packet(UNICAST, GROUP, NONCE, body(16))
    link.send_control(body(400_000, 1))
    for number in range(5):
        link.send_control(body(FRAGMENT_BYTES - 1, number))
        link.send_packet(UNICAST, GROUP, NONCE, body(FRAGMENT_BYTES - 28))
        link.send_packet(MULTICAST, GROUP, NONCE, body(100_000))
    pair.drive()
    assert max(record_lengths(pair.initiator)) <= RECORD_BYTES_MAX
    assert max(record_lengths(pair.initiator)) <= 3 * RECORD_BYTES + 8 * 1024
    assert pair.responder.link.state is LinkState.OPEN
    assert len(pair.responder.packets) == 3000 * 2 + 1 + 5 * 3
    assert link.queued_bytes == 0
    overlay_messages = [packet[1] for packet in pair.responder.packets if packet[0] == CONTROL]
    assert overlay_messages == [
        *(body(300, number) for number in range(3000)),
        body(400_000, 1),
        *(body(FRAGMENT_BYTES - 1, number) for number in range(5)),
    ]


def test_small_packets_share_a_record() -> None:
    pair = opened()
    for number in range(100):
        pair.initiator.link.send_packet(UNICAST, GROUP, NONCE, body(100, number))
    pair.drive()
    assert len(record_lengths(pair.initiator)) == 1
    assert [packet[3][0] for packet in pair.responder.packets] == list(range(100))


# -- lanes


def lanes(pair: LinkPair) -> list[tuple[int, int]]:
    """Return (kind, size) of what arrived at the responder, in order."""
    return [(kind, len(content if kind == CONTROL else sealed)) for kind, content, _nonce, sealed in pair.responder.packets]


@pytest.mark.parametrize(("size", "buffers"), [(100, 1), (2 * JOINED_BYTES_MAX, 2)])
def test_a_small_record_is_written_in_one_buffer(size: int, buffers: int) -> None:
    pair = opened()
    pair.initiator.link.send_packet(UNICAST, GROUP, NONCE, body(size))
    data = pair.initiator.link.data_to_send(1 << 20)
    assert len(data) == buffers
    assert not pair.initiator.link.has_more
    pair.responder.receive(b"".join(data), pair.now)
    pair.responder.take()
    assert lanes(pair) == [(UNICAST, size)]


def test_small_ones_pass_a_large_one() -> None:
    pair = opened()
    link = pair.initiator.link
    link.send_packet(UNICAST, GROUP, NONCE, body(16 * 1024 * 1024))
    first = link.data_to_send(64 * 1024)
    link.send_control(b"urgent")
    link.send_packet(UNICAST, GROUP, NONCE, body(100))
    second = link.data_to_send(1)
    for data in (*first, *second):
        pair.responder.receive(data, pair.now)
    pair.responder.take()
    assert lanes(pair) == [(CONTROL, 6), (UNICAST, 100)]
    pair.drive()
    assert lanes(pair)[2:] == [(UNICAST, 16 * 1024 * 1024)]
    assert link.queued_bytes == 0


@pytest.mark.parametrize("size", [RECORD_BYTES // 3, RECORD_BYTES // 2 + 100, FRAGMENT_BYTES - 28])
def test_endless_interactive_does_not_starve_bulk(size: int) -> None:
    pair = opened()
    link = pair.initiator.link
    link.send_packet(UNICAST, GROUP, NONCE, body(10 * FRAGMENT_BYTES))
    for _ in range(11 * (BULK_EVERY + 1)):
        for _ in range(3):
            link.send_packet(UNICAST, GROUP, NONCE, body(size))
        for data in link.data_to_send(1):  # one record
            pair.responder.receive(data, pair.now)
    pair.responder.take()
    assert (UNICAST, 10 * FRAGMENT_BYTES) in lanes(pair)


def test_bulk_does_not_take_more_than_its_share() -> None:
    pair = opened()
    link = pair.initiator.link
    link.send_packet(UNICAST, GROUP, NONCE, body(100 * FRAGMENT_BYTES))
    for _ in range(20 * BULK_EVERY):
        link.send_packet(UNICAST, GROUP, NONCE, body(RECORD_BYTES - 28))
    for _ in range(10 * (BULK_EVERY + 1)):
        for data in link.data_to_send(1):
            pair.responder.receive(data, pair.now)
    pair.responder.take()
    assert abs(len(pair.responder.packets) - 10 * BULK_EVERY) <= 2


SIZES = [10, RECORD_BYTES + 1, 20, 30, 5 * RECORD_BYTES, 40, FRAGMENT_BYTES + 1, FRAGMENT_BYTES - 28, RECORD_BYTES - 28, 50]


@pytest.mark.parametrize("kind", [MULTICAST, CONTROL])
def test_order_is_kept_across_sizes(kind: int) -> None:
    pair = opened()
    for number, size in enumerate(SIZES * 3):
        if kind == CONTROL:
            pair.initiator.link.send_control(body(size, number))
        else:
            pair.initiator.link.send_packet(MULTICAST, GROUP, NONCE, body(size + 16, number))
        pair.initiator.link.send_packet(UNICAST, GROUP, NONCE, body(5000))
        if number % 4 == 0:
            for data in pair.initiator.link.data_to_send(1):
                pair.responder.receive(data, pair.now)
    pair.drive()
    numbers = [(packet[1] if kind == CONTROL else packet[3])[0] for packet in pair.responder.packets if packet[0] == kind]
    assert numbers == list(range(len(SIZES) * 3))


def test_a_large_multicast_does_not_pass_a_backlog_of_small_ones() -> None:
    """Bulk gets its turn while there is interactive work: then the order of broadcasts must not depend on their size."""
    pair = opened()
    link = pair.initiator.link
    for _ in range(20 * BULK_EVERY):
        link.send_packet(MULTICAST, GROUP, NONCE, body(20_000, 1))
    link.send_packet(MULTICAST, GROUP, NONCE, body(FRAGMENT_BYTES + 1, 2))
    link.send_packet(UNICAST, GROUP, NONCE, body(FRAGMENT_BYTES + 1, 3))
    for _ in range(40):
        link.send_packet(UNICAST, GROUP, NONCE, body(20_000, 4))
    link.send_packet(MULTICAST, GROUP, NONCE, body(100, 5))
    pair.drive()
    assert [packet[3][0] for packet in pair.responder.packets if packet[0] == MULTICAST] == [1] * 80 + [2, 5]
    assert len(pair.responder.packets) == 80 + 1 + 1 + 40 + 1


@pytest.mark.parametrize("sizes", [[], [10], [RECORD_BYTES + 1], SIZES, [5 * RECORD_BYTES, 10], [20_000] * 20])
def test_a_flush_is_answered_behind_all_that_was_queued_in_order(sizes: list[int]) -> None:
    pair = opened()
    asking, answering = pair.initiator, pair.responder
    for number, size in enumerate(sizes):
        if number % 2:
            answering.link.send_packet(MULTICAST, GROUP, NONCE, body(size + 16))
        else:
            answering.link.send_body(GROUP, [body(size)], size, is_ordered=True, passes_large=size < LARGE_RECORD_BYTES)
    asking.link.ask_flush(b"12345678")
    for data in asking.link.data_to_send(1 << 20):
        answering.receive(data, pair.now)
    assert answering.link.queued_bytes > sum(sizes)
    answering.link.send_packet(UNICAST, GROUP, NONCE, body(50_000))
    answering.link.send_packet(MULTICAST, GROUP, NONCE, body(100))
    pair.drive()
    kinds = [BODY if packet[0] == LARGE_BODY else packet[0] for packet in asking.packets if packet[0] != UNICAST]
    assert kinds == [BODY if number % 2 == 0 else MULTICAST for number in range(len(sizes))] + [FLUSHED, MULTICAST]
    assert [packet[1:] for packet in asking.packets if packet[0] == FLUSHED] == [(b"12345678", b"", b"")]
    assert answering.link.queued_bytes == 0


def test_a_flush_does_not_wait_for_large_packets_without_an_order() -> None:
    pair = opened()
    link = pair.responder.link
    link.send_packet(UNICAST, GROUP, NONCE, body(100 * RECORD_BYTES))
    pair.initiator.link.ask_flush(b"12345678")
    for data in pair.initiator.link.data_to_send(1 << 20):
        pair.responder.receive(data, pair.now)
    pair.drive()
    assert [packet[0] for packet in pair.initiator.packets] == [FLUSHED, UNICAST]


def test_a_link_that_is_not_open_is_not_asked() -> None:
    pair = opened()
    pair.initiator.link.close(CloseReason.NORMAL, pair.now)
    pair.initiator.link.ask_flush(b"12345678")
    pair.drive()
    assert closed(pair.initiator).clean
    assert not pair.initiator.packets


def test_a_peer_that_asks_for_flushes_and_does_not_read_is_given_up() -> None:
    pair = opened(config=msgspec.structs.replace(CONFIG, queue_bytes_high=1000, queue_bytes_max=10_000))
    rogue = Rogue(pair, pair.initiator)
    link = pair.responder.link
    while link.state is LinkState.OPEN:
        assert link.queued_bytes <= 10_000
        pair.responder.receive(rogue.record(frame(FLUSH, bytes(8))), pair.now)
    pair.responder.take()
    assert "does not read" in closed(pair.responder).reason


def test_a_hostile_peer_cannot_fill_memory_with_fragments() -> None:
    pair = opened()
    rogue = Rogue(pair, pair.initiator)
    piece = frame(FRAGMENT, body(FRAGMENT_BYTES))
    assert PACKET_BYTES_MAX % FRAGMENT_BYTES == 0
    for _ in range(PACKET_BYTES_MAX // FRAGMENT_BYTES):
        rogue.send(piece)
    pair.drive()
    assert pair.responder.link.state is LinkState.OPEN
    rogue.send(frame(FRAGMENT_END, b"x"))  # one byte more
    pair.drive()
    assert "over the limit" in closed(pair.responder).reason


def test_a_hostile_peer_cannot_cut_a_packet_into_millions_of_pieces() -> None:
    pair = opened()
    rogue = Rogue(pair, pair.initiator)
    rogue.send(frame(FRAGMENT, body(FRAGMENT_BYTES_MIN)))
    pair.drive()
    assert pair.responder.link.state is LinkState.OPEN
    rogue.send(frame(FRAGMENT, body(FRAGMENT_BYTES_MIN - 1)))
    pair.drive()
    assert "under the limit" in closed(pair.responder).reason


def test_small_fragments_do_not_keep_the_large_records_that_they_came_in() -> None:
    pair = opened()
    rogue = Rogue(pair, pair.initiator)
    tracemalloc.start()
    try:
        for _ in range(100):
            rogue.send(frame(FRAGMENT, body(FRAGMENT_BYTES_MIN)) + frame(UNICAST, body(RECORD_BYTES)))
            pair.drive()
            pair.responder.packets.clear()
            pair.initiator.written.clear()
        kept, _peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 200 * FRAGMENT_BYTES_MIN


def test_pongs_do_not_pile_up_for_who_does_not_read() -> None:
    pair = opened()
    rogue = Rogue(pair, pair.initiator)
    for _ in range(100):
        pair.responder.receive(rogue.record(frame(PING) * 100), pair.now)
    assert len(b"".join(pair.responder.link.data_to_send(1 << 20))) < 100
    pair.responder.receive(rogue.record(frame(PING)), pair.now)
    assert pair.responder.link.has_output()  # the next one is answered again


def test_the_last_ping_is_the_one_that_is_answered() -> None:
    pair = opened()
    rogue = Rogue(pair, pair.initiator)
    pair.responder.receive(rogue.record(frame(PING, b"one") + frame(PING, b"two")), pair.now)
    answer = pair.responder.link.data_to_send(1 << 20)
    opener = pair.initiator.link._opener
    assert opener is not None
    assert opener.open(b"".join(answer)[4:]) == frame(PONG, b"two")
    pair.responder.receive(rogue.record(frame(PING, bytes(5))), pair.now)
    pair.responder.take()
    assert "limit" in closed(pair.responder).reason


# -- standing still


def test_a_link_is_unsure_until_a_question_of_after_the_stop_is_answered() -> None:
    pair = opened()
    link = pair.initiator.link
    link.send_packet(UNICAST, GROUP, NONCE, body(100))
    pair.drive(until=pair.now + CONFIG.keepalive_interval_s)  # one that was asked before the stop
    pair.flush()
    link.verify(pair.now)
    link.verify(pair.now)
    Rogue(pair, pair.responder).send(frame(PONG, struct.pack(">I", 0)) + frame(PONG, struct.pack(">I", 1)))
    pair.step()
    assert (link.is_unsure, pair.initiator.events) == (True, [])
    pair.drive()
    assert (link.is_unsure, pair.initiator.events) == (False, [LinkVerified()])
    pair.drive(until=pair.now + 60.0)
    assert link.is_quiet


def test_a_peer_that_repeats_nothing_is_believed() -> None:
    pair = opened()
    pair.initiator.link.verify(pair.now)
    Rogue(pair, pair.responder).send(frame(PONG))
    pair.step()
    assert pair.initiator.events == [LinkVerified()]


def test_a_link_that_nobody_answers_on_after_a_stop_ends() -> None:
    pair = opened()
    pair.initiator.link.verify(pair.now)
    pair.initiator.link.data_to_send(1 << 20)  # lost
    before = pair.now
    while pair.initiator.link.deadline() is not None:
        pair.now = pair.initiator.link.deadline() or 0.0
        pair.initiator.link.handle_timeout(pair.now)
        pair.initiator.link.data_to_send(1 << 20)
    assert pair.now - before == CONFIG.keepalive_timeout_s
    pair.initiator.take()
    assert "nothing heard" in closed(pair.initiator).reason


def test_a_link_that_is_not_open_has_nothing_to_verify() -> None:
    pair = LinkPair(KEYRING, confirms=False)
    pair.initiator.link.verify(pair.now)
    assert not pair.initiator.link.is_unsure


# -- who only hears


def said(pair: LinkPair, seconds: float, size: int) -> list[float]:
    """Let one side send packets, ten a second, and ask nothing; returns when the other one, which has nothing to say, did."""
    start, moments = pair.now, []
    while pair.now < start + seconds:
        pair.initiator.link.send_packet(UNICAST, GROUP, NONCE, body(size))
        pair.initiator.link.wake(pair.now)
        before = len(pair.responder.written)
        pair.now += 0.1
        pair.drive()
        if len(pair.responder.written) > before:
            moments.append(pair.now - start)
    return moments


def test_who_hears_much_and_has_nothing_to_say_says_so_unasked() -> None:
    """On a slow line a PING waits behind what the buffers hold; the one who sends must hear something all the same."""
    pair = opened()
    moments = said(pair, 10.0, 5000)
    assert 8 <= len(moments) <= 14
    steps = [later - earlier for earlier, later in itertools.pairwise(moments)]
    assert max(steps) <= CONFIG.keepalive_interval_s + 0.3
    assert min(steps) >= CONFIG.keepalive_interval_s - 0.3


def test_who_hears_little_waits_until_it_is_asked() -> None:
    pair = opened()
    assert said(pair, 2.0, 64) == []


# -- queue


def test_queued_bytes_counts_what_waits() -> None:
    pair = opened()
    link = pair.initiator.link
    link.send_packet(UNICAST, GROUP, NONCE, body(100))
    assert link.queued_bytes == 128
    link.send_control(body(50))
    assert link.queued_bytes == 178
    link.send_packet(MULTICAST, GROUP, NONCE, body(RECORD_BYTES))
    assert link.queued_bytes == 178 + 1 + 28 + RECORD_BYTES
    pair.drive()
    assert link.queued_bytes == 0


def test_congestion_has_a_hysteresis() -> None:
    config = msgspec.structs.replace(CONFIG, queue_bytes_high=100_000)
    pair = opened(config=config)
    link = pair.initiator.link
    while link.queued_bytes <= 100_000:
        assert not link.congested
        link.send_packet(UNICAST, GROUP, NONCE, body(9972))
    assert link.congested
    while pair.initiator.link.congested:
        assert link.queued_bytes >= 25_000
        assert link.data_to_send(1)
    assert link.queued_bytes < 25_000
    assert link.events_received() == [LinkDrained()]
    link.send_packet(UNICAST, GROUP, NONCE, body(9972))
    link.data_to_send(1 << 20)
    assert link.events_received() == []


def test_what_is_large_does_not_make_a_link_busy() -> None:
    pair = opened(config=msgspec.structs.replace(CONFIG, queue_bytes_high=100_000))
    link = pair.initiator.link
    link.send_packet(UNICAST, GROUP, NONCE, body(1_000_000))
    assert (link.congested, link.is_busy) == (True, False)
    for _ in range(11):
        link.send_packet(UNICAST, GROUP, NONCE, body(9972))
    assert (link.congested, link.is_busy) == (True, True)
    while link.is_busy:
        for data in link.data_to_send(1):
            pair.responder.receive(data, pair.now)
    assert link.queued_bytes > 500_000  # only the small ones have left
    assert (link.congested, link.is_busy) == (True, False)
    assert link.events_received() == [LinkDrained()]
    pair.drive()
    assert (link.congested, link.is_busy) == (False, False)
    assert pair.initiator.events[-1:] == [LinkDrained()]


def test_the_end_is_the_last_event_also_of_a_congested_link() -> None:
    pair = opened(config=msgspec.structs.replace(CONFIG, queue_bytes_high=10_000))
    pair.initiator.link.send_packet(UNICAST, GROUP, NONCE, body(20_000))
    assert pair.initiator.link.congested
    pair.initiator.receive(Rogue(pair, pair.responder).record(frame(CLOSE, b"\x00")), pair.now)
    pair.drive()
    assert closed(pair.initiator).clean
    assert not pair.initiator.link.congested


@pytest.mark.parametrize("size", [1000, 100_000])
@pytest.mark.parametrize("control", [False, True])
def test_a_peer_that_does_not_read_is_given_up(size: int, control: bool) -> None:
    pair = opened(config=msgspec.structs.replace(CONFIG, queue_bytes_high=10_000, queue_bytes_max=1_000_000))
    link = pair.initiator.link
    before = 0
    while pair.initiator.link.state is LinkState.OPEN:
        assert link.queued_bytes <= 1_000_000
        before = link.queued_bytes
        if control:
            link.send_control(body(size))
        else:
            link.send_packet(UNICAST, GROUP, NONCE, body(size))
    assert before > 1_000_000 - size - 100
    pair.initiator.take()
    assert "does not read" in closed(pair.initiator).reason
    link.send_packet(UNICAST, GROUP, NONCE, body(size))
    link.send_control(body(size))
    closed(pair.initiator)


def test_budget() -> None:
    pair = opened()
    link = pair.initiator.link
    for _ in range(100):
        link.send_packet(UNICAST, GROUP, NONCE, body(10_000))
    assert link.data_to_send(0) == []
    assert link.has_output()
    assert sum(map(len, link.data_to_send(1))) <= RECORD_BYTES + 1000
    assert 64 * 1024 <= sum(map(len, link.data_to_send(64 * 1024))) <= 64 * 1024 + RECORD_BYTES + 1000


def test_output_and_events_are_announced() -> None:
    pair = LinkPair(KEYRING, confirms=False)
    commands: list[Callable[[], None]] = [
        lambda: None,
        lambda: pair.initiator.link.confirm(pair.now),
        lambda: pair.responder.link.confirm(pair.now),
        lambda: pair.initiator.link.send_control(b"x"),
        lambda: pair.responder.link.send_packet(UNICAST, GROUP, NONCE, body(100)),
        lambda: pair.responder.link.send_packet(UNICAST, GROUP, NONCE, body(FRAGMENT_BYTES)),
        lambda: pair.initiator.link.close(CloseReason.NORMAL, pair.now),
        lambda: None,
    ]
    for command in commands:
        command()
        for _ in range(20):
            for end in (pair.initiator, pair.responder):
                announced = end.link.has_output()
                data = b"".join(end.link.data_to_send(1 << 20))
                assert bool(data) == announced
                assert not end.link.has_output()
                if data:
                    pair.other(end).receive(data, pair.now)
                has_events = bool(end.link.events)
                count = len(end.events)
                end.take()
                assert (len(end.events) > count) == has_events
                assert not end.link.events
    closed(pair.initiator)
    closed(pair.responder)


# -- keep-alive


def quiet(**arguments: float | LinkConfig | Callable[[], int]) -> LinkPair:
    """Return two links that have asked what they wanted to know after opening."""
    pair = opened(**arguments)
    pair.drive(pair.now + 10.0)
    for end in (pair.initiator, pair.responder):
        assert end.link.is_quiet
        end.written.clear()
    return pair


def test_a_quiet_link_costs_nothing_and_stays() -> None:
    pair = quiet(latency_s=0.05)
    pair.initiator.is_held = pair.responder.is_held = True
    pair.drive(pair.now + 3600.0)
    for end in (pair.initiator, pair.responder):
        assert end.link.state is LinkState.OPEN
        assert end.link.deadline() is None
        assert not end.written


def test_after_a_packet_one_question_and_then_rest() -> None:
    pair = quiet(latency_s=0.05)
    pair.initiator.link.send_packet(UNICAST, GROUP, NONCE, body(100))
    pair.drive(pair.now + CONFIG.keepalive_interval_s - 0.01)
    assert len(record_lengths(pair.initiator)) == 1
    assert pair.initiator.link.deadline() is not None
    pair.drive(pair.now + 60.0)
    assert len(record_lengths(pair.initiator)) == 2  # and a PING
    assert len(record_lengths(pair.responder)) == 1
    assert pair.initiator.link.is_quiet
    assert pair.initiator.link.deadline() is pair.responder.link.deadline() is None


def test_who_heard_something_since_the_last_packet_does_not_ask() -> None:
    pair = quiet(latency_s=0.05)
    pair.initiator.link.send_packet(UNICAST, GROUP, NONCE, body(100))
    pair.drive()
    pair.responder.link.send_packet(UNICAST, GROUP, NONCE, body(100))
    pair.drive()
    pair.drive(pair.now + 60.0)
    assert len(record_lengths(pair.initiator)) == 2  # the packet, and the answer to the responder's question
    assert len(record_lengths(pair.responder)) == 2


def test_overlay_messages_wake_nobody() -> None:
    pair = quiet()
    pair.responder.is_held = True
    pair.initiator.link.send_control(b"control")
    pair.initiator.written += map(bytes, pair.initiator.link.data_to_send(1000))
    assert pair.initiator.link.deadline() is None


def test_what_is_awaited_is_asked_for_until_it_comes() -> None:
    pair = quiet()
    link = pair.initiator.link
    link.send_packet(UNICAST, GROUP, NONCE, body(100))
    for number in range(100):
        pair.drive()
        deadline = link.deadline()
        assert deadline is not None, number
        pair.now = deadline
        link.handle_timeout(deadline, is_awaited=True)
    assert link.state is LinkState.OPEN
    assert len(record_lengths(pair.initiator)) > 40  # a check without a question follows each answer
    pair.drive(pair.now + 10.0)
    assert link.is_quiet


def test_a_silent_peer_that_owes_an_answer_is_given_up() -> None:
    pair = quiet()
    link = pair.initiator.link
    link.send_packet(UNICAST, GROUP, NONCE, body(100))
    pair.drive()
    pair.responder.is_held = pair.initiator.is_held = True
    sent_at = pair.now
    while (deadline := link.deadline()) is not None:
        link.handle_timeout(deadline, is_awaited=True)
        pair.now = deadline
    pair.initiator.take()
    assert "nothing heard" in closed(pair.initiator).reason
    assert pair.now <= sent_at + CONFIG.keepalive_timeout_s + 0.01


@pytest.mark.parametrize("offset", [0.0, 0.1, 0.3, 1 / 3, 0.7, 1234.56789])
def test_a_silent_peer_is_given_up_within_the_bound(offset: float) -> None:
    pair = quiet(latency_s=0.01)
    pair.drive(pair.now + offset)
    pair.responder.is_held = pair.initiator.is_held = True
    sent_at = pair.now
    pair.initiator.link.send_packet(UNICAST, GROUP, NONCE, body(100))
    pair.flush()
    pair.drive(sent_at + CONFIG.keepalive_timeout_s - 0.01)
    assert pair.initiator.link.state is LinkState.OPEN
    pair.drive(sent_at + CONFIG.keepalive_timeout_s + 0.01)
    assert "nothing heard" in closed(pair.initiator).reason
    assert pair.responder.link.state is LinkState.OPEN  # it waits for nothing


def test_what_cannot_be_written_is_outstanding() -> None:
    pair = quiet()
    link = pair.initiator.link
    link.send_packet(UNICAST, GROUP, NONCE, body(100))
    link.wake(pair.now)
    ends_at = pair.now + CONFIG.keepalive_timeout_s
    while (deadline := link.deadline()) is not None:  # the transport takes nothing
        assert deadline <= ends_at
        link.handle_timeout(deadline)
    pair.initiator.take()
    closed(pair.initiator)


def test_an_initiator_that_vanishes_as_the_link_opens_is_noticed() -> None:
    pair = LinkPair(KEYRING)
    while pair.responder.link.state is not LinkState.OPEN:
        pair.step()
    pair.responder.is_held = True
    pair.drive(pair.now + CONFIG.keepalive_timeout_s + 0.01)
    closed(pair.responder)


def test_timers_come_to_rest_whatever_the_time_is() -> None:
    """A sum and a difference are rounded otherwise: a deadline must never lie at the moment that it was set at."""
    for number in range(300):
        pair = opened(latency_s=0.001)
        pair.now = number / 7 * 1.1
        for end in (pair.initiator, pair.responder):
            end.link._become_open(pair.now)
            end.link.send_packet(UNICAST, GROUP, NONCE, body(100))
            end.is_held = True
        pair.drive(pair.now + 5)
        closed(pair.initiator)


def test_a_late_timer_of_our_own_does_not_accuse_the_peer() -> None:
    pair = quiet()
    link = pair.initiator.link
    link.send_packet(UNICAST, GROUP, NONCE, body(100))
    pair.flush()
    now = pair.now + 100.0  # we were stopped; what the peer sent meanwhile is unread
    link.handle_timeout(now)
    assert link.state is LinkState.OPEN
    assert link.has_output()
    deadline = link.deadline()
    assert deadline is not None
    assert now + 0.5 < deadline <= now + CONFIG.keepalive_interval_s
    link.handle_timeout(deadline)
    pair.initiator.take()
    assert "nothing heard" in closed(pair.initiator).reason


def test_a_late_timer_and_then_a_word_from_the_peer() -> None:
    pair = opened()
    pair.initiator.link.send_packet(UNICAST, GROUP, NONCE, body(100))
    pair.flush()
    now = pair.now + 100.0
    pair.initiator.link.handle_timeout(now)
    pair.now = now
    pair.drive(now + 10)
    assert pair.initiator.link.state is LinkState.OPEN


# -- links that nothing uses


def test_what_moves_on_a_link_keeps_it_in_use() -> None:
    pair = quiet()
    link = pair.initiator.link
    assert link.is_unused_since(pair.now - 1.0)
    assert not link.is_unused_since(-1.0)
    pair.responder.link.send_packet(UNICAST, GROUP, NONCE, body(100_000))
    pair.responder.link.wake(pair.now)
    pair.send(pair.responder, b"".join(pair.responder.link.data_to_send(10_000)))
    pair.initiator.receive(pair.initiator.inbox.popleft()[1], pair.now)
    assert not link.is_unused_since(pair.now)  # the rest of a large packet is still to come
    pair.drive()
    assert link.is_unused_since(pair.now)
    link.active_at = pair.now + 1.0  # the owner tells
    assert not link.is_unused_since(pair.now)
    link.active_at = pair.now
    link.send_packet(UNICAST, GROUP, NONCE, body(100))
    assert not link.is_unused_since(pair.now)
    pair.drive()
    assert not link.is_unused_since(pair.now)
    pair.drive(pair.now + 10.0)
    assert link.is_unused_since(pair.now)
    link.close(CloseReason.NORMAL, pair.now)
    assert not link.is_unused_since(pair.now)


def test_an_idle_close_is_told_to_the_peer() -> None:
    pair = opened()
    link, other = pair.initiator.link, pair.responder.link
    link.close(CloseReason.IDLE, pair.now)
    assert link.is_releasing
    assert link.is_idle_end
    assert not link.is_open
    other.send_packet(UNICAST, GROUP, NONCE, body(100))  # crosses the close
    pair.drive()
    assert pair.initiator.packets == [(UNICAST, GROUP, NONCE, body(100))]
    assert closed(pair.initiator) == LinkClosed(True, "closed")
    assert closed(pair.responder) == LinkClosed(True, "closed", released=True)
    assert other.is_idle_end
    assert not other.is_releasing


def test_early_timers_are_harmless() -> None:
    pair = opened()
    deadline = pair.initiator.link.deadline()
    pair.initiator.link.handle_timeout(pair.now)
    assert pair.initiator.link.deadline() == deadline
    assert not pair.initiator.link.has_output()


# -- the end


def test_a_clean_close_brings_what_was_queued_on_both_sides() -> None:
    pair = opened()
    for end, mark in ((pair.initiator, 1), (pair.responder, 2)):
        end.link.send_packet(UNICAST, GROUP, NONCE, body(3_000_000, mark))
        for _ in range(100):
            end.link.send_packet(MULTICAST, GROUP, NONCE, body(20_000, mark))
        end.link.send_control(body(100_000, mark))
    pair.initiator.link.close(CloseReason.LEAVING, pair.now)
    pair.drive()
    for end in (pair.initiator, pair.responder):
        assert len(end.packets) == 102
        assert closed(end).clean


def test_close_against_close() -> None:
    pair = opened(latency_s=1.0)
    for end in (pair.initiator, pair.responder):
        end.link.send_packet(UNICAST, GROUP, NONCE, body(100_000))
        end.link.close(CloseReason.NORMAL, pair.now)
        end.link.close(CloseReason.NORMAL, pair.now)
    pair.drive()
    for end in (pair.initiator, pair.responder):
        assert len(end.packets) == 1
        assert closed(end).clean


def test_nothing_is_sent_after_close() -> None:
    pair = opened()
    link = pair.initiator.link
    link.close(CloseReason.NORMAL, pair.now)
    link.send_packet(UNICAST, GROUP, NONCE, body(100))
    link.send_control(b"late")
    assert link.queued_bytes == 0
    pair.drive()
    assert not pair.responder.packets
    assert closed(pair.initiator).clean


def test_what_comes_after_close_is_not_read() -> None:
    pair = opened()
    rogue = Rogue(pair, pair.initiator)
    records = rogue.record(frame(CLOSE, b"\x00") + frame(UNICAST, body(100))) + rogue.record(frame(UNICAST, body(100)))
    pair.responder.receive(records, pair.now)
    pair.drive()
    assert not pair.responder.packets
    assert closed(pair.responder).clean


@pytest.mark.parametrize("content", [b"", b"\x00", b"\x02", b"\xff", bytes(100)])
def test_a_close_for_any_reason_is_a_close(content: bytes) -> None:
    pair = opened()
    Rogue(pair, pair.initiator).send(frame(CLOSE, content))
    pair.drive()
    assert closed(pair.responder).clean


def test_the_end_of_the_stream_is_not_clean() -> None:
    pair = opened()
    pair.responder.receive(None, pair.now)
    pair.responder.take()
    assert not closed(pair.responder).clean


def test_the_end_of_the_stream_instead_of_an_answer_to_close_is_not_clean() -> None:
    """Frames that the peer had queued did not arrive: an end without CLOSE is a broken link (docs/design.md 3.7)."""
    pair = opened()
    pair.responder.link.send_packet(UNICAST, GROUP, NONCE, body(100))
    pair.initiator.link.close(CloseReason.NORMAL, pair.now)
    assert pair.initiator.link.data_to_send(1000)
    pair.initiator.receive(None, pair.now)
    pair.initiator.take()
    assert not closed(pair.initiator).clean


def test_a_close_that_is_not_answered_is_given_up() -> None:
    pair = opened(latency_s=0.01)
    pair.initiator.link.close(CloseReason.NORMAL, pair.now)
    pair.initiator.is_held = pair.responder.is_held = True
    before = pair.now
    pair.drive(before + 0.99)
    assert pair.initiator.link.state is LinkState.CLOSING
    pair.drive(before + 1.01)
    assert not closed(pair.initiator).clean


@pytest.mark.parametrize("closer", ["initiator", "responder"])
def test_a_slow_close_goes_on_while_it_moves(closer: str) -> None:
    """A large queue over a slow wire takes longer than the bound, which is for silence."""
    pair = opened()
    end, other = pair.initiator, pair.responder
    end.link.send_packet(UNICAST, GROUP, NONCE, body(FRAGMENT_BYTES * 160))
    closing = end if closer == "initiator" else other
    closing.link.close(CloseReason.NORMAL, pair.now)
    now = pair.now
    while end.link.state is not LinkState.CLOSED or other.link.state is not LinkState.CLOSED:
        now += 0.25
        assert now < 30
        for one, far in ((end, other), (other, end)):
            deadline = one.link.deadline()
            if deadline is not None and deadline <= now:
                one.link.handle_timeout(now)
            for data in one.link.data_to_send(1):
                far.receive(data, now)
            one.take()
    for one in (end, other):
        one.take()
        assert closed(one).clean
    assert len(other.packets) == 1
    assert now > 5


def test_abort_loses_what_is_queued() -> None:
    pair = opened()
    pair.initiator.link.send_packet(UNICAST, GROUP, NONCE, body(100))
    pair.initiator.link.abort("because")
    pair.initiator.link.abort("again")
    pair.drive()
    assert closed(pair.initiator) == LinkClosed(clean=False, reason="because", kind="other")
    assert not closed(pair.responder).clean
    assert not pair.responder.packets


def test_a_closed_link_says_nothing_more() -> None:
    pair = opened()
    link = pair.initiator.link
    link.close(CloseReason.NORMAL, pair.now)
    link.receive_eof(pair.now)
    pair.initiator.take()
    closed(pair.initiator)
    for act in (
        lambda: link.close(CloseReason.NORMAL, 1.0),
        lambda: link.abort("again"),
        lambda: link.receive_eof(1.0),
        lambda: link.handle_timeout(1e9),
        lambda: link.send_control(b"x"),
        lambda: link.send_packet(UNICAST, GROUP, NONCE, body(100)),
        lambda: link.receive_data(memoryview(b"x"), 1.0),
    ):
        act()
        assert not link.events
        closed(pair.initiator)


def test_keep_alive_frames_between_closes_do_not_announce_output() -> None:
    pair = opened()
    rogue = Rogue(pair, pair.responder)
    pair.initiator.link.close(CloseReason.NORMAL, pair.now)
    pair.initiator.link.data_to_send(1000)
    rogue.send(frame(PING) + frame(PONG))
    pair.step()
    assert pair.initiator.link.state is LinkState.CLOSING
    assert not pair.initiator.link.has_output()


def test_a_multicast_body_and_a_unicast_body_arrive_as_sent() -> None:
    pair = opened()
    for kind in (UNICAST, MULTICAST):
        for size in (16, 17, 1000, FRAGMENT_BYTES - 28, FRAGMENT_BYTES - 27, FRAGMENT_BYTES, FRAGMENT_BYTES + 1, 200_000):
            pair.initiator.link.send_packet(kind, GROUP, NONCE, body(size, size))
            pair.drive()
            assert pair.responder.packets.pop() == (kind, GROUP, NONCE, body(size, size))


def test_a_link_rekeys_in_the_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "RecordSealer", lambda key, suite: RecordSealer(key, suite, rekey_records=3))
    monkeypatch.setattr(link_module, "RecordOpener", lambda key, suite: RecordOpener(key, suite, rekey_records=3))
    pair = opened()
    for number in range(20):
        pair.initiator.link.send_packet(UNICAST, GROUP, NONCE, body(100, number))
        pair.drive()
    assert len(pair.responder.packets) == 20


def test_an_early_timer_changes_nothing_in_any_state() -> None:
    """Whoever owns many links may ask each of them at the same time: only what is due is done."""
    pair = LinkPair(KEYRING, latency_s=1.0)
    seen = set()
    while True:
        for end in (pair.initiator, pair.responder):
            before, deadline = end.link.state, end.link.deadline()
            if deadline is None or pair.now < deadline:
                seen.add(before)
                end.link.handle_timeout(pair.now)
                assert (end.link.state, end.link.deadline()) == (before, deadline)
        if not pair.step():
            break
    pair.initiator.link.send_packet(UNICAST, GROUP, NONCE, body(100))
    pair.flush()
    pair.responder.is_held = pair.initiator.is_held = True
    pair.initiator.link.close(CloseReason.NORMAL, pair.now)
    state, deadline = pair.initiator.link.state, pair.initiator.link.deadline()
    assert deadline is not None
    for part in (0.0, 0.5, 0.99):
        pair.initiator.link.handle_timeout(pair.now + part * (deadline - pair.now))
        assert (pair.initiator.link.state, pair.initiator.link.deadline()) == (state, deadline)
    assert seen | {state} >= {LinkState.HANDSHAKE, LinkState.OPEN, LinkState.CLOSING}


def test_a_silent_peer_is_asked_at_each_interval() -> None:
    pair = quiet()
    link = pair.initiator.link
    link.send_packet(UNICAST, GROUP, NONCE, body(100))
    pair.flush()
    pair.responder.is_held = pair.initiator.is_held = True
    sent_at, asked_at = pair.now, []
    before = len(record_lengths(pair.initiator))
    while (deadline := link.deadline()) is not None:
        link.handle_timeout(deadline)
        pair.initiator.written += map(bytes, link.data_to_send(1 << 20))
        if len(record_lengths(pair.initiator)) > before:
            before += 1
            asked_at.append(deadline - sent_at)
    assert asked_at == pytest.approx([CONFIG.keepalive_interval_s, 2 * CONFIG.keepalive_interval_s])
    assert deadline is None
    assert link.state is LinkState.CLOSED


# -- work


def small_frames(pair: LinkPair, frames: list[bytes]) -> bytes:
    """Return one record of the initiator with frames of the test's making."""
    sealer = pair.initiator.link._sealer
    assert sealer is not None
    sealed = sealer.seal(b"".join(frames))
    return struct.pack(">I", len(sealed)) + sealed


@pytest.mark.parametrize(
    ("frames", "calls"),
    [
        ([frame(CONTROL, bytes((number % 256,))) for number in range(WORK_MAX)], 1),
        ([frame(CONTROL, bytes((number % 256,))) for number in range(WORK_MAX + 1)], 2),
        ([frame(CONTROL, bytes((number % 256,))) for number in range(1000)], 16),
        ([frame(CONTROL, bytes((number,)) * 40 * CONTROL_WORK_BYTES) for number in range(8)], 4),
        ([frame(UNICAST, body(60))] * 200, 4),
        ([frame(UNICAST, body(16 * PACKET_WORK_BYTES))] * 3, 1),
        ([frame(PING)] * 640, 10),
    ],
    ids=["just enough", "one more", "many", "large control", "packets", "large packets", "pings"],
)
def test_one_call_reads_frames_for_so_much_work(frames: list[bytes], calls: int) -> None:
    pair = LinkPair(KEYRING)
    pair.drive()
    link, data = pair.responder.link, small_frames(pair, frames)
    packets: list[Packet] = []
    counts: list[int] = []
    used = 0
    while not counts or link.has_unread:
        used += link.receive_data(memoryview(data)[used:], pair.now)
        taken = link.packets_received()
        counts.append(len(taken))
        packets += taken
    assert used == len(data)
    assert len(counts) == calls
    assert max(counts) <= WORK_MAX
    expected = [bytes(each[5:]) for each in frames if each[0] != PING]
    assert [key + data[start:stop] for _kind, key, data, start, stop in packets] == expected


def test_what_is_left_of_a_record_comes_before_the_next_one() -> None:
    pair = LinkPair(KEYRING)
    pair.drive()
    link = pair.responder.link
    numbers = [number.to_bytes(2, "big") for number in range(500)]
    data = b"".join(small_frames(pair, [frame(CONTROL, each) for each in numbers[at : at + 100]]) for at in range(0, 500, 100))
    received, used, rounds = [], 0, 0
    while rounds == 0 or link.has_unread:
        used += link.receive_data(memoryview(data)[used:], pair.now)
        received += [message for _kind, message, *_rest in link.packets_received()]
        rounds += 1
    assert received == numbers
    assert used == len(data)
    assert rounds == 8


def test_what_breaks_the_rules_ends_the_link_whenever_it_is_read() -> None:
    pair = LinkPair(KEYRING)
    pair.drive()
    link = pair.responder.link
    data = small_frames(pair, [*[frame(PING)] * (WORK_MAX + 5), frame(TAKEN)])
    used = link.receive_data(memoryview(data), pair.now)
    assert link.has_unread
    assert link.is_open
    link.receive_data(memoryview(data)[used:], pair.now)
    pair.responder.take()
    assert closed(pair.responder).reason == "chunks acknowledged that were never sent"
    assert not link.has_unread


def test_what_is_left_of_a_link_that_was_ended_is_not_read() -> None:
    pair = LinkPair(KEYRING)
    pair.drive()
    link = pair.responder.link
    data = small_frames(pair, [frame(CONTROL, b"x")] * (2 * WORK_MAX))
    used = link.receive_data(memoryview(data), pair.now)
    assert len(link.packets_received()) == WORK_MAX
    link.abort("the owner has had enough")
    link.receive_data(memoryview(data)[used:], pair.now)
    assert link.packets_received() == []
    assert not link.has_unread
