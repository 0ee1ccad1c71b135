"""The reasons why the figures of a measurement say less than they seem to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from iris_py.cli.bench.lines import Side
    from iris_py.cli.bench.machine import Machine
    from iris_py.cli.bench.measuring import Course
    from iris_py.cli.bench.plan import Plan

__all__ = ["find_warnings"]

#: The part of a processor from which on a process has no more to give.
FULL: Final = 0.95
#: The part of all processors that others may use before they count. Too small: every desktop is warned; too large: figures
#: that others have spoiled pass for good ones.
OTHERS: Final = 0.15
#: Processes that wait for a processor when a measurement begins, for each processor.
LOAD: Final = 0.5
#: The part of operations that may fail or not begin before the percentiles of the others count for little.
MISSING: Final = 0.001
#: Operations may begin so late, of 99 in a hundred, before that is worth a word (ns).
LATE_NS: Final = 2_000_000


def find_warnings(
    plan: Plan, course: Course, sides: Sequence[Side], machine: Machine, *, maker: str, unit: str, counted: int, silent: int
) -> list[str]:
    """Return what has to be said beside the figures, a sentence each.

    Args:
        plan: What was to be measured.
        course: What was.
        sides: The processor time of both sides.
        machine: The machine.
        maker: The side that made the load.
        unit: What was counted, in the singular.
        counted: How many of it there were.
        silent: How many nodes of a network that runs did not say how they are.
    """
    found = [*_of_machine(plan, machine), *_of_load(plan, course, sides, maker)]
    if not counted and not course.errors():
        found.append(f"no {unit} began after the warm-up and ended. Measure longer, with --seconds.")
    if silent:
        found.append(
            f"{silent} of those that were to receive it have not said how much came and what it cost: they were too busy, or "
            "their setting `observe` is `none`."
        )
    return found


def _of_machine(plan: Plan, machine: Machine) -> Iterator[str]:
    processes = plan.processes + (plan.receivers if plan.against is None else 0)
    if processes > machine.processors:
        yield (
            f"{processes} processes share {machine.processors} processor{'s' * (machine.processors != 1)}: they wait for each "
            "other, and so durations are longer than on a machine with more."
        )
    if plan.against is not None:
        pass  # who receives the load may be on this machine, and is not told from others
    elif machine.others_cpu is not None and machine.others_cpu > OTHERS * machine.processors:
        yield f"others used {machine.others_cpu:.1f} of {machine.processors} processors meanwhile. Measure on a quiet machine."
    elif machine.others_cpu is None and machine.load_before > LOAD * machine.processors:
        yield f"the machine was busy before (a load of {machine.load_before:g}). Measure on a quiet machine."
    if machine.event_loop == "asyncio":
        yield "uvloop is not installed, so all runs on asyncio's own event loop, which is slower."


def _of_load(plan: Plan, course: Course, sides: Sequence[Side], side: str) -> Iterator[str]:
    maker = next((each for each in sides if each.side == side), None)
    if maker is not None and maker.busiest_cpu > FULL:
        yield (
            f"a {maker.side} process had no processor time left ({maker.busiest_cpu:.0%}), so what was measured may be the "
            "load rather than who receives it. Use more --processes, on a machine with more processors."
        )
    begun, unbegun = (course.count(side, name, with_rest=True) for name in ("begun", "unbegun"))
    if plan.rate is not None and unbegun > MISSING * (begun + unbegun):
        yield (
            f"{unbegun:,} of {begun + unbegun:,} did not begin before the end, for {plan.concurrency:,} were under way all the "
            f"time: a rate of {plan.rate:g} per second is too much. Durations do not count these."
        )
    elif plan.rate is not None and course.durations(side, "lateness").percentile_ns(99) > LATE_NS:
        yield "the load began late now and then, and that is a part of the durations: see the lateness."
    errors = sum(course.errors().values())
    if errors > MISSING * max(1, begun):
        yield f"{errors:,} of {begun:,} failed, and durations do not count these."
