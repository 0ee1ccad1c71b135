"""Tests of iris_py/peers/peer_table.py."""

from __future__ import annotations

import itertools
import random
from collections import deque
from typing import TYPE_CHECKING, TypeAlias

import msgspec
import pytest

from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_py.link.config import LinkConfig
from iris_py.link.events import CloseReason, PeerIdentified
from iris_py.link.link import NO_LINK, Link, LinkState
from iris_py.peers.peer_table import (
    HANDSHAKES_MAX,
    LOST_LINKS_MAX,
    DialFailed,
    DialSucceeded,
    PeerClosed,
    PeerDrained,
    PeerOpened,
    Peers,
    StrangerRefused,
)
from iris_security import Identity, Keyring, NetworkKeys, Secret
from tests.unit.iris_py.identities import IDENTITY_OF, node_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from iris_py.peers.peer_table import PeersEvent

KEYRING = Keyring(Secret(bytes(range(32))), network="test")
SMALL, LARGE, THIRD = (node_id(number) for number in (1, 2, 3))
CONFIG = LinkConfig()


class Entropy:
    """Different bytes at every call, the same in every run."""

    def __init__(self, seed: int) -> None:
        self.count = seed << 32

    def __call__(self, size: int) -> bytes:
        self.count += 1
        return self.count.to_bytes(size, "big")


class Table:
    """A table of links, and the ends of connections that its owner would hold."""

    def __init__(
        self, id_: NodeId, keyring: Keyring = KEYRING, identity: Identity | None = None, addresses: Sequence[str] = ()
    ) -> None:
        self.id = id_
        info, entropy = NodeInfo(id_, tuple(addresses) or (f"node:{id_[0]}",)), Entropy(id_[0])
        self.peers = Peers(info, identity or IDENTITY_OF[id_], keyring, entropy, CONFIG, random.Random(1))
        self.events: list[PeersEvent] = []

    def settle(self, now: float) -> None:
        """Hand the events of every link to the table, as a node does."""
        moved = True
        while moved:
            moved = False
            for link in self.peers.links():
                while link.events:
                    moved = True
                    for event in link.events_received():
                        if isinstance(event, PeerIdentified) and self.peers.is_crowded_for(NodeId(event.node_id)):
                            self.peers.turn_away(link, now)
                        else:
                            self.peers.handle_event(link, event, now)
        self.events += self.peers.events_received()

    def open_links(self) -> list[Link]:
        return [link for link in self.peers.links() if link.state is LinkState.OPEN]


class Wire:
    """One connection: ends 0 (who dialled) and 1, and the messages under way to each."""

    def __init__(self, dialler: Table, acceptor: Table, address: str = "there", now: float = 0.0, host: str = "") -> None:
        link = acceptor.peers.accepted("192.0.2.1", now)
        assert link is not None
        self.tables = (dialler, acceptor)
        self.links = (dialler.peers.dialled(address, now, host), link)
        self.inboxes: tuple[deque[bytes | None], deque[bytes | None]] = (deque(), deque())
        self.ended = [False, False]
        self.buffers = [b"", b""]

    def write(self, now: float) -> None:
        for side in (0, 1):
            self.tables[side].settle(now)
            data = b"".join(self.links[side].data_to_send(1 << 20))
            self.tables[side].settle(now)
            if data and not self.ended[side]:
                self.inboxes[1 - side].append(data)
            if self.links[side].state is LinkState.CLOSED and not self.ended[side]:
                self.ended[side] = True
                self.inboxes[1 - side].append(None)

    def deliver(self, side: int, now: float) -> None:
        data = self.inboxes[side].popleft()
        link = self.links[side]
        if data is None:
            link.receive_eof(now)
        else:
            self.buffers[side] += data
            is_left = True
            while is_left:
                used = link.receive_data(memoryview(self.buffers[side]), now)
                self.buffers[side] = self.buffers[side][used:]
                is_left = link.has_unread
        self.tables[side].settle(now)

    def cut(self, side: int, now: float) -> None:
        """Let one end see that the connection broke."""
        self.inboxes[side].clear()
        self.ended[side] = True
        self.links[side].receive_eof(now)
        self.tables[side].settle(now)


