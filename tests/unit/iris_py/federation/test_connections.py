"""Connections and bundles between gateways: who dials, which of two stays, and who is turned away."""

from __future__ import annotations

from typing import Any

import pytest

from iris_py.federation import connections
from iris_py.federation.bundle import SUSPECT_S
from iris_py.federation.calls import encode_outcome
from iris_py.federation.connections import (
    CONNECTION_REST_S,
    CONNECTION_RETRY_S,
    CONNECTION_TRIES_MAX,
    HandshakeRefused,
)
from iris_py.federation.dials import PAUSES_MAX
from iris_py.federation.events import BundleChanged
from iris_py.link.events import HANDSHAKE_LATE
from iris_security import CloudKey
from tests.unit.iris_py.federation.pair import FIRST, KEYS, SECOND, Gateway, Hall, one_each, settings_of, two_clouds

OTHER_KEY = CloudKey(b"o" * 32)


def join(one: Gateway, other: Gateway) -> tuple[Any, Any]:
    """Return the only bundle between two gateways, as each of them has it."""
    pair = one.bundle(other.cloud), other.bundle(one.cloud)
    assert pair[0].id == pair[1].id
    assert (pair[0].gateway, pair[1].gateway) == tuple(each.core.lines._introduction.gateway for each in (other, one))
    return pair


def dial_each_other(hall: Hall, lag_s: float) -> tuple[Gateway, Gateway]:
    """Let two clouds dial each other, the first one later by so much."""
    first = hall.add("10.0.0.1:1", FIRST, settings_of(FIRST, {SECOND: {"dial": ["10.0.1.1:1"]}}))
    other = hall.add("10.0.1.1:1", SECOND, settings_of(SECOND, {FIRST: {"dial": ["10.0.0.1:1"]}}))
    first.is_stopped = True
    hall.advance(lag_s)
    first.is_stopped = False
    return first, other


def test_one_side_dials_and_both_may_ask() -> None:
    _hall, us, eu = one_each()
    near, far = join(us, eu)
    assert (near.is_initiator, far.is_initiator) == (True, False)
    assert [link is not None and link.is_open for link in near.links] == [True] * 4
    assert [link is not None and link.is_open for link in far.links] == [True] * 4
    assert near.key == KEYS["eu"].public
    assert far.key == KEYS["us"].public
    assert (near.name, far.name, near.address, far.host) == ("eu", "us", "10.0.1.1:1", "10.0.0.1")
    assert len(us.core.lines._lines) == len(eu.core.lines._lines) == 4
    assert not us.core.lines._purposes


def test_a_dial_that_was_not_made_is_made_later(monkeypatch: pytest.MonkeyPatch) -> None:
    hall = Hall()
    us = hall.add("10.0.0.1:1", FIRST, settings_of(FIRST, {SECOND: {"dial": ["10.0.1.1:1"]}}))
    hall.add("10.0.1.1:1", SECOND, settings_of(SECOND, {FIRST: {}}))

    def put_off(gateway: Gateway, address: str) -> None:
        gateway.core.dial_rested(address, hall.now)
        gateway.transmit()

    with monkeypatch.context() as patch:
        patch.setattr(hall, "_connect", put_off)
        hall.until(lambda: len(us.dials) > 2)
    hall.until(lambda: us.is_usable(SECOND))


@pytest.mark.parametrize("lag_ms", range(0, 200, 5))
def test_if_both_dial_one_bundle_stays(lag_ms: int) -> None:
    hall = Hall()
    first, other = dial_each_other(hall, lag_ms / 1000)
    hall.advance(5.0)
    join(first, other)
    assert first.is_usable(SECOND)
    assert other.is_usable(FIRST)
    if not lag_ms:
        assert first.bundle(SECOND).is_initiator
    hall.advance(120.0)
    changes = [event.reason for event in first.events_of(BundleChanged)]
    assert len(changes) <= 3, "there is peace"
    assert len(first.core.lines._lines) == len(other.core.lines._lines) == 4


