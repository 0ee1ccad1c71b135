"""Surveys of complete nodes on the simulated network: who answers, who does not, and when that is known."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import iris_py as iris
from iris_overlay.groups.config import GroupConfig
from iris_py.api import survey
from iris_py.testing import NodeSimulation, run
from tests.profiles import first_cases

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from iris_py.api.node import Node

#: There and back on the slowest pair of hosts, a dial, and a little for pieces that pause.
QUICK_S = 0.02
#: The bound of docs/design.md 3.6, and a round trip on top of it.
LOST_WITHIN_S = 3.1


def simulate(scenario: Callable[[NodeSimulation], Awaitable[Any]], *, seed: int = 1, **options: Any) -> None:
    async def main() -> None:
        async with NodeSimulation(seed, **options) as simulation:
            await scenario(simulation)

    run(main(), limit_s=600.0)


def now() -> float:
    return asyncio.get_running_loop().time()


class Voter(iris.Handler):
    """Answers with its name, after some time; counts what becomes of that."""

    def __init__(self, name: str = "", work_s: float = 0.0) -> None:
        self.name = name
        self.work_s = work_s
        self.asked = self.cancelled = 0
        self.time_left_s = 0.0

    async def on_request(self, request: iris.Request) -> bytes:
        self.asked += 1
        self.time_left_s = request.time_left_s
        try:
            await asyncio.sleep(self.work_s)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return f"{self.name}:{request.payload.decode()}".encode()


class Nobody(Voter):
    """Has nothing to say in a survey."""

    async def on_survey(self, request: iris.Request) -> bytes | None:
        await super().on_request(request)
        return None


class Broken(Voter):
    async def on_survey(self, request: iris.Request) -> bytes | None:
        raise LookupError("no such thing")


async def serve(simulation: NodeSimulation, *voters: Voter, **options: Any) -> tuple[Node, list[Node]]:
    """Start a node that asks, and a member for each handler."""
    asker, *members = await simulation.start_nodes(1 + len(voters))
    for member, voter in zip(members, voters, strict=True):
        await member.join("voters", voter, **options)
    return asker, members


def ids(members: Any) -> set[str]:
    return {member.id for member in members}


def is_idle(node: Node) -> bool:
    return not node._core.surveyor._surveys and not any(member.peer.awaited for member in _members(node))


def _members(node: Node) -> Any:
    return node._core.group("voters", now()).members or ()


def test_everybody_answers() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        voters = [Voter(name) for name in "abc"]
        asker, members = await serve(simulation, *voters)
        answers = await asker.survey("voters", b"?")
        assert sorted(reply.payload for reply in answers) == [b"a:?", b"b:?", b"c:?"]
        assert {reply.member.id for reply in answers} == ids(members)
        assert (len(answers), answers.expected, answers.missing_count, answers.is_complete) == (3, 3, 0, True)
        assert answers[0] in answers[0:2]
        started = now()
        assert (await asker.survey("voters", b"!", timeout=60.0)).is_complete
        assert now() - started <= QUICK_S
        assert [voter.asked for voter in voters] == [2, 2, 2]
        assert 59.0 < voters[0].time_left_s < 60.01
        assert is_idle(asker)
        assert asker.statistics().drops == {}

    simulate(scenario)


def test_a_member_surveys_itself_too() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        _, (first, second) = await serve(simulation, Voter("a"), Voter("b"))
        assert {reply.member.id for reply in await first.survey("voters", b"?")} == {first.id, second.id}

    simulate(scenario)


def test_every_handler_of_a_node_answers() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        asker, (first, second) = await serve(simulation, Voter("a"), Voter("b"))
        await first.join("voters", Nobody())
        await first.join("voters", Voter("c"))
        answers = await asker.survey("voters", b"?", timeout=60.0)
        assert sorted(reply.payload for reply in answers) == [b"a:?", b"b:?", b"c:?"]
        assert [reply.member.id for reply in answers].count(first.id) == 2
        assert ids(answers.declined) == {first.id}
        assert answers.expected == 2
        assert answers.is_complete
        assert second.id in {reply.member.id for reply in answers}

    simulate(scenario)


def test_plain_functions_answer_surveys() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        asker, member = await simulation.start_nodes(2)
        await member.join("voters", lambda request: request.payload.upper(), inline=True)
        assert [reply.payload for reply in await asker.survey("voters", b"abc")] == [b"ABC"]
        await member.join("nothing", lambda request: None, inline=True)  # type: ignore[arg-type,return-value]
        assert ids((await asker.survey("nothing", b"abc")).declined) == {member.id}

    simulate(scenario)


def test_what_came_until_the_deadline_is_the_result() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        slow = Voter("b", work_s=100.0)
        asker, members = await serve(simulation, Voter("a"), slow, Voter("c"))
        started = now()
        answers = await asker.survey("voters", b"?", timeout=0.5)
        assert now() - started == pytest.approx(0.5, abs=0.01)
        assert sorted(reply.payload for reply in answers) == [b"a:?", b"c:?"]
        assert [member.id for member in answers.missing] == [members[1].id]
        assert answers.missing_count == 1
        assert not answers.is_complete
        await simulation.until(lambda: slow.cancelled == 1, limit_s=QUICK_S)
        assert is_idle(asker)

    simulate(scenario)


def test_who_raises_declines_or_is_silent_is_told_apart() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        asker, members = await serve(simulation, Voter("a"), Broken(), Nobody(), Voter(work_s=60.0))
        answers = await asker.survey("voters", b"?", timeout=0.5)
        assert [reply.member.id for reply in answers] == [members[0].id]
        (failure,) = answers.failed
        assert (failure.member.id, failure.type, failure.text) == (members[1].id, "LookupError", "no such thing")
        assert ids(answers.declined) == {members[2].id}
        assert ids(answers.missing) == {members[3].id}
        assert (answers.expected, answers.rejected, answers.is_complete) == (4, (), False)

    simulate(scenario)


def test_enough_replies_end_it_and_cancel_the_rest() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        slow = [Voter("slow", work_s=50.0) for _ in range(3)]
        asker, _members = await serve(simulation, Voter("a"), Voter("b"), *slow)
        started = now()
        answers = await asker.survey("voters", b"?", timeout=60.0, stop_after=2)
        assert now() - started <= QUICK_S
        assert (len(answers), answers.missing_count, answers.is_complete) == (2, 3, False)
        await simulation.until(lambda: [voter.cancelled for voter in slow] == [1, 1, 1], limit_s=QUICK_S)
        assert is_idle(asker)

    simulate(scenario)


def test_replies_come_as_they_are_made() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        asker, _members = await serve(simulation, Voter("c", 0.3), Voter("a", 0.1), Voter("b", 0.2))
        started = now()
        came = [(reply.payload[:1], round(now() - started, 1)) async for reply in asker.survey("voters", b"?", timeout=60.0)]
        assert came == [(b"a", 0.1), (b"b", 0.2), (b"c", 0.3)]

    simulate(scenario)


def test_leaving_the_loop_cancels_the_rest() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        slow = Voter("slow", work_s=50.0)
        asker, (_first, member) = await serve(simulation, Voter("quick"), slow)
        survey = asker.survey("voters", b"?", timeout=60.0)
        async for reply in survey:
            assert reply.payload == b"quick:?"
            break
        await simulation.until(lambda: slow.cancelled == 1, limit_s=QUICK_S)
        assert ids(survey.answers.missing) == {member.id}
        assert is_idle(asker)

        async def fail() -> None:
            async for _reply in asker.survey("voters", b"?", timeout=60.0):
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        await simulation.until(lambda: slow.cancelled == 2, limit_s=QUICK_S)

    simulate(scenario)


def test_cancelling_the_caller_cancels_the_handlers() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        voters = [Voter(work_s=50.0) for _ in range(3)]
        asker, _members = await serve(simulation, *voters)

        async def loop_over() -> None:
            async for _reply in asker.survey("voters", b"?", timeout=60.0):
                pass

        async def wait_for() -> None:
            await asker.survey("voters", b"?", timeout=60.0)

        for ask in (loop_over, wait_for):
            asking = asyncio.create_task(ask())
            await simulation.until(lambda: all(voter.asked > voter.cancelled for voter in voters), limit_s=QUICK_S)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            await simulation.until(lambda: all(voter.asked == voter.cancelled for voter in voters), limit_s=QUICK_S)
            assert is_idle(asker)
        assert [voter.cancelled for voter in voters] == [2, 2, 2]

    simulate(scenario)


@pytest.mark.parametrize("end", ["killed", "stalled", "closed", "left"])
def test_who_goes_during_the_survey_is_not_waited_for(end: str) -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        lost = Voter("lost", work_s=50.0)
        asker, (first, second) = await serve(simulation, Voter("a"), lost)
        asking = asyncio.ensure_future(_collect(asker))
        await simulation.until(lambda: lost.asked == 1)
        started = now()
        if end == "killed":
            simulation.kill(second)
        elif end == "stalled":
            simulation.stall(second, asker)
        elif end == "closed":
            await second.close(timeout=0.0)
            simulation.nodes.remove(second)
        else:
            (registration,) = second._parts.memberships.servers
            await second._parts.memberships.begin_leaving(registration, 0.0)
        answers = await asking
        assert now() - started <= (LOST_WITHIN_S if end == "stalled" else 0.3)
        assert [reply.member.id for reply in answers] == [first.id]
        # Who leaves and cancels its handler still says so.
        assert ids(answers.missing) | ids(failure.member for failure in answers.failed) == {second.id}
        assert not answers.is_complete
        assert is_idle(asker)

    simulate(scenario)


async def _collect(asker: Node) -> iris.Answers:
    return await asker.survey("voters", b"?", timeout=60.0)


def test_a_member_that_leaves_finishes_its_answer() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        slow = Voter("slow", work_s=1.0)
        asker, (member,) = await serve(simulation, slow)
        asking = asyncio.ensure_future(_collect(asker))
        await simulation.until(lambda: slow.asked == 1)
        await member.close()
        simulation.nodes.remove(member)
        assert [reply.payload for reply in await asking] == [b"slow:?"]

    simulate(scenario)


def test_nobody_serves() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        asker, _other = await simulation.start_nodes(2)
        started = now()
        with pytest.raises(iris.NoMembers) as caught:
            await asker.survey("voters", b"?", timeout=60.0)
        assert (caught.value.cluster, caught.value.nodes) == ("voters", 1)
        with pytest.raises(iris.NoMembers):
            await anext(aiter(asker.survey("voters", b"?", timeout=60.0)))
        assert now() - started <= QUICK_S

    simulate(scenario)


def test_a_full_member_says_so() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        voters = [Voter("a", work_s=1.0), Voter("b", work_s=1.0)]
        asker, (busy, _free) = await serve(simulation, *voters, concurrency=1, queue_messages=0)
        occupying = asyncio.ensure_future(_collect(busy))
        await simulation.until(lambda: voters[0].asked == voters[1].asked == 1)
        free = await simulation.start_node()
        await free.join("voters", Voter("c"))
        answers = await asker.survey("voters", b"?", timeout=60.0)
        assert [reply.payload for reply in answers] == [b"c:?"]
        assert len(answers.rejected) == 2
        assert not answers.is_complete
        assert len(await occupying) == 2
        assert [voter.asked for voter in voters] == [1, 1]

    simulate(scenario)


def test_expired_surveys_are_not_started() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        voter = Voter("a", work_s=1.0)
        asker, _members = await serve(simulation, voter, concurrency=1)
        first = asyncio.ensure_future(_collect(asker))
        await simulation.until(lambda: voter.asked == 1)
        assert len((await asker.survey("voters", b"?", timeout=0.2)).missing) == 1
        assert len(await first) == 1
        await asyncio.sleep(2.0)
        assert voter.asked == 1

    simulate(scenario)


@pytest.mark.parametrize("count", first_cases(1, [36, 70]))
def test_a_large_cluster_answers_over_the_tree(count: int) -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        asker = await simulation.start_node()
        members = await simulation.start_nodes(count, seeds=[asker], beacons=False)  # so that few of them meet who need not
        voters = [Voter(str(number)) for number in range(count)]
        await asyncio.gather(*(_join(member, voter) for member, voter in zip(members, voters, strict=True)))
        askers = (asker, members[0])
        # While many start at once, one may take another for dead for a moment.
        await simulation.until(lambda: all(node._core.group("voters", now()).size == count for node in askers))
        for node in askers:
            answers = await node.survey("voters", b"?", timeout=30.0)
            assert {reply.member.id for reply in answers} == ids(members)
            assert len(answers) == answers.expected == count
            assert answers.is_complete
        started = now()
        voters[7].work_s = 50.0
        answers = await asker.survey("voters", b"?", timeout=1.0)
        assert now() - started == pytest.approx(1.0, abs=0.01)
        assert (len(answers), answers.missing_count, answers.missing) == (count - 1, 1, ())
        await simulation.until(lambda: voters[7].cancelled == 1)
        answers = await asker.survey("voters", b"?", timeout=30.0, stop_after=10)
        assert (len(answers), answers.missing_count) == (10, count - 10)
        await simulation.until(lambda: voters[7].cancelled == 2)

    simulate(scenario, groups=GroupConfig(view_members_max=32))


async def _join(member: Node, voter: Voter) -> None:
    await member.join("voters", voter)


def test_replies_that_nobody_takes_are_held_in_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "REPLIES_BYTES_MAX", 5)

    async def scenario(simulation: NodeSimulation) -> None:
        asker, _members = await serve(simulation, *(Voter(name) for name in "abc"))
        answers = await asker.survey("voters", b"")
        assert (len(answers), answers.dropped, answers.missing_count, answers.is_complete) == (2, 1, 0, False)
        assert asker.statistics().drops == {"survey_replies_full": 1}
        assert len([reply async for reply in asker.survey("voters", b"")]) == 3  # taken as they come
        monkeypatch.setattr(survey, "REPLIES_MAX", 1)
        assert len(await asker.survey("voters", b"")) == 1

    simulate(scenario)


def test_closing_the_node_ends_its_surveys() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        asker, _members = await serve(simulation, Voter(work_s=50.0))
        killed = await simulation.start_node()
        for node, end in ((asker, asker.close), (killed, None)):
            asking = asyncio.ensure_future(_collect(node))
            await asyncio.sleep(0.1)
            if end is None:
                simulation.kill(node)
            else:
                await end()
            with pytest.raises(iris.NodeClosed):
                await asking
            with pytest.raises(iris.NodeClosed):
                node.survey("voters", b"?")

    simulate(scenario)


def test_wrong_arguments_ask_nobody() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        asker = await simulation.start_node()
        for arguments in ({"timeout": 0}, {"timeout": float("inf")}, {"stop_after": 0}, {"stop_after": 1.5}):
            with pytest.raises(iris.ConfigurationError):
                asker.survey("voters", b"?", **arguments)
        with pytest.raises(iris.ConfigurationError):
            await asker.survey("", b"?")
        with pytest.raises(iris.MessageTooLarge):
            asker.survey("voters", bytes(16 * 1024 * 1024 + 1))
        with pytest.raises(TypeError):
            asker.survey("voters", "text")  # type: ignore[call-overload]

    simulate(scenario)