def opened(table: Table) -> list[tuple[str, ...]]:
    """Return the addresses of the peers that links were opened to."""
    return [event.peer.info.addresses for event in table.events if isinstance(event, PeerOpened)]


def drive(*wires: Wire, now: float = 0.0) -> None:
    for _ in range(100):
        for wire in wires:
            wire.write(now)
        ready = [(wire, side) for wire in wires for side in (0, 1) if wire.inboxes[side]]
        if not ready:
            return
        ready[0][0].deliver(ready[0][1], now)
    raise AssertionError("it does not come to rest")


def joined() -> tuple[Table, Table, Wire]:
    one, other = Table(SMALL), Table(LARGE)
    wire = Wire(one, other)
    drive(wire)
    return one, other, wire


def sizes(table: Table) -> dict[str, int]:
    return {name: len(value) for name, value in vars(table.peers).items() if isinstance(value, dict)}


def check_empty(*tables: Table) -> None:
    """Nothing stays but the ids of lost links, which are bounded."""
    for table in tables:
        left = {name: size for name, size in sizes(table).items() if size and name != "_lost"}
        assert not left
        assert not table.peers.links()


def check_one_link(one: Table, other: Table) -> Link:
    """Exactly one open link, the same on both sides; returns its end at ``one``."""
    (here,), (there,) = one.open_links(), other.open_links()
    assert here.id == there.id
    for table, far, link in ((one, other, here), (other, one, there)):
        peer = table.peers.find(far.id)
        assert peer is not None
        assert peer.link is link
        assert table.peers.peer_of(link) is peer
        assert table.peers.links() == [link]
        assert sizes(table)["_dialled"] == sizes(table)["_pending"] == 0
        assert sizes(table)["_infos"] == 1
    return here


# -- one dial


def test_a_dial_opens_a_peer_on_both_sides() -> None:
    one, other, _wire = joined()
    check_one_link(one, other)
    opened = [event for event in one.events if isinstance(event, PeerOpened)]
    assert [event.peer.id for event in opened] == [LARGE]
    assert DialSucceeded("there", LARGE) in one.events
    assert [type(event) for event in other.events] == [PeerOpened]
    assert opened[0].peer.info == NodeInfo(LARGE, ("node:2",))


def test_a_closed_link_takes_its_peer_along() -> None:
    one, other, wire = joined()
    wire.links[0].close(CloseReason.LEAVING, 0.0)
    drive(wire)
    check_empty(one, other)
    for table in (one, other):
        (closed,) = (event for event in table.events if isinstance(event, PeerClosed))
        assert closed.peer.link is None
        assert closed.link in wire.links
    assert one.peers.find(LARGE) is None


def test_a_drained_link_is_reported_with_its_peer() -> None:
    one, _other, wire = joined()
    link = wire.links[0]
    while not link.congested:
        link.send_packet(5, bytes(16), bytes(12), bytes(30_000))
    drive(wire)
    peer = one.peers.find(LARGE)
    assert peer is not None
    assert one.events[-1] == PeerDrained(peer)


def test_a_dial_of_the_node_itself() -> None:
    one = Table(SMALL)
    wire = Wire(one, one)
    drive(wire)
    refused = StrangerRefused("192.0.2.1", "the connection broke", has_failed=False)
    assert sorted(one.events, key=str) == [DialSucceeded("there", SMALL), refused]
    check_empty(one)


def test_a_hostile_initiator_that_claims_to_be_the_node_itself() -> None:
    one, liar = Table(SMALL), Table(SMALL)
    liar.peers._local = NodeInfo(LARGE, ())
    wire = Wire(liar, one)
    drive(wire)
    check_empty(one)
    assert not one.events


def test_two_addresses_of_one_node() -> None:
    """Whether the second dial ends before or after the first has opened, nobody hears of a loss."""
    for order in range(2):
        one, other = Table(SMALL), Table(LARGE)
        wires = [Wire(one, other, "first"), Wire(one, other, "second")]
        drive(*wires[::-1] if order else wires)
        check_one_link(one, other)
        assert all(DialSucceeded(address, LARGE) in one.events for address in ("first", "second"))
        assert not any(isinstance(event, PeerClosed | DialFailed) for event in one.events + other.events)