def test_if_both_dial_each_keeps_trying_gently() -> None:
    hall = Hall()
    first, other = dial_each_other(hall, 0.0)
    hall.advance(5.0)
    first.dials.clear()
    other.dials.clear()
    hall.advance(60.0)
    assert len(first.dials) + len(other.dials) <= 24


def test_while_a_key_changes_both_sides_still_agree_on_which_bundle_stays() -> None:
    """The second key of a neighbour may be the one that its gateways have, and the first one on the other side of ours."""
    own, theirs = KEYS[FIRST].public, KEYS[SECOND].public
    before = next(key for key in (CloudKey(bytes((n,)) * 32) for n in range(100, 250)) if key.public < own < theirs)
    hall = Hall()
    keys = [before.public_text, KEYS[SECOND].public_text]
    first = hall.add("10.0.0.1:1", FIRST, settings_of(FIRST, {SECOND: {"dial": ["10.0.1.1:1"], "keys": keys}}))
    other = hall.add("10.0.1.1:1", SECOND, settings_of(SECOND, {FIRST: {"dial": ["10.0.0.1:1"]}}))
    for slot in first.neighbour(SECOND).dials.slots:
        slot.failures = 1  # the second key is tried first, so that both dial at once
    hall.advance(5.0)
    join(first, other)
    assert len(first.events_of(BundleChanged)) <= 3
    assert first.bundle(SECOND).is_initiator, "of the smaller key"


def test_bundles_are_to_different_gateways() -> None:
    hall, (us,), (one, other) = two_clouds(eu=2)
    hall.advance(3.0)
    assert {bundle.gateway for bundle in us.bundles("eu")} == {each.core.lines._introduction.gateway for each in (one, other)}
    hall.kill(one)
    hall.advance(2.0)
    assert len(us.bundles("eu")) == 1
    us.dials.clear()
    hall.advance(60.0)
    assert len(us.dials) <= 40, "one that is gone is tried with pauses"


def test_behind_a_load_balancer_bundles_come_to_different_gateways_with_all_connections() -> None:
    for seed in range(5):
        hall = Hall(seed)
        far = [hall.add(f"10.0.1.{n}:1", "eu", settings_of("eu", {"us": {}}, [{"cluster": "db"}])) for n in range(3)]
        hall.listening["balancer:1"] = far
        settings = settings_of("us", {"eu": {"dial": ["balancer:1"]}}, (), [{"cluster": ">"}])
        us = hall.add("10.0.0.1:1", "us", settings)
        hall.advance(120.0)
        assert len(us.bundles("eu")) == 2
        assert len({bundle.gateway for bundle in us.bundles("eu")}) == 2
        for bundle in us.bundles("eu"):
            assert all(link is not None and link.is_open for link in bundle.links)
        for gateway in far:
            assert all(len([each for each in b.links if each is not None]) == 4 for b in gateway.bundles("us"))


def wait_for_all_connections(hall: Hall, dialling: list[Gateway]) -> None:
    hall.until(lambda: all(len(each.bundles("eu")) == 2 for each in dialling), 300.0)
    bundles = [bundle for each in dialling for bundle in each.bundles("eu")]
    hall.until(lambda: all(link and link.is_open for bundle in bundles for link in bundle.links))


def test_two_gateways_that_dial_one_load_balancer_get_all_connections() -> None:
    for seed in range(5):
        hall = Hall(seed)
        far = [hall.add(f"10.0.1.{n}:1", "eu", settings_of("eu", {"us": {}}, [{"cluster": "db"}])) for n in range(2)]
        hall.listening["balancer:1"] = far
        settings = settings_of("us", {"eu": {"dial": ["balancer:1"]}}, (), [{"cluster": ">"}])
        near = [hall.add(f"10.0.0.{n}:1", "us", settings) for n in range(2)]
        wait_for_all_connections(hall, near)


