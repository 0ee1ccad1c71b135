"""Tests of iris_py/patterns/tunnel/table.py: a caller's table and a member's, with nothing between them but this file."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any, cast

import pytest

from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_py.defaults import WINDOW_BYTES_MAX, WINDOW_BYTES_MIN
from iris_py.errors import IrisError, Overloaded
from iris_py.link.lanes import TUNNEL, TUNNEL_SEALED
from iris_py.link.pacing import CHUNK_BYTES_MIN
from iris_py.patterns.request.losses import Losses
from iris_py.patterns.request.pending import new_opening
from iris_py.patterns.request.registration import Registration
from iris_py.patterns.request.requester import Requester
from iris_py.patterns.request.service import RequestService
from iris_py.patterns.tunnel.end import FROM_MEMBER, OPEN
from iris_py.patterns.tunnel.table import TunnelChanged, TunnelOpened, Tunnels, TunnelStarted
from iris_py.peers.group import Group
from iris_py.peers.member import KnownMember
from iris_py.peers.peer import Peer
from iris_py.wire import packets
from iris_py.wire.packets import CANCEL, REJECTION, TUNNEL_ACCEPT, TUNNEL_OPEN, Rejection
from iris_security import Keyring, Secret
from iris_security.aead import TAG_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from iris_py.link.link import Link
    from iris_py.patterns.tunnel.end import TunnelEnd
    from iris_py.peers.decrypted_message import PeerMessage

KEYRING = Keyring(Secret(bytes(range(32))), network="test")
WINDOW_BYTES = 100_000
TIMEOUT_S = 5.0


class FakeLink:
    """One side of a link that carries chunks in order, as long as it has room for more of them."""

    def __init__(self) -> None:
        self.id = b"the link"
        self.is_open = True
        self.congested = self.is_busy = False
        self.room = 1 << 30
        self.shared: set[bytes] = set()
        self.begun = 0
        self.chunks: list[tuple[int, bytes, bytes]] = []

    def begin_tunnel(self) -> None:
        self.begun += 1

    @property
    def chunk_room(self) -> int:
        return CHUNK_BYTES_MIN if len(self.chunks) < self.room else 0

    def send_tunnel(self, kind: int, tunnel_id: bytes, chunk: Sequence[bytes | memoryview], size: int, _now: float) -> None:
        assert size == sum(map(len, chunk))
        self.chunks.append((kind, tunnel_id, b"".join(chunk)))


class Side:
    """The table of one node, and what it needs of the node."""

    def __init__(self, number: int) -> None:
        self.info = NodeInfo(NodeId(number.to_bytes(16, "big")), (f"n{number}:1",))
        self.group = Group("cluster", KEYRING.cluster("cluster"), self.info.id, 1)
        self.requester = Requester(random.Random(number), lambda: 1, Losses(bytes(16)))
        self.service = RequestService(Losses(bytes(16)))
        self.drops: Counter[str] = Counter()
        self.link = FakeLink()
        self.tunnels = Tunnels(
            self.info, random.Random(number).randbytes, self.requester, self.service, lambda reason: self.drops.update([reason])
        )
        self.events: list[Any] = []

    def see(self, other: Side) -> None:
        self.peer = Peer(other.info, cast("Link", self.link))
        self.group.members = [KnownMember(self.peer)]

    def receive(self, kind: int, tunnel_id: bytes, chunk: bytes) -> None:
        """Receive a chunk from the peer."""
        if kind == TUNNEL:
            self.tunnels.receive_chunk(cast("Link", self.link), self.peer, tunnel_id, b"before" + chunk, 6, 6 + len(chunk))
        else:
            assert kind == TUNNEL_SEALED
            self.tunnels.receive_sealed(self.peer, tunnel_id, chunk)

    def serve(self, tunnels: int = 2) -> Registration:
        registration = Registration(self.group, 1, 0)
        registration.tunnels, registration.window_bytes = tunnels, WINDOW_BYTES
        self.service.register(registration)
        return registration

    def outcomes(self) -> list[tuple[object, bytes | IrisError]]:
        return self.requester.outcomes_received()

    def take(self, kind: type) -> list[Any]:
        """Take the events of a kind."""
        self.events += self.tunnels.events_received()
        found = [event for event in self.events if isinstance(event, kind)]
        self.events = [event for event in self.events if not isinstance(event, kind)]
        return found


class Pair:
    """A caller and a member, and the way between them."""

    def __init__(self, tunnels: int = 2) -> None:
        self.now = 100.0
        self.caller, self.member = Side(1), Side(2)
        self.caller.see(self.member)
        self.member.see(self.caller)
        self.registration = self.member.serve(tunnels) if tunnels else Registration(self.member.group, 1, 0)
        if not tunnels:
            self.member.service.register(self.registration)

    def ask(self, token: str = "token", *, waits: bool = False) -> int:
        offer = self.caller.tunnels.offer(self.caller.group, WINDOW_BYTES)
        opening = new_opening(self.caller.group, offer, TIMEOUT_S, token, self.now, waits=waits)
        return self.caller.requester.begin(opening, self.now)

    def carry(self) -> None:
        """Carry messages and chunks to and fro until there are none."""
        moved = True
        while moved:
            moved = False
            for one, other in ((self.caller, self.member), (self.member, self.caller)):
                messages = one.requester.messages_to_send() + one.tunnels.messages_to_send() + one.service.messages_to_send()
                for message in messages:
                    moved = True
                    self.give(other, message)
                one.tunnels.fill(self.now)
                chunks, one.link.chunks = one.link.chunks, []
                for chunk in chunks:
                    moved = True
                    other.receive(*chunk)

    def give(self, side: Side, message: PeerMessage) -> None:
        """Give one message to a side."""
        number, payload, now = message.id, message.payload, self.now
        if message.kind == TUNNEL_OPEN:
            side.tunnels.receive_open(side.group, side.peer, number, message.argument, payload, now, message.headers)
        elif message.kind == TUNNEL_ACCEPT:
            side.tunnels.receive_accept(side.group, side.peer, number, payload, now)
        elif message.kind == REJECTION:
            side.requester.receive_rejection(side.peer, number, packets.decode_answer(message.argument)[1], now)
        else:
            assert message.kind == CANCEL
            side.tunnels.receive_cancel(side.peer, number)

    def open(self) -> tuple[TunnelEnd, TunnelEnd]:
        """Open a tunnel; returns the caller's end and the member's."""
        self.ask()
        self.carry()
        ((opened,), (started,)) = self.caller.take(TunnelOpened), self.member.take(TunnelStarted)
        assert opened.token == "token"
        return opened.end, started.end

    def open_routed(self) -> tuple[TunnelEnd, TunnelEnd]:
        """Open a tunnel between two that have no link."""
        self.ask()
        for _round in range(4):
            for one, other in ((self.caller, self.member), (self.member, self.caller)):
                for message in one.requester.messages_to_send() + one.tunnels.messages_to_send():
                    self.give(other, message)
                one.tunnels.fill(self.now)
                for _info, packet in one.tunnels.packets_to_route():
                    other.tunnels.receive_routed(other.peer, packet, self.now)
        ((opened,), (started,)) = self.caller.take(TunnelOpened), self.member.take(TunnelStarted)
        return opened.end, started.end

    def offered(self, token: str = "token") -> PeerMessage:
        """Return the TUNNEL_OPEN of one that was asked for."""
        self.ask(token)
        (message,) = self.caller.requester.messages_to_send()
        return message

    def check_forgotten(self) -> None:
        for side in (self.caller, self.member):
            assert len(side.tunnels) == 0
            assert not side.tunnels.groups()
            assert not side.tunnels._links
            assert side.tunnels.deadline() is None
            assert side.peer.awaited == 0
        assert self.registration.tunnels_open == 0


def end_both(pair: Pair, ours: TunnelEnd, theirs: TunnelEnd) -> None:
    ours.end()
    theirs.end()
    pair.carry()
    for side in (pair.caller, pair.member):
        side.take(TunnelChanged)
        side.tunnels.fill(pair.now)  # looks at what was reported
    pair.member.tunnels.handler_done(theirs)


# -- opening


def test_a_tunnel_is_opened_used_ended_and_forgotten() -> None:
    pair = Pair()
    ours, theirs = pair.open()
    assert (ours.id | FROM_MEMBER, ours.peer, theirs.peer) == (theirs.id, pair.caller.peer, pair.member.peer)
    assert (ours.registration, theirs.registration) == (None, pair.registration)
    assert pair.registration.tunnels_open == 1
    assert (pair.caller.link.begun, pair.member.link.begun) == (1, 1)  # its messages are no traffic beside a tunnel
    for source, target in ((ours, theirs), (theirs, ours)):
        assert source.write(b"message", is_last=True) == 7
        pair.carry()
        assert target.take() == (b"message", True)
    assert {event.end for event in pair.member.take(TunnelChanged)} == {theirs}
    end_both(pair, ours, theirs)
    pair.check_forgotten()
    assert not pair.caller.drops + pair.member.drops


def test_the_handler_begins_when_the_caller_has_taken_the_offer() -> None:
    pair = Pair()
    pair.give(pair.member, pair.offered())
    (accept,) = pair.member.tunnels.messages_to_send()
    assert not pair.member.take(TunnelStarted)
    pair.give(pair.caller, accept)
    pair.caller.tunnels.fill(pair.now)
    (chunk,) = pair.caller.link.chunks
    pair.member.receive(*chunk)
    assert len(pair.member.take(TunnelStarted)) == 1


def test_a_caller_that_does_not_take_the_offer_costs_its_place_until_its_time_is_out() -> None:
    pair = Pair(1)
    pair.give(pair.member, pair.offered())
    assert pair.registration.tunnels_open == 1
    deadline = pair.member.tunnels.deadline()
    assert deadline == pytest.approx(pair.now + TIMEOUT_S, abs=0.01)
    pair.member.tunnels.handle_timeout(pair.now + TIMEOUT_S - 0.1)
    assert pair.registration.tunnels_open == 1
    pair.member.tunnels.handle_timeout(pair.now + TIMEOUT_S + 0.1)
    pair.member.tunnels.fill(pair.now)
    assert pair.registration.tunnels_open == 0
    assert not pair.member.take(TunnelStarted)


def test_a_caller_that_gives_up_frees_the_place_at_once() -> None:
    pair = Pair(1)
    message = pair.offered()
    pair.give(pair.member, message)
    assert pair.member.tunnels.receive_cancel(pair.member.peer, message.id)
    assert not pair.member.tunnels.receive_cancel(pair.member.peer, message.id)
    assert pair.registration.tunnels_open == 0
    assert len(pair.member.tunnels) == 0


def test_a_tunnel_that_runs_is_not_cancelled() -> None:
    pair = Pair()
    ours, theirs = pair.open()
    assert not pair.member.tunnels.receive_cancel(pair.member.peer, ours.id)
    assert theirs.failure is None


@pytest.mark.parametrize(
    ("tunnels", "reason"), [(None, Rejection.NOT_A_MEMBER), (0, Rejection.NO_TUNNELS), (1, Rejection.OVERLOADED)]
)
def test_who_cannot_serve_it_rejects_it(tunnels: int | None, reason: Rejection) -> None:
    pair = Pair(tunnels or 0)
    if tunnels is None:
        pair.member.service.close(pair.registration)
    elif tunnels:
        pair.open()
    pair.give(pair.member, pair.offered("another"))
    (message,) = pair.member.tunnels.messages_to_send()
    assert (message.kind, packets.decode_answer(message.argument)[1]) == (REJECTION, reason)
    pair.give(pair.caller, message)
    ((token, outcome),) = pair.caller.outcomes()
    assert token == "another"
    assert isinstance(outcome, IrisError)
    assert isinstance(outcome, Overloaded) == (reason is Rejection.OVERLOADED)


def test_a_place_goes_to_the_registration_that_has_more_of_them_free() -> None:
    pair = Pair(2)
    pair.open()
    other = pair.member.serve(4)
    for _ in range(3):
        pair.open()
    assert (pair.registration.tunnels_open, other.tunnels_open) == (2, 2)


@pytest.mark.parametrize(
    ("spoil", "dropped"),
    [
        (lambda message: setattr(message, "payload", message.payload[: OPEN.size - 1]), "malformed"),
        (lambda message: setattr(message, "id", message.id | FROM_MEMBER), "malformed"),
        (lambda message: setattr(message, "payload", message.payload[:-1]), "unauthentic"),
        (lambda message: setattr(message, "payload", message.payload[:-1] + bytes([message.payload[-1] ^ 1])), "unauthentic"),
        (lambda message: setattr(message, "id", message.id + 1), "unauthentic"),
    ],
)
def test_an_offer_that_is_none_is_counted_and_takes_no_place(spoil: Any, dropped: str) -> None:
    pair = Pair()
    message = pair.offered()
    spoil(message)
    pair.give(pair.member, message)
    assert pair.member.drops == {dropped: 1}
    assert pair.registration.tunnels_open == 0
    assert not pair.member.tunnels.messages_to_send()


def test_an_offer_that_is_repeated_changes_nothing() -> None:
    pair = Pair()
    message = pair.offered()
    for _ in range(2):
        pair.give(pair.member, message)
    assert pair.member.drops == {"repeated_tunnel": 1}
    assert pair.registration.tunnels_open == 1
    assert len(pair.member.tunnels.messages_to_send()) == 1


@pytest.mark.parametrize("cut", [5, 16, 20])
def test_an_acceptance_that_is_none_is_counted(cut: int) -> None:
    pair = Pair()
    pair.give(pair.member, pair.offered())
    (accept,) = pair.member.tunnels.messages_to_send()
    accept.payload = accept.payload[:cut]
    pair.give(pair.caller, accept)
    assert pair.caller.drops == {"malformed" if cut < 16 else "unauthentic": 1}
    assert not pair.caller.take(TunnelOpened)


def test_an_acceptance_over_another_link_is_none_and_the_member_is_asked_again() -> None:
    pair = Pair()
    first = pair.offered()
    pair.give(pair.member, first)
    (accept,) = pair.member.tunnels.messages_to_send()
    pair.caller.link.id = b"new link"
    pair.give(pair.caller, accept)
    assert not pair.caller.take(TunnelOpened)
    (again,) = pair.caller.requester.messages_to_send()
    assert (again.kind, again.id) == (TUNNEL_OPEN, first.id)
    assert again.payload != first.payload  # another handshake


def test_an_acceptance_that_nobody_asked_for_is_late() -> None:
    pair = Pair()
    pair.give(pair.member, pair.offered())
    (accept,) = pair.member.tunnels.messages_to_send()
    for _ in range(2):
        pair.give(pair.caller, accept)
    assert len(pair.caller.take(TunnelOpened)) == 1
    assert pair.caller.requester.counts.late == 1


@pytest.mark.parametrize(("claimed", "taken"), [(0, WINDOW_BYTES_MIN), (WINDOW_BYTES_MAX * 2, WINDOW_BYTES_MAX)])
def test_a_window_that_a_caller_claims_is_bounded(claimed: int, taken: int) -> None:
    pair = Pair()
    message = pair.offered()
    message.payload = OPEN.pack(claimed) + message.payload[OPEN.size :]
    pair.give(pair.member, message)
    (end,) = pair.member.tunnels._live
    assert end.credit == taken


# -- ways


def test_tunnels_of_a_link_take_turns_by_bytes() -> None:
    pair = Pair(3)
    ends = [pair.open()[0] for _ in range(3)]
    pair.caller.link.room = 0
    data = bytes(WINDOW_BYTES // 2)
    for end in ends:
        end.write(data, is_last=True)
    assert pair.caller.tunnels.has_work
    assert not pair.caller.tunnels.is_ready_for(cast("Link", pair.caller.link))
    assert pair.caller.tunnels.fill(pair.now) == []
    pair.caller.link.room = 6
    assert pair.caller.tunnels.is_ready_for(cast("Link", pair.caller.link))
    assert pair.caller.tunnels.fill(pair.now) == [cast("Link", pair.caller.link)]
    sent: Counter[bytes] = Counter()
    for _kind, tunnel_id, chunk in pair.caller.link.chunks:
        sent[tunnel_id] += len(chunk)
    assert len(sent) == 3
    assert max(sent.values()) - min(sent.values()) <= CHUNK_BYTES_MIN + TAG_BYTES


def test_a_node_has_tunnels_to_itself() -> None:
    pair = Pair()
    side = pair.member
    side.peer = Peer(side.info, None, is_local=True)
    side.group.members = [KnownMember(side.peer)]
    offer = side.tunnels.offer(side.group, WINDOW_BYTES)
    side.requester.begin(new_opening(side.group, offer, TIMEOUT_S, "token", pair.now), pair.now)
    for _round in range(4):
        for message in side.requester.messages_to_send() + side.tunnels.messages_to_send():
            pair.give(side, message)
        side.tunnels.fill(pair.now)
    ((opened,), (started,)) = side.take(TunnelOpened), side.take(TunnelStarted)
    assert opened.end.write(b"to myself", is_last=True) == 9
    side.tunnels.fill(pair.now)
    assert started.end.take() == (b"to myself", True)
    assert not side.link.chunks


@pytest.mark.parametrize("chunk_id", [b"", b"short", bytes(8), bytes(9)])
def test_chunks_of_no_tunnel_are_counted(chunk_id: bytes) -> None:
    pair = Pair()
    pair.open()
    pair.member.receive(TUNNEL_SEALED, chunk_id, b"sealed")
    pair.member.receive(TUNNEL, chunk_id, b"")
    assert pair.member.drops == {"unknown_tunnel": 2}


def test_a_chunk_of_another_peer_is_of_no_tunnel() -> None:
    pair = Pair()
    ours, theirs = pair.open()
    ours.write(b"message", is_last=True)
    pair.caller.tunnels.fill(pair.now)
    ((_kind, tunnel_id, sealed),) = pair.caller.link.chunks
    stranger = Peer(NodeInfo(NodeId(b"s" * 16), ()), cast("Link", FakeLink()))
    pair.member.tunnels.receive_sealed(stranger, tunnel_id, sealed)
    assert pair.member.drops == {"unknown_tunnel": 1}
    assert theirs.failure is None


def test_the_record_alone_encrypts_chunks_once_both_have_proved_all_keys() -> None:
    pair = Pair()
    for side in (pair.caller, pair.member):
        side.link.shared.add(side.group.id)
    pair.give(pair.member, pair.offered())
    (accept,) = pair.member.tunnels.messages_to_send()
    pair.give(pair.caller, accept)
    pair.caller.tunnels.fill(pair.now)
    assert [kind for kind, _id, _chunk in pair.caller.link.chunks] == [TUNNEL_SEALED]  # it proves the keys of the tunnel
    pair.carry()
    ((opened,), (started,)) = pair.caller.take(TunnelOpened), pair.member.take(TunnelStarted)
    for side, end in ((pair.caller, opened.end), (pair.member, started.end)):
        end.write(b"message", is_last=True)
        side.tunnels.fill(pair.now)
        assert [(kind, chunk[-7:]) for kind, _id, chunk in side.link.chunks] == [(TUNNEL, b"message")]
    pair.carry()
    assert opened.end.take() == started.end.take() == (b"message", True)
    for side in (pair.caller, pair.member):
        side.link.shared.clear()
    opened.end.write(b"sealed", is_last=True)
    pair.carry()
    assert started.end.take() == (b"sealed", True)
    assert not pair.caller.drops + pair.member.drops


@pytest.mark.parametrize("is_shared", [True, False])
def test_a_chunk_that_only_the_record_encrypts_needs_both_proofs(is_shared: bool) -> None:
    pair = Pair()
    if is_shared:  # but the caller has not shown the keys of the tunnel
        pair.give(pair.member, pair.offered())
        (accept,) = pair.member.tunnels.messages_to_send()
        pair.give(pair.caller, accept)
        pair.member.link.shared.add(pair.member.group.id)
    else:
        ours, _theirs = pair.open()
        ours.write(b"message", is_last=True)
    pair.caller.tunnels.fill(pair.now)
    ((_kind, tunnel_id, _sealed),) = pair.caller.link.chunks
    (end,) = pair.member.tunnels.ends()
    pair.member.receive(TUNNEL, tunnel_id, b"")
    assert pair.member.drops == {"unauthentic": 1}
    assert end.failure is not None
    assert end.take() is None
    assert not is_shared or not pair.member.take(TunnelStarted)


@pytest.mark.parametrize(
    "spoil",
    [lambda sealed: sealed[:-1] + bytes([sealed[-1] ^ 1]), lambda sealed: sealed[: TAG_BYTES - 1], lambda _: b""],
    ids=["changed", "shorter than a tag", "empty"],
)
def test_a_chunk_that_is_not_authentic_breaks_its_tunnel_alone(spoil: Callable[[bytes], bytes]) -> None:
    pair = Pair()
    (ours, theirs), (others, _) = pair.open(), pair.open()
    ours.write(b"message", is_last=True)
    pair.caller.tunnels.fill(pair.now)
    ((kind, tunnel_id, sealed),) = pair.caller.link.chunks
    pair.caller.link.chunks.clear()
    pair.member.receive(kind, tunnel_id, spoil(sealed))
    assert pair.member.drops == {"unauthentic": 1}
    assert theirs.failure is not None
    pair.carry()
    assert ours.failure is not None  # it was told
    assert others.failure is None


# -- ends


def test_the_end_of_a_link_breaks_its_tunnels_and_frees_their_places_when_the_handlers_have_ended() -> None:
    pair = Pair()
    ours, theirs = pair.open()
    for side in (pair.caller, pair.member):
        side.tunnels.link_closed(cast("Link", side.link), "cut")
    for end in (ours, theirs):
        assert end.failure is not None
        assert end.failure.reason == "the link to the other side ended: cut"
    assert pair.registration.tunnels_open == 1  # its handler runs
    pair.member.tunnels.handler_done(theirs)
    pair.check_forgotten()


def test_the_end_of_another_link_breaks_nothing() -> None:
    pair = Pair()
    ours, _ = pair.open()
    pair.caller.tunnels.link_closed(cast("Link", FakeLink()), "cut")
    assert ours.failure is None


def test_a_link_that_is_closing_takes_no_tunnel() -> None:
    pair = Pair()
    message = pair.offered()
    pair.member.link.is_open = False
    pair.give(pair.member, message)
    (answer,) = pair.member.tunnels.messages_to_send()
    assert packets.decode_answer(answer.argument)[1] == Rejection.NOT_A_MEMBER


def test_the_place_is_free_when_the_handler_has_returned_and_the_tunnel_is_over_in_whatever_order() -> None:
    pair = Pair()
    ours, theirs = pair.open()
    pair.member.tunnels.handler_done(theirs)
    assert pair.registration.tunnels_open == 1  # what it sent is still under way
    ours.end()
    theirs.end()
    pair.carry()
    pair.member.take(TunnelChanged)
    pair.member.tunnels.fill(pair.now)
    assert pair.registration.tunnels_open == 0


def test_a_node_that_is_closed_tells_the_other_sides() -> None:
    pair = Pair()
    ours, theirs = pair.open()
    pair.caller.tunnels.close()
    pair.carry()
    for end in (ours, theirs):
        assert end.failure is not None
    assert theirs.failure is not None
    assert (theirs.failure.type, theirs.failure.text) == ("NodeClosed", "the node was closed")


def test_the_death_of_a_peer_breaks_what_goes_through_the_ring_alone() -> None:
    pair = Pair()
    ours, _ = pair.open()
    pair.caller.tunnels.peer_died(pair.caller.peer)
    assert ours.failure is None  # its link says so itself
    pair.caller.peer.link = None
    pair.member.peer.link = None
    routed, _ = pair.open_routed()
    pair.caller.tunnels.peer_died(pair.caller.peer)
    assert routed.failure is not None
    assert routed.failure.reason == "the other side is dead"
    assert ours.failure is None


def test_ways_through_the_ring_that_stay_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller that opens and ends one tunnel after the other takes one place, and would leave a way behind each time."""
    monkeypatch.setattr("iris_py.patterns.tunnel.table.LINGERING_MAX", 3)
    pair = Pair()
    pair.caller.peer.link = pair.member.peer.link = None
    for _ in range(5):
        ours, theirs = pair.open_routed()
        for end in (ours, theirs):
            end.end()
        for _round in range(4):
            for one, other in ((pair.caller, pair.member), (pair.member, pair.caller)):
                one.take(TunnelChanged)
                one.tunnels.fill(pair.now)
                for _info, packet in one.tunnels.packets_to_route():
                    other.tunnels.receive_routed(other.peer, packet, pair.now)
        pair.member.tunnels.handler_done(theirs)
        for side in (pair.caller, pair.member):
            assert len(side.tunnels) <= 3
    assert pair.registration.tunnels_open == 0
    assert len(pair.member.tunnels) == 3
    assert not pair.member.tunnels.groups()
