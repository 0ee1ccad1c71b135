"""The public survey: its states, and what it shows of them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_py.api import survey
from iris_py.api.survey import Gathering, Survey
from iris_py.errors import NoMembers
from iris_py.patterns.survey import SurveyAnswered, SurveyAsked, SurveyEnded
from iris_py.peers.peer import Peer
from iris_py.wire.packets import DECLINE, FAILURE, REJECTION, REPLY, encode_failure

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

PEERS = [Peer(NodeInfo(NodeId(bytes((number,)) * 16), (f"host:{number}",)), None) for number in range(1, 4)]


class World:
    """A survey, and what it asks its node for."""

    def __init__(self) -> None:
        self.begun = 0
        self.cancelled: list[int] = []
        self.drops: list[str] = []
        self.survey = Survey(self.begin, self.drops.append)

    def begin(self, survey: Gathering) -> Callable[[], object]:
        self.begun += 1
        survey.handle_event(SurveyAsked(survey, PEERS, len(PEERS)))
        return lambda: self.cancelled.append(7)

    def answer(self, peer: Peer, kind: int = REPLY, payload: bytes = b"") -> None:
        self.survey.handle_event(SurveyAnswered(self.survey, peer, kind, payload, True))

    def end(self, error: NoMembers | None = None) -> None:
        self.survey.handle_event(SurveyEnded(self.survey, error))


def test_it_is_asked_once_when_it_is_first_used() -> None:
    async def scenario(world: World) -> None:
        assert repr(world.survey) == "<Survey not begun: 0 of 0 members have answered>"
        assert world.begun == 0
        replies = aiter(world.survey)
        assert aiter(replies) is replies
        waiting = asyncio.ensure_future(world.survey)
        await asyncio.sleep(0)
        assert repr(world.survey) == "<Survey under way: 0 of 3 members have answered>"
        world.answer(PEERS[0], payload=b"reply")
        assert (await anext(replies)).payload == b"reply"
        world.end()
        answers = await waiting
        assert repr(answers) == "<Answers: 0 replies of 3 members, 2 missing>"
        assert [reply async for reply in world.survey] == []
        assert world.begun == 1
        assert world.cancelled == []
        assert repr(world.survey) == "<Survey over: 1 of 3 members have answered>"

    run(scenario)


def test_every_fate_is_shown() -> None:
    async def scenario(world: World) -> None:
        waiting = asyncio.ensure_future(world.survey)
        await asyncio.sleep(0)
        for peer, kind in zip(PEERS, (DECLINE, FAILURE, REJECTION), strict=True):
            world.answer(peer, kind, encode_failure(KeyError("name")) if kind == FAILURE else b"")
        world.end()
        answers = await waiting
        assert [member.address for member in answers.declined] == ["host:1"]
        assert [(failure.member.address, failure.type) for failure in answers.failed] == [("host:2", "KeyError")]
        assert [member.address for member in answers.rejected] == ["host:3"]
        assert answers.missing == ()
        assert not answers.is_complete

    run(scenario)


@pytest.mark.parametrize("kind", [DECLINE, FAILURE, REJECTION])
def test_answers_that_are_no_replies_are_kept_up_to_a_bound(monkeypatch: pytest.MonkeyPatch, kind: int) -> None:
    monkeypatch.setattr(survey, "REPLIES_MAX", 2)

    async def scenario(world: World) -> None:
        waiting = asyncio.ensure_future(world.survey)
        await asyncio.sleep(0)
        for peer in PEERS:
            world.answer(peer, kind, encode_failure(KeyError("name")) if kind == FAILURE else b"")
        world.end()
        answers = await waiting
        assert len(answers.declined) + len(answers.failed) + len(answers.rejected) == 2
        assert answers.dropped == 1
        assert answers.missing_count == 0
        assert world.drops == ["survey_replies_full"]

    run(scenario)


@pytest.mark.parametrize(
    ("name", "size", "kept"), [("REPLIES_MAX", 0, 2), ("REPLIES_BYTES_MAX", 1, 2), ("REPLIES_BYTES_MAX", 3, 1)]
)
def test_replies_are_kept_up_to_a_bound_and_room_comes_back(
    monkeypatch: pytest.MonkeyPatch, name: str, size: int, kept: int
) -> None:
    monkeypatch.setattr(survey, name, 2)

    async def scenario(world: World) -> None:
        replies = aiter(world.survey)
        for number in (1, 2):
            for peer in PEERS:
                world.answer(peer, payload=bytes(size))
            assert [len((await anext(replies)).payload) for _ in range(kept)] == [size] * kept
            assert world.survey.answers.dropped == len(world.drops) == number * (3 - kept)
        assert not world.survey.answers.is_complete
        world.survey.cancel()

    run(scenario)


def test_an_error_is_raised_to_whoever_waits() -> None:
    async def scenario(world: World) -> None:
        waiting = [asyncio.ensure_future(_await(world.survey)), asyncio.ensure_future(_next(world.survey))]
        await asyncio.sleep(0)
        world.end(NoMembers("name", 1))
        for task in waiting:
            with pytest.raises(NoMembers):
                await task
        world.answer(PEERS[0])  # too late
        assert not world.survey.answers

    run(scenario)


def test_cancelling_ends_it_with_what_came() -> None:
    async def scenario(world: World) -> None:
        waiting = asyncio.ensure_future(_await(world.survey))
        await asyncio.sleep(0)
        world.answer(PEERS[1])
        world.survey.cancel()
        world.survey.cancel()
        assert world.cancelled == [7]
        answers = await waiting
        assert [reply.member.address for reply in answers] == ["host:2"]  # type: ignore[attr-defined]

    run(scenario)


def test_one_that_was_cancelled_before_it_began_asks_nobody() -> None:
    async def scenario(world: World) -> None:
        world.survey.cancel()
        assert len(await world.survey) == 0
        assert world.begun == 0
        assert world.cancelled == []

    run(scenario)


def test_a_loop_that_is_forgotten_after_the_event_loop_is_closed() -> None:
    replies = []

    async def scenario(world: World) -> None:
        replies.append(aiter(world.survey))

    run(scenario)
    replies.clear()  # an error here would be a warning, and so a failure


async def _await(survey: Survey) -> object:
    return await survey


async def _next(survey: Survey) -> object:
    return await anext(aiter(survey))


def run(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        await scenario(World())

    asyncio.run(main())
