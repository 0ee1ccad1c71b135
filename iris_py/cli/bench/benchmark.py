"""`iris bench`: one measurement from start to end.

Subclasses of :class:`Benchmark` measure requests, topics, tunnels and joins.

With `--against`, the load goes to a running network: :class:`Onlooker` queries the nodes that receive it, before and after.
:func:`find_warnings` returns the reasons for caution about the figures. Progress is a bar on a terminal, and nothing elsewhere.
"""

from __future__ import annotations

import asyncio
import os
import sys
from abc import ABC, abstractmethod
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import IO, TYPE_CHECKING, Any, ClassVar, Final

from iris_py import NodeName
from iris_py.api.run import SIGNALS, stopping_of
from iris_py.cli.bench.crew import BenchCrew
from iris_py.cli.bench.measurement import DRAIN_S, measure
from iris_py.cli.bench.messages import Orders
from iris_py.cli.bench.plan import describe_loop, describe_machine
from iris_py.cli.bench.report import describe_interval, print_summary
from iris_py.cli.bench.summaries import IntervalLine, Receiver, Side, percentiles_of
from iris_py.cli.outcome import ExitCode
from iris_py.cli.output import Output
from iris_py.cli.standard_error import complain, tell
from iris_py.overview.topics import overlaps
from iris_security.secret import Secret

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    import iris_py
    from iris_py import Node, NodeReport
    from iris_py.cli.bench.measurement import Course, Interval
    from iris_py.cli.bench.plan import BenchMachine, BenchPlan
    from iris_py.cli.bench.report import Fact
    from iris_py.cli.bench.summaries import BenchSummary
    from iris_py.observe.statistics import SubscriptionStatistics

__all__ = ["Benchmark", "Onlooker", "find_warnings", "showing_progress"]

#: Timeout for the reports of receivers. Too small: busy members seem silent; too large: a departed member delays the end.
ASK_S: Final = 5.0


class Onlooker:
    """For `iris bench --against`: queries the nodes of a running network that receive the load, from a node without other work.

    Args:
        node: The node.
        name: The cluster, or the topic.
        is_topic: Whether the name is a topic.

    Attributes:
        known: Number of receivers: all members of the cluster, or the nodes found to subscribe; 0 for another cloud's cluster.
    """

    def __init__(self, node: Node, name: str, *, is_topic: bool) -> None:
        self._node = node
        self._name = name
        self._is_topic = is_topic
        self._targets: list[NodeName] = []
        self._first: dict[str, NodeReport] | None = None
        self._both: list[tuple[NodeReport, NodeReport]] = []
        self.known = 0

    @property
    def silent(self) -> int:
        """Number of queried receivers that did not report both before and after the load."""
        return len(self._targets) - len(self._both)

    async def find(self) -> None:
        """Find the nodes that receive the load: the members of the cluster, or the subscribers of the topic."""
        if self._is_topic:
            found = await self._node.ask_nodes("subscriptions", timeout=ASK_S)
            self._targets = [each.node for each in found.reports if self._delivers(each)]
            self.known = len(self._targets)
        elif "@" not in self._name:  # members of another cloud are not visible
            members = self._node.members(self._name)
            self._targets = [NodeName(each.id, each.address, each.zone) for each in await members]
            self.known = members.total

    async def look(self) -> None:
        """Query the receivers: the first call reads the state before the load, each later call the state after the load."""
        if not self._targets:
            return
        parts = ("process", "subscriptions") if self._is_topic else ("process", "clusters")
        cluster = "" if self._is_topic else self._name
        found = await self._node.ask_nodes(*parts, nodes=self._targets, cluster=cluster, timeout=ASK_S)
        reports = {each.node.id: each for each in found.reports}
        if self._first is None:
            self._first = reports
        else:
            first = self._first
            self._both = [(first[node], last) for node, last in reports.items() if node in first]

    def cpu_s(self) -> list[float]:
        """Return the processor time (seconds) of each receiver's process during the load, for any purpose."""
        return [max(0.0, last.statistics.process.cpu_s - first.statistics.process.cpu_s) for first, last in self._both]

    def receivers(self) -> list[Receiver]:
        """Return the received and dropped messages of each receiver during the load, from all senders."""
        count = self._delivered if self._is_topic else _executed
        return [
            Receiver(
                id=last.node.id,
                address=last.node.address,
                messages=max(0, count(last) - count(first)),
                share=0.0,
                dropped=max(0, self._dropped(last) - self._dropped(first)),
            )
            for first, last in self._both
        ]

    def _delivers(self, report: NodeReport) -> list[SubscriptionStatistics]:
        """Return a node's subscriptions to the measured topic; empty if the load goes to a cluster."""
        subscriptions = report.statistics.subscriptions if self._is_topic else ()
        return [each for each in subscriptions if overlaps(each.pattern, self._name)]

    def _delivered(self, report: NodeReport) -> int:
        return sum(each.delivered for each in self._delivers(report))

    def _dropped(self, report: NodeReport) -> int:
        return sum(sum(each.dropped.values()) for each in self._delivers(report))


