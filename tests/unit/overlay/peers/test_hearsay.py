"""Dials of nodes that somebody has named: charged to that peer, paid back by nodes that are met."""

from __future__ import annotations

from iris_overlay.ids import NodeId
from iris_overlay.peers.config import ContactsConfig
from iris_overlay.peers.hearsay import MET_MAX, NAMED_MAX, REACHED_MAX, TELLERS_MAX, Hearsay

CONFIG = ContactsConfig(hearsay_dials_max=3, hearsay_dials_per_s=0.5)
LIAR, OTHER = NodeId(b"L" * 16), NodeId(b"O" * 16)


def made_up(number: int) -> NodeId:
    return NodeId(number.to_bytes(16, "big"))


def charged(hearsay: Hearsay, numbers: range, now: float) -> int:
    """Return how many dials of some nodes may begin."""
    return sum(hearsay.charge(made_up(number), now) for number in numbers)


def told(by: NodeId, numbers: range, hearsay: Hearsay) -> None:
    hearsay.teller = by
    for number in numbers:
        hearsay.note(made_up(number))
    hearsay.teller = None


def test_each_peer_has_an_allowance_which_fills_again() -> None:
    hearsay = Hearsay(CONFIG)
    told(LIAR, range(100), hearsay)
    told(OTHER, range(100, 200), hearsay)
    assert charged(hearsay, range(100), 10.0) == 3
    assert charged(hearsay, range(100, 200), 10.0) == 3
    assert charged(hearsay, range(200, 300), 10.0) == 3, "of which nobody said anything"
    assert charged(hearsay, range(100), 14.0) == 2
    assert charged(hearsay, range(100), 1e6) == 3, "never more than at first"


def test_a_node_that_is_met_pays_its_charges_back() -> None:
    hearsay = Hearsay(CONFIG)
    told(LIAR, range(10), hearsay)
    assert [hearsay.charge(made_up(1), 0.0) for _ in range(2)] == [True, True]
    hearsay.meet(made_up(1), 0.0)
    assert charged(hearsay, range(2, 10), 0.0) == 3
    assert charged(hearsay, range(2, 10), 0.0) == 0
    hearsay.meet(made_up(1), 0.0)
    assert charged(hearsay, range(2, 10), 0.0) == 0, "it pays back once"


def test_a_node_that_was_met_pays_for_the_addresses_that_it_has_named_itself() -> None:
    hearsay = Hearsay(CONFIG)
    told(LIAR, range(1, 3), hearsay)
    hearsay.meet(made_up(1), 0.0)
    assert [hearsay.charge(made_up(1), 0.0) for _ in range(4)] == [True, True, True, False]
    hearsay.meet(made_up(1), 0.0)
    assert not hearsay.charge(made_up(1), 0.0), "a link alone proves no address"
    assert hearsay.charge(made_up(2), 0.0), "another one has named this node"
    hearsay.reach(made_up(1), "host.example:1", 0.0)
    assert [hearsay.charge(made_up(1), 0.0) for _ in range(2)] == [True, False], "a dial that reached it costs nothing"


def test_a_node_that_is_reached_where_no_charge_was_due_gains_nothing() -> None:
    hearsay, address = Hearsay(CONFIG), "192.0.2.1:1"
    hearsay.meet(made_up(1), 0.0)
    hearsay.reach(made_up(1), address, 0.0)
    assert [hearsay.charge(made_up(1), 0.0) for _ in range(4)] == [True, True, True, False]
    for _ in range(5):
        assert hearsay.is_proven(made_up(1), address)
        hearsay.reach(made_up(1), address, 0.0)
    assert not hearsay.charge(made_up(1), 0.0)


def test_a_numeric_address_where_a_dial_reached_a_node_is_proven_until_it_is_reached_elsewhere() -> None:
    hearsay = Hearsay(CONFIG)
    assert hearsay.reached_at(made_up(1)) is None
    for address in ("192.0.2.1:1", "[2001:db8::1]:1"):
        hearsay.reach(made_up(1), address, 0.0)
        assert hearsay.is_proven(made_up(1), address)
        assert not hearsay.is_proven(made_up(2), address)
        assert not hearsay.is_proven(made_up(1), "192.0.2.2:1")
    assert not hearsay.is_proven(made_up(1), "192.0.2.1:1")
    hearsay.reach(made_up(1), "host.example:1", 0.0)
    assert hearsay.reached_at(made_up(1)) == "host.example:1"
    assert not hearsay.is_proven(made_up(1), "host.example:1"), "the name may lead elsewhere by now"


def test_the_first_that_names_a_node_is_charged_and_no_node_for_itself() -> None:
    hearsay = Hearsay(CONFIG)
    told(OTHER, range(3), hearsay)
    told(LIAR, range(3), hearsay)
    assert charged(hearsay, range(3), 0.0) == 3
    told(LIAR, range(3, 6), hearsay)
    assert charged(hearsay, range(3, 6), 0.0) == 3
    hearsay.teller = made_up(7)
    hearsay.note(made_up(7))
    assert hearsay._named_by.get(made_up(7)) is None


def test_what_is_remembered_is_bounded() -> None:
    hearsay = Hearsay(CONFIG)
    for number in range(max(MET_MAX, NAMED_MAX, TELLERS_MAX, REACHED_MAX) + 10):
        hearsay.reach(made_up(number), "192.0.2.1:1", 0.0)
        told(made_up(100_000 + number), range(number, number + 1), hearsay)
        hearsay.charge(made_up(number), 0.0)
        hearsay.meet(made_up(200_000 + number), 0.0)
    assert len(hearsay._met) == MET_MAX
    assert len(hearsay._reached) == REACHED_MAX
    assert len(hearsay._named_by) == len(hearsay._charges) == NAMED_MAX
    assert len(hearsay._allowances) == TELLERS_MAX