def test_another_secret_is_a_refusal_to_the_dialler_only() -> None:
    one, other = Table(SMALL), Table(LARGE, Keyring(Secret(b"o" * 32), network="test"))
    wire = Wire(one, other)
    drive(wire)
    (failed,) = one.events
    assert isinstance(failed, DialFailed)
    assert failed.address == "there"
    assert failed.refused
    assert other.events == [StrangerRefused("192.0.2.1", "a secret that this node does not hold", has_failed=True)]
    assert other.peers.refused == 1
    assert one.peers.refused == 0
    check_empty(one, other)


def test_a_dial_that_breaks_or_stalls_failed() -> None:
    for steps in range(4):
        for stalls in (False, True):
            one, other = Table(SMALL), Table(LARGE)
            wire = Wire(one, other)
            for _ in range(steps):
                wire.write(0.0)
                side = 0 if wire.inboxes[0] else 1
                wire.deliver(side, 0.0)
            opened = one.open_links()
            if stalls:
                for link in wire.links:
                    link.handle_timeout(1000.0)
                    link.handle_timeout(1000.0 + CONFIG.keepalive_interval_s)
                one.settle(1000.0)
                other.settle(1000.0)
            else:
                wire.cut(0, 0.0)
                wire.cut(1, 0.0)
            check_empty(one, other)
            if not opened:
                (event,) = one.events
                assert isinstance(event, DialFailed)
                assert event.broken is not stalls


@pytest.mark.parametrize(
    "hello",
    [
        b"",
        b"\xc1",
        b"\x90",
        msgspec.msgpack.encode([b"short", [], ""]),
        msgspec.msgpack.encode([SMALL, ["\n"], ""]),
        b"\x93\xc4\x10" + SMALL + b"\x90\xa1\xff",
        msgspec.msgpack.encode([SMALL, [], ""])[:-1],
        b"\x94\xc4\x10" + SMALL + b"\x90\xa0" + b"\x91" * 3000 + b"\xc0",
    ],
)
@pytest.mark.parametrize("dials", [True, False])
def test_a_malformed_hello(hello: bytes, dials: bool) -> None:
    one, liar = Table(LARGE), Table(SMALL)
    liar.peers._hello = hello
    wire = Wire(liar, one) if dials else Wire(one, liar)
    drive(wire)
    check_empty(one)
    assert not any(isinstance(event, PeerOpened) for event in one.events)
    if dials:
        assert one.peers.refused == 1
    else:
        assert isinstance(one.events[-1], DialFailed)


def test_strangers_at_the_door_are_bounded() -> None:
    one = Table(SMALL)
    links = [one.peers.accepted("192.0.2.1", 0.0) for _ in range(HANDSHAKES_MAX)]
    assert all(links)
    assert one.peers.accepted("192.0.2.1", 0.0) is None
    assert one.peers.refused == 1
    one.peers.dialled("there", 0.0)  # our own dials are not strangers
    for link in links:
        assert link is not None
        link.handle_timeout(CONFIG.handshake_timeout_s)
    one.settle(CONFIG.handshake_timeout_s)
    assert one.peers.refused == 1 + HANDSHAKES_MAX
    assert one.peers.accepted("192.0.2.1", 10.0) is not None


def test_a_stranger_of_the_address_with_the_most_of_them_makes_room() -> None:
    one = Table(SMALL)
    honest = one.peers.accepted("198.51.100.7", 0.0)
    assert honest is not None
    for _ in range(HANDSHAKES_MAX - 2):
        assert one.peers.accepted("192.0.2.1", 0.0) is not None
    assert one.peers.evict_stranger() is None
    assert one.peers.accepted("192.0.2.1", 0.0) is not None
    for number in range(1000):  # as fast as it likes
        evicted = one.peers.evict_stranger()
        assert evicted is not None
        assert evicted is not honest
        assert evicted.state is LinkState.CLOSED
        one.settle(0.0)
        assert one.peers.accepted("192.0.2.1", 0.0) is not None
        assert len(one.peers.links()) == HANDSHAKES_MAX
        assert one.peers.refused == number + 1
    assert honest.state is LinkState.HANDSHAKE


