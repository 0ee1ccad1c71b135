"""A node in an event loop of its own, that answers as a test wants."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from iris_py import Retry
    from spark_connector.dataframes.task_requests import Question


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
        assert (cluster.partition("@")[0], timeout, idempotent) == ("echo", 7.0, True)
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

    @property
    def _parts(self) -> Any:
        """The parts that the view of the gateways to another cloud needs; the node never ends."""
        return SimpleNamespace(runtime=SimpleNamespace(check_open=lambda: None), memberships=SimpleNamespace(view=self.members))

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


class FakeWorkerNode:
    """An event loop in a thread, as that of a Python worker.

    Attributes:
        ways: How questions were asked: whether exclusively, and how many members they might lose; each way once.
    """

    seeds: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.node = FakeNode()
        self.ways: list[tuple[bool, int | None]] = []
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def asker(
        self,
        cluster: str,
        timeout: float,
        on_outcomes: Callable[[Any], None],
        on_member: Callable[[Any, str], None] | None,
        retry: Retry,
        *,
        is_exclusive: bool,
    ) -> FakeAsker:
        self.ways.append((is_exclusive, retry.members_lost_max))
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
