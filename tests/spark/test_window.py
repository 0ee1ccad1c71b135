"""The window of requests of a task, with a node that answers when the test says so."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import Mock

import pytest

from iris_py import ConfigurationError, IrisError, MemberLost, NoMembers, RemoteError, RequestTimeout
from spark_connector import DispatchError
from spark_connector.window import AHEAD, Group, Question, Window
from tests.spark.driving import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from spark_connector.worker import Courier


class FakeNode:
    """Answers with the payload, upper case, when a function lets it.

    Attributes:
        asked: Keys of requests, in the order in which they came.
        under_way: How many there are now.
        most: How many there were at most.
    """

    network = "tests"

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.under_way = 0
        self.most = 0
        self.cancelled = 0
        self.answer: Callable[[str, int], Any] = lambda _key, _attempt: asyncio.sleep(0)
        self.served = True

    async def request(self, cluster: str, payload: bytes, *, timeout: float, idempotent: bool, key: str) -> bytes:
        assert (cluster, timeout, idempotent) == ("echo", 7.0, True)
        attempt = self.asked.count(key)
        self.asked.append(key)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await self.answer(key, attempt)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.under_way -= 1
        return payload.upper()

    def members(self, _cluster: str) -> Any:
        async def look() -> list[int]:
            return [1] if self.served else []

        return look()

    def nodes(self) -> tuple[int, ...]:
        return (1, 2, 3)


class FakeAsker:
    """Asks the node one by one, and tells what became of questions as they end."""

    def __init__(self, node: FakeNode, cluster: str, timeout: float, on_outcomes: Callable[[Any], None]) -> None:
        self._node, self._cluster, self._timeout, self._on_outcomes = node, cluster, timeout, on_outcomes
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(self, questions: Sequence[Question]) -> None:
        for question in questions:
            task = asyncio.get_running_loop().create_task(self._ask(question))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _ask(self, question: Question) -> None:
        outcome: bytes | Exception
        assert question.payload is not None
        try:
            outcome = await self._node.request(
                self._cluster, question.payload, timeout=self._timeout, idempotent=True, key=question.key
            )
        except Exception as exc:
            outcome = exc
        self._on_outcomes([(question, outcome)])


class FakeCourier:
    """An event loop in a thread, as that of a Python worker."""

    seeds: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.node = FakeNode()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def asker(
        self, cluster: str, timeout: float, on_outcomes: Callable[[Any], None], on_member: Callable[[Any, str], None] | None
    ) -> FakeAsker:
        return FakeAsker(self.node, cluster, timeout, on_outcomes)

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def finish(self) -> None:
        """Wait until nothing is under way, and end."""
        asyncio.run_coroutine_threadsafe(self._settle(), self.loop).result(30)
        self.end()
        self.loop.close()

    def end(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(30)

    async def _settle(self) -> None:
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}), return_exceptions=True)


@pytest.fixture
def courier() -> Iterator[FakeCourier]:
    courier = FakeCourier()
    yield courier
    courier.finish()


def window(
    courier: FakeCourier, size: int = 4, *, retries: int = 0, is_strict: bool = True, wait_for_members: float = 5.0
) -> Window[int]:
    node = cast("Courier", courier)
    return Window(node, "echo", size, 7.0, retries, is_strict=is_strict, wait_for_members=wait_for_members)


def groups(*sizes: int) -> list[Group[int]]:
    """Return groups of so many questions each, with keys 0-0, 0-1, ..., 1-0, ..."""
    return [
        Group(number, [Question(f"{number}-{index}", f"q{number}-{index}".encode()) for index in range(size)])
        for number, size in enumerate(sizes)
    ]


def test_groups_come_back_in_order_with_their_replies(courier: FakeCourier) -> None:
    made = groups(3, 0, 50, 1)

    done = list(window(courier).run(iter(made)))

    assert [group.rows for group in done] == [0, 1, 2, 3]
    for group in done:
        assert [q.outcome for q in group.questions] == [(q.payload or b"").upper() for q in group.questions]
    assert len(courier.node.asked) == 54
    assert courier.node.most == 4


def test_a_slow_request_does_not_stop_the_others_and_the_window_crosses_groups(courier: FakeCourier) -> None:
    """While the first request of all waits, those of the following groups are asked, as far as is read ahead."""
    release = asyncio.Event()
    size = 4
    everything = size * AHEAD + 3  # until the groups that wait hold so many
    enough = threading.Event()

    async def answer(key: str, _attempt: int) -> None:
        if len(courier.node.asked) >= everything - 3:
            enough.set()
        if key == "0-0":
            await release.wait()

    courier.node.answer = answer
    taken: list[int] = []

    def give() -> Iterator[Group[int]]:
        for group in groups(*[3] * 10):
            taken.append(group.rows)
            yield group

    running = window(courier, size).run(give())
    helper = threading.Thread(target=lambda: (enough.wait(30), courier.loop.call_soon_threadsafe(release.set)))
    helper.start()
    first = next(running)
    helper.join()

    assert enough.is_set()
    assert first.rows == 0
    assert len(taken) <= AHEAD * size // 3 + 2, "it does not read on and on"
    assert [group.rows for group in running] == list(range(1, 10))


def test_a_window_of_one_asks_one_after_the_other(courier: FakeCourier) -> None:
    done = list(window(courier, 1).run(iter(groups(1, 2, 1))))

    assert [group.rows for group in done] == [0, 1, 2]
    assert courier.node.most == 1


def test_more_rows_are_read_as_soon_as_fewer_requests_wait_than_the_window_has(courier: FakeCourier) -> None:
    """The loop tells the task so once: when it takes up the request that leaves so few, and not only when a group is done."""
    size = 4
    asking = window(courier, size)
    asking._asker = Mock()
    asking._waiting.extend(groups(2 * size + 2)[0].questions)
    asking._handed = len(asking._waiting)
    woken = []
    for _ in range(2 * size + 2):
        asking._fill()
        woken.append((asking._handed - asking._begun, asking._wake.is_set()))
        asking._wake.clear()
        asking._running -= 1
    assert woken == [(6, False), (5, False), (4, False), (3, True), (2, False), (1, False), (0, False)] + 3 * [(0, False)]
    asking._asker.ask.assert_called()


def test_questions_that_are_not_asked_have_their_outcome(courier: FakeCourier) -> None:
    error = DispatchError("echo", "a", "why")
    group = Group(0, [Question("a", None, error), Question("b", None), Question("c", b"c")])

    assert list(window(courier).run(iter([group]))) == [group]
    assert [question.outcome for question in group.questions] == [error, None, b"C"]
    assert courier.node.asked == ["c"]


LOST = MemberLost("echo", "ab" * 16)


@pytest.mark.parametrize("error", [LOST, RequestTimeout("echo", 7.0, "ab" * 16)], ids=["lost", "timeout"])
def test_what_got_no_reply_is_asked_again_with_its_key(courier: FakeCourier, error: IrisError) -> None:
    async def answer(_key: str, attempt: int) -> None:
        if attempt < 2:
            raise error

    courier.node.answer = answer
    (group,) = window(courier, retries=2).run(iter(groups(1)))

    assert group.questions[0].outcome == b"Q0-0"
    assert courier.node.asked == ["0-0"] * 3


@pytest.mark.parametrize(
    ("error", "attempts"), [(LOST, 2), (RemoteError("echo", "ab" * 16, "KeyError", "7"), 1)], ids=["lost", "failed"]
)
@pytest.mark.parametrize("is_strict", [True, False])
def test_a_row_without_a_reply(courier: FakeCourier, error: IrisError, attempts: int, is_strict: bool) -> None:
    async def answer(key: str, _attempt: int) -> None:
        if key == "0-1":
            raise error

    courier.node.answer = answer
    running = window(courier, retries=1, is_strict=is_strict).run(iter(groups(3)))

    if is_strict:
        with pytest.raises(DispatchError, match="the request with key '0-1' to the cluster 'echo' has no result"):
            list(running)
    else:
        (group,) = running
        outcomes = [question.outcome for question in group.questions]
        assert (outcomes[0], outcomes[2]) == (b"Q0-0", b"Q0-2")
        assert isinstance(outcomes[1], DispatchError)
        assert outcomes[1].reason == str(error)
        assert outcomes[1].key == "0-1"
    assert courier.node.asked.count("0-1") == attempts


@pytest.mark.parametrize("is_strict", [True, False])
@pytest.mark.parametrize("error", [NoMembers("echo", 2), RequestTimeout("echo", 7.0, None)], ids=["none", "none in time"])
def test_a_cluster_without_members_is_never_the_failure_of_a_row(
    courier: FakeCourier, error: IrisError, is_strict: bool
) -> None:
    async def answer(_key: str, _attempt: int) -> None:
        raise error

    courier.node.answer, courier.node.served = answer, False

    with pytest.raises(DispatchError, match="nobody serves that cluster, of 2 other nodes") as caught:
        list(window(courier, is_strict=is_strict).run(iter(groups(3))))
    assert "network 'tests'" in str(caught.value)


@pytest.mark.parametrize("is_strict", [True, False])
def test_a_cluster_that_nobody_has_ever_served_fails_the_task_before_any_request_runs_out(
    courier: FakeCourier, is_strict: bool
) -> None:
    courier.node.answer, courier.node.served = lambda _key, _attempt: asyncio.Event().wait(), False
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.create_server(("127.0.0.1", 0)) as answering:
        dead, alive = (f"127.0.0.1:{each.getsockname()[1]}" for each in (silent, answering))
        silent.close()
        courier.seeds = (dead, alive, "host.invalid:1")
        with pytest.raises(DispatchError, match=r"key '0-0' to the cluster 'echo' .*: nobody serves that cluster") as caught:
            list(window(courier, retries=3, is_strict=is_strict, wait_for_members=0.1).run(iter(groups(3))))

    assert re.search(
        rf"Seeds that do not answer here: {dead} \(Connection refused\), host\.invalid:1 \(.+\)\. ", str(caught.value)
    )
    assert alive not in str(caught.value)
    assert len(courier.node.asked) == 3


def test_a_cluster_that_has_been_served_is_not_given_up_while_requests_are_under_way(courier: FakeCourier) -> None:
    """The last member may have left, and still be at work on them."""
    begun, release = threading.Event(), asyncio.Event()

    async def answer(key: str, _attempt: int) -> None:
        if key == "1-0":
            begun.set()
            await release.wait()

    courier.node.answer = answer
    asking = window(courier, wait_for_members=0.0)
    running = asking.run(iter(groups(1, 1)))
    assert next(running).rows == 0
    assert begun.wait(30)
    courier.node.served = False
    until(lambda: asking._is_deserted)
    courier.loop.call_soon_threadsafe(release.set)

    assert next(running).questions[0].outcome == b"Q1-0"


def test_what_nobody_took_is_not_sent_again_when_all_members_have_gone(courier: FakeCourier) -> None:
    asking = window(courier, retries=3, wait_for_members=0.0)

    async def answer(key: str, _attempt: int) -> None:
        if key == "1-0":
            courier.node.served = False
            while not asking._is_deserted:  # noqa: ASYNC110 - it looks from time to time
                await asyncio.sleep(0.01)
            raise NoMembers("echo", 2)

    courier.node.answer = answer
    with pytest.raises(DispatchError, match="nobody serves that cluster"):
        list(asking.run(iter(groups(1, 1))))
    assert courier.node.asked == ["0-0", "1-0"]


def test_a_timeout_before_a_member_took_it_is_the_failure_of_a_row_if_there_are_members(courier: FakeCourier) -> None:
    async def answer(key: str, _attempt: int) -> None:
        if key == "0-0":
            raise RequestTimeout("echo", 7.0, None)

    courier.node.answer = answer
    (group,) = window(courier, is_strict=False).run(iter(groups(2)))

    assert isinstance(group.questions[0].outcome, DispatchError)
    assert group.questions[1].outcome == b"Q0-1"


@pytest.mark.parametrize("error", [ConfigurationError("a wrong name."), ZeroDivisionError("a bug")], ids=["iris", "any"])
def test_what_would_happen_to_every_row_ends_the_task(courier: FakeCourier, error: Exception) -> None:
    async def answer(_key: str, _attempt: int) -> None:
        raise error

    courier.node.answer = answer
    with pytest.raises(DispatchError, match=str(error)):
        list(window(courier, is_strict=False).run(iter(groups(3))))


def test_a_task_that_ends_early_cancels_what_is_under_way(courier: FakeCourier) -> None:
    """As below a limit: Spark takes no more batches."""
    blocked = threading.Event()

    async def answer(key: str, _attempt: int) -> None:
        if key.startswith("1-"):
            if courier.node.under_way == 4:
                blocked.set()
            await asyncio.Event().wait()

    courier.node.answer = answer
    running = window(courier).run(iter(groups(1, 20)))
    assert next(running).rows == 0
    assert blocked.wait(30)
    cast("Any", running).close()

    courier.finish()
    assert courier.node.cancelled == 4
    assert len(courier.node.asked) == 5
    courier.finish = lambda: None  # type: ignore[method-assign] # it has ended


def test_a_node_that_dies_does_not_leave_the_task_waiting(courier: FakeCourier) -> None:
    courier.node.answer = lambda _key, _attempt: asyncio.Event().wait()
    running = window(courier).run(iter(groups(1)))
    courier.loop.call_soon_threadsafe(courier.loop.stop)

    with pytest.raises(DispatchError, match="the Iris node of the Spark task has ended"):
        next(running)

    for task in asyncio.all_tasks(courier.loop):
        task.cancel()
    courier.loop.run_until_complete(asyncio.sleep(0))
    courier.loop.close()
    courier.finish = lambda: None  # type: ignore[method-assign] # it has ended
