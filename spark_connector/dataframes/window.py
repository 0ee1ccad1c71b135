"""A sliding window of concurrent requests over the rows of a task, without a pause between two batches of rows.

Theory of operation. The task's thread makes *groups*: some rows, with a request per row or a common request. It hands each
group to the event loop as a whole, because waking the loop for every row costs more than the request. The loop keeps up to
``size`` requests in flight. The task's thread reads more rows as soon as fewer than ``size`` requests wait, and returns
finished groups in their order. So neither a slow request nor the end of a batch leaves the window empty.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from itertools import groupby
from typing import TYPE_CHECKING, Generic, TypeVar

from iris_py import (
    IrisError,
    MemberLost,
    MessageTooLarge,
    NoMembers,
    NotConnected,
    Overloaded,
    RemoteError,
    RequestTimeout,
    Retry,
    TooManyMembersLost,
)
from iris_py.connector import providers
from spark_connector.errors import DispatchError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Sequence

    from iris_py.connector import Asker
    from spark_connector.dataframes.counts import Tally
    from spark_connector.dataframes.plan import RequestLimits
    from spark_connector.dataframes.task_requests import Question, RowGroup
    from spark_connector.dataframes.worker_node import WorkerNode

__all__ = ["Window"]

#: Number of windows to read ahead of the oldest unfinished request, besides one whole group. Too small: one slow request leaves
#: the window empty; too large: memory.
AHEAD = 2
#: The first and the longest pause before a request is sent again (seconds). The node itself retries during the whole timeout,
#: so these pauses matter only after errors that come at once.
PAUSE_S = 0.1
PAUSE_S_MAX = 2.0
#: Interval at which a waiting task checks that its node is alive (seconds). Only a crash ends the node.
LIFE_SIGN_S = 1.0
#: How long the cluster may have no members until the task fails (seconds). Long enough for members that start together with the
#: job; too long: a wrong name or network costs this time in each attempt of each task.
WAIT_FOR_MEMBERS_S = 5.0
#: Interval at which the task checks for members (seconds).
LOOK_INTERVAL_S = 0.2
#: How long a seed may take to answer (seconds) when an error lists the silent seeds, and the maximum number of seeds checked.
SEED_TIMEOUT_S = 1.0
SEEDS_MAX = 8
#: Errors that concern a single row. All other errors would happen to every row, so they end the task.
OF_ROWS = (RemoteError, RequestTimeout, Overloaded, MemberLost, MessageTooLarge)
#: Maximum number of members lost by one row: one while other requests ran, and one while the row ran alone. Fewer: every row of
#: a lost member would have an error; more: the row kills further members.
ROW_MEMBERS_LOST_MAX = 2
#: Advice when a handler has failed one row, and the job with it.
HINT = ". The log of that member says more."
HINT_MODES = " With on_error='null' or 'column' the job continues without such rows."
#: Further advice where rows have no names.
HINT_NAMES = " With id='a column' this error names the row."
#: Errors after which another attempt may succeed.
AGAIN = (RequestTimeout, NoMembers, NotConnected, Overloaded, MemberLost)

Rows = TypeVar("Rows")


class Window(Generic[Rows]):
    """Sends the requests for a task's rows to a cluster, a bounded number at once.

    Args:
        worker_node: The node.
        cluster: The name of the cluster.
        limits: The requests at once, and the attempts of each.
        is_strict: Whether the first failure ends the window. A cluster without members always does. A failed handler, or a lost
            member, in a request of several rows never does, because the receiver of the group must find the bad row.
        tally: Counts the requests; None without metrics.
        name: Returns the name of a question's rows for errors; None without names.
    """

    def __init__(
        self,
        worker_node: WorkerNode,
        cluster: str,
        limits: RequestLimits,
        *,
        is_strict: bool,
        tally: Tally | None = None,
        name: Callable[[RowGroup[Rows], Question], str] | None = None,
    ) -> None:
        self._worker_node = worker_node
        self._cluster = cluster
        self._size = limits.window
        self._timeout = limits.timeout
        self._retries = limits.retries
        self._is_strict = is_strict
        self._tally = tally
        self._wait_for_members = limits.wait_for_members
        self._name = name
        # Each of the next three belongs to one thread, which alone changes it; the other thread reads it.
        self._handed = 0  # requests handed over by the task
        self._begun = 0  # requests started by the loop
        self._failure: DispatchError | None = None  # set by the loop
        self._wake = threading.Event()
        # Used only in the loop.
        self._waiting: deque[Question] = deque()
        self._askers: dict[tuple[bool, int], Asker[Question]] = {}  # by ``is_exclusive`` and ``members_lost_max``
        self._repeated: dict[Question, asyncio.Future[bytes | IrisError]] = {}  # the outcomes of further attempts
        self._tasks: set[asyncio.Task[None]] = set()  # send requests again, and watch the cluster
        self._running = 0
        self._is_over = False
        self._watching: asyncio.Task[None] | None = None
        self._dialling: asyncio.Task[list[str]] | None = None  # dials the seeds, for the error
        self._was_served = False  # at least once
        self._is_deserted = False  # the cluster has been without members for as long as allowed

    def run(self, groups: Iterator[RowGroup[Rows]]) -> Iterator[RowGroup[Rows]]:
        """Yield the groups of rows in order, each when all its questions (requests) have outcomes.

        Raises:
            DispatchError: A request failed, and ``is_strict`` or the kind of failure ends the window.
        """
        pending: deque[RowGroup[Rows]] = deque()
        is_exhausted = False
        try:
            while self._failure is None:
                if not is_exhausted and self._has_room(pending):
                    group = next(groups, None)
                    if group is None:
                        is_exhausted = True
                    else:
                        pending.append(group)
                        self._put(group)
                elif not pending:
                    return
                elif not pending[0].left:
                    yield pending.popleft()
                else:
                    while not self._wake.wait(LIFE_SIGN_S):
                        self._check_alive()
                    self._wake.clear()  # before checking any state: later changes set it again
            raise self._failure
        finally:
            self._worker_node.loop.call_soon_threadsafe(self._stop)

    def _has_room(self, pending: deque[RowGroup[Rows]]) -> bool:
        if self._handed - self._begun >= self._size:
            return False
        return len(pending) < AHEAD or sum(len(group.questions) for group in pending) < AHEAD * self._size

    def _put(self, group: RowGroup[Rows]) -> None:
        if group.left:
            self._handed += group.left
            self._worker_node.loop.call_soon_threadsafe(self._take, group)

    def _check_alive(self) -> None:
        if not self._worker_node.is_alive:
            raise DispatchError(self._cluster, "", "the Iris node of the Spark task has ended. Spark tries the task again.")

    # -- in the loop

    def _take(self, group: RowGroup[Rows]) -> None:
        if self._is_over:
            return
        for question in group.questions:
            if question.payload is not None:
                question.group = group
                self._waiting.append(question)
        if self._watching is None and self._waiting:
            self._watching = self._start(self._watch(self._waiting[0].key))
        try:
            self._fill()
        except Exception as exc:  # the task's thread would wait for ever
            self._break(exc)

    def _start(self, coroutine: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._handle_ended)
        return task

    def _handle_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self._break(error)

    def _fill(self) -> None:
        """Send as many waiting requests as the window has room for."""
        waiting = self._waiting
        count = min(self._size - self._running, len(waiting))
        if count > 0:
            self._running += count
            self._begun += count
            # Read after writing the count: the task first writes what it has handed over, and then reads the count.
            ahead = self._handed - self._begun
            if ahead < self._size <= ahead + count:
                self._wake.set()  # time for more rows
            questions = [waiting.popleft() for _ in range(count)]
            if self._tally is not None:
                self._tally.ask(questions, self._worker_node.loop.time())
            self._ask(questions)

    def _ask(self, questions: Sequence[Question]) -> None:
        """Send questions; questions with the same options go to one ``Asker``."""
        for (is_exclusive, members_lost_max), alike in groupby(questions, key=_way):
            asker = self._askers.get((is_exclusive, members_lost_max))
            if asker is None:
                asker = self._askers[is_exclusive, members_lost_max] = self._worker_node.asker(
                    self._cluster,
                    self._timeout,
                    self._receive,
                    None if self._tally is None else self._tally.note_member,
                    Retry(members_lost_max=members_lost_max),
                    is_exclusive=is_exclusive,
                )
            asker.ask(list(alike))

    def _receive(self, outcomes: list[tuple[Question, bytes | IrisError]]) -> None:
        if self._is_over:
            return
        try:
            self._settle(outcomes)
        except Exception as exc:  # the task's thread would wait for ever
            self._break(exc)

    def _settle(self, outcomes: list[tuple[Question, bytes | IrisError]]) -> None:
        is_done = False
        tally, now = self._tally, self._worker_node.loop.time()
        for question, outcome in outcomes:
            if question in self._repeated:
                self._repeated.pop(question).set_result(outcome)
            elif isinstance(outcome, bytes):
                self._was_served = True
                question.outcome = outcome
                if tally is not None:
                    tally.reply(question, outcome, now)
                is_done |= self._end(question)
            else:
                self._start(self._work(question, outcome))
        self._fill()
        if is_done:
            self._wake.set()

    def _end(self, question: Question) -> bool:
        """Remove an answered question from the window; return whether all questions of its group have outcomes."""
        self._running -= 1
        group, question.group = question.group, None
        assert group is not None
        group.left -= 1
        return not group.left

    async def _work(self, question: Question, error: IrisError) -> None:
        outcome = await self._ask_again(question, error)
        if isinstance(outcome, bytes):
            question.outcome = outcome
            if self._tally is not None:
                self._tally.reply(question, outcome, self._worker_node.loop.time())
        else:
            await self._note_failure(question, outcome)
        if self._end(question):
            self._wake.set()
        self._fill()

    async def _ask_again(self, question: Question, outcome: bytes | IrisError) -> bytes | IrisError:
        """Send a failed request again, until it has a reply or no attempt is left; return the last outcome.

        The first attempt was made by :meth:`_ask`, and nearly always succeeds.
        """
        left, pause_s = self._retries, PAUSE_S
        while not isinstance(outcome, bytes):
            if isinstance(outcome, TooManyMembersLost):
                if question.is_exclusive or question.rows > 1:
                    break
                # Other requests were lost with that member, too. Sent alone, this one loses a second member only if it is the
                # cause.
                question.is_exclusive, question.members_lost_max = True, ROW_MEMBERS_LOST_MAX
            elif isinstance(outcome, AGAIN) and left and not self._is_deserted:
                left -= 1
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, PAUSE_S_MAX)
            else:
                break
            if self._tally is not None:
                self._tally.retried += 1
            repeated = self._repeated[question] = asyncio.get_running_loop().create_future()
            self._ask([question])
            outcome = await repeated
        return outcome

    async def _note_failure(self, question: Question, error: IrisError) -> None:
        """Record that a question has no reply, and end the window if the failure requires it."""
        key = question.key
        if self._tally is not None:
            self._tally.fail(error)
        if isinstance(error, AGAIN):
            await self._check_served(key, error)
        if isinstance(error, TooManyMembersLost):
            question.is_given_up = True
            question.lost = tuple(dict.fromkeys((*question.lost, *error.members)))
        question.is_refused = isinstance(error, RemoteError)
        hint = ""
        if self._is_strict and (question.is_refused or question.is_given_up):
            hint = (HINT if question.is_refused else "") + HINT_MODES + (HINT_NAMES if self._name is None else "")
        assert question.group is not None
        rows = self._name(question.group, question) if self._name is not None else ""
        reason = _describe_losses(question.lost) if question.is_given_up else _describe(error)
        question.outcome = DispatchError(self._cluster, key, reason + hint, rows)
        is_of_some_row = (question.is_refused or question.is_given_up) and question.rows > 1
        if not isinstance(error, OF_ROWS) or (self._is_strict and not is_of_some_row):
            self._fail(question.outcome)

    async def _check_served(self, key: str, exc: IrisError) -> None:
        """Fail the window if an error means that the cluster has no members, because every row would fail."""
        is_nobody = isinstance(exc, NoMembers | NotConnected) or (isinstance(exc, RequestTimeout) and exc.member is None)
        if is_nobody and not len(await providers(self._worker_node.node, self._cluster)):
            await self._desert(key)

    async def _watch(self, key: str) -> None:
        """Watch whether the cluster has members.

        If it never had any, no request can succeed, and all fail now. If it had, former members may have left and still be
        working on the last requests, so only retries stop.
        """
        loop = asyncio.get_running_loop()
        seen_s = loop.time()
        while True:
            try:
                is_served = bool(len(await providers(self._worker_node.node, self._cluster)))
            except IrisError:
                return  # the node is closed
            now = loop.time()
            self._was_served |= is_served
            seen_s = now if is_served else seen_s
            self._is_deserted = now >= seen_s + self._wait_for_members
            if self._is_deserted and not self._was_served:
                return await self._desert(key)
            await asyncio.sleep(LOOK_INTERVAL_S)

    async def _desert(self, key: str) -> None:
        """Fail the window with an error that says why the cluster has no members."""
        node = self._worker_node.node
        known = len(node.nodes()) - 1
        if self._dialling is None:
            self._dialling = asyncio.create_task(_find_silent(self._worker_node.seeds[:SEEDS_MAX]))
        silent = await self._dialling
        seeds = f" Seeds that do not answer here: {', '.join(silent)}." if silent else ""
        nobody, start = "nobody serves that cluster", "Start a member with node.join(), correct the name"
        if "@" in self._cluster:
            nobody, start = "no gateway reaches that cloud", "Start `iris gateway` there, correct the name"
        reason = (
            f"{nobody}. The task knows {known} other nodes in network {node.network!r}.{seeds} {start}, or let the tasks "
            "find its network: dispatch(..., network=Network(secret_file=..., seeds=[...])). To wait longer for members, "
            "raise wait_for_members."
        )
        self._fail(DispatchError(self._cluster, key, reason))

    def _fail(self, failure: DispatchError) -> None:
        if self._failure is None:
            self._failure = failure
        self._wake.set()

    def _break(self, error: Exception) -> None:
        """Fail the window because of an error that no request explains."""
        failure = DispatchError(self._cluster, "", f"the connector failed: {type(error).__qualname__}: {error}")
        failure.__cause__ = error
        self._fail(failure)

    def _stop(self) -> None:
        """Cancel all requests, because the task uses no further results."""
        self._is_over = True
        self._waiting.clear()
        for asker in self._askers.values():
            asker.cancel()
        for task in (*self._tasks, *filter(None, [self._dialling])):
            task.cancel()


def _way(question: Question) -> tuple[bool, int]:
    return question.is_exclusive, question.members_lost_max


def _describe_losses(members: Sequence[str]) -> str:
    count = len(members)
    return (
        f"it was lost with {count} member{'s' * (count != 1)} ({', '.join(member[:8] for member in members)}), so it is not "
        "sent again. The request may have ended their processes (a crash, or a memory limit). See the end of their logs."
    )


def _describe(error: Exception) -> str:
    return str(error) if isinstance(error, IrisError) else f"{type(error).__qualname__}: {error}"


async def _find_silent(seeds: Sequence[str]) -> list[str]:
    """Return the unreachable seeds, with reasons."""

    async def dial(seed: str) -> str:
        host, _, port = seed.rpartition(":")
        try:
            async with asyncio.timeout(SEED_TIMEOUT_S):
                _reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
            writer.close()
        except TimeoutError:
            return f"{seed} (no answer)"
        except OSError as exc:  # a negative number comes from name resolution, and has a good text; others name the call
            return f"{seed} ({os.strerror(exc.errno) if exc.errno and exc.errno > 0 else exc.strerror or exc})"
        return ""

    return list(filter(None, await asyncio.gather(*map(dial, seeds))))