def test_a_balancer_that_never_comes_to_the_right_gateway_is_asked_rarely() -> None:
    hall, us, eu = one_each()
    address = us.bundle("eu").address
    hall.listening[address] = [hall.add("10.0.1.2:1", "eu", settings_of("eu", {"us": {}}))]
    link = us.bundle("eu").links[2]
    assert link is not None
    link.abort("a test")
    us.core.link_received(link, hall.now)
    us.transmit()
    us.dials.clear()
    hall.advance(1000.0)
    assert CONNECTION_TRIES_MAX < len(us.dials) < 150
    hall.listening[address] = [eu]
    bundle = next(each for each in us.bundles("eu") if each.gateway == eu.core.lines._introduction.gateway)
    hall.advance(PAUSES_MAX * CONNECTION_REST_S + 1.0)
    assert bundle.links[2] is not None
    assert not us.core.lines._tries


def test_a_further_connection_that_is_lost_is_dialled_again() -> None:
    hall, us, eu = one_each()
    link = eu.bundle("us").links[3]
    assert link is not None
    link.abort("a test")
    eu.core.link_received(link, hall.now)
    eu.transmit()
    hall.advance(0.1)
    assert us.bundle("eu").links[3] is None
    assert us.is_usable("eu")
    hall.advance(PAUSES_MAX * CONNECTION_RETRY_S + 0.5)
    join(us, eu)
    assert us.bundle("eu").links[3] is not None
    assert eu.bundle("us").links[3] is not None
    assert eu.bundle("us").known_open == us.bundle("eu").known_open == {1, 2, 3}


def test_a_further_connection_that_only_the_dialling_side_has_lost_is_replaced() -> None:
    hall, us, eu = one_each()
    link, stale = us.bundle("eu").links[2], eu.bundle("us").links[2]
    assert link is not None
    hall.forget([hall.pipe_of(link)])
    link.abort("a test")
    us.core.link_received(link, hall.now)
    us.transmit()
    hall.advance(PAUSES_MAX * CONNECTION_RETRY_S + 0.5)
    assert us.bundle("eu").links[2] is not None
    assert eu.bundle("us").links[2] not in (None, stale)
    join(us, eu)


def test_connection_zero_ends_the_bundle() -> None:
    hall, us, eu = one_each()
    before = us.bundle("eu")
    link = eu.bundle("us").links[0]
    assert link is not None
    link.abort("a test")
    eu.core.link_received(link, hall.now)
    eu.transmit()
    hall.advance(0.05)
    assert before.is_closed
    assert before not in us.bundles("eu")
    assert all(each is None for each in before.links)
    hall.until(lambda: us.is_usable("eu"), 2.0)
    hall.advance(2.0)
    join(us, eu)
    assert len(us.core.lines._lines) == 4


def test_a_restarted_gateway_replaces_what_the_other_side_still_believes_in() -> None:
    """The old process is gone without a word; the new one has another id, and the old bundle ends by silence."""
    hall, us, eu = one_each()
    hall.forget()
    hall.gateways.remove(us)
    again = hall.add("10.0.0.1:1", "us", us.core.settings)
    hall.until(lambda: again.is_usable("eu") and len(eu.bundles("us")) == 1, 20.0)
    join(again, eu)


def test_a_gateway_that_lost_its_bundle_alone_gets_another_one() -> None:
    hall, us, eu = one_each()
    old = eu.bundle("us")
    hall.forget()
    us.core.lines.end_bundle(us.bundle("eu"), "a test", hall.now)
    us.core.handle_timeout(hall.now)
    us.transmit()
    hall.until(lambda: us.is_usable("eu"), 3.0)
    hall.advance(1.0)
    assert old.is_closed
    join(us, eu)


def test_a_half_open_line_of_clouds_that_dial_each_other_heals() -> None:
    for lag_ms in (0, 37, 1000):
        hall = Hall(lag_ms)
        first, other = dial_each_other(hall, lag_ms / 1000)
        hall.advance(10.0)
        hall.forget()
        hall.advance(5.0 + SUSPECT_S + 1.0)
        hall.until(lambda f=first, o=other: f.is_usable(SECOND) and o.is_usable(FIRST), 6.0)  # type: ignore[misc]
        hall.advance(20.0)
        join(first, other)


# -- keys


