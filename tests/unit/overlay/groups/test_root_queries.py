"""Finding roots: what they answer, to how many questions, and what they keep to themselves."""

from __future__ import annotations

import random

import pytest

from iris_overlay.errors import InfoError
from iris_overlay.events import Counters, ProtocolViolated, RootLocated
from iris_overlay.groups.config import GroupConfig
from iris_overlay.groups.layer import GroupLayer
from iris_overlay.groups.messages import FindRoot, RootFound, encode_group_message
from iris_overlay.groups.root_queries import ANSWERS_PER_S_MAX
from iris_overlay.ids import GroupId
from iris_py.testing.cores.signer import TrustingSigner
from tests.unit.overlay.groups.test_layer import LOCAL, OTHER, PEER, Fixture, G, register
from tests.unit.overlay.overlays import Owners, make_info

PATH = (PEER.id, OTHER.id)


def ask(fixture: Fixture, number: int = 7, now: float = 1.0, key: GroupId = G) -> list[tuple[object, object]]:
    """Let a question arrive that two nodes passed on; return what is sent."""
    fixture.layer.delivered(key, encode_group_message(FindRoot(key, number)), PEER, PATH, now, (3, 4))
    return list(fixture.sent())


def test_the_root_answers_along_the_path_of_the_question() -> None:
    fixture = Fixture()
    fixture.ring.neighbours = [PEER, OTHER]
    ((to, message),) = ask(fixture)
    assert to == PATH
    assert message == RootFound(LOCAL, G, 7, PATH, (3, 4), [PEER, OTHER])


def test_the_root_tells_how_many_members_and_watchers_a_group_has_and_not_which() -> None:
    fixture = Fixture()
    fixture.receive(register(PEER))
    fixture.receive(register(OTHER), OTHER)
    fixture.layer.watch_group(G, 1.0)
    fixture.sent()
    ((_to, message),) = ask(fixture)
    assert isinstance(message, RootFound)
    assert message.counts == (2, 1)
    ((_to, elsewhere),) = ask(fixture, key=GroupId(b"x" * 16))
    assert isinstance(elsewhere, RootFound)
    assert elsewhere.counts == ()


def test_a_root_that_tells_no_counts_answers_without_them() -> None:
    fixture = Fixture()
    fixture.layer = GroupLayer(
        LOCAL, GroupConfig(tells_counts=False), random.Random(1), fixture.ring, Counters(), TrustingSigner(LOCAL.id)
    )
    fixture.layer.activated(0.0)
    fixture.receive(register(PEER))
    fixture.sent()
    ((_to, message),) = ask(fixture)
    assert isinstance(message, RootFound)
    assert message.counts == ()


def test_a_flood_of_questions_is_not_answered_and_counted() -> None:
    fixture = Fixture()
    answers = [answer for number in range(ANSWERS_PER_S_MAX + 50) for answer in ask(fixture, number, 1.0 + number / 1000)]
    assert len(answers) == ANSWERS_PER_S_MAX
    assert fixture.counters.questions_refused == 50
    assert len(ask(fixture, 1, 2.5)) == 1


def test_a_question_that_nobody_routed_is_not_answered() -> None:
    fixture = Fixture()
    fixture.receive(FindRoot(G, 7))
    assert fixture.sent() == []


def test_the_root_that_asks_for_itself_has_the_answer_at_once() -> None:
    fixture = Fixture()
    fixture.layer.find_root(G, 9, 1.0)
    (event,) = fixture.layer.events_received()
    assert isinstance(event, RootLocated)
    assert (event.number, event.root, event.path, event.leaves) == (9, LOCAL, (LOCAL.id,), ())
    assert fixture.sent() == []


def test_an_answer_in_the_name_of_another_node_is_a_violation() -> None:
    fixture = Fixture()
    fixture.receive(RootFound(OTHER, G, 7, (LOCAL.id,), (), []), PEER)
    assert [type(event) for event in fixture.layer.events_received()] == [ProtocolViolated]


def test_a_key_has_the_size_of_an_id() -> None:
    with pytest.raises(InfoError):
        Fixture().layer.find_root(b"short", 1, 1.0)


def test_overlays_find_the_root_of_any_key() -> None:
    owners = Owners()
    infos = [make_info(number) for number in range(10, 250, 12)]
    for info in infos:
        owners.add(info, *infos[:1] if info is not infos[0] else ())
    asker = owners.nodes[infos[3].id]
    for number in (11, 100, 177, 249):
        asker.find_root(bytes([number]) + bytes(15), number, owners.now)
    owners.settle()
    found = {event.number: event for event in owners.logs[infos[3].id] if isinstance(event, RootLocated)}
    assert {number: event.root.id[0] for number, event in found.items()} == {11: 10, 100: 94, 177: 178, 249: 238}
    for event in found.values():
        assert event.path[0] == infos[3].id
        assert len(event.held) == len(event.path) or event.root.id == infos[3].id
        assert len(event.leaves) == 16