def test_open_links_do_not_count_as_strangers() -> None:
    one, other, _wire = joined()
    for _ in range(HANDSHAKES_MAX):
        assert other.peers.accepted("192.0.2.1", 0.0) is not None
    assert other.peers.accepted("192.0.2.1", 0.0) is None
    check_one_link_id = one.open_links()[0].id
    assert check_one_link_id == other.open_links()[0].id


# -- the bound on links


def test_who_is_turned_away_hears_why_and_nothing_is_left_of_it() -> None:
    one, other = Table(SMALL), Table(LARGE)
    other.peers.links_max = 0
    drive(Wire(one, other))
    (failed,) = one.events
    assert failed == DialFailed("there", "the peer has no room for another link", refused=False, broken=False)
    check_empty(one, other)


def test_a_dial_for_which_there_is_no_place_any_more_has_failed() -> None:
    one = Table(SMALL)
    link = one.peers.dialled("there", 0.0)
    one.peers.turn_away(link, 0.0)
    one.settle(0.0)
    (failed,) = one.events
    assert failed == DialFailed("there", "there is no room for another link", refused=False, broken=False)
    check_empty(one)


def test_a_neighbour_finds_a_place_where_others_do_not() -> None:
    _one, other, _wire = joined()
    other.peers.links_max = 1
    assert other.peers.is_crowded_for(THIRD)
    assert not other.peers.is_crowded_for(THIRD, is_leaf=True)
    assert not other.peers.is_crowded_for(SMALL)  # it has a link, and is about to replace it
    other.peers.links_max = 0
    assert other.peers.is_crowded_for(THIRD, is_leaf=True)
    assert not other.peers.is_crowded_for(SMALL, is_leaf=True)


def test_peers_are_known_by_the_host_they_are_at() -> None:
    middle = Table(LARGE)
    many = [Table(node_id(number)) for number in (3, 4, 5)]
    few = Table(SMALL)
    for table in many:
        drive(Wire(table, middle))
    drive(Wire(middle, few, "198.51.100.7:14142"))
    assert [{peer.id for peer in peers} for peers in middle.peers.hosts()] == [{table.id for table in many}, {SMALL}]


# -- the secrets

OLD, NEW = Secret(b"o" * 32), Secret(b"n" * 32)
STEPS = (Keyring(OLD), Keyring(OLD, accepted=[NEW]), Keyring(NEW, accepted=[OLD]), Keyring(NEW))


def old_and_new() -> tuple[Table, Table, Wire]:
    one, other = Table(SMALL, STEPS[0]), Table(LARGE, STEPS[0])
    wire = Wire(one, other)
    drive(wire)
    return one, other, wire


def generations(table: Table) -> frozenset[bytes]:
    (link,) = table.open_links()
    return link.proofs.generations


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_link_outlives_a_rotation_whoever_takes_a_step_first(order: tuple[int, int]) -> None:
    one, other, wire = old_and_new()
    link = check_one_link(one, other)
    for step in STEPS[1:]:
        for index in order:
            (one, other)[index].peers.rekey(step, 0.0)
            drive(wire)
    assert check_one_link(one, other) is link
    assert STEPS[-1].primary.key_id in generations(one) & generations(other)


def test_a_link_that_opens_during_a_rotation_outlives_it() -> None:
    one, other = Table(SMALL, STEPS[1]), Table(LARGE, STEPS[1])
    wire = Wire(one, other)
    drive(wire)
    for table in (one, other):
        table.peers.rekey(STEPS[-1], 0.0)
    drive(wire)
    check_one_link(one, other)


def test_a_peer_that_shows_no_accepted_generation_is_put_out() -> None:
    one, other, wire = old_and_new()
    for step in STEPS[1:]:
        one.peers.rekey(step, 0.0)
        drive(wire)
    check_empty(one, other)


def test_handshakes_under_a_retired_generation_lead_to_nothing() -> None:
    one, other = Table(SMALL, STEPS[0]), Table(LARGE, STEPS[0])
    wire = Wire(one, other)
    wire.write(0.0)
    other.peers.rekey(STEPS[-1], 0.0)
    drive(wire)
    check_empty(one, other)


def test_handshakes_go_on_where_no_generation_is_retired() -> None:
    one, other = Table(SMALL, STEPS[0]), Table(LARGE, STEPS[0])
    wire = Wire(one, other)
    wire.write(0.0)
    other.peers.rekey(STEPS[1], 0.0)
    drive(wire)
    check_one_link(one, other)