def _executed(report: NodeReport) -> int:
    return sum(each.service.executed for each in report.statistics.clusters.values() if each.service is not None)


#: Interval at which the progress bar moves (seconds).
_STEP_S: Final = 0.2


@contextmanager
def showing_progress(stream: IO[str], seconds: float) -> Iterator[Callable[[str], None]]:
    """Show the progress of a measurement within the ``with`` block.

    Args:
        stream: The output; nothing is shown unless it is a terminal.
        seconds: The duration of the measurement.

    Yields:
        A function that shows the latest result.
    """
    if not stream.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), TimeRemainingColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=Console(file=stream), transient=True) as progress:
        task = progress.add_task("", total=seconds)
        moving = asyncio.create_task(_move(lambda: progress.advance(task, _STEP_S)))
        try:
            yield lambda text: progress.update(task, description=text)
        finally:
            moving.cancel()


async def _move(advance: Callable[[], None]) -> None:
    while True:
        await asyncio.sleep(_STEP_S)
        advance()


#: Fraction of a processor above which a process is considered saturated.
FULL: Final = 0.95
#: Fraction of all processors that other programs may use without a warning. Too small: every desktop has a warning; too large:
#: disturbed figures pass for good ones.
OTHERS: Final = 0.15
#: Load average per processor before a measurement (processes that run or wait for a processor) above which there is a warning.
LOAD: Final = 0.5
#: Fraction of operations that failed or never began, above which the percentiles of the other operations mislead.
MISSING: Final = 0.001
#: Lateness of the 99th percentile of operations above which there is a warning (ns).
LATE_NS: Final = 2_000_000


def find_warnings(
    plan: BenchPlan,
    course: Course,
    sides: Sequence[Side],
    machine: BenchMachine,
    *,
    maker: str,
    unit: str,
    counted: int,
    silent: int,
) -> list[str]:
    """Return the warnings about the figures of a measurement, a sentence each.

    Args:
        plan: The options of the measurement.
        course: The reports of the measurement.
        sides: The processor time of the load generators and of the receivers.
        machine: The machine.
        maker: The role of the processes that generated the load.
        unit: The noun for one operation, such as ``request``.
        counted: Number of operations that succeeded.
        silent: Number of receivers of a running network that did not report.
    """
    found = [*_of_machine(plan, machine), *_of_load(plan, course, sides, maker)]
    if not counted and not course.errors():
        found.append(f"no {unit} both began after the warm-up and ended in time. Measure longer, with --seconds.")
    if silent:
        found.append(
            f"{silent} of the receivers have not reported their counts and costs: they were too busy, or their setting "
            "`observe` is `none`."
        )
    return found


