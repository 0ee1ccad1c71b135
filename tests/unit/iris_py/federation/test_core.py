"""Gateways that speak with other clouds: requests both ways, and everything that happens to their line meanwhile."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from iris_py.errors import CloudUnavailable, IrisError, NoMembers, NotExported, Overloaded
from iris_py.federation import bundle as bundles
from iris_py.federation import core as cores
from iris_py.federation import messages
from iris_py.federation.bundle import BROKEN_S, PROBE_BUSY_S, PROBE_IDLE_S, SUSPECT_S
from iris_py.federation.calls import Call, Status, call_head, decode_outcome, encode_outcome
from iris_py.federation.events import (
    BundleChanged,
    CloudChanged,
    CountTold,
    OffersChanged,
    RequestsReceived,
    UseRefused,
    WatchChanged,
)
from iris_py.federation.messages import LINE_GROUP, encode_control, encode_message
from iris_py.wire import packets
from tests.unit.iris_py.federation.pair import KEYS, Gateway, Hall, one_each, settings_of, two_clouds

LARGE = b"l" * (bundles.SMALL_BYTES + 1)
IDENTITY = b"i" * 16


def upper(incoming: Any) -> bytes:
    return encode_outcome(incoming.call.payload.upper())


def status(gateway: Gateway, token: object) -> Status:
    return Status(gateway.outcomes[token][0])


def error(gateway: Gateway, token: object) -> Any:
    found = decode_outcome(gateway.outcomes[token], "db@eu", 5.0)
    assert isinstance(found, IrisError)
    return found


def is_idle(gateway: Gateway) -> bool:
    return gateway.core.is_idle


def assert_empty(*gateways: Gateway) -> None:
    """Nothing is under way, and nothing is counted as if it were."""
    for gateway in gateways:
        assert is_idle(gateway)
        assert len(gateway.core._deadlines) == 0
        for neighbour in gateway.core.lines.neighbours.values():
            assert neighbour.incoming == 0
            assert all(limits.in_flight == 0 for limits in neighbour.export_limits.values())
            assert all(limits.in_flight == 0 for limits in neighbour._import_limits.values())
            for bundle in neighbour.bundles.values():
                assert not bundle.calls
                assert not bundle.incoming


def request(number: int, name: str = "db", payload: bytes = b"x", left_ms: int = 5000) -> list[bytes]:
    """Return a request as a neighbour may say it."""
    return encode_message(packets.REQUEST, number, left_ms, b"", (call_head(Call(name=name)), payload))


def cancel(number: int) -> list[bytes]:
    return encode_message(packets.CANCEL, number, 0, b"", ())


def say(gateway: Gateway, alias: str, parts: list[bytes]) -> None:
    """Let a gateway say anything as a body."""
    link = gateway.bundle(alias).links[0]
    assert link is not None
    link.send_body(LINE_GROUP, parts, sum(map(len, parts)), is_ordered=False)
    gateway.write(link)


def say_control(gateway: Gateway, alias: str, data: bytes) -> None:
    link = gateway.bundle(alias).links[0]
    assert link is not None
    link.send_control(data)
    gateway.write(link)


# -- requests


def test_a_large_request_has_a_large_reply() -> None:
    hall, us, eu = one_each()
    eu.serves = upper
    payload = b"large" * 100_000
    token = us.ask("eu", "db", payload)
    hall.advance(1.0)
    assert us.outcomes[token] == encode_outcome(payload.upper())
    assert_empty(us, eu)


def test_a_request_is_answered_in_either_direction() -> None:
    hall, us, eu = one_each()
    eu.serves = upper
    token = us.ask("eu", "db", b"select", is_anchored=True, identity=IDENTITY, prefer="eu/a", require="eu", waits=True)
    hall.advance(0.05)
    assert us.outcomes[token] == encode_outcome(b"SELECT")
    (incoming,) = eu.requests
    assert incoming.call == Call(
        name="db", payload=b"select", is_anchored=True, identity=IDENTITY, prefer="eu/a", require="eu", waits=True
    )
    assert incoming.name == "db"
    assert incoming.deadline - incoming.began_at == pytest.approx(5.0 - 0.02, abs=0.002), "half a round trip is on the way"
    assert_empty(us, eu)
    (account,) = [each for each in us.neighbour("eu").accounts if each.is_used]
    assert (account.outcomes[Status.DONE], account.bytes_sent, account.bytes_received) == (1, 6, 6)
    (account,) = [each for each in eu.neighbour("us").accounts if each.is_used]
    assert (account.outcomes[Status.DONE], account.bytes_sent, account.bytes_received) == (1, 6, 6)


def test_many_requests_at_once_and_their_replies() -> None:
    hall, us, eu = one_each(exports=[{"cluster": "db", "in_flight": 5000}])
    eu.serves = upper
    tokens = [us.ask("eu", "db", b"x" * (n % 300)) for n in range(3000)]
    hall.advance(0.2)
    assert all(us.outcomes[token] == encode_outcome(b"X" * (n % 300)) for n, token in enumerate(tokens))
    assert_empty(us, eu)


def test_what_is_large_takes_another_connection_and_lets_small_ones_pass() -> None:
    hall, us, eu = one_each()
    eu.serves = upper
    before = [link.sent_bytes for link in us.bundle("eu").links if link is not None]
    token = us.ask("eu", "db", LARGE)
    hall.advance(0.2)
    assert us.outcomes[token] == encode_outcome(LARGE.upper())
    moved = [link.sent_bytes - was for link, was in zip(us.bundle("eu").links, before, strict=True) if link is not None]
    assert moved[0] < 1000
    assert sum(moved) > len(LARGE)
    assert_empty(us, eu)


def test_the_outcome_is_whatever_the_other_side_says() -> None:
    hall, us, eu = one_each()
    for number in Status:
        facts = b"" if number == Status.DONE else msgspec.msgpack.encode({})
        eu.serves = lambda _incoming, reply=bytes((number,)) + facts: reply
        token = us.ask("eu", "db")
        hall.advance(0.05)
        assert status(us, token) == number
    assert_empty(us, eu)


@pytest.mark.parametrize(
    ("name", "alias", "expected"),
    [
        ("db", "mars", Status.UNAVAILABLE),
        ("secret", "eu", Status.NOT_EXPORTED),
        ("a..b", "eu", Status.NOT_EXPORTED),
        ("", "eu", Status.NOT_EXPORTED),
    ],
)
def test_requests_that_are_not_sent(name: str, alias: str, expected: Status) -> None:
    _hall, us, eu = one_each()
    token = us.ask(alias, name)
    assert status(us, token) == expected
    assert us.sent is None
    assert_empty(us, eu)


def test_what_is_not_imported_is_not_asked_for_though_it_is_exported() -> None:
    _hall, us, _eu = one_each(imports=[{"cluster": "other"}])
    assert status(us, us.ask("eu", "db")) == Status.NOT_EXPORTED


def test_a_name_that_is_exported_for_another_use_is_refused_at_both_sides() -> None:
    hall, us, eu = one_each(exports=[{"cluster": "db", "allow": ["survey"]}])
    assert status(us, us.ask("eu", "db")) == Status.NOT_EXPORTED
    say(us, "eu", request(7))
    hall.advance(0.1)
    assert not eu.requests
    assert [event.reason for event in eu.events_of(UseRefused)] == ["not exported"]
    assert us.core.drops == {"late_reply": 1}, "the refusal, which nobody here waits for"


def test_the_most_specific_export_counts_whatever_a_neighbour_would_rather_have() -> None:
    exports = [{"cluster": "jobs.>"}, {"cluster": "jobs.secret", "allow": ["survey"]}]
    hall, us, eu = one_each(exports=exports)
    say(us, "eu", request(7, "jobs.secret"))
    say(us, "eu", request(8, "jobs.open"))
    hall.advance(0.1)
    assert [incoming.name for incoming in eu.requests] == ["jobs.open"]


def test_a_reload_does_not_refuse_what_is_under_way_because_rules_have_moved() -> None:
    exports = [{"cluster": "other"}, {"cluster": "db"}]
    hall, us, eu = one_each(exports=exports)
    eu.serves = upper
    token = us.ask("eu", "db", b"x")
    eu.reload(settings_of("eu", {"us": {}}, [{"cluster": "db"}, {"cluster": "third"}]))
    hall.advance(0.05)
    assert us.outcomes[token] == encode_outcome(b"X")


def test_numbers_of_rules_stay_and_are_not_given_to_others() -> None:
    hall, us, eu = one_each(exports=[{"cluster": "a"}, {"cluster": "b"}, {"topic": "b"}])

    def numbers() -> dict[tuple[int, str], int]:
        hall.advance(0.1)
        catalogue = us.bundle("eu").catalogue
        assert catalogue is not None
        return {(entry.kind, entry.pattern): entry.rule for entry in catalogue.entries}

    before = numbers()
    eu.reload(settings_of("eu", {"us": {}}, [{"cluster": "c"}, {"topic": "b"}, {"cluster": "a"}]))
    after = numbers()
    assert {key: after[key] for key in before if key in after} == {key: before[key] for key in before if key in after}
    assert after[0, "c"] not in before.values()
    eu.neighbour("us")._last_number = 0xFFFF - 1
    eu.reload(settings_of("eu", {"us": {}}, [{"cluster": "a"}, {"cluster": "x"}, {"cluster": "y"}, {"cluster": "z"}]))
    assert len(set(numbers().values())) == 4
    assert numbers()[0, "a"] == before[0, "a"], "numbers go round, past those in use"


def test_a_request_that_nobody_answers_ends_in_time_and_is_cancelled_there() -> None:
    hall, us, eu = one_each()
    token = us.ask("eu", "db", timeout=0.5)
    hall.advance(0.49)
    assert token not in us.outcomes
    hall.advance(0.04)
    assert status(us, token) == Status.TIMEOUT
    assert eu.cancelled == eu.requests
    assert_empty(us, eu)
    eu.reply(eu.requests[0], encode_outcome(b"late"))
    hall.advance(0.1)
    assert_empty(us, eu)


def test_a_deadline_that_has_passed_sends_nothing() -> None:
    hall, us, eu = one_each()
    assert status(us, us.ask("eu", "db", timeout=0.0)) == Status.TIMEOUT
    hall.advance(0.1)
    assert not eu.requests


def test_a_cancelled_request_has_no_outcome_and_ends_there() -> None:
    hall, us, eu = one_each()
    token = us.ask("eu", "db")
    hall.advance(0.05)
    for _twice in range(2):
        us.cancel()
        us.transmit()
    hall.advance(0.05)
    assert token not in us.outcomes
    assert eu.cancelled == eu.requests
    assert_empty(us, eu)


def test_a_request_that_is_cancelled_at_once_is_never_served() -> None:
    hall, us, eu = one_each()
    us.core.request("eu", Call(name="db"), b"", "t", hall.now + 1, hall.now)
    (outgoing,) = us.bundle("eu").calls.values()
    us.core.cancel(outgoing, hall.now)
    us.transmit()
    hall.advance(0.1)
    assert not eu.requests
    assert not eu.cancelled
    assert_empty(us, eu)


def test_a_reply_to_a_request_whose_number_is_used_again_ends_neither() -> None:
    hall, us, eu = one_each()
    say(us, "eu", request(7, payload=b"one"))
    hall.advance(0.05)
    say(us, "eu", cancel(7) + request(7, payload=b"two"))
    hall.advance(0.05)
    one, two = eu.requests
    eu.reply(one, encode_outcome(b"1"))
    assert eu.bundle("us").incoming == {7: two}
    eu.reply(two, encode_outcome(b"2"))
    assert_empty(eu)


def test_a_number_that_is_in_use_ends_the_bundle() -> None:
    hall, us, eu = one_each()
    say(us, "eu", request(7))
    say(us, "eu", request(7))
    hall.advance(0.05)
    assert not eu.bundles("us")
    assert eu.core.drops == {"violation": 1}
    assert eu.cancelled == eu.requests
    assert len(eu.requests) == 1
    assert_empty(eu)


# -- limits


def test_too_many_at_once_are_refused_at_this_side_already() -> None:
    hall, us, eu = one_each(exports=[{"cluster": "db", "in_flight": 2}])
    tokens = [us.ask("eu", "db") for _ in range(3)]
    assert status(us, tokens[2]) == Status.LIMITED
    assert error(us, tokens[2]).retry_after_s == pytest.approx(0.05)
    hall.advance(0.05)
    assert len(eu.requests) == 2
    for incoming in eu.requests:
        eu.reply(incoming, encode_outcome(b""))
    hall.advance(0.05)
    assert_empty(us, eu)


def test_a_neighbour_that_does_not_keep_to_limits_is_held_to_them() -> None:
    hall, us, eu = one_each(exports=[{"cluster": "db", "in_flight": 2}, {"cluster": "slow", "requests_per_s": 1}])
    say(us, "eu", [part for number in range(1, 6) for part in request(number)])
    say(us, "eu", [part for number in range(11, 16) for part in request(number, "slow")])
    hall.advance(0.05)
    assert [incoming.number for incoming in eu.requests] == [1, 2, 11]
    assert {event.reason for event in eu.events_of(UseRefused)} == {"limited"}
    for incoming in eu.requests:
        eu.reply(incoming, encode_outcome(b""))
    assert_empty(eu)


def test_all_requests_of_a_neighbour_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "INCOMING_MAX", 3)
    hall, us, eu = one_each()
    tokens = [us.ask("eu", "db") for _ in range(4)]
    hall.advance(0.05)
    assert len(eu.requests) == eu.neighbour("us").incoming == 3
    assert status(us, tokens[3]) == Status.OVERLOADED
    eu.reply(eu.requests[0], encode_outcome(b""))
    us.ask("eu", "db")
    hall.advance(0.05)
    assert len(eu.requests) == 4


def test_incoming_max_is_what_is_promised() -> None:
    assert bundles.INCOMING_MAX == 65_536


def test_a_line_that_does_not_move_gets_no_more_than_memory_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "QUEUED_BYTES_MAX", 300_000)
    _hall, us, eu = one_each()
    us.is_blocked = True  # the transport takes nothing
    tokens = [us.ask("eu", "db", LARGE) for _ in range(8)]
    assert us.bundle("eu").queued_bytes < 300_000 + 2 * len(LARGE)
    assert {status(us, token) for token in tokens if token in us.outcomes} == {Status.OVERLOADED}
    assert len([token for token in tokens if token not in us.outcomes]) == len(us.bundle("eu").calls) < 8
    del eu


def test_a_neighbour_that_does_not_read_its_replies_is_served_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "QUEUED_BYTES_MAX", 300_000)
    hall, us, eu = one_each()
    eu.serves = lambda _incoming: encode_outcome(LARGE)
    eu.is_blocked = True
    say(us, "eu", [part for number in range(1, 50) for part in request(number)])
    hall.advance(0.05)
    say(us, "eu", [part for number in range(51, 100) for part in request(number)])
    hall.advance(0.05)
    assert len(eu.requests) == 49
    assert_empty(eu)


def test_what_is_too_large_for_the_other_side_is_not_sent() -> None:
    _hall, us, _eu = one_each()
    us.bundle("eu").max_message_bytes = 10
    token = us.ask("eu", "db", b"x" * 11)
    found = error(us, token)
    assert (status(us, token), found.size_bytes, found.limit_bytes) == (Status.TOO_LARGE, 11, 10)


# -- when a bundle ends


@pytest.mark.parametrize("identity", [b"", IDENTITY])
def test_requests_on_a_bundle_that_ends_are_lost_or_go_another_way(identity: bytes) -> None:
    hall, (us,), (one, other) = two_clouds(eu=2)
    hall.until(lambda: len(us.neighbour("eu").usable(hall.now)) == 2)
    hall.advance(1.0)
    one.serves, other.serves = None, None
    tokens = [us.ask("eu", "db", identity=identity) for _ in range(10)]
    hall.advance(0.05)
    assert len(one.requests) + len(other.requests) == 10
    assert one.requests, "both are used"
    assert other.requests
    held = len(other.requests)
    hall.kill(one)
    hall.advance(0.1)
    lost = [token for token in tokens if token in us.outcomes]
    assert {status(us, token) for token in lost} <= {Status.MEMBER_LOST}
    assert len(lost) == (0 if identity else len(one.requests))
    assert len(other.requests) == (10 if identity else held)
    for incoming in other.requests:
        other.reply(incoming, encode_outcome(b"done"))
    hall.advance(0.1)
    assert all(token in us.outcomes for token in tokens)
    assert_empty(us, other)


@pytest.mark.parametrize("outcome", [Overloaded("db"), NoMembers("db", 1), NotExported("db"), CloudUnavailable("db")])
def test_what_went_another_way_is_not_said_to_be_unexecuted(outcome: IrisError) -> None:
    hall, (us,), (one, other) = two_clouds(eu=2)
    hall.until(lambda: len(us.neighbour("eu").usable(hall.now)) == 2)
    one.serves, other.serves = None, None
    first = us.ask("eu", "db", identity=IDENTITY)
    hall.advance(0.05)
    had, has = (one, other) if one.requests else (other, one)
    hall.kill(had)
    second = us.ask("eu", "db", identity=IDENTITY)
    hall.advance(0.1)
    for incoming in has.requests:
        has.reply(incoming, encode_outcome(outcome))
    hall.advance(0.1)
    assert status(us, first) == Status.MEMBER_LOST, "the one that is gone may have had it executed"
    assert status(us, second) == encode_outcome(outcome)[0], "this one was never given to that"
    assert_empty(us, has)


def test_a_request_goes_first_by_the_bundles_that_are_named() -> None:
    hall, (us,), (one, other) = two_clouds(eu=2)
    hall.until(lambda: len(us.neighbour("eu").usable(hall.now)) == 2)
    named = us.bundles("eu")[1]
    call = Call(name="db", payload=b"x")
    for _ in range(10):
        assert us.core.request("eu", call, b"", object(), hall.now + 5.0, hall.now, frozenset((named,))) is not None
    us.transmit()
    hall.advance(0.1)
    assert sorted(len(gateway.requests) for gateway in (one, other)) == [0, 10]
    assert us.core.request("eu", call, b"", "nowhere", hall.now + 5.0, hall.now, ()) is None


def test_it_is_told_when_other_ways_lead_to_a_neighbour() -> None:
    hall, (us,), (one, other) = two_clouds(eu=2)
    hall.until(lambda: len(us.neighbour("eu").usable(hall.now)) == 2)
    us.events.clear()
    one.is_stopped = True
    us.ask("eu", "db", identity=IDENTITY)
    us.ask("eu", "db", identity=IDENTITY)
    hall.until(lambda: len(us.neighbour("eu").usable(hall.now)) == 1)
    assert us.events_of(OffersChanged)
    assert not us.events_of(CloudChanged), "the other way is still there"
    hall.kill(other)
    hall.until(lambda: not us.neighbour("eu").usable(hall.now))
    assert [event.is_usable for event in us.events_of(CloudChanged)] == [False]


def test_requests_of_a_neighbour_end_with_its_bundle() -> None:
    hall, us, eu = one_each()
    us.ask("eu", "db")
    us.ask("eu", "db")
    hall.advance(0.05)
    hall.kill(us)
    hall.advance(0.05)
    assert eu.cancelled == eu.requests
    assert_empty(eu)
    eu.reply(eu.requests[0], encode_outcome(b"too late"))
    assert_empty(eu)


def test_a_silent_line_is_suspect_then_broken_and_idempotent_requests_go_another_way() -> None:
    hall, (us,), (one, other) = two_clouds(eu=2)
    hall.until(lambda: len(us.neighbour("eu").usable(hall.now)) == 2)
    hall.advance(1.0)
    for gateway in (one, other):
        gateway.serves = None
    tokens = [us.ask("eu", "db", identity=IDENTITY if n % 2 else b"", timeout=30.0) for n in range(20)]
    hall.advance(0.05)
    cut_at = hall.now
    one.is_stopped = True
    other.serves = upper
    served = len(one.requests)
    assert served
    for incoming in other.requests:
        other.reply(incoming, encode_outcome(b""))
    hall.until(lambda: any(bundle.health.is_suspect for bundle in us.bundles("eu")))
    assert SUSPECT_S - 0.1 <= hall.now - cut_at <= SUSPECT_S + PROBE_BUSY_S
    hall.advance(0.1)
    assert all(tokens[n] in us.outcomes for n in range(1, 20, 2)), "idempotent ones were done elsewhere"
    waiting = [token for token in tokens if token not in us.outcomes]
    assert waiting
    assert us.is_usable("eu")
    hall.until(lambda: len(us.bundles("eu")) == 1)
    assert hall.now - cut_at <= BROKEN_S + PROBE_BUSY_S
    hall.advance(0.1)
    assert {status(us, token) for token in waiting} == {Status.MEMBER_LOST}
    assert_empty(us, other)


def test_a_cloud_behind_one_silent_line_cannot_be_reached_at_once() -> None:
    hall, us, _eu = one_each()
    us.ask("eu", "db", timeout=60.0)
    hall.advance(0.03)
    hall.cut()
    cut_at = hall.now
    hall.until(lambda: not us.is_usable("eu"))
    assert hall.now - cut_at <= SUSPECT_S + PROBE_BUSY_S
    assert [event.is_usable for event in us.events_of(CloudChanged)] == [True, False]
    assert status(us, us.ask("eu", "db")) == Status.UNAVAILABLE
    hall.heal()
    hall.until(lambda: us.is_usable("eu"), 2.0)
    assert [event.is_usable for event in us.events_of(CloudChanged)] == [True, False, True]


def test_an_idle_line_that_a_firewall_forgot_is_found_before_it_is_used() -> None:
    hall, us, eu = one_each()
    eu.serves = upper
    hall.advance(20.0)
    hall.forget()
    hall.advance(5.0 + SUSPECT_S + 0.1)
    assert not us.bundles("eu")[0].health.is_sound(hall.now) or us.is_usable("eu")
    hall.until(lambda: us.is_usable("eu"), 15.0)
    token = us.ask("eu", "db")
    hall.advance(0.1)
    assert status(us, token) == Status.DONE


def test_a_connection_that_nobody_uses_is_dialled_again_when_a_firewall_forgot_it() -> None:
    hall, us, eu = one_each()
    eu.serves = upper
    hall.advance(20.0)
    bundle = us.bundle("eu")
    first = list(bundle.links)
    hall.forget([hall.pipe_of(first[2])])
    hall.until(lambda: bundle.links[2] not in (first[2], None), 2 * PROBE_IDLE_S + 3.0)
    assert us.bundle("eu") is bundle
    assert [bundle.links[index] is first[index] for index in (0, 1, 3)] == [True, True, True]


def test_connections_that_nobody_uses_live_for_long_and_through_a_standstill() -> None:
    hall, us, _eu = one_each()
    bundle = us.bundle("eu")
    first = list(bundle.links)
    hall.advance(120.0)
    assert bundle.links == first


def test_connection_zero_is_judged_by_itself() -> None:
    """Bytes on others do not hide that the one which requests take is dead."""
    hall, us, eu = one_each()
    eu.serves = None
    main = us.bundle("eu").links[0]
    hall.forget([hall.pipe_of(main)])
    us.ask("eu", "db", timeout=60.0)
    begin = hall.now
    link = eu.bundle("us").links[1]
    assert link is not None
    while us.is_usable("eu") and hall.now < begin + 20:
        link.ask_for_sign()
        eu.write(link)
        hall.advance(0.2)
    assert hall.now - begin <= SUSPECT_S + PROBE_BUSY_S + 0.3


def test_a_large_request_is_lost_with_its_connection_and_the_bundle_goes_on() -> None:
    hall, us, eu = one_each()
    eu.serves = None
    plain, again = us.ask("eu", "db", LARGE, timeout=60.0), us.ask("eu", "db", LARGE, identity=IDENTITY, timeout=60.0)
    small = us.ask("eu", "db")
    outgoing = {call.token: call for call in us.bundle("eu").calls.values()}
    assert outgoing[small].link is None
    hall.forget([hall.pipe_of(link) for link in us.bundle("eu").links[1:]])
    assert {outgoing[plain].link, outgoing[again].link} <= set(us.bundle("eu").links[1:])
    hall.advance(0.1)
    eu.serves = lambda _incoming: encode_outcome(b"done")
    for incoming in eu.requests:
        eu.reply(incoming, upper(incoming))
    hall.until(lambda: plain in us.outcomes and again in us.outcomes, 45.0)
    assert (status(us, plain), status(us, again)) == (Status.MEMBER_LOST, Status.DONE)
    hall.advance(5.0)
    assert len(us.bundles("eu")) == 1
    assert_empty(us)
    assert all(link is not None for link in us.bundle("eu").links), "they were dialled again"


def test_a_connection_that_is_dead_is_found_when_something_large_goes_over_it() -> None:
    """It was quiet, and so had no deadline; nothing comes over it that would tell."""
    hall, us, _eu = one_each()
    hall.advance(20.0)
    hall.forget([hall.pipe_of(link) for link in us.bundle("eu").links[1:]])
    token = us.ask("eu", "db", LARGE, timeout=60.0)
    hall.advance(9.0)
    assert token not in us.outcomes
    hall.advance(3.0)
    assert status(us, token) == Status.MEMBER_LOST
    assert len(us.bundles("eu")) == 1


def test_a_large_reply_that_is_lost_with_its_connection_ends_its_request() -> None:
    hall, us, eu = one_each()
    token, kept = us.ask("eu", "db", b"a", timeout=300.0), us.ask("eu", "db", b"b", timeout=300.0)
    hall.advance(0.05)
    one, two = eu.requests
    eu.reply(two, encode_outcome(LARGE))
    hall.advance(0.1)
    hall.forget([hall.pipe_of(link) for link in eu.bundle("us").links[1:]])
    eu.reply(one, encode_outcome(LARGE))
    hall.until(lambda: token in us.outcomes, 30.0)
    assert status(us, token) == Status.MEMBER_LOST
    assert us.outcomes[kept] == encode_outcome(LARGE)
    assert len(us.bundles("eu")) == 1
    assert_empty(us, eu)


# -- standing still


def test_what_waited_while_this_side_stood_still_is_not_begun() -> None:
    hall, us, eu = one_each()
    eu.is_stopped = True
    old = us.ask("eu", "db", b"old", timeout=60.0)
    hall.advance(2.0)
    eu.serves = upper
    eu.resume()
    hall.advance(0.05)
    assert not eu.requests
    assert status(us, old) == Status.UNAVAILABLE
    new = us.ask("eu", "db", b"new")
    hall.advance(0.05)
    assert us.outcomes[new] == encode_outcome(b"NEW")
    assert not eu.core._unsure
    assert_empty(us, eu)


def test_who_stood_still_does_not_suspect_others_for_that() -> None:
    hall, us, eu = one_each()
    eu.serves = None
    us.ask("eu", "db", timeout=300.0)
    hall.advance(0.05)
    us.is_stopped = True
    hall.advance(8.0)
    us.resume()
    hall.advance(0.1)
    assert us.is_usable("eu")
    assert [event.is_usable for event in us.events_of(CloudChanged)] == [True]


def test_a_minute_of_standing_still_heals() -> None:
    hall, us, eu = one_each()
    eu.is_stopped = True
    token = us.ask("eu", "db", timeout=200.0)
    hall.advance(60.0)
    assert status(us, token) == Status.MEMBER_LOST
    eu.serves = upper
    eu.resume()
    assert hall.until(lambda: us.is_usable("eu") and eu.is_usable("us"), 10.0) <= 6.0
    token = us.ask("eu", "db")
    hall.advance(0.1)
    assert status(us, token) == Status.DONE
    assert len(eu.requests) == 1
    assert_empty(us, eu)


# -- draining


def test_who_drains_gets_nothing_new_and_ends_what_runs() -> None:
    hall, (us,), (one, other) = two_clouds(eu=2)
    hall.until(lambda: len(us.neighbour("eu").usable(hall.now)) == 2)
    hall.advance(1.0)
    tokens = [us.ask("eu", "db") for _ in range(10)]
    hall.advance(0.05)
    one.core.drain(hall.now)
    one.transmit()
    hall.advance(0.05)
    held = len(one.requests)
    tokens += [us.ask("eu", "db") for _ in range(10)]
    hall.advance(0.05)
    assert held == len(one.requests) > 0
    assert not is_idle(one)
    for gateway in (one, other):
        for incoming in gateway.requests:
            gateway.reply(incoming, encode_outcome(b""))
    hall.advance(0.05)
    assert {status(us, token) for token in tokens} == {Status.DONE}
    assert is_idle(one)
    assert_empty(us, one, other)


def test_who_drains_opens_no_connection_any_more() -> None:
    hall, (us,), (eu,) = two_clouds()
    us.core.drain(hall.now)
    us.core.handle_timeout(hall.now)
    us.transmit()
    hall.advance(10.0)
    assert not us.dials
    hall, us, eu = one_each()
    eu.core.drain(hall.now)
    eu.transmit()
    hall.advance(0.1)
    assert not us.is_usable("eu")
    eu.core.close_links(hall.now)
    eu.transmit()
    hall.advance(5.0)
    assert not us.bundles("eu")
    assert not eu.core.lines._lines


def test_a_bundle_that_opens_while_this_side_drains_is_told() -> None:
    hall, (us,), (eu,) = two_clouds()
    hall.until(lambda: eu.core.lines._lines)
    hall.advance(0.03)
    eu.core.drain(hall.now)
    eu.transmit()
    hall.advance(1.0)
    assert [bundle.is_going for bundle in us.bundles("eu")] == [True]
    assert not us.is_usable("eu")


# -- reloads


def test_a_cloud_that_is_removed_takes_its_requests_along() -> None:
    hall, us, eu = one_each()
    token, again = us.ask("eu", "db"), us.ask("eu", "db", identity=IDENTITY)
    hall.advance(0.05)
    us.reload(settings_of("us", {"asia": {}}, (), [{"cluster": ">"}]))
    assert status(us, token) == status(us, again) == Status.MEMBER_LOST
    assert [event.is_usable for event in us.events_of(CloudChanged)] == [True, False]
    assert status(us, us.ask("eu", "db")) == Status.UNAVAILABLE
    hall.advance(0.1)
    assert eu.cancelled == eu.requests
    assert_empty(us, eu)
    us.dials.clear()
    hall.advance(30.0)
    assert not us.dials, "it is not dialled any more"


def test_a_cloud_that_is_removed_while_it_asks_is_not_counted_on() -> None:
    hall, us, eu = one_each()
    us.ask("eu", "db")
    hall.advance(0.05)
    eu.reload(settings_of("eu", {"asia": {}}, [{"cluster": "db"}]))
    assert eu.cancelled == eu.requests
    eu.reply(eu.requests[0], encode_outcome(b""))
    eu.reload(settings_of("eu", {"us": {}}, [{"cluster": "db"}]))
    assert_empty(eu)
    hall.until(lambda: us.is_usable("eu") and eu.is_usable("us"), 10.0)
    eu.serves = upper
    token = us.ask("eu", "db")
    hall.advance(0.1)
    assert status(us, token) == Status.DONE
    assert_empty(us, eu)


def test_other_addresses_leave_what_there_is() -> None:
    hall, us, eu = one_each()
    us.ask("eu", "db")
    hall.advance(0.05)
    bundle = us.bundle("eu")
    us.reload(settings_of("us", {"eu": {"dial": ["10.0.9.9:1"]}}, (), [{"cluster": ">"}]))
    hall.listening["10.0.9.9:1"] = [eu]
    hall.advance(1.0)
    assert us.bundle("eu") is bundle
    us.dials.clear()
    hall.kill(eu)
    hall.advance(3.0)
    assert set(us.dials) == {"10.0.9.9:1"}
    assert_empty(us)


def test_a_new_limit_counts_for_what_runs() -> None:
    hall, us, eu = one_each()
    for _ in range(3):
        us.ask("eu", "db", timeout=60.0)
    hall.advance(0.05)
    eu.reload(settings_of("eu", {"us": {}}, [{"cluster": "db", "in_flight": 3}]))
    hall.advance(0.05)
    say(us, "eu", request(99))
    hall.advance(0.05)
    assert len(eu.requests) == 3
    for incoming in eu.requests:
        eu.reply(incoming, encode_outcome(b""))
    assert_empty(eu)


def test_an_export_that_is_removed_lets_requests_end_and_takes_no_new_ones() -> None:
    hall, us, eu = one_each()
    token = us.ask("eu", "db")
    hall.advance(0.05)
    under_way = us.ask("eu", "db")
    eu.reload(settings_of("eu", {"us": {}}, [{"cluster": "other"}]))
    hall.advance(0.05)
    assert status(us, under_way) == Status.NOT_EXPORTED
    assert status(us, us.ask("eu", "db")) == Status.NOT_EXPORTED
    (incoming,) = eu.requests
    eu.reply(incoming, encode_outcome(b"done"))
    hall.advance(0.05)
    assert us.outcomes[token] == encode_outcome(b"done")
    assert us.events_of(OffersChanged)
    assert_empty(us, eu)


# -- a neighbour that says anything


@pytest.mark.parametrize(
    "parts",
    [
        [b"\0"],
        [b"\xff" * 100],
        request(1)[:2],
        encode_message(packets.REQUEST, 1, 0, b"", (b"",)),
        encode_message(packets.REQUEST, 1, 0, b"", (call_head(Call(name="")),)),
        encode_message(packets.REQUEST, 1, 0, b"", (call_head(Call(op=2, name="db")),)),
    ],
)
def test_malformed_bodies_end_the_bundle_and_nothing_else(parts: list[bytes]) -> None:
    check_violation(lambda us: say(us, "eu", parts))


@pytest.mark.parametrize("reply", [b"", bytes((max(Status) + 1,)), b"\xff"])
def test_malformed_replies_end_the_bundle(reply: bytes) -> None:
    hall, us, eu = one_each()
    token = us.ask("eu", "db")
    hall.advance(0.05)
    say(eu, "us", encode_message(packets.REPLY, eu.requests[0].number, 0, b"", (reply,)))
    hall.advance(0.05)
    assert status(us, token) == Status.MEMBER_LOST
    assert us.core.drops["violation"] == 1
    assert_empty(us)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01",
        b"\x01\xc1",
        bytes((messages.REQUIRED,)),
        b"\xff\x90",
        encode_control(
            messages.Catalogue(
                1, (messages.CatalogueEntry(1, 0, "a", 1, 0.0, 1), messages.CatalogueEntry(1, 0, "b", 1, 0.0, 1))
            )
        ),
        encode_control(messages.Catalogue(1, (messages.CatalogueEntry(1, 0, "a..b", 1, 0.0, 1),))),
        encode_control(messages.Catalogue(1, (messages.CatalogueEntry(1, 0, "a", 1, math.nan, 1),))),
        encode_control(messages.Catalogue(1, (messages.CatalogueEntry(1, 0, "a", 1, math.inf, 1),))),
        encode_control(messages.Catalogue(1, (messages.CatalogueEntry(1, 0, "a", 1, -1.0, 1),))),
        encode_control(messages.Opened(1 << 63, 1)),
        encode_control(messages.Open(1, 1, 99, 0, "db", 1000, 1000, b"", b"")),
    ],
)
def test_malformed_control_messages_end_the_bundle_and_nothing_else(data: bytes) -> None:
    check_violation(lambda us: say_control(us, "eu", data))


def check_violation(do: Any) -> None:
    hall = Hall()
    clouds: dict[str, dict[str, Any]] = {"us": {}, "asia": {}}
    eu = hall.add("10.0.1.1:1", "eu", settings_of("eu", clouds, [{"cluster": "db"}]))
    us, asia = (
        hall.add(f"10.0.{n}.1:1", name, settings_of(name, {"eu": {"dial": ["10.0.1.1:1"]}}, (), [{"cluster": ">"}]))
        for n, name in enumerate(("us", "asia"), 2)
    )
    hall.until(lambda: eu.is_usable("us") and eu.is_usable("asia") and asia.is_usable("eu"))
    hall.advance(1.0)
    eu.serves = None
    token = asia.ask("eu", "db")
    us.ask("eu", "db")
    hall.advance(0.1)
    do(us)
    hall.advance(0.03)
    assert not eu.bundles("us")
    assert eu.core.drops == {"violation": 1}
    assert [(event.alias, event.use) for event in eu.events_of(UseRefused)] == [("us", "protocol")]
    assert [incoming.bundle.alias for incoming in eu.cancelled] == ["us"]
    for incoming in eu.requests:
        eu.reply(incoming, encode_outcome(b"done"))
    hall.advance(0.05)
    assert asia.outcomes[token] == encode_outcome(b"done")
    hall.until(lambda: us.is_usable("eu"), 10.0)
    assert_empty(eu, asia, us)


def test_what_newer_versions_say_is_counted_and_skipped() -> None:
    hall, us, eu = one_each()
    eu.serves = upper
    say_control(us, "eu", bytes((77, 0x90)))
    say(us, "eu", encode_message(99, 1, 0, b"", (b"x",)))
    say(us, "eu", encode_message(packets.REPLY, 12345, 0, b"", (b"\0",)))
    say(us, "eu", cancel(4711))
    token = us.ask("eu", "db")
    hall.advance(0.1)
    assert status(us, token) == Status.DONE
    assert eu.core.drops == {"unknown_control": 1, "unknown_kind": 1, "late_reply": 1}


def test_a_catalogue_of_kinds_and_uses_that_are_not_known_is_taken() -> None:
    hall, us, eu = one_each()
    say_control(us, "eu", encode_control(messages.Catalogue(9, (messages.CatalogueEntry(5, 9, "?", 0xFFFF, 0.0, 0),))))
    hall.advance(0.1)
    assert eu.bundle("us").catalogue.entries[0].kind == 9  # type: ignore[union-attr]
    assert eu.is_usable("us")


def test_headers_and_errors_that_a_neighbour_invents_do_no_harm() -> None:
    hall, us, eu = one_each()
    token = us.ask("eu", "db")
    hall.advance(0.05)
    eu.reply(eu.requests[0], b"\x08\xc1garbage")
    hall.advance(0.05)
    assert error(us, token).type == "MalformedReply"


# -- members that are counted


def test_a_neighbour_is_told_how_many_members_there_are() -> None:
    hall, us, eu = one_each(exports=[{"cluster": "local", "as": "db"}])
    bundle = us.bundle("eu")
    assert us.core.watch(bundle, "db", hall.now, is_on=True)
    assert not us.core.watch(bundle, "nothing", hall.now, is_on=True)
    us.transmit()
    hall.advance(0.1)
    (watch,) = eu.events_of(WatchChanged)
    assert (watch.outside, watch.name, watch.is_on) == ("db", "local", True)
    eu.core.tell_count(watch.bundle, "db", 3, hall.now)
    eu.transmit()
    hall.advance(0.1)
    (told,) = us.events_of(CountTold)
    assert (told.alias, told.name, told.members) == ("eu", "db", 3)
    gone = us.bundle("eu")
    hall.kill(eu)
    hall.until(lambda: not us.bundles("eu"))
    assert not us.core.watch(gone, "db", hall.now, is_on=True)


def test_the_state_is_told_as_plain_values() -> None:
    hall, us, eu = one_each()
    us.ask("eu", "db")
    hall.advance(0.05)
    near, far = us.core.status(hall.now)["eu"], eu.core.status(hall.now)["us"]
    msgspec.msgpack.encode(near)
    assert near["is_up"]
    assert near["round_trip_s"] == pytest.approx(0.04, abs=0.005)
    assert (near["bundles"][0]["requests_out"], far["bundles"][0]["requests_in"]) == (1, 1)
    assert near["bundles"][0]["connections"] == 4
    assert near["bundles"][0]["catalogue"] == ["db"]
    assert [event.reason for event in us.events_of(BundleChanged)] == [""]
    assert eu.events_of(RequestsReceived)
    assert KEYS["us"].public.hex() not in str(near)


def test_who_drains_waits_for_what_was_on_its_way() -> None:
    hall, us, eu = one_each()
    small, large = us.ask("eu", "db"), us.ask("eu", "db", LARGE)
    eu.core.drain(hall.now)
    eu.transmit()
    assert not is_idle(eu), "something may be on its way"
    hall.until(lambda: len(eu.requests) == 2)
    for incoming in eu.requests:
        assert not is_idle(eu)
        eu.reply(incoming, encode_outcome(b"done"))
    assert not is_idle(eu), "not before the other side says so"
    hall.advance(0.1)
    assert is_idle(eu)
    assert status(us, small) == status(us, large) == Status.DONE


def test_who_drains_is_released_at_once_where_nothing_is_under_way() -> None:
    hall, us, eu = one_each()
    for gateway in (us, eu):
        gateway.core.drain(hall.now)
        gateway.transmit()
    hall.advance(0.1)
    assert is_idle(us)
    assert is_idle(eu)


def test_what_is_sent_elsewhere_or_cancelled_releases_who_drains() -> None:
    hall, us, eu = one_each()
    us.ask("eu", "db", timeout=60.0)
    hall.advance(0.1)
    eu.core.drain(hall.now)
    eu.transmit()
    hall.advance(0.1)
    assert not is_idle(eu)
    us.cancel()
    us.transmit()
    hall.advance(0.1)
    assert is_idle(eu)
