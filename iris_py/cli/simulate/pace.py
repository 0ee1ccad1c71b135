"""The base class of simulations, and their pace: slices of virtual time, to show progress and to react to an interrupt."""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from typing import IO, TYPE_CHECKING, Final, Protocol, Self

from iris_py.cli.simulate.report import SimulationReport

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, TracebackType

    import rich.progress

    from iris_py.cli.simulate.plan import SimulationPlan

__all__ = ["Display", "Interrupted", "Interrupts", "SimulationPace", "Trial"]

#: Up to this number of nodes a slice is a virtual second; with more nodes it is shorter. It takes some tenths of a real second.
SLICE_NODES: Final = 1000

LINES_PER_PHASE: Final = 4  # for output other than a terminal


class Interrupted(Exception):
    """The user has interrupted the simulation (Ctrl-C)."""


class Interrupts:
    """Handles Ctrl-C inside a ``with`` block: the first ends the simulation after the present slice, the second at once."""

    def __init__(self) -> None:
        self.is_wanted = False
        self._before: Callable[[int, FrameType | None], object] | int | None = None

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self.is_wanted:
            raise KeyboardInterrupt
        self.is_wanted = True


class Clocked(Protocol):
    """A simulation with a virtual clock."""

    def run_for(self, duration_s: float) -> object:
        """Advance the virtual time by a number of seconds."""


class SimulationPace:
    """Runs a simulation in slices, shows the progress, and ends early if interrupted."""

    def __init__(self, show: Callable[[str, float, float], None], is_interrupted: Callable[[], bool]) -> None:
        """Prepare the pace.

        Args:
            show: Called with the phase, its present and its final value.
            is_interrupted: Returns whether to end early.
        """
        self.show = show
        self._is_interrupted = is_interrupted

    def run_for(self, simulation: Clocked, duration_s: float, what: str, nodes: int) -> None:
        """Advance the virtual time of a simulation, in slices.

        Raises:
            Interrupted: The user has ended the simulation.
        """
        slices = max(1, round(duration_s * max(1.0, nodes / SLICE_NODES)))
        for number in range(1, slices + 1):
            self.step(simulation, duration_s / slices)
            self.show(what, duration_s * number / slices, duration_s)

    def step(self, simulation: Clocked, duration_s: float) -> None:
        """Advance the virtual time of a simulation by one slice.

        Raises:
            Interrupted: The user has ended the simulation.
        """
        if self._is_interrupted():
            raise Interrupted
        simulation.run_for(duration_s)


class Display:
    """Shows the progress of simulations: bars on a terminal, lines elsewhere."""

    def __init__(self, stream: IO[str], *, has_names: bool) -> None:
        self._stream = stream
        self._has_names = has_names
        self._quarters: dict[tuple[str, str], int] = {}
        self._bars: rich.progress.Progress | None = None
        self._tasks: dict[str, rich.progress.TaskID] = {}
        if stream.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

            columns = (TextColumn("{task.description:48}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
            self._bars = Progress(*columns, console=Console(file=stream))

    def __enter__(self) -> Self:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    def show(self, name: str, what: str, done: float, total: float) -> None:
        """Show how far a phase of a simulation has got."""
        text = f"{name}: {what}" if self._has_names else what
        if self._bars is not None:
            if name not in self._tasks:
                self._tasks[name] = self._bars.add_task(text, total=total)
            self._bars.update(self._tasks[name], description=text, completed=done, total=total)
            return
        quarter = int(done * LINES_PER_PHASE / total) if total else LINES_PER_PHASE
        if quarter > self._quarters.get((name, what), 0):
            self._quarters[name, what] = quarter
            try:
                print(f"{text}: {done:,.0f} of {total:,.0f}", file=self._stream, flush=True)
            except OSError:
                pass  # the reader is gone, which does not affect the figures


class Trial(ABC):
    """One simulation of a ring, of groups, or of a disaster.

    Attributes:
        plan: The plan.
        report: The measurements so far.
    """

    def __init__(self, plan: SimulationPlan, pace: SimulationPace) -> None:
        self.plan = plan
        self.report = SimulationReport(plan)
        self._pace = pace

    def carry_out(self) -> SimulationReport:
        """Run the simulation; return the measurements, also after an interrupt."""
        try:
            self.run()
        except Interrupted:
            self.report.is_interrupted = True
        self.finish()
        return self.report

    @abstractmethod
    def run(self) -> None:
        """Run all phases of the plan.

        Raises:
            Interrupted: The user has ended the simulation.
        """

    def finish(self) -> None:  # noqa: B027 - most have nothing to do
        """Add the counts to the report, also after an interrupt. By default do nothing."""