def _of_machine(plan: BenchPlan, machine: BenchMachine) -> Iterator[str]:
    processes = plan.processes + (plan.receivers if plan.against is None else 0)
    if processes > machine.processors:
        yield (
            f"{processes} processes share {machine.processors} processor{'s' * (machine.processors != 1)}, so they wait for "
            "each other, and durations are longer than with more processors."
        )
    if plan.against is not None:
        pass  # receivers may be on this machine, and cannot be told from other programs
    elif machine.others_cpu is not None and machine.others_cpu > OTHERS * machine.processors:
        yield (
            f"other programs used {machine.others_cpu:.1f} of {machine.processors} processors during the measurement. "
            "Measure on a quiet machine."
        )
    elif machine.others_cpu is None and machine.load_before > LOAD * machine.processors:
        yield f"the machine was busy before (a load of {machine.load_before:g}). Measure on a quiet machine."
    if machine.event_loop == "asyncio":
        yield "uvloop is not installed, so asyncio's own event loop was used, which is slower."


def _of_load(plan: BenchPlan, course: Course, sides: Sequence[Side], side: str) -> Iterator[str]:
    maker = next((each for each in sides if each.side == side), None)
    if maker is not None and maker.busiest_cpu > FULL:
        yield (
            f"a {maker.side} process had no processor time left ({maker.busiest_cpu:.0%}), so the result may be the limit of "
            "the load, not of the receivers. Use more --processes, on a machine with more processors."
        )
    begun, unbegun = (course.count(side, name, with_rest=True) for name in ("begun", "unbegun"))
    if plan.rate is not None and unbegun > MISSING * (begun + unbegun):
        yield (
            f"{unbegun:,} of {begun + unbegun:,} did not begin before the end, because {plan.concurrency:,} were in progress "
            f"all the time: a rate of {plan.rate:g} per second is too high. Durations do not include them."
        )
    elif plan.rate is not None and course.durations(side, "lateness").percentile_ns(99) > LATE_NS:
        yield "some of the load began late, and durations include the delay: see the lateness."
    errors = sum(course.errors().values())
    if errors > MISSING * max(1, begun):
        yield f"{errors:,} of {begun:,} failed, and durations do not include them."


_TARGET: Final = "bench.measured"


