"""Echoes by datagram, and dials that others make for a node that looks for a fault."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from iris_overlay.errors import MessageError
from iris_overlay.events import DialChecked, DialOutcome, DialRequested, EchoReturned
from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_overlay.peers.config import ContactsConfig
from iris_overlay.peers.reachability import (
    ADDRESSES_CHECKED_MAX,
    CHECK_DIAL,
    CHECK_FORGOTTEN_S,
    CHECKS_MAX,
    CHECKS_PER_S_MAX,
    DIAL_CHECKED,
    ECHO_BYTES_MAX,
    ECHO_BYTES_MIN,
    REST_S,
    RESTING_S,
    EchoReply,
    EchoRequest,
    decode_echo,
    encode_echo,
    is_echo,
)
from iris_overlay.ring.messages import Direct, decode_ring_message, encode_ring_message
from tests.unit.overlay.overlays import LOCAL, ONE, TWO, Owners, make_info, with_leaf

if TYPE_CHECKING:
    from iris_overlay.overlay import Overlay


def linked(*infos: NodeInfo) -> Owners:
    """Return nodes of one ring, each with a link to the others."""
    owners = Owners()
    owners.add(infos[0])
    for info in infos[1:]:
        owners.add(info, infos[0])
    owners.advance(3.0)
    assert all(owners.is_linked(one, other) for one in infos for other in infos if one != other)
    return owners


def check(owners: Owners, info: NodeInfo, peer: NodeInfo) -> dict[str, DialOutcome]:
    """Let a node be dialled by another one; return what that says."""
    owners.nodes[info.id].check_dial(peer.id, owners.now)
    owners.settle()
    (checked,) = owners.of(info, DialChecked)
    assert checked.peer == peer.id
    return dict(checked.outcomes)


def say(overlay: Overlay, source: NodeInfo, payload: bytes, now: float = 0.0) -> list[bytes]:
    """Let the overlay hear something over a link; return what it says back."""
    overlay.receive_message(ONE.id if source == ONE else source.id, encode_ring_message(Direct(source, payload)), now)
    said = [decode_ring_message(data) for _, data in overlay.messages_to_send()]
    return [message.payload for message in said if isinstance(message, Direct)]


@pytest.mark.parametrize("size", [ECHO_BYTES_MIN, 255, 300, 301, 302, 303, 304, ECHO_BYTES_MAX])
def test_an_echo_has_the_size_that_was_asked_for(size: int) -> None:
    overlay = with_leaf()
    overlay.datagrams_to_send()
    assert overlay.echo(ONE, size, 0.0) is not None
    ((address, data),) = overlay.datagrams_to_send()
    assert address == ("198.51.100.1", 7000)
    assert is_echo(data)
    assert size - 1 <= len(data) <= size
    assert decode_echo(data) == decode_echo(encode_echo(decode_echo(data)))


@pytest.mark.parametrize("size", [ECHO_BYTES_MIN, ECHO_BYTES_MAX])
def test_an_echo_comes_back(size: int) -> None:
    owners = linked(ONE, TWO)
    number = owners.nodes[ONE.id].echo(TWO, size, owners.now)
    owners.settle()
    assert owners.of(ONE, EchoReturned) == [EchoReturned(TWO.id, number or 0)]
    assert owners.of(TWO, EchoReturned) == []


def test_no_echo_comes_back_where_no_datagram_passes() -> None:
    owners = linked(ONE, TWO)
    owners.walled.add(TWO.id)
    owners.nodes[ONE.id].echo(TWO, ECHO_BYTES_MIN, owners.now)
    owners.settle()
    assert owners.of(ONE, EchoReturned) == []


def test_a_node_without_a_numeric_address_cannot_be_asked() -> None:
    overlay = with_leaf()
    assert overlay.echo(NodeInfo(TWO.id, ("host.example:7000",)), ECHO_BYTES_MIN, 0.0) is None
    assert overlay.echo(NodeInfo(TWO.id, ()), ECHO_BYTES_MIN, 0.0) is None


def test_a_reply_is_never_larger_than_its_echo_and_goes_where_that_came_from() -> None:
    overlay, source = with_leaf(), ("203.0.113.9", 9)
    overlay.datagrams_to_send()
    for padding in (0, 200, 255, 256, 900):
        asked = encode_echo(EchoRequest(7, ONE.id, LOCAL.id, bytes(padding)))
        overlay.receive_datagram(ONE.id, asked, source, 0.0)
        ((address, data),) = overlay.datagrams_to_send()
        assert address == source
        assert len(data) <= len(asked)
        assert decode_echo(data) == EchoReply(7, LOCAL.id, bytes(padding))


@pytest.mark.parametrize(
    "message",
    [
        encode_echo(EchoRequest(7, TWO.id, LOCAL.id, b"")),  # in the name of another node
        encode_echo(EchoRequest(7, ONE.id, TWO.id, b"")),  # for another node, which had this address before
        encode_echo(EchoReply(7, TWO.id, b"")),
        b"\x94\x44",
        b"\x94\x44" + bytes(ECHO_BYTES_MAX),
    ],
)
def test_a_liar_is_not_answered(message: bytes) -> None:
    overlay = with_leaf()
    overlay.datagrams_to_send()
    overlay.receive_datagram(ONE.id, message, ("203.0.113.9", 9), 0.0)
    assert overlay.datagrams_to_send() == []
    assert [event for event in overlay.events_received() if isinstance(event, EchoReturned)] == []
    assert overlay.counters.datagrams_invalid == 1


def test_a_datagram_that_is_too_large_is_none() -> None:
    with pytest.raises(MessageError, match="exceeds"):
        decode_echo(encode_echo(EchoRequest(1, ONE.id, TWO.id, bytes(ECHO_BYTES_MAX))))


def test_whoever_is_linked_is_dialled_nevertheless() -> None:
    owners = linked(ONE, TWO)
    owners.dials.clear()
    assert check(owners, ONE, TWO) == {ONE.addresses[0]: DialOutcome.REACHED}
    assert owners.dials == [(TWO.id, ONE.addresses[0])]
    assert owners.is_linked(ONE, TWO)


def test_a_firewall_shows_as_silence() -> None:
    owners = linked(ONE, TWO)
    owners.walled.add(ONE.id)
    assert check(owners, ONE, TWO) == {ONE.addresses[0]: DialOutcome.SILENT}


@pytest.mark.parametrize(
    ("is_refused", "is_broken", "outcome"),
    [(True, False, DialOutcome.REFUSED), (False, True, DialOutcome.BROKEN), (False, False, DialOutcome.SILENT)],
)
def test_what_came_of_a_dial_is_told(is_refused: bool, is_broken: bool, outcome: DialOutcome) -> None:
    overlay = with_leaf()
    assert say(overlay, ONE, CHECK_DIAL) == []
    overlay.dial_failed(ONE.addresses[0], 1.0, is_refused=is_refused, is_broken=is_broken)
    said = [decode_ring_message(data) for _, data in overlay.messages_to_send()]
    answers = [message.payload for message in said if isinstance(message, Direct)]
    other = with_leaf()
    other.check_dial(ONE.id, 0.0)
    say(other, ONE, answers[0])
    checked = [event for event in other.events_received() if isinstance(event, DialChecked)]
    assert checked == [DialChecked(ONE.id, ((ONE.addresses[0], outcome),))]


def test_another_node_at_the_address_is_told_apart() -> None:
    owners = linked(ONE, TWO, make_info(3))
    shared = NodeInfo(ONE.id, TWO.addresses)  # it says an address where another node listens
    owners.nodes[make_info(3).id].receive_message(ONE.id, encode_ring_message(Direct(shared, CHECK_DIAL)), owners.now)
    owners.nodes[ONE.id].check_dial(make_info(3).id, owners.now)
    owners.settle()
    outcomes = {outcome for checked in owners.of(ONE, DialChecked) for _, outcome in checked.outcomes}
    assert DialOutcome.ANOTHER in outcomes


NAMES = tuple(f"n{number}.example:7" for number in range(ADDRESSES_CHECKED_MAX))


def dials(overlay: Overlay) -> list[str]:
    return [event.address for event in overlay.events_received() if isinstance(event, DialRequested)]


def said_of(overlay: Overlay) -> dict[str, int]:
    """Return what the overlay says of its dials to the node that asked for them."""
    for _, data in overlay.messages_to_send():
        message = decode_ring_message(data)
        if isinstance(message, Direct) and message.payload[:1] == DIAL_CHECKED:
            return dict(msgspec.msgpack.decode(message.payload[1:]))
    return {}


def test_names_of_one_address_are_dialled_in_turn_and_each_outcome_is_told() -> None:
    overlay, now = with_leaf(), 5.0
    dials(overlay)
    say(overlay, NodeInfo(ONE.id, NAMES), CHECK_DIAL, now)
    asked = dials(overlay)
    assert asked == list(NAMES)
    while asked:
        first, *others = asked
        overlay.dial_failed(first, now, is_broken=True)
        for address in others:
            overlay.dial_rested(address, now)
        assert dials(overlay) == []
        until = now + REST_S
        while (due := overlay.deadline()) is not None and due <= until:
            now = max(now, due)
            overlay.handle_timeout(now)
        asked = [address for address in dials(overlay) if address in NAMES]
        assert asked == others
    assert said_of(overlay) == dict.fromkeys(NAMES, DialOutcome.BROKEN)


def test_an_address_that_rests_for_long_is_left_out_of_the_answer() -> None:
    overlay, now = with_leaf(), 5.0
    dials(overlay)
    say(overlay, NodeInfo(ONE.id, NAMES[:2]), CHECK_DIAL, now)
    overlay.dial_failed(NAMES[0], now, is_refused=True)
    looked_up = 1
    while not (said := said_of(overlay)):
        overlay.dial_rested(NAMES[1], now)
        now += REST_S
        overlay.handle_timeout(now)
        looked_up += dials(overlay).count(NAMES[1])
    assert said == {NAMES[0]: DialOutcome.REFUSED}
    assert now - 5.0 <= RESTING_S + REST_S
    assert looked_up <= 1 + 1 + RESTING_S / REST_S
    overlay.dial_rested(NAMES[1], now)
    overlay.handle_timeout(now + REST_S)
    assert NAMES[1] not in dials(overlay), "nobody waits for it any more"


def test_a_node_may_cause_as_many_dials_by_checks_as_by_naming_others() -> None:
    overlay, now, dialled = with_leaf(), 5.0, 0
    for _ in range(600):
        say(overlay, ONE, CHECK_DIAL, now)
        for address in dials(overlay):
            dialled += 1
            overlay.dial_failed(address, now, is_refused=True)
        now += 0.1
    config = ContactsConfig()
    assert config.hearsay_dials_max <= dialled <= config.hearsay_dials_max + 60.0 * config.hearsay_dials_per_s
    overlay.dial_succeeded(ONE.addresses[0], ONE.id, now)
    say(overlay, ONE, CHECK_DIAL, now)
    proven = [event for event in overlay.events_received() if isinstance(event, DialRequested)]
    assert proven == [DialRequested(ONE.addresses[0], ONE.id)], "charged no more, and as bounded by the owner"
    refused = overlay.counters.dial_checks_refused
    overlay.link_opened(TWO, now)
    assert say(overlay, TWO, CHECK_DIAL, now) == []
    assert TWO.addresses[0] in dials(overlay), "another node pays for itself"
    assert overlay.counters.dial_checks_refused == refused


def test_addresses_that_mean_another_machine_are_not_dialled() -> None:
    overlay = with_leaf()
    source = NodeInfo(ONE.id, ("127.0.0.1:7000",))
    assert say(overlay, source, CHECK_DIAL) == [DIAL_CHECKED + b"\x90"]
    assert say(overlay, NodeInfo(ONE.id, ("0.0.0.0:7", *LOCAL.addresses)), CHECK_DIAL) == [DIAL_CHECKED + b"\x90"]


def test_an_insider_makes_a_node_dial_few_addresses() -> None:
    overlay = with_leaf()
    overlay.events_received()
    say(overlay, NodeInfo(ONE.id, tuple(f"198.51.100.{number}:1" for number in range(200, 208))), CHECK_DIAL)
    assert sum(isinstance(event, DialRequested) for event in overlay.events_received()) == ADDRESSES_CHECKED_MAX
    say(overlay, ONE, CHECK_DIAL)
    assert overlay.counters.dial_checks_refused == 1
    assert overlay.events_received() == []


def test_checks_that_nobody_ends_make_room() -> None:
    overlay = with_leaf()
    infos = [NodeInfo(NodeId(bytes([number]) * 16), (f"198.51.100.{number}:7",)) for number in range(10, 11 + CHECKS_MAX)]
    for info in infos:
        overlay.link_opened(info, 0.0)
        say(overlay, info, CHECK_DIAL)
    assert overlay.counters.dial_checks_refused == 1
    say(overlay, infos[-1], CHECK_DIAL, CHECK_FORGOTTEN_S + 1.0)
    assert overlay.counters.dial_checks_refused == 1


def test_an_answer_that_nobody_waits_for_is_ignored() -> None:
    overlay = with_leaf()
    say(overlay, ONE, DIAL_CHECKED + b"\x90")
    assert overlay.counters.messages_unexpected == 1
    overlay.check_dial(ONE.id, 0.0)
    say(overlay, ONE, DIAL_CHECKED + b"\xc0")
    assert overlay.counters.messages_invalid == 1
    assert [event for event in overlay.events_received() if isinstance(event, DialChecked)] == []


def test_an_insider_cannot_make_a_node_hammer_an_address() -> None:
    overlay = with_leaf()
    for _ in range(3 * CHECKS_PER_S_MAX):
        say(overlay, ONE, CHECK_DIAL, 5.0)
        overlay.dial_failed(ONE.addresses[0], 5.0, is_refused=True)
    requests = [event for event in overlay.events_received() if isinstance(event, DialRequested)]
    assert len(requests) == CHECKS_PER_S_MAX
    assert overlay.counters.dial_checks_refused == 2 * CHECKS_PER_S_MAX
    overlay.messages_to_send()
    say(overlay, ONE, CHECK_DIAL, 6.0)
    assert overlay.counters.dial_checks_refused == 2 * CHECKS_PER_S_MAX
