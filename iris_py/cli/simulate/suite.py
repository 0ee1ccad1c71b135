"""Suites of simulations (`iris simulate --suite`), run in parallel processes."""

from __future__ import annotations

import os
import queue
import signal
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, Final

from iris_py.cli.simulate.pace import SimulationPace
from iris_py.cli.simulate.plan import Partition, SimulationPlan
from iris_py.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from iris_py.cli.simulate.pace import Display
    from iris_py.cli.simulate.report import SimulationReport

__all__ = ["SUITES", "plans_of", "run_plans"]

#: 2.3 h is the mean session found by Castro, Costa and Rowstron (DSN 2004) among users of Gnutella; the others are far worse.
SESSIONS_S: Final = (8280.0, 1800.0, 300.0)

# The longest first, so that all processors are busy until the end.
SUITES: Final[dict[str, tuple[SimulationPlan, ...]]] = {
    "standard": (
        SimulationPlan(nodes=10_000, lookups=30_000),
        *(SimulationPlan(session_s=session_s, loss=0.01, minutes=3.0, lookups=30_000) for session_s in reversed(SESSIONS_S)),
        SimulationPlan(partition=Partition(0.5, 600.0), detectors=False),
        SimulationPlan(kill=0.2),
        SimulationPlan(layer="groups"),
        SimulationPlan(zones=5, detectors=False),
        SimulationPlan(detectors=False),
        SimulationPlan(nodes=100, detectors=False),
    ),
    "million": tuple(
        SimulationPlan(session_s=session_s, loss=0.01, minutes=5.0, lookups=334_000, seed=2)
        for session_s in reversed(SESSIONS_S)
    ),
    "disasters": (
        SimulationPlan(layer="full", nodes=1_000, partition=Partition(0.5, 600.0)),
        SimulationPlan(layer="full", nodes=1_000, kill=0.2),
    ),
    "huge": (SimulationPlan(nodes=100_000, lookups=100_000),),
}

POLL_S: Final = 0.2
#: Number of progress reports of a worker process per phase.
PARTS_SHOWN: Final = 50

_worker: dict[str, Any] = {}


def plans_of(suite: str) -> list[SimulationPlan]:
    """Return the plans of a suite.

    Raises:
        ConfigurationError: The suite does not exist.
    """
    if suite not in SUITES:
        raise ConfigurationError(f"--suite {suite}: choose one of {', '.join(SUITES)}")
    return list(SUITES[suite])


def run_plans(
    plans: Sequence[SimulationPlan], display: Display, is_interrupted: Callable[[], bool], workers: int | None
) -> list[SimulationReport]:
    """Run several simulations in parallel processes.

    Args:
        plans: The plans.
        display: Shows the progress.
        is_interrupted: Returns whether to end early. Running simulations then return their results so far, the others do not
            begin.
        workers: Number of processes; None for the number of processors.

    Returns:
        The reports of the simulations that ran, in the order of the plans.
    """
    context = get_context("spawn")  # a fork would copy the threads of the display
    shown: Any = context.Queue()
    stop = context.Event()
    count = min(len(plans), workers or os.cpu_count() or 1)
    with ProcessPoolExecutor(count, mp_context=context, initializer=_begin_worker, initargs=(shown, stop)) as pool:
        running: list[Future[SimulationReport]] = [pool.submit(_work, plan) for plan in plans]
        try:
            while not all(future.done() for future in running):
                if is_interrupted() and not stop.is_set():
                    stop.set()
                    for future in running:
                        future.cancel()
                try:
                    display.show(*shown.get(timeout=POLL_S))
                except queue.Empty:
                    pass
        finally:
            stop.set()
    return [future.result() for future in running if not future.cancelled()]


def _begin_worker(shown: Any, stop: Any) -> None:  # noqa: ANN401 - of multiprocessing
    # An interrupt from the keyboard reaches all processes, but the parent decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _worker.update(shown=shown, stop=stop)


def _work(plan: SimulationPlan) -> SimulationReport:
    from iris_py.cli.simulate.run import run_plan

    name = plan.title if plan.layer == "ring" else f"{plan.layer}, {plan.title}"
    last: tuple[str, int] = ("", -1)

    def show(what: str, done: float, total: float) -> None:
        nonlocal last
        part = (what, int(done * PARTS_SHOWN / total) if total else PARTS_SHOWN)
        if part != last:
            last = part
            _worker["shown"].put((name, what, done, total))

    return run_plan(plan, SimulationPace(show, _worker["stop"].is_set))