class Benchmark(ABC):
    """A measurement of requests, topics, tunnels or joins; a subclass for each.

    Attributes:
        maker: The role of the processes that generate load.
        receiver: The role of the receiving processes, in a private network.
        unit: The noun for one operation, such as ``request``.
        counted: The role of the processes that count operations, and the name of the count in their reports.
        timed: The role of the processes that time operations, and the name of the duration in their reports.
        target: The cluster or topic that receives the load.
    """

    maker: ClassVar[str]
    receiver: ClassVar[str]
    unit: ClassVar[str]
    counted: tuple[str, str]
    timed: tuple[str, str]

    def __init__(self, plan: BenchPlan) -> None:
        self.plan: Final = plan
        self.target: Final = plan.against or _TARGET
        self.onlooker: Onlooker | None = None

    async def run(self) -> int:
        """Carry out the measurement, and print the results.

        Returns:
            The exit code: 128 plus the signal that ended the measurement early; 1 if no operation succeeded; the code of
            `NoMembers` if the name of `--against` has no receiver; otherwise 0.

        Raises:
            IrisError: The measurement could not begin.
        """
        plan, machine = self.plan, describe_machine()
        with Output(as_json=plan.as_json, path=plan.path) as output:
            async with AsyncExitStack() as stack:
                if plan.against is not None and not await self._look_at_others(stack):
                    return ExitCode.NO_MEMBERS
                crew = await stack.enter_async_context(BenchCrew(is_polite=plan.against is not None))
                await self._start(crew)
                machine.event_loop = describe_loop(crew.workers[0].event_loop)
                stopped = await stack.enter_async_context(_stopping())
                course = await self._measure(crew, stopped, output)
                if course.is_complete:
                    await self.settle(crew, course)
            if course.busy_s is not None and course.seconds:
                own_s = sum(sum(course.cpu_s(side)) for side in (self.maker, self.receiver))
                machine.others_cpu = round(max(0.0, course.busy_s - own_s) / course.seconds, 3)
            summary = self.summarize(course, self._common(course, machine))
            output.line(summary)
            if not output.is_json:
                print_summary(output, self.describe(summary), summary)
            for text in summary.warnings:
                complain(text)
        if stopped.done():
            return 128 + stopped.result()
        return ExitCode.OK if self._count(course) else ExitCode.FAILED

    # -- for subclasses

    @abstractmethod
    async def probe(self, node: iris_py.Node) -> str:
        """Try one operation with the cluster or topic of `--against`, before the load starts.

        Returns:
            The complaint about a missing subscriber; empty if the load has a receiver.

        Raises:
            IrisError: The operation failed, for example because the cluster has no members.
        """

    @abstractmethod
    def summarize(self, course: Course, common: dict[str, Any]) -> BenchSummary:
        """Return the summary of the measurement, its last line; `common` has the fields shared by all summaries."""

    @abstractmethod
    def describe(self, summary: Any) -> Sequence[Fact]:  # noqa: ANN401 - of the class that `summarize` returns
        """Return the figures special to this kind of measurement as rows of text."""

    async def settle(self, crew: BenchCrew, course: Course) -> None:  # noqa: B027 - most have nothing to wait for
        """After the load, wait for operations still in flight, such as messages on their way to subscribers. By default do
        nothing.
        """

    # -- the course

    async def _look_at_others(self, stack: AsyncExitStack) -> bool:
        """For `--against`, announce the load and find the receivers; return False, with a complaint, without a receiver."""
        plan = self.plan
        node = await stack.enter_async_context(plan.settings.visit())
        if missing := await self.probe(node):
            complain(missing)
            return False
        tell(
            f"this loads the network {plan.network!r} for {plan.warm_up_s + plan.seconds:g} s, and its other users wait "
            f"meanwhile: {self.announce()}. Ctrl-C ends it."
        )
        self.onlooker = Onlooker(node, self.target, is_topic=self.receiver == "subscriber")
        await self.onlooker.find()
        return True

    @abstractmethod
    def announce(self) -> str:
        """Return the sentence that announces the load to a running network's operator, without the network's name."""

    async def _start(self, crew: BenchCrew) -> None:
        plan = self.plan
        if plan.against is not None:
            connect = {name: _plain(value) for name, value in plan.settings.connect_arguments().items()}
            common: dict[str, Any] = {"connect": connect}
        else:
            secret = Secret.generate(os.urandom).text
            receiver = Orders(role=self.receiver, target=self.target, reply=plan.reply, policy=plan.policy, secret=secret)
            first = await crew.start(self.receiver, receiver)
            common = {"secret": secret, "seeds": [first.address]}
            others = [Orders(**_fields(receiver) | common) for _ in range(plan.receivers - 1)]
            await crew.start_all(self.receiver, others)
        makers = [
            Orders(
                role=self.maker,
                target=self.target,
                payload=plan.payload,
                callers=plan.callers(number),
                interval_ns=plan.interval_ns,
                offset_ns=plan.offset_ns(number),
                timeout_s=plan.timeout_s,
                **common,
            )
            for number in range(plan.processes)
        ]
        await crew.start_all(self.maker, makers)

    async def _measure(self, crew: BenchCrew, stopped: asyncio.Future[int], output: Output) -> Course:
        plan, second = self.plan, 0

        def show(interval: Interval) -> None:
            nonlocal second
            second += 1
            line = self._interval_line(second, interval)
            if output.is_json:
                output.line(line)
            say(describe_interval(line, self.unit))

        with showing_progress(sys.stderr, plan.warm_up_s + plan.seconds) as say:
            return await measure(
                crew,
                warm_up_s=plan.warm_up_s,
                seconds=plan.seconds,
                drain_s=plan.timeout_s + DRAIN_S,
                stopped=stopped,
                on_interval=show,
                look_on=None if self.onlooker is None else self.onlooker.look,
            )

    def _interval_line(self, second: int, interval: Interval) -> IntervalLine:
        messages = interval.count(*self.counted)
        per_s = messages / interval.seconds if interval.seconds else 0.0
        return IntervalLine(
            second=second,
            seconds=round(interval.seconds, 6),
            messages=messages,
            messages_per_s=round(per_s, 3),
            bytes_per_s=round(per_s * len(self.plan.payload), 3),
            errors=dict(interval.errors()),
            latency=percentiles_of(interval.durations(*self.timed)),
        )

    # -- its end

    def _count(self, course: Course) -> int:
        return course.count(*self.counted, with_rest=True)

    def _common(self, course: Course, machine: BenchMachine) -> dict[str, Any]:
        """Return the fields of the summary that all kinds of measurements share."""
        plan = self.plan
        per_s = course.count(*self.counted) / course.seconds if course.seconds else 0.0
        lateness = course.durations(self.maker, "lateness")
        sides = self._sides(course)
        errors = course.errors()
        return {
            "against": plan.against,
            "size": len(plan.payload),
            "processes": plan.processes,
            "rate": plan.rate,
            "seconds": round(course.seconds, 6),
            "warm_up_s": plan.warm_up_s,
            "is_complete": course.is_complete,
            "begun": course.count(self.maker, "begun", with_rest=True),
            "unbegun": course.count(self.maker, "unbegun", with_rest=True),
            "errors": dict(errors),
            "messages_per_s": round(per_s, 3),
            "bytes_per_s": round(per_s * len(plan.payload), 3),
            "lateness": None if plan.rate is None else percentiles_of(lateness),
            "sides": sides,
            "receivers": self._receivers(course),
            "machine": machine,
            "warnings": find_warnings(
                plan,
                course,
                sides,
                machine,
                maker=self.maker,
                unit=self.unit,
                counted=self._count(course),
                silent=0 if self.onlooker is None else self.onlooker.silent,
            ),
        }

    def _sides(self, course: Course) -> list[Side]:
        messages = course.count(*self.counted)
        used = {self.maker: course.cpu_s(self.maker), self.receiver: course.cpu_s(self.receiver)}
        if self.onlooker is not None:
            used[self.receiver] = self.onlooker.cpu_s()
        return [
            Side(
                side=side,
                processes=len(each),
                cpu_s=round(sum(each), 6),
                busiest_cpu=round(max(each) / course.seconds, 3),
                cpu_us_per_message=round(sum(each) / messages * 1e6, 3) if messages else None,
            )
            for side, each in used.items()
            if each and course.seconds
        ]

    def _receivers(self, course: Course) -> list[Receiver]:
        if self.onlooker is not None:
            found = self.onlooker.receivers()
        else:
            name = "delivered" if self.receiver == "subscriber" else "executed"
            dropped = course.count_each(self.receiver, "dropped")
            found = [
                Receiver(id=worker.node, address=worker.address, messages=count, share=0.0, dropped=dropped.get(worker, 0))
                for worker, count in course.count_each(self.receiver, name).items()
            ]
        total = sum(each.messages for each in found)
        for each in found:
            each.share = round(each.messages / total, 4) if total else 0.0
        return sorted(found, key=lambda each: -each.messages)


@asynccontextmanager
async def _stopping() -> AsyncIterator[asyncio.Future[int]]:
    """Turn the first SIGINT or SIGTERM into the end of the measurement, with the results so far; a second ends the process.

    Yields a future that is done with the number of the signal.
    """
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[int] = loop.create_future()

    def stop(done: asyncio.Task[Any]) -> None:
        if not done.cancelled() and not stopped.done():
            stopped.set_result(done.result())

    waiting = asyncio.create_task(stopping_of(loop).wait(SIGNALS))
    waiting.add_done_callback(stop)
    await asyncio.sleep(0)  # the signal handlers are active from here on
    try:
        yield stopped
    finally:
        waiting.cancel()


def _fields(orders: Orders) -> dict[str, Any]:
    return {name: getattr(orders, name) for name in orders.__struct_fields__}


def _plain(value: object) -> object:
    """Convert an argument of `iris_py.connect` for JSON."""
    return str(value) if isinstance(value, os.PathLike) else value