def test_a_forged_claim_ends_the_link() -> None:
    one, other, wire = old_and_new()
    for table in (one, other):
        table.peers.rekey(STEPS[1], 0.0)
    drive(wire)
    (link,) = one.open_links()
    link.proofs.claim(NetworkKeys("default", STEPS[-1].primary.key_id, b"x" * 32, b"y" * 32, b"z" * 32))
    drive(wire)
    check_empty(one, other)
    assert any(isinstance(event, PeerClosed) and event.reason == "a forged proof of a secret" for event in other.events)


def test_claims_are_answered_once() -> None:
    """Or a peer that claims and never reads would fill the lane with answers."""
    one, other, wire = old_and_new()
    for table in (one, other):
        table.peers.rekey(STEPS[1], 0.0)
    drive(wire)
    (link,) = one.open_links()
    (there,) = other.open_links()
    for _ in range(1000):
        link.proofs.claim(STEPS[-1].primary)
    for data in link.data_to_send(1 << 20):
        wire.buffers[1] += data
    there.receive_data(memoryview(wire.buffers[1]), 0.0)
    other.settle(0.0)
    assert not there.has_output()


# -- both dial at once

Choice: TypeAlias = tuple[int, int]


def every_interleaving(make: Callable[[], list[Wire]]) -> Iterator[list[Wire]]:
    """Deliver what is under way in every possible order, each from the start to its end."""
    untried: list[list[Choice]] = [[]]
    while untried:
        choices = untried.pop()
        wires = make()
        for number in itertools.count():
            for wire in wires:
                wire.write(0.0)
            ready = [(index, side) for index, wire in enumerate(wires) for side in (0, 1) if wire.inboxes[side]]
            if not ready:
                break
            if number == len(choices):
                untried += [[*choices, other] for other in ready[1:]]
                choices.append(ready[0])
            index, side = choices[number]
            wires[index].deliver(side, 0.0)
        yield wires


def test_both_dial_in_every_interleaving() -> None:
    def make() -> list[Wire]:
        one, other = Table(SMALL), Table(LARGE)
        return [Wire(one, other, "large"), Wire(other, one, "small")]

    count = 0
    kept = set()
    for wires in every_interleaving(make):
        count += 1
        one, other = wires[0].tables
        link = check_one_link(one, other)
        kept.add(wires[0].links.index(link) if link in wires[0].links else 2)
        for table, address, far in ((one, "large", LARGE), (other, "small", SMALL)):
            assert not any(isinstance(event, PeerClosed) for event in table.events)
            assert sum(isinstance(event, PeerOpened) for event in table.events) == 1
            dials = [event for event in table.events if isinstance(event, DialSucceeded | DialFailed)]
            assert dials == [DialSucceeded(address, far)]
        for wire in wires:
            wire.cut(0, 0.0)
            wire.cut(1, 0.0)
        check_empty(one, other)
    assert count > 100
    assert kept == {0, 2}  # either dial may win


def test_both_dial_two_addresses_each() -> None:
    """Too many orders to try all of them: some hundred, drawn."""
    rng = random.Random(1)
    for _ in range(400):
        one, other = Table(SMALL), Table(LARGE)
        wires = [Wire(one, other, "a"), Wire(other, one, "b"), Wire(one, other, "c"), Wire(other, one, "d")]
        while True:
            for wire in wires:
                wire.write(0.0)
            ready = [(wire, side) for wire in wires for side in (0, 1) if wire.inboxes[side]]
            if not ready:
                break
            wire, side = rng.choice(ready)
            wire.deliver(side, 0.0)
        check_one_link(one, other)
        for table in (one, other):
            assert not any(isinstance(event, PeerClosed | DialFailed) for event in table.events)
            assert sum(isinstance(event, PeerOpened) for event in table.events) == 1


# -- redial


