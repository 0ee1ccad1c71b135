"""The command `iris doctor`: a line for each check, and the exit code."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from iris_py.cli.doctor.actual import Actual
from iris_py.cli.doctor.check import Status, Subject
from iris_py.cli.doctor.examination import choose, examine
from iris_py.cli.outcome import ExitCode, one_line
from iris_py.cli.output import Line, Output
from iris_py.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from iris_py.cli.doctor.check import Check
    from iris_py.cli.doctor.examination import Examined
    from iris_py.cli.output import Lines
    from iris_py.cli.settings import Settings

__all__ = ["LINES", "CheckLine", "DoctorSummary", "doctor"]

_STYLES: Final = {Status.OK: "32", Status.WARNING: "33", Status.FAULT: "1;31", Status.SKIPPED: "2"}
_STATUS_WIDTH: Final = max(map(len, Status))
_CLEAR: Final = "\r\x1b[K"


class CheckLine(Line, tag="check"):
    """One check of `iris doctor`, and what it has found."""

    check: str
    """Its name, as `--only` takes it."""
    status: str
    """`ok`, `warning`, `FAULT` or `skipped`."""
    cause: str
    """The state of things; of a fault what is wrong."""
    advice: str = ""
    """The remedy; empty where there is nothing to do."""
    hints: tuple[str, ...] = ()
    """Commands that show more, or that do it."""
    because: str = ""
    """The check whose finding left this one undone; empty if it was made."""
    seconds: float = 0.0
    """How long it took."""


class DoctorSummary(Line, tag="summary"):
    """The end of `iris doctor`: how many checks found what."""

    ok: int
    warnings: int
    faults: int
    skipped: int


#: The lines of `--json`.
LINES: Final[Lines] = {"doctor": (CheckLine, DoctorSummary)}


async def doctor(
    settings: Settings,
    cluster: str | None,
    *,
    only: Sequence[str],
    skip: Sequence[str],
    fix_hints: bool,
    strict: bool,
    as_json: bool,
) -> int:
    """Make the checks, print each as soon as it is made, and return whether one found a fault.

    Args:
        settings: The settings of the node on the command line.
        cluster: The cluster to look at; None for none.
        only: The checks to make; empty for all.
        skip: The checks to leave out.
        fix_hints: Whether commands that show more are printed as well.
        strict: Whether a warning counts as a fault.
        as_json: Whether lines of JSON are printed.

    Raises:
        ConfigurationError: There is no such check.
    """
    try:
        chosen = choose(_split(only), _split(skip))
    except ValueError as exc:
        raise ConfigurationError(f"{exc}") from None
    output = Output(as_json=as_json)
    counts = dict.fromkeys(Status, 0)
    undone: dict[str, list[str]] = {}  # what was skipped, by the reason
    progress = _Progress()
    try:
        async with Actual(settings) as surroundings:
            async for examined in examine(Subject(surroundings, cluster), chosen, progress.tell):
                progress.clear()
                counts[examined.finding.status] += 1
                line = _line_of(examined)
                if examined.finding.status is Status.SKIPPED:
                    undone.setdefault(line.cause, []).append(line.check)
                    output.line(line)
                else:
                    output.line(line, _text_of(line, with_hints=fix_hints, is_coloured=output.is_terminal))
    finally:
        progress.clear()
    summary = DoctorSummary(counts[Status.OK], counts[Status.WARNING], counts[Status.FAULT], counts[Status.SKIPPED])
    output.line(summary, _describe_undone(undone, is_coloured=output.is_terminal))
    is_fault = bool(summary.faults or (strict and summary.warnings))
    return ExitCode.FAULT if is_fault else ExitCode.OK


def _split(names: Sequence[str]) -> list[str]:
    """Return names that may be separated by commas."""
    return [name.strip() for text in names for name in text.split(",") if name.strip()]


def _line_of(examined: Examined) -> CheckLine:
    finding = examined.finding
    return CheckLine(
        examined.check.name,
        str(finding.status),
        finding.cause,
        finding.advice,
        finding.hints,
        examined.because,
        round(examined.seconds, 3),
    )


def _text_of(line: CheckLine, *, with_hints: bool, is_coloured: bool) -> str:
    cause = line.cause
    if line.advice:
        cause = f"{cause}. {line.advice}"
    shown = f"{line.status:{_STATUS_WIDTH}}"
    if is_coloured:
        shown = _colour(shown, Status(line.status))
    texts = [f"{shown}  {line.check:13}  {one_line(cause)}"]
    if with_hints:
        texts += [f"{'':{_STATUS_WIDTH}}    $ {one_line(hint)}" for hint in line.hints]
    return "\n".join(texts)


def _describe_undone(undone: Mapping[str, Sequence[str]], *, is_coloured: bool) -> str | None:
    """Return a line for each reason that something was skipped for: one fault may leave fifteen checks without a subject."""
    shown = f"{Status.SKIPPED:{_STATUS_WIDTH}}"
    if is_coloured:
        shown = _colour(shown, Status.SKIPPED)
    return "\n".join(f"{shown}  {', '.join(checks)}: {one_line(cause)}" for cause, checks in undone.items()) or None


def _colour(text: str, status: Status) -> str:
    import os

    return text if os.environ.get("NO_COLOR") else f"\x1b[{_STYLES[status]}m{text}\x1b[0m"


class _Progress:
    """A line on a terminal that says what is waited for."""

    def __init__(self) -> None:
        self._is_shown = False
        self._is_wanted = sys.stderr is not None and sys.stderr.isatty()

    def tell(self, check: Check, number: int, count: int) -> None:
        """Say which check is made."""
        if self._is_wanted:
            self._is_shown = True
            sys.stderr.write(f"{_CLEAR}{number}/{count} {check.summary} ...")
            sys.stderr.flush()

    def clear(self) -> None:
        """Take the line away."""
        if self._is_shown:
            self._is_shown = False
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()
