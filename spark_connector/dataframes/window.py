"""Many requests of one task at once: a window that slides over its rows, and does not stop between two batches of them.

Theory of operation. The task's thread makes *groups*: some rows, and one request for each or for all of them. It hands each
group to the event loop at once, as waking the loop for every row costs more than the request. In the loop up to ``size``
requests are under way. The task's thread reads more rows as soon as fewer than ``size`` requests wait, and hands groups back in
their order when they are done. So neither a slow request nor the end of a batch leaves the window empty.
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
    from collections.abc import Callable, Iterator, Sequence

    from iris_py.connector import Asker
    from spark_connector.dataframes.counts import Tally
    from spark_connector.dataframes.question import Question, RowGroup
    from spark_connector.dataframes.worker import WorkerNode

__all__ = ["Window"]

#: How many times the window may be read ahead of the oldest request that is not done, besides one whole group. Too small: one
#: slow request leaves the window empty; too large: memory.
AHEAD = 2
#: The first pause before a request is sent again, and the longest (seconds). The node itself has tried for the whole timeout,
#: in which it pauses as it should, so this is only for errors that come at once.
PAUSE_S = 0.1
PAUSE_S_MAX = 2.0
#: How often a task that waits sees whether the node still lives (seconds). It ends only with a crash.
LIFE_SIGN_S = 1.0
#: How long nobody may serve the cluster until that is an error (seconds). Long enough for members that are being started with
#: the job; too long: a wrong name or a wrong network costs it in each attempt of each task.
WAIT_FOR_MEMBERS_S = 5.0
#: How often the task looks whether somebody serves it (seconds).
LOOK_INTERVAL_S = 0.2
#: How long seeds are given to answer, when it is to be said which do not (seconds), and how many are asked and named.
SEED_TIMEOUT_S = 1.0
SEEDS_MAX = 8
#: What may happen to one row and not to the next. All else would happen to each.
OF_ROWS = (RemoteError, RequestTimeout, Overloaded, MemberLost, MessageTooLarge)
#: Members that one row may lose: one beside other requests, and one alone. Fewer: every row of a member that is lost would have
#: an error; more: the row ends further members.
ROW_MEMBERS_LOST_MAX = 2
#: What to do when a handler has failed one row, and the job with it.
HINT = ". The log of that member says more."
HINT_MODES = " With on_error='null' or 'column' the job goes on without such rows."
#: What else to do where rows have no names.
HINT_NAMES = " With id='a column' this error names the row."
#: What another attempt may cure.
AGAIN = (RequestTimeout, NoMembers, NotConnected, Overloaded, MemberLost)

Rows = TypeVar("Rows")


class Window(Generic[Rows]):
    """Asks a cluster what groups want to know.

    Args:
        worker_node: The node.
        cluster: Whom to ask.
        size: How many requests are under way at once.
        timeout: For each attempt, in seconds.
        retries: How many attempts there are besides the first.
        is_strict: Whether the first failure ends it. One that nobody serves the cluster always does; one of a handler at
            several rows, or the loss of their member, never does, as whoever takes the group is to find the bad row.
        tally: Counts what is asked; None if nobody wants to know.
        wait_for_members: How long nobody may serve the cluster until that is one, in seconds.
        name: Returns what the rows of a question are called in errors; None if nobody says.
    """

    def __init__(
        self,
        worker_node: WorkerNode,
        cluster: str,
        size: int,
        timeout: float,
        retries: int,
        *,
        is_strict: bool,
        tally: Tally | None = None,
        wait_for_members: float = WAIT_FOR_MEMBERS_S,
        name: Callable[[RowGroup[Rows], Question], str] | None = None,
    ) -> None:
        self._worker_node = worker_node
        self._cluster = cluster
        self._size = size
        self._timeout = timeout
        self._retries = retries
        self._is_strict = is_strict
        self._tally = tally
        self._wait_for_members = wait_for_members
        self._name = name
        # Each of the next belongs to one thread, which alone changes it; the other one reads.
        self._handed = 0  # requests that the task has handed over
        self._begun = 0  # requests that the loop has taken up
        self._failure: DispatchError | None = None  # by the loop
        self._wake = threading.Event()
        # In the loop.
        self._waiting: deque[Question] = deque()
        self._askers: dict[tuple[bool, int], Asker[Question]] = {}  # by ``is_exclusive`` and ``members_lost_max``
        self._repeated: dict[Question, asyncio.Future[bytes | IrisError]] = {}  # the outcomes of further attempts
        self._tasks: set[asyncio.Task[None]] = set()  # that ask again
        self._running = 0
        self._is_over = False
        self._watching: asyncio.Task[None] | None = None
        self._dialling: asyncio.Task[list[str]] | None = None  # the seeds, for what is said of them
        self._was_served = False  # once at least
        self._is_deserted = False  # nobody has served the cluster for as long as that is allowed

    def run(self, groups: Iterator[RowGroup[Rows]]) -> Iterator[RowGroup[Rows]]:
        """Yield each group, in order, when all its questions have outcomes.

        Raises:
            DispatchError: One has failed that must not.
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
                    self._wake.clear()  # before anything is looked at: what happens from now on sets it again
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
        if not self._is_over:
            for question in group.questions:
                if question.payload is not None:
                    question.group = group
                    self._waiting.append(question)
            if self._watching is None and self._waiting:
                self._watching = asyncio.get_running_loop().create_task(self._watch(self._waiting[0].key))
            self._fill()

    def _fill(self) -> None:
        """Ask as many of those that wait as have room in the window."""
        waiting = self._waiting
        count = min(self._size - self._running, len(waiting))
        if count > 0:
            self._running += count
            self._begun += count
            # Read after the count was written: the task writes what it has handed over, and then reads the count.
            ahead = self._handed - self._begun
            if ahead < self._size <= ahead + count:
                self._wake.set()  # it is time for more rows
            questions = [waiting.popleft() for _ in range(count)]
            if self._tally is not None:
                self._tally.ask(questions, self._worker_node.loop.time())
            self._ask(questions)

    def _ask(self, questions: Sequence[Question]) -> None:
        """Ask some questions, those alike together."""
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
                task = asyncio.get_running_loop().create_task(self._work(question, outcome))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        self._fill()
        if is_done:
            self._wake.set()

    def _end(self, question: Question) -> bool:
        """Take a question out of the window; returns whether its group is done."""
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
        """Ask until there is a reply, or no attempt is left. Apart from the first attempt, which is nearly always the last."""
        left, pause_s = self._retries, PAUSE_S
        while not isinstance(outcome, bytes):
            if isinstance(outcome, TooManyMembersLost):
                if question.is_exclusive or question.rows > 1:
                    break
                # Other requests were with that member, too. Alone it loses a second member only if it ends it.
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
        """Note that a question has no reply, and end the window if it must have one."""
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
        """Fail for good if nobody serves the cluster: that is the failure of no single row."""
        is_nobody = isinstance(exc, NoMembers | NotConnected) or (isinstance(exc, RequestTimeout) and exc.member is None)
        if is_nobody and not len(await providers(self._worker_node.node, self._cluster)):
            await self._desert(key)

    async def _watch(self, key: str) -> None:
        """See whether anybody serves the cluster.

        If nobody ever has, the requests wait for nothing, and all fail now. If somebody has, who may have left and still be at
        work on the last ones, they are only not sent again.
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
        """Fail, as nobody serves the cluster."""
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
            f"{nobody}, of {known} other nodes that the task knows in network {node.network!r}.{seeds} {start}, "
            "or let the tasks find its network: dispatch(..., network=Network(secret_file=..., seeds=[...])). For those that "
            "come later, raise wait_for_members."
        )
        self._fail(DispatchError(self._cluster, key, reason))

    def _fail(self, failure: DispatchError) -> None:
        if self._failure is None:
            self._failure = failure
        self._wake.set()

    def _stop(self) -> None:
        """Nobody waits any more: cancel what is under way."""
        self._is_over = True
        self._waiting.clear()
        for asker in self._askers.values():
            asker.cancel()
        for task in (*self._tasks, *filter(None, [self._watching, self._dialling])):
            task.cancel()


def _way(question: Question) -> tuple[bool, int]:
    return question.is_exclusive, question.members_lost_max


def _describe_losses(members: Sequence[str]) -> str:
    count = len(members)
    return (
        f"{count} member{'s' * (count != 1)} ({', '.join(member[:8] for member in members)}) went away while they held it, "
        "so it is not sent again. Its handler may be what ends their processes (a crash, or a limit of memory). "
        "Look at the end of their logs."
    )


def _describe(error: Exception) -> str:
    return str(error) if isinstance(error, IrisError) else f"{type(error).__qualname__}: {error}"


async def _find_silent(seeds: Sequence[str]) -> list[str]:
    """Return the seeds at which nobody can be reached from here, each with the reason."""

    async def dial(seed: str) -> str:
        host, _, port = seed.rpartition(":")
        try:
            async with asyncio.timeout(SEED_TIMEOUT_S):
                _reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
            writer.close()
        except TimeoutError:
            return f"{seed} (no answer)"
        except OSError as exc:  # a negative number is one of name resolution, and has a good text; others name the call
            return f"{seed} ({os.strerror(exc.errno) if exc.errno and exc.errno > 0 else exc.strerror or exc})"
        return ""

    return list(filter(None, await asyncio.gather(*map(dial, seeds))))