@pytest.mark.parametrize("dialler_is_small", [True, False])
@pytest.mark.parametrize("dialled_first", [True, False])
def test_a_redial_replaces_what_the_other_side_still_holds(dialler_is_small: bool, dialled_first: bool) -> None:
    small, large = Table(SMALL), Table(LARGE)
    first = Wire(small, large) if dialled_first else Wire(large, small)
    drive(first)
    dialler, holder = (small, large) if dialler_is_small else (large, small)
    old = first.links[first.tables.index(holder)]
    first.cut(first.tables.index(dialler), 0.0)
    second = Wire(dialler, holder)
    drive(second)
    check_one_link(small, large)
    assert [type(event) for event in holder.events[-3:] if not isinstance(event, DialSucceeded)][-2:] == [
        PeerClosed,
        PeerOpened,
    ]
    closed = next(event for event in holder.events if isinstance(event, PeerClosed))
    assert closed.link is old
    assert not closed.clean, "what was on it may be lost"
    assert closed.broken, "the peer lives"
    assert old.state is LinkState.CLOSED
    assert closed.peer is holder.peers.find(dialler.id)  # whoever holds it sees the new link
    assert closed.peer.link is second.links[second.tables.index(holder)]
    first.write(0.0)  # what the old link still says is of no consequence
    holder.settle(0.0)
    check_one_link(small, large)


@pytest.mark.parametrize("first_to_notice", [SMALL, LARGE])
def test_both_notice_a_break_and_redial_in_every_interleaving(first_to_notice: NodeId) -> None:
    """One side sees the break and dials; at any moment of that the other sees it too and, if it is alone then, dials."""

    def run(choices: list[int]) -> tuple[list[Wire], list[list[int]]]:
        """Take these choices, and the first one from there on; return what came of it, and the others that there were."""
        small, large = Table(SMALL), Table(LARGE)
        first = Wire(small, large)
        drive(first)
        early, late = (small, large) if first_to_notice == SMALL else (large, small)
        first.cut(first.tables.index(early), 0.0)
        wires = [Wire(early, late, "late")]
        noticed = False
        untried: list[list[int]] = []
        for number in itertools.count():
            for wire in (first, *wires):
                wire.write(0.0)
            ready = [(wire, side) for wire in wires for side in (0, 1) if wire.inboxes[side]]
            if number == len(choices):
                possible = list(range(len(ready) + (not noticed)))
                if not possible:
                    break
                untried += [[*choices, other] for other in possible[1:]]
                choices.append(possible[0])
            choice = choices[number]
            if choice < len(ready):
                ready[choice][0].deliver(ready[choice][1], 0.0)
            else:
                noticed = True
                first.cut(first.tables.index(late), 0.0)
                if late.peers.find(early.id) is None:
                    wires.append(Wire(late, early, "early"))
        return wires, untried

    stack: list[list[int]] = [[]]
    count = 0
    while stack:
        wires, untried = run(stack.pop())
        stack += untried
        count += 1
        one, other = wires[0].tables
        check_one_link(one, other)
        for table in (one, other):
            kinds = [type(event) for event in table.events if isinstance(event, PeerOpened | PeerClosed)]
            assert kinds == [PeerOpened, PeerClosed, PeerOpened]
    assert count > 100


def test_a_dial_that_names_another_link_replaces_nothing() -> None:
    one, other, wire = joined()
    wire.cut(0, 0.0)
    one.peers._lost[LARGE] = b"not this"
    second = Wire(one, other)
    drive(second)
    assert not one.open_links()
    assert [link.id for link in other.open_links()] == [wire.links[1].id]
    assert one.events[-1] == DialSucceeded("there", LARGE)
    wire.cut(1, 0.0)
    check_empty(one, other)
    third = Wire(one, other)
    drive(third)
    check_one_link(one, other)


def test_a_restarted_process_is_somebody_else() -> None:
    one, other, _wire = joined()
    third = Table(THIRD)
    drive(Wire(third, other))
    assert [link.state for link in other.peers.links()] == [LinkState.OPEN] * 2
    assert other.peers.find(SMALL) is not None
    assert other.peers.find(THIRD) is not None
    assert one.open_links()


