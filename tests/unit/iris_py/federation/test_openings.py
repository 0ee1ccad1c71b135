"""Channels being opened: asked for, accepted, refused and withdrawn in every order, and connections that are lost meanwhile."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from iris_py.errors import NoMembers
from iris_py.federation import messages, openings
from iris_py.federation.calls import Status, encode_outcome
from iris_py.federation.channels import FAR_SIDE
from iris_py.federation.connections import CONNECTION_RETRY_S
from iris_py.federation.dials import PAUSES_MAX
from iris_py.federation.events import ChannelChanged, ChannelOffer, ChannelOpened, ChannelRefused, ChannelWithdrawn, UseRefused
from iris_py.federation.messages import encode_control
from iris_py.patterns.tunnel.duplex import Failure
from iris_py.wire.headers import encode_headers
from tests.unit.iris_py.federation.pair import Gateway, Hall, one_each, settings_of

TUNNELS = [{"cluster": "files", "allow": ["tunnel", "survey"]}, {"cluster": "files.secret", "allow": ["survey"]}]


def joined(**how: Any) -> tuple[Hall, Gateway, Gateway]:
    return one_each(exports=TUNNELS, **how)


def ask(
    gateway: Gateway, name: str = "files", *, timeout: float = 5.0, kind: int = messages.TUNNEL, token: object = "t"
) -> Any:
    """Ask for a channel, over the only bundle; returns what can be withdrawn."""
    bundle = gateway.bundle("us" if gateway.cloud == "eu" else "eu")
    catalogue = bundle.catalogue
    assert catalogue is not None
    rule = next((entry.rule for entry in catalogue.entries if entry.pattern == name), 0)
    request = openings.ChannelRequest(rule, kind, name, encode_headers({"a": "b"}), b"options")
    now = gateway.hall.now
    opening = gateway.core.openings.open(bundle, request, token, now + timeout, now)
    gateway.transmit()
    return opening


def accept(gateway: Gateway, offer: ChannelOffer) -> Any:
    end = gateway.core.openings.accept(offer, gateway.hall.now)
    gateway.transmit()
    return end


def refuse(gateway: Gateway, offer: ChannelOffer) -> None:
    gateway.core.openings.refuse(offer, encode_outcome(NoMembers("files", 0)), gateway.hall.now)
    gateway.transmit()


def withdraw(gateway: Gateway, opening: Any) -> None:
    gateway.core.openings.withdraw(opening, gateway.hall.now)
    gateway.transmit()


def offered(hall: Hall, gateway: Gateway) -> ChannelOffer:
    hall.until(lambda: gateway.events_of(ChannelOffer), 1.0)
    return gateway.events_of(ChannelOffer)[-1]  # type: ignore[no-any-return]


def assert_empty(*gateways: Gateway) -> None:
    for gateway in gateways:
        table = gateway.core.openings
        assert not table._openings
        assert not table._offers
        assert len(table._deadlines) == 0
        assert table._budget.channels == 0
        assert table._budget.used_bytes == 0
        assert set(table._tables) == {
            channels
            for neighbour in gateway.core.lines.neighbours.values()
            for bundle in neighbour.bundles.values()
            for channels in bundle.channels
            if channels is not None
        }


def outcome(gateway: Gateway) -> Status:
    (refused,) = gateway.events_of(ChannelRefused)
    return Status(refused.outcome[0])


def test_a_channel_is_asked_for_accepted_used_and_ended() -> None:
    hall, us, eu = joined()
    ask(us)
    offer = offered(hall, eu)
    assert (offer.name, offer.open.options, offer.open.kind) == ("files", b"options", messages.TUNNEL)
    assert offer.rule.outside == "files"
    far = accept(eu, offer)
    assert dict(far.headers) == {"a": "b"}
    hall.advance(0.1)
    (opened,) = us.events_of(ChannelOpened)
    assert opened.token == "t"
    near = opened.end
    near.write(b"hello", is_last=True)
    us.transmit()
    hall.advance(0.1)
    assert eu.events_of(ChannelChanged)
    assert us.bundle("eu").is_busy
    assert eu.bundle("us").is_busy
    for gateway, end in ((us, near), (eu, far)):
        end.fail(Failure("the test is over"), is_told=True)
        gateway.transmit()
    hall.advance(0.2)
    assert_empty(us, eu)


def test_a_channel_is_refused_with_the_reason_of_the_other_side() -> None:
    hall, us, eu = joined()
    ask(us)
    refuse(eu, offered(hall, eu))
    hall.advance(0.1)
    assert outcome(us) == Status.NO_MEMBERS
    assert_empty(us, eu)


@pytest.mark.parametrize("name", ["other", "files.secret", "", "files..x"])
def test_what_is_not_exported_for_it_is_refused_without_a_word_to_anybody(name: str) -> None:
    hall, us, eu = joined()
    ask(us, name)
    hall.advance(0.1)
    assert outcome(us) == Status.NOT_EXPORTED
    assert not eu.events_of(ChannelOffer)
    assert [event.use for event in eu.events_of(UseRefused)] == ["tunnel"]
    assert_empty(us, eu)


def test_nobody_answers_in_time() -> None:
    hall, us, eu = joined()
    ask(us, timeout=0.5)
    offer = offered(hall, eu)
    hall.advance(0.6)
    assert outcome(us) == Status.TIMEOUT
    assert [event.offer for event in eu.events_of(ChannelWithdrawn)] == [offer]
    assert accept(eu, offer) is None
    refuse(eu, offer)
    hall.advance(0.1)
    assert_empty(us, eu)


@pytest.mark.parametrize("delay_ms", range(0, 120, 5))
@pytest.mark.parametrize("answer", ["accept", "refuse", "nothing"])
def test_a_question_is_withdrawn_at_any_moment(delay_ms: int, answer: str) -> None:
    hall, us, eu = joined()
    opening = ask(us)
    end = hall.now + delay_ms / 1000
    while hall.now < end:
        hall.advance(0.001)
        offers = eu.events_of(ChannelOffer)
        if offers and answer == "accept":
            accept(eu, offers[0])
        elif offers and answer == "refuse":
            refuse(eu, offers[0])
    withdraw(us, opening)
    withdraw(us, opening)
    for _ in range(200):
        hall.advance(0.001)
        offers = eu.events_of(ChannelOffer)
        if offers and answer == "accept":
            accept(eu, offers[0])
        elif offers and answer == "refuse":
            refuse(eu, offers[0])
    for event in us.events_of(ChannelOpened):  # it was there before nobody wanted it any more
        event.end.fail(Failure("the caller gave up"), is_told=True)
        us.transmit()
    hall.advance(0.2)
    assert len(us.events_of(ChannelOpened)) + len(us.events_of(ChannelRefused)) <= 1
    assert_empty(us, eu)
    assert us.bundles("eu")
    assert eu.core.drops.keys() | us.core.drops.keys() <= {"unknown_channel"}


@pytest.mark.parametrize("delay_ms", range(0, 100, 10))
@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("side", ["us", "eu"])
def test_a_connection_is_lost_at_any_moment(delay_ms: int, index: int, side: str) -> None:
    hall, us, eu = joined()
    bundle = us.bundle("eu")
    bundle.known_open = {1}  # that it is to be on
    ask(us)
    end = hall.now + delay_ms / 1000
    while hall.now < end:
        hall.advance(0.001)
        for offer in eu.events_of(ChannelOffer):
            accept(eu, offer)
    gateway, alias = (us, "eu") if side == "us" else (eu, "us")
    link = gateway.bundle(alias).links[index]
    assert link is not None
    link.abort("a test")
    gateway.core.link_received(link, hall.now)
    gateway.transmit()
    for _ in range(100):
        hall.advance(0.001)
        for offer in eu.events_of(ChannelOffer):
            accept(eu, offer)
    hall.advance(0.5)
    assert len(us.events_of(ChannelOpened)) + len(us.events_of(ChannelRefused)) == 1
    assert_empty(us, eu)


def test_an_offer_of_a_connection_that_was_dialled_anew_is_withdrawn() -> None:
    """A channel that was asked for on the old one is not opened on the new one, of which the other side knows nothing."""
    hall, us, eu = joined()
    us.bundle("eu").known_open = {1}
    ask(us)
    offer = offered(hall, eu)
    link = us.bundle("eu").links[1]
    assert link is not None
    hall.forget([hall.pipe_of(link)])
    link.abort("a test")
    us.core.link_received(link, hall.now)
    us.transmit()
    hall.until(lambda: us.bundle("eu").links[1] is not None, PAUSES_MAX * CONNECTION_RETRY_S + 0.5)
    hall.advance(0.1)
    assert [event.offer for event in eu.events_of(ChannelWithdrawn)] == [offer]
    assert accept(eu, offer) is None
    assert outcome(us) == Status.MEMBER_LOST
    assert_empty(us, eu)


def test_one_neighbour_has_so_many_questions_and_another_one_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openings, "OFFERS_MAX", 3)
    hall = Hall()
    eu = hall.add("10.0.1.1:1", "eu", settings_of("eu", {"us": {}, "asia": {}}, TUNNELS))
    us, asia = (
        hall.add(f"10.0.{n}.1:1", name, settings_of(name, {"eu": {"dial": ["10.0.1.1:1"]}}, (), [{"cluster": ">"}]))
        for n, name in enumerate(("us", "asia"), 2)
    )
    hall.until(lambda: us.is_usable("eu") and asia.is_usable("eu"))
    hall.advance(1.0)
    for number in range(5):
        ask(us, token=number)
    hall.advance(0.1)
    assert len(eu.events_of(ChannelOffer)) == 3
    assert [Status(event.outcome[0]) for event in us.events_of(ChannelRefused)] == [Status.OVERLOADED] * 2
    ask(asia, token="another")
    hall.advance(0.1)
    assert len(eu.events_of(ChannelOffer)) == 4
    for offer in eu.events_of(ChannelOffer):
        refuse(eu, offer)
    ask(us, token="later")
    hall.advance(0.1)
    assert len(eu.events_of(ChannelOffer)) == 5


def test_both_sides_ask_at_once_with_the_same_numbers() -> None:
    hall = Hall()
    rules = TUNNELS, [{"cluster": ">"}]
    us = hall.add("10.0.0.1:1", "us", settings_of("us", {"eu": {"dial": ["10.0.1.1:1"]}}, *rules))
    eu = hall.add("10.0.1.1:1", "eu", settings_of("eu", {"us": {}}, *rules))
    hall.until(lambda: us.is_usable("eu") and eu.is_usable("us"))
    hall.advance(1.0)
    ask(us)
    ask(eu)
    hall.advance(0.03)
    ends = [accept(gateway, offered(hall, gateway)) for gateway in (us, eu)]
    hall.advance(0.1)
    opened = [gateway.events_of(ChannelOpened)[0].end for gateway in (us, eu)]
    assert [end.id for end in ends] == [each.id | FAR_SIDE for each in reversed(opened)]


@pytest.mark.parametrize("order", list(itertools.permutations(["opened", "refused", "withdrawn"])))
def test_answers_to_nothing_are_counted(order: tuple[str, ...]) -> None:
    hall, us, eu = joined()
    answers: dict[str, messages.Control] = {
        "opened": messages.Opened(77, 1000),
        "refused": messages.Refused(77, b"\1"),
        "withdrawn": messages.Withdrawn(77),
    }
    link = us.bundle("eu").links[0]
    assert link is not None
    for name in order:
        link.send_control(encode_control(answers[name]))
    us.write(link)
    hall.advance(0.1)
    assert eu.core.drops == {"unknown_channel": 2}
    assert eu.bundles("us")


def test_a_question_makes_suspicion_of_a_silent_line_quick() -> None:
    hall, us, _eu = joined()
    hall.advance(4.5)
    hall.forget()
    ask(us, timeout=60.0)
    begin = hall.now
    hall.until(lambda: not us.is_usable("eu"), 10.0)
    assert hall.now - begin <= 4.1


def test_a_number_that_is_in_use_ends_the_bundle() -> None:
    hall, us, eu = joined()
    ask(us)
    offer = offered(hall, eu)
    link = us.bundle("eu").links[0]
    assert link is not None
    link.send_control(encode_control(offer.open))
    us.write(link)
    hall.advance(0.05)
    assert not eu.bundles("us")
    assert [event.offer for event in eu.events_of(ChannelWithdrawn)] == [offer]
    assert_empty(eu)
