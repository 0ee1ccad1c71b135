"""`iris simulate`: networks of many nodes in one process, under a virtual clock, with checks."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from iris_py.cli.explanation import explain
from iris_py.cli.outcome import ExitCode, collect_garbage, complain, exit_code
from iris_py.cli.output import Output
from iris_py.cli.simulate.pace import Display, Interrupts, SimulationPace
from iris_py.cli.simulate.report import document, print_report, print_summary, summarize
from iris_py.errors import ConfigurationError, IrisError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from iris_py.cli.simulate.plan import SimulationPlan
    from iris_py.cli.simulate.report import SimulationReport

__all__ = ["execute_simulation", "make_plan", "simulate"]


def make_plan(churn: float | None, partition: str | None, **options: Any) -> SimulationPlan:  # noqa: ANN401 - those of `SimulationPlan`
    """Make the plan of a simulation from the options of the command line.

    Args:
        churn: The fraction of the nodes replaced per hour; None if not given.
        partition: The option ``PART:SECONDS``; None if not given.
        options: All other options, named as the fields of `SimulationPlan`.

    Raises:
        ConfigurationError: The options contradict each other.
    """
    from iris_py.cli.simulate.plan import NODES, NODES_FULL, SimulationPlan, parse_partition

    if churn is not None:
        if options["session_s"] is not None:
            raise ConfigurationError("--churn and --session-s set the same rate: use one of them")
        if not churn > 0:
            raise ConfigurationError(f"--churn {churn:g}: choose a rate above 0, such as 0.5 for half of the nodes per hour")
        options["session_s"] = 3600.0 / churn
    if options["nodes"] is None:
        options["nodes"] = NODES_FULL if options["layer"] == "full" else NODES
    return SimulationPlan(partition=parse_partition(partition), **options)


def execute_simulation(
    make: Callable[[], SimulationPlan],
    suite: str | None,
    *,
    as_json: bool,
    output: Path | None,
    plots: Path | None,
    workers: int | None = None,
) -> int:
    """Run `iris simulate` to its end, and return the exit code.

    Simulations compute without a pause, so no event loop could handle an interrupt: see `Interrupts`.
    """
    from iris_py.cli.simulate.plan import SimulationPlan

    collect_garbage()
    try:
        plan = make()
        if suite is not None and plan != SimulationPlan():
            raise ConfigurationError(
                f"--suite {suite} determines the simulation: with it, use only --workers, --json, --output and --plots"
            )
        return simulate(
            None if suite is not None else plan, suite, as_json=as_json, output=output, plots=plots, workers=workers
        )
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # The reader of our output is gone. The flush at the interpreter's exit must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.BROKEN_PIPE
    except (IrisError, OSError) as exc:
        complain(explain(exc))
        return exit_code(exc)


def simulate(
    plan: SimulationPlan | None,
    suite: str | None,
    *,
    as_json: bool,
    output: Path | None,
    plots: Path | None,
    workers: int | None = None,
) -> int:
    """Run one simulation, or all simulations of a suite, and print the results.

    Args:
        plan: The plan; None for a suite.
        suite: The name of the suite.
        as_json: Whether to print all measurements as lines of JSON.
        output: A file for the JSON, in addition to the tables; None prints JSON instead of tables.
        plots: A directory for plots, if wanted.
        workers: Number of parallel processes in a suite; None for the number of processors.

    Returns:
        The exit code: 0 only if all checks hold, without an interrupt.

    Raises:
        ConfigurationError: The plan cannot be simulated, or plotted here.
    """
    from iris_py.cli.simulate.run import run_plan
    from iris_py.cli.simulate.suite import plans_of, run_plans

    plans = plans_of(suite) if suite is not None else [plan] if plan is not None else []
    for each in plans:
        each.check()
    if plots is not None:
        from iris_py.cli.simulate.report import prepare

        prepare(plots)
    if output is not None and not as_json:
        raise ConfigurationError("--output is for lines of JSON: add --json")
    with (
        Output(as_json=as_json, path=output) as results,
        Interrupts() as interrupts,
        Display(sys.stderr, has_names=len(plans) > 1) as display,
    ):
        if len(plans) == 1:
            reports = [
                run_plan(plans[0], SimulationPace(lambda *shown: display.show("", *shown), lambda: interrupts.is_wanted))
            ]
        else:
            reports = run_plans(plans, display, lambda: interrupts.is_wanted, workers)
        _put_out(reports, results, plots, has_tables=not as_json or output is not None)
    if interrupts.is_wanted:
        return ExitCode.INTERRUPTED
    return ExitCode.OK if all(report.is_good for report in reports) else ExitCode.FAILED


def _put_out(reports: Sequence[SimulationReport], output: Output, plots: Path | None, *, has_tables: bool) -> None:
    if output.is_json:
        for report in reports:
            output.line(document(report))
        output.line(summarize(reports))
    if has_tables:
        for report in reports:
            print_report(report)
        if len(reports) > 1:
            print_summary(reports)
    if plots is not None:
        from iris_py.cli.simulate.report import plot

        for path in plot(reports, plots):
            print(f"plotted {path}", file=sys.stderr)
    sys.stdout.flush()