def test_a_replacement_that_broke_at_once_replaces_nothing() -> None:
    """The hello and rubbish behind it come in one read: then the link is dead before its hello is handled."""
    one, other, wire = joined()
    wire.cut(0, 0.0)
    second = Wire(one, other)
    second.write(0.0)
    second.deliver(1, 0.0)
    second.write(0.0)
    second.deliver(0, 0.0)
    second.write(0.0)
    hello = second.inboxes[1].popleft()
    assert hello is not None
    second.inboxes[1].append(hello + bytes(100))
    second.deliver(1, 0.0)
    assert not any(isinstance(event, PeerClosed) for event in other.events)
    peer = other.peers.find(SMALL)
    assert peer is not None
    assert peer.link is wire.links[1]


def test_a_peer_that_confirms_a_second_link_does_not_get_it() -> None:
    """No honest node does: it refuses one of the two."""
    one, liar = Table(LARGE), Table(SMALL)
    ours, theirs = Wire(one, liar, "liar"), Wire(liar, one)
    for wire in (ours, theirs):  # both of us have sent our hello
        wire.write(0.0)
        wire.deliver(1, 0.0)
        wire.write(0.0)
        wire.deliver(0, 0.0)
        wire.write(0.0)
    liar.peers._pending.clear()
    liar.peers._by_id.clear()
    ours.deliver(1, 0.0)  # the liar confirms ours
    liar.peers._by_id.clear()
    ours.write(0.0)
    theirs.deliver(1, 0.0)  # and we theirs, for it has the smaller id
    assert [type(event) for event in one.events] == [PeerOpened]
    ours.deliver(0, 0.0)
    one.settle(0.0)
    assert len(one.open_links()) == 1
    assert not any(isinstance(event, PeerClosed) for event in one.events)
    peer = one.peers.find(SMALL)
    assert peer is not None
    assert peer.link is theirs.links[1]


def test_lost_links_are_bounded() -> None:
    one = Table(SMALL)
    for number in range(LOST_LINKS_MAX + 10):
        identity = Identity(number.to_bytes(32, "big"))
        other = Table(NodeId(identity.node_id), identity=identity)
        wire = Wire(one, other)
        drive(wire)
        wire.cut(0, 0.0)
    assert sizes(one)["_lost"] == LOST_LINKS_MAX
    assert Identity(bytes(32)).node_id not in one.peers._lost
    assert NO_LINK not in one.peers._lost.values()
    check_empty(one)


def test_the_events_of_a_forgotten_link_are_of_no_consequence() -> None:
    one, _other, wire = joined()
    link = wire.links[0]
    link.abort("over")
    (closed,) = link.events_received()
    one.peers.handle_event(link, closed, 0.0)
    one.peers.handle_event(link, closed, 0.0)
    assert len([event for event in one.peers.events_received() if isinstance(event, PeerClosed)]) == 1


def test_the_newest_description_of_a_peer_counts_unless_it_describes_itself() -> None:
    peers = Table(SMALL).peers
    peer = peers.peer(NodeInfo(LARGE, ("old:1",)))
    assert peers.peer(NodeInfo(LARGE, ())) is peer
    assert peer.info.addresses == ("old:1",), "one without addresses says less"
    assert peers.peer(NodeInfo(LARGE, ("new:1",))).info.addresses == ("new:1",)
    peers = joined()[0].peers
    assert peers.peer(NodeInfo(LARGE, ("hearsay:1",))).info.addresses == ("node:2",)


def test_the_address_that_a_connection_leads_to_or_comes_from_is_first_in_what_is_known_of_the_peer() -> None:
    told = ["203.0.113.1:7", "192.0.2.1:7", "[fd00::7]:7"]
    dialler, acceptor = Table(SMALL, addresses=told), Table(LARGE, addresses=["203.0.113.2:7", "10.0.0.2:7"])
    drive(Wire(dialler, acceptor, "10.0.0.2:7"))  # it comes from 192.0.2.1
    assert opened(acceptor) == [("192.0.2.1:7", "203.0.113.1:7", "[fd00::7]:7")]
    assert opened(dialler) == [("10.0.0.2:7", "203.0.113.2:7")]


def test_of_a_name_that_was_dialled_the_address_that_it_stands_for_counts() -> None:
    dialler, acceptor = Table(SMALL), Table(LARGE, addresses=["203.0.113.2:7", "[fd00::2]:7"])
    drive(Wire(dialler, acceptor, "db1.example.org:7", host="fd00::2"))
    assert opened(dialler) == [("[fd00::2]:7", "203.0.113.2:7")]