def test_a_wrong_key_comes_to_nothing_and_is_told() -> None:
    hall = Hall()
    eu = hall.add("10.0.1.1:1", "eu", settings_of("eu", {"us": {}}))
    wrong = {"dial": ["10.0.1.1:1"], "keys": [OTHER_KEY.public_text]}
    us = hall.add("10.0.0.1:1", "us", settings_of("us", {"eu": wrong}))
    hall.advance(10.0)
    assert not us.bundles("eu")
    assert not eu.bundles("us")
    assert us.neighbour("eu").dials.slots[0].error
    (refused, *_more) = eu.events_of(HandshakeRefused)
    assert (refused.address, refused.alias, refused.is_dialled) == ("10.0.0.1", "", False)
    assert "another key" in refused.reason
    (refused, *_more) = us.events_of(HandshakeRefused)
    assert (refused.address, refused.alias, refused.is_dialled) == ("10.0.1.1:1", "eu", True)
    assert len(us.dials) <= 40, "with pauses"


def test_a_connection_that_ends_without_a_mistake_is_no_refusal() -> None:
    """A load balancer looks whether somebody listens, or a gateway finds that it has a bundle already."""
    hall = Hall()
    eu = hall.add("10.0.1.1:1", "eu", settings_of("eu", {"us": {}}))
    us = hall.add("10.0.0.1:1", "us", settings_of("us", {"eu": {"dial": ["10.0.1.1:1"]}}))
    hall.advance(60.0)
    assert len(us.bundles("eu")) == 1, "there is one gateway, though two are wanted"
    assert len(us.dials) > len(us.bundles("eu")[0].links), "it was looked for"
    assert not eu.events_of(HandshakeRefused)
    assert not us.events_of(HandshakeRefused)


def test_silence_during_the_handshake_is_told_by_the_side_that_has_dialled() -> None:
    """Something else may listen at the address, or a firewall lets connections through and nothing more."""
    hall = Hall()
    eu = hall.add("10.0.1.1:1", "eu", settings_of("eu", {"us": {}}))
    us = hall.add("10.0.0.1:1", "us", settings_of("us", {"eu": {"dial": ["10.0.1.1:1"]}}))
    hall.until(lambda: hall.pipes)
    hall.forget()
    hall.advance(11.0)
    (refused, *_more) = us.events_of(HandshakeRefused)
    assert (refused.address, refused.alias, refused.reason) == ("10.0.1.1:1", "eu", HANDSHAKE_LATE)
    assert not eu.events_of(HandshakeRefused)


def test_a_stranger_is_refused() -> None:
    hall = Hall()
    hall.add("10.0.1.1:1", "eu", settings_of("eu", {"us": {}}))
    stranger = hall.add("10.0.9.1:1", "stranger", settings_of("stranger", {"eu": {"dial": ["10.0.1.1:1"]}}))
    hall.advance(10.0)
    assert not stranger.bundles("eu")


def test_our_own_key_at_the_other_side_is_refused_with_a_reason() -> None:
    """Somebody has copied the identity of one cloud to another, which dials it."""
    hall = Hall()
    eu = hall.add("10.0.1.1:1", "eu", settings_of("eu", {"us": {}}))
    twin = hall.add("10.0.9.1:1", "eu", settings_of("eu", {"asia": {"dial": ["10.0.1.1:1"]}}))
    hall.advance(1.0)
    assert not twin.bundles("asia")
    assert eu.events_of(HandshakeRefused)


def test_the_second_key_of_a_neighbour_is_tried() -> None:
    hall = Hall()
    keys = [OTHER_KEY.public_text, KEYS["eu"].public_text]
    eu = hall.add("10.0.1.1:1", "eu", settings_of("eu", {"us": {}}))
    us = hall.add("10.0.0.1:1", "us", settings_of("us", {"eu": {"dial": ["10.0.1.1:1"], "keys": keys}}))
    hall.until(lambda: us.is_usable("eu") and eu.is_usable("us"), 5.0)
    assert us.bundle("eu").key == KEYS["eu"].public


