"""The window of requests of a task, with a node that answers when the test says so."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import Mock

import pytest

from iris_py import (
    CloudUnavailable,
    ConfigurationError,
    IrisError,
    MemberLost,
    NoMembers,
    RemoteError,
    RequestTimeout,
    TooManyMembersLost,
)
from spark_connector import DispatchError
from spark_connector.dataframes.plan import RequestLimits
from spark_connector.dataframes.task_requests import Question, RowGroup
from spark_connector.dataframes.window import AHEAD, Window
from tests.spark.driving import until
from tests.unit.spark_connector.dataframes.fakes import FakeWorkerNode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spark_connector.dataframes.worker_node import WorkerNode


@pytest.fixture
def worker_node() -> Iterator[FakeWorkerNode]:
    worker_node = FakeWorkerNode()
    yield worker_node
    worker_node.finish()


def window(
    worker_node: FakeWorkerNode,
    size: int = 4,
    *,
    retries: int = 0,
    is_strict: bool = True,
    wait_for_members: float = 5.0,
    cluster: str = "echo",
) -> Window[int]:
    node = cast("WorkerNode", worker_node)
    return Window(node, cluster, RequestLimits(size, 7.0, retries, wait_for_members), is_strict=is_strict)


def groups(*sizes: int) -> list[RowGroup[int]]:
    """Return groups of so many questions each, with keys 0-0, 0-1, ..., 1-0, ..."""
    return [
        RowGroup(number, [Question(f"{number}-{index}", f"q{number}-{index}".encode()) for index in range(size)])
        for number, size in enumerate(sizes)
    ]


def test_groups_come_back_in_order_with_their_replies(worker_node: FakeWorkerNode) -> None:
    made = groups(3, 0, 50, 1)

    done = list(window(worker_node).run(iter(made)))

    assert [group.rows for group in done] == [0, 1, 2, 3]
    for group in done:
        assert [q.outcome for q in group.questions] == [(q.payload or b"").upper() for q in group.questions]
    assert len(worker_node.node.asked) == 54
    assert worker_node.node.most == 4


def test_a_slow_request_does_not_stop_the_others_and_the_window_crosses_groups(worker_node: FakeWorkerNode) -> None:
    """While the first request of all waits, those of the following groups are asked, as far as is read ahead."""
    release = asyncio.Event()
    size = 4
    everything = size * AHEAD + 3  # until the groups that wait hold so many
    enough = threading.Event()

    async def answer(key: str, _attempt: int) -> None:
        if len(worker_node.node.asked) >= everything - 3:
            enough.set()
        if key == "0-0":
            await release.wait()

    worker_node.node.answer = answer
    taken: list[int] = []

    def give() -> Iterator[RowGroup[int]]:
        for group in groups(*[3] * 10):
            taken.append(group.rows)
            yield group

    running = window(worker_node, size).run(give())
    helper = threading.Thread(target=lambda: (enough.wait(30), worker_node.loop.call_soon_threadsafe(release.set)))
    helper.start()
    first = next(running)
    helper.join()

    assert enough.is_set()
    assert first.rows == 0
    assert len(taken) <= AHEAD * size // 3 + 2, "it does not read on and on"
    assert [group.rows for group in running] == list(range(1, 10))


def test_a_window_of_one_asks_one_after_the_other(worker_node: FakeWorkerNode) -> None:
    done = list(window(worker_node, 1).run(iter(groups(1, 2, 1))))

    assert [group.rows for group in done] == [0, 1, 2]
    assert worker_node.node.most == 1


def test_more_rows_are_read_as_soon_as_fewer_requests_wait_than_the_window_has(worker_node: FakeWorkerNode) -> None:
    """The loop tells the task so once: when it takes up the request that leaves so few, and not only when a group is done."""
    size = 4
    asking = window(worker_node, size)
    asking._askers[False, 1] = asker = Mock()
    asking._waiting.extend(groups(2 * size + 2)[0].questions)
    asking._handed = len(asking._waiting)
    woken = []
    for _ in range(2 * size + 2):
        asking._fill()
        woken.append((asking._handed - asking._begun, asking._wake.is_set()))
        asking._wake.clear()
        asking._running -= 1
    assert woken == [(6, False), (5, False), (4, False), (3, True), (2, False), (1, False), (0, False)] + 3 * [(0, False)]
    asker.ask.assert_called()


def test_questions_that_are_not_asked_have_their_outcome(worker_node: FakeWorkerNode) -> None:
    error = DispatchError("echo", "a", "why")
    group = RowGroup(0, [Question("a", None, error), Question("b", None), Question("c", b"c")])

    assert list(window(worker_node).run(iter([group]))) == [group]
    assert [question.outcome for question in group.questions] == [error, None, b"C"]
    assert worker_node.node.asked == ["c"]


LOST = MemberLost("echo", "ab" * 16)
GIVEN_UP = TooManyMembersLost("echo", ["ab" * 16, "cd" * 16])


@pytest.mark.parametrize("error", [LOST, RequestTimeout("echo", 7.0, "ab" * 16)], ids=["lost", "timeout"])
def test_what_got_no_reply_is_asked_again_with_its_key(worker_node: FakeWorkerNode, error: IrisError) -> None:
    async def answer(_key: str, attempt: int) -> None:
        if attempt < 2:
            raise error

    worker_node.node.answer = answer
    (group,) = window(worker_node, retries=2).run(iter(groups(1)))

    assert group.questions[0].outcome == b"Q0-0"
    assert worker_node.node.asked == ["0-0"] * 3


@pytest.mark.parametrize(
    ("error", "attempts"),
    [(LOST, 2), (GIVEN_UP, 2), (RemoteError("echo", "ab" * 16, "KeyError", "7"), 1)],
    ids=["lost", "given up", "failed"],
)
@pytest.mark.parametrize("is_strict", [True, False])
def test_a_row_without_a_reply(worker_node: FakeWorkerNode, error: IrisError, attempts: int, is_strict: bool) -> None:
    async def answer(key: str, _attempt: int) -> None:
        if key == "0-1":
            raise error

    worker_node.node.answer = answer
    running = window(worker_node, retries=1, is_strict=is_strict).run(iter(groups(3)))

    if is_strict:
        with pytest.raises(DispatchError, match="the request with key '0-1' to the cluster 'echo' has no result"):
            list(running)
    else:
        (group,) = running
        outcomes = [question.outcome for question in group.questions]
        assert (outcomes[0], outcomes[2]) == (b"Q0-0", b"Q0-2")
        assert isinstance(outcomes[1], DispatchError)
        said = "it was lost with 2 members (abababab, cdcdcdcd), so it is not sent again."
        assert outcomes[1].reason.startswith(said if error is GIVEN_UP else str(error))
        assert outcomes[1].key == "0-1"
    assert worker_node.node.asked.count("0-1") == attempts


def test_a_row_whose_member_was_lost_is_asked_alone_and_then_named(worker_node: FakeWorkerNode) -> None:
    """Whatever was with that member comes; without retries, too."""

    async def answer(key: str, attempt: int) -> None:
        if attempt == 0 or key == "0-1":
            raise TooManyMembersLost("echo", [f"{attempt:02d}" * 16])

    worker_node.node.answer = answer
    (group,) = window(worker_node, retries=0, is_strict=False).run(iter(groups(3)))

    outcomes = [question.outcome for question in group.questions]
    assert (outcomes[0], outcomes[2]) == (b"Q0-0", b"Q0-2")
    assert isinstance(outcomes[1], DispatchError)
    assert worker_node.node.asked.count("0-1") == 2
    assert worker_node.ways == [(False, 1), (True, 2)]


@pytest.mark.parametrize("is_strict", [True, False])
def test_a_batch_whose_member_was_lost_is_left_to_whoever_divides_it(worker_node: FakeWorkerNode, is_strict: bool) -> None:
    async def answer(_key: str, _attempt: int) -> None:
        raise TooManyMembersLost("echo", ["ab" * 16])

    worker_node.node.answer = answer
    question = Question("k", b"k", rows=2)
    list(window(worker_node, is_strict=is_strict).run(iter([RowGroup(0, [question])])))

    assert question.is_given_up
    assert question.lost == ("ab" * 16,)
    assert worker_node.node.asked == ["k"]


@pytest.mark.parametrize("is_strict", [True, False])
@pytest.mark.parametrize("error", [NoMembers("echo", 2), RequestTimeout("echo", 7.0, None)], ids=["none", "none in time"])
def test_a_cluster_without_members_is_never_the_failure_of_a_row(
    worker_node: FakeWorkerNode, error: IrisError, is_strict: bool
) -> None:
    async def answer(_key: str, _attempt: int) -> None:
        raise error

    worker_node.node.answer, worker_node.node.served = answer, False

    with pytest.raises(DispatchError, match=r"nobody serves that cluster\. The task knows 2 other nodes") as caught:
        list(window(worker_node, is_strict=is_strict).run(iter(groups(3))))
    assert "network 'tests'" in str(caught.value)


def test_a_cloud_that_no_gateway_reaches_is_never_the_failure_of_a_row(worker_node: FakeWorkerNode) -> None:
    async def answer(_key: str, _attempt: int) -> None:
        raise CloudUnavailable("echo@eu", 2)

    (group,) = window(worker_node, cluster="echo@eu").run(iter(groups(1)))
    assert group.questions[0].outcome == b"Q0-0"
    worker_node.node.answer, worker_node.node.served = answer, False
    with pytest.raises(DispatchError, match=r"no gateway reaches that cloud\. The task knows 2 other nodes"):
        list(window(worker_node, is_strict=False, cluster="echo@eu").run(iter(groups(3))))


@pytest.mark.parametrize("is_strict", [True, False])
def test_a_cluster_that_nobody_has_ever_served_fails_the_task_before_any_request_runs_out(
    worker_node: FakeWorkerNode, is_strict: bool
) -> None:
    worker_node.node.answer, worker_node.node.served = lambda _key, _attempt: asyncio.Event().wait(), False
    with socket.socket() as silent, socket.create_server(("127.0.0.1", 0)) as answering:
        silent.bind(("127.0.0.1", 0))  # and does not listen: nobody else gets the port meanwhile
        dead, alive = (f"127.0.0.1:{each.getsockname()[1]}" for each in (silent, answering))
        worker_node.seeds = (dead, alive, "host.invalid:1")
        with pytest.raises(DispatchError, match=r"key '0-0' to the cluster 'echo' .*: nobody serves that cluster") as caught:
            list(window(worker_node, retries=3, is_strict=is_strict, wait_for_members=0.1).run(iter(groups(3))))

    assert re.search(
        rf"Seeds that do not answer here: {dead} \(Connection refused\), host\.invalid:1 \(.+\)\. ", str(caught.value)
    )
    assert alive not in str(caught.value)
    assert len(worker_node.node.asked) == 3


def test_a_cluster_that_has_been_served_is_not_given_up_while_requests_are_under_way(worker_node: FakeWorkerNode) -> None:
    """The last member may have left, and still be at work on them."""
    begun, release = threading.Event(), asyncio.Event()

    async def answer(key: str, _attempt: int) -> None:
        if key == "1-0":
            begun.set()
            await release.wait()

    worker_node.node.answer = answer
    asking = window(worker_node, wait_for_members=0.0)
    running = asking.run(iter(groups(1, 1)))
    assert next(running).rows == 0
    assert begun.wait(30)
    worker_node.node.served = False
    until(lambda: asking._is_deserted)
    worker_node.loop.call_soon_threadsafe(release.set)

    assert next(running).questions[0].outcome == b"Q1-0"


def test_what_nobody_took_is_not_sent_again_when_all_members_have_gone(worker_node: FakeWorkerNode) -> None:
    asking = window(worker_node, retries=3, wait_for_members=0.0)

    async def answer(key: str, _attempt: int) -> None:
        if key == "1-0":
            worker_node.node.served = False
            while not asking._is_deserted:  # noqa: ASYNC110 - it looks from time to time
                await asyncio.sleep(0.01)
            raise NoMembers("echo", 2)

    worker_node.node.answer = answer
    with pytest.raises(DispatchError, match="nobody serves that cluster"):
        list(asking.run(iter(groups(1, 1))))
    assert worker_node.node.asked == ["0-0", "1-0"]


def test_a_timeout_before_a_member_took_it_is_the_failure_of_a_row_if_there_are_members(worker_node: FakeWorkerNode) -> None:
    async def answer(key: str, _attempt: int) -> None:
        if key == "0-0":
            raise RequestTimeout("echo", 7.0, None)

    worker_node.node.answer = answer
    (group,) = window(worker_node, is_strict=False).run(iter(groups(2)))

    assert isinstance(group.questions[0].outcome, DispatchError)
    assert group.questions[1].outcome == b"Q0-1"


@pytest.mark.parametrize("error", [ConfigurationError("a wrong name."), ZeroDivisionError("a bug")], ids=["iris", "any"])
def test_what_would_happen_to_every_row_ends_the_task(worker_node: FakeWorkerNode, error: Exception) -> None:
    async def answer(_key: str, _attempt: int) -> None:
        raise error

    worker_node.node.answer = answer
    with pytest.raises(DispatchError, match=str(error)):
        list(window(worker_node, is_strict=False).run(iter(groups(3))))


def test_a_task_that_ends_early_cancels_what_is_under_way(worker_node: FakeWorkerNode) -> None:
    """As below a limit: Spark takes no more batches."""
    blocked = threading.Event()

    async def answer(key: str, _attempt: int) -> None:
        if key.startswith("1-"):
            if worker_node.node.under_way == 4:
                blocked.set()
            await asyncio.Event().wait()

    worker_node.node.answer = answer
    running = window(worker_node).run(iter(groups(1, 20)))
    assert next(running).rows == 0
    assert blocked.wait(30)
    cast("Any", running).close()

    worker_node.finish()
    assert worker_node.node.cancelled == 4
    assert len(worker_node.node.asked) == 5
    worker_node.finish = lambda: None  # type: ignore[method-assign] # it has ended


def test_a_node_that_dies_does_not_leave_the_task_waiting(worker_node: FakeWorkerNode) -> None:
    worker_node.node.answer = lambda _key, _attempt: asyncio.Event().wait()
    running = window(worker_node).run(iter(groups(1)))
    worker_node.loop.call_soon_threadsafe(worker_node.loop.stop)

    with pytest.raises(DispatchError, match="the Iris node of the Spark task has ended"):
        next(running)

    for task in asyncio.all_tasks(worker_node.loop):
        task.cancel()
    worker_node.loop.run_until_complete(asyncio.sleep(0))
    worker_node.loop.close()
    worker_node.finish = lambda: None  # type: ignore[method-assign] # it has ended


@pytest.mark.parametrize("place", ["_note_failure", "_end", "_fill", "_check_served"])
def test_an_error_of_the_connector_ends_the_task_with_its_cause(
    worker_node: FakeWorkerNode, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer(key: str, _attempt: int) -> None:
        if key == "0-0":
            raise RequestTimeout("echo", 7.0, None)

    worker_node.node.answer = answer
    monkeypatch.setattr(Window, place, Mock(side_effect=ZeroDivisionError("a fault")))
    with pytest.raises(DispatchError, match="the connector failed: ZeroDivisionError: a fault") as raised:
        list(window(worker_node).run(iter(groups(3, 2))))
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