@pytest.mark.parametrize("side", ["us", "eu"])
def test_a_key_that_is_removed_ends_its_connections_at_once(side: str) -> None:
    hall, us, eu = one_each()
    token = us.ask("eu", "db")
    if side == "us":
        us.reload(settings_of("us", {"eu": {"dial": ["10.0.1.1:1"], "keys": [OTHER_KEY.public_text]}}, (), [{"cluster": ">"}]))
        assert token in us.outcomes
        assert not us.bundles("eu")
    else:
        eu.reload(settings_of("eu", {"us": {"keys": [OTHER_KEY.public_text]}}, [{"cluster": "db"}]))
        assert not eu.bundles("us")
    hall.advance(30.0)
    assert not us.bundles("eu")
    assert not eu.bundles("us")


def test_a_key_that_is_added_changes_nothing() -> None:
    hall, us, _eu = one_each()
    before = us.bundle("eu")
    keys = [KEYS["eu"].public_text, OTHER_KEY.public_text]
    us.reload(settings_of("us", {"eu": {"dial": ["10.0.1.1:1"], "keys": keys}}, (), [{"cluster": ">"}]))
    hall.advance(1.0)
    assert us.bundle("eu") is before


@pytest.mark.parametrize("moment_s", [0.0, 0.01, 0.03, 0.05, 0.07, 0.09])
def test_a_key_that_is_removed_while_it_is_dialled_is_not_let_in(moment_s: float) -> None:
    hall, (us,), (eu,) = two_clouds()
    us.core.handle_timeout(hall.now)
    us.transmit()
    assert us.dials
    hall.advance(moment_s)
    us.reload(settings_of("us", {"eu": {"dial": ["10.0.1.1:1"], "keys": [OTHER_KEY.public_text]}}, (), [{"cluster": ">"}]))
    hall.advance(20.0)
    assert not us.bundles("eu")
    assert not eu.bundles("us")
    assert len(us.dials) > 4, "the other key is still tried"


# -- floods


def test_strangers_make_room_for_others() -> None:
    hall, (us,), (eu,) = two_clouds()
    assert eu.core.lines.handshakes_max == connections.HANDSHAKES_MAX
    eu.core.lines.handshakes_max = 8
    for number in range(50):
        link = eu.core.accepted(f"10.9.0.{number % 2}", hall.now)
        assert link is not None
        assert len(eu.core.lines._strangers) <= 8
    assert len(eu.core.lines._lines) == 8
    hall.advance(5.0)
    refused = [event.is_dialled for event in eu.events_of(HandshakeRefused) if event.reason == "too many handshakes under way"]
    assert len(refused) >= 42  # gateways of the neighbour dial meanwhile
    assert not any(refused)
    join(us, eu)
    hall.advance(10.0)
    assert len(eu.core.lines._strangers) == 0
    assert len(eu.core.lines._lines) == 4


def test_a_neighbour_has_so_many_bundles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "BUNDLES_MAX", 2)
    hall, near, (eu,) = two_clouds(us=3)
    hall.advance(10.0)
    assert len(eu.bundles("us")) == 2
    assert sorted(len(each.bundles("eu")) for each in near) == [0, 1, 1]


def test_one_connection_carries_everything() -> None:
    hall, us, eu = one_each(connections=1)
    eu.serves = lambda incoming: encode_outcome(incoming.call.payload)
    token = us.ask("eu", "db", b"x" * 300_000)
    hall.advance(0.3)
    assert us.outcomes[token] == encode_outcome(b"x" * 300_000)
    assert us.bundle("eu").choose_connection() == 0


def test_channels_take_connections_that_both_sides_have() -> None:
    """The question for a channel goes over connection 0 and must not overtake what opens the other one."""
    hall, (us,), (eu,) = two_clouds()
    hall.until(lambda: eu.bundles("us") and eu.bundle("us").links[1] is not None)
    while us.bundle("eu").links[1] is None:
        assert eu.bundle("us").choose_connection() == 0
        hall.advance(0.001)
    hall.advance(1.0)
    assert eu.bundle("us").choose_connection() != 0
    assert us.bundle("eu").choose_connection() != 0


def test_the_end_closes_everything_and_leaves_nothing() -> None:
    hall, us, eu = one_each()
    us.core.close_links(hall.now)
    us.transmit()
    hall.advance(3.0)
    assert not us.core.lines._lines
    assert not eu.core.lines._lines
    assert not us.core.lines._purposes
    assert us.core.lines.deadline() is None
