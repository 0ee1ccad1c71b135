"""The command `iris doctor`: executes the checks, prints a line for each, and sets the exit code."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from iris_py.build import build
from iris_py.cli.doctor.bundle import check_place, describe, write
from iris_py.cli.doctor.bundle_parts import command_line, encode, gather
from iris_py.cli.doctor.pseudonyms import Pseudonyms, names_in, names_in_settings
from iris_py.cli.doctor.redaction import Redaction, known_secrets
from iris_py.cli.doctor.surroundings_recorder import Recorder
from iris_py.cli.outcome import ExitCode
from iris_py.cli.output import Output
from iris_py.cli.standard_error import tell
from iris_py.doctor.check import FindingStatus, Subject
from iris_py.doctor.examination import CheckLine, DoctorSummary, choose, examine, line_of
from iris_py.doctor.real_surroundings import Actual
from iris_py.errors import ConfigurationError
from iris_py.logs import one_line
from iris_security.text_form import refuse_secret

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from iris_py.cli.doctor.plain_objects import Rewrite
    from iris_py.cli.settings import Settings
    from iris_py.doctor.check import DoctorCheck
    from iris_py.doctor.surroundings import Surroundings
    from iris_py.json_lines import Line, Lines

__all__ = ["LINES", "BundleOptions", "doctor"]

_STYLES: Final = {FindingStatus.OK: "32", FindingStatus.WARNING: "33", FindingStatus.FAULT: "1;31", FindingStatus.SKIPPED: "2"}
_STATUS_WIDTH: Final = max(map(len, FindingStatus))
_CLEAR: Final = "\r\x1b[K"


#: The lines of `--json`.
LINES: Final[Lines] = {"doctor": (CheckLine, DoctorSummary)}


@dataclass(frozen=True, slots=True)
class BundleOptions:
    """The options `--bundle`, `--force` and `--anonymous`: where to write a bundle, and whether without names."""

    path: Path
    may_replace: bool = False
    """Whether an existing file may be replaced."""
    is_anonymous: bool = False
    """Whether pseudonyms replace names."""


async def doctor(
    settings: Settings,
    cluster: str | None,
    *,
    only: Sequence[str],
    skip: Sequence[str],
    fix_hints: bool,
    strict: bool,
    as_json: bool,
    bundle: BundleOptions | None = None,
) -> int:
    """Execute the checks of `iris doctor`, and print each finding at once; return the exit code.

    Args:
        settings: The settings of the node on the command line.
        cluster: The cluster to check; None for none.
        only: The checks to execute; empty for all.
        skip: The checks to leave out.
        fix_hints: Whether to print also the commands that show details or apply a remedy.
        strict: Whether a warning counts as a fault.
        as_json: Whether to print lines of JSON.
        bundle: The bundle to write after the checks; None for none.

    Raises:
        ConfigurationError: A check does not exist, the name of the cluster is a secret, or the bundle cannot be written.
    """
    try:
        refuse_secret(cluster or "")
        chosen = choose(_split(only), _split(skip))
    except ValueError as exc:
        raise ConfigurationError(f"{str(exc).rstrip('.')}.") from None
    if bundle is not None:
        check_place(bundle.path, may_replace=bundle.may_replace)
    output = Output(as_json=as_json)
    lines: list[CheckLine] = []
    undone: dict[str, list[str]] = {}  # skipped checks, by reason
    progress = _CurrentStep()
    try:
        async with Actual(settings) as actual:
            seen = Recorder(actual)
            surroundings = actual if bundle is None else cast("Surroundings", seen)
            async for examined in examine(Subject(surroundings, cluster), chosen, progress.tell_check):
                progress.clear()
                line = line_of(examined)
                lines.append(line)
                if examined.finding.status is FindingStatus.SKIPPED:
                    undone.setdefault(line.cause, []).append(line.check)
                    output.line(line)
                else:
                    output.line(line, _text_of(line, with_hints=fix_hints, is_coloured=output.is_terminal))
            counts = Counter(line.status for line in lines)
            summary = DoctorSummary(
                *(
                    counts[status]
                    for status in (FindingStatus.OK, FindingStatus.WARNING, FindingStatus.FAULT, FindingStatus.SKIPPED)
                )
            )
            output.line(summary, _describe_undone(undone, is_coloured=output.is_terminal))
            if bundle is not None:
                words = _words_of(cluster, only, skip, bundle, strict=strict)
                command = command_line(settings, words)
                await _bundle(bundle, seen, settings, cluster, [*lines, summary], command, progress.tell)
    finally:
        progress.clear()
    if bundle is not None:
        tell(f"the bundle is {bundle.path}. Check it before you send it: README.txt lists its contents.")
    is_fault = bool(summary.faults or (strict and summary.warnings))
    return ExitCode.FAULT if is_fault else ExitCode.OK


async def _bundle(
    wanted: BundleOptions,
    seen: Recorder,
    settings: Settings,
    cluster: str | None,
    lines: Sequence[Line],
    command: str,
    show: Callable[[str], None],
) -> None:
    """Gather the parts of a bundle and write them, without secrets, and without names if wanted."""
    gathered, evidence = await gather(seen, settings, lines, show)
    show("writing the bundle")

    def finish() -> None:
        rewrite: Rewrite = Redaction(known_secrets(settings))
        notes = [
            "Secrets, keys, passwords and tokens: each is replaced by [redacted] or `set`.",
            "The values of variables that are not settings.",
        ]
        if wanted.is_anonymous:
            known = names_in([each.lines for each in gathered] + [list(seen.answers.values()), evidence])
            about = [name for _question, names in seen.answers for name in names]
            names = {*known, *about, *names_in_settings(settings), cluster or ""}
            rewrite = _both(rewrite, Pseudonyms(names))
            notes.append("Names and addresses: each is replaced by name-, host- or path- with digits, the same in all files.")
        parts = [encode(each, rewrite) for each in gathered]
        readme = describe(rewrite(command), time.time(), build(), parts, notes)
        write(wanted.path, readme, parts, may_replace=wanted.may_replace)

    await asyncio.to_thread(finish)


def _both(first: Rewrite, second: Rewrite) -> Rewrite:
    return lambda text: second(first(text))


def _words_of(
    cluster: str | None, only: Sequence[str], skip: Sequence[str], bundle: BundleOptions, *, strict: bool
) -> list[str]:
    """Return the command line's arguments and options of `iris doctor` alone, without the options common to all commands."""
    words = [] if cluster is None else [cluster]
    for option, names in (("--only", only), ("--skip", skip)):
        words += [word for name in names for word in (option, name)]
    words += ["--strict"] * strict + ["--bundle", "FILE"] + ["--force"] * bundle.may_replace
    words += ["--anonymous"] * bundle.is_anonymous
    return words


def _split(names: Sequence[str]) -> list[str]:
    """Return the names of checks in the values of an option. Each value may hold several names, separated by commas."""
    return [name.strip() for text in names for name in text.split(",") if name.strip()]


def _text_of(line: CheckLine, *, with_hints: bool, is_coloured: bool) -> str:
    cause = line.cause
    if line.advice:
        cause = f"{cause}. {line.advice}"
    shown = f"{line.status:{_STATUS_WIDTH}}"
    if is_coloured:
        shown = _colour(shown, FindingStatus(line.status))
    texts = [f"{shown}  {line.check:13}  {one_line(cause)}"]
    if with_hints:
        texts += [f"{'':{_STATUS_WIDTH}}    $ {one_line(hint)}" for hint in line.hints]
    return "\n".join(texts)


def _describe_undone(undone: Mapping[str, Sequence[str]], *, is_coloured: bool) -> str | None:
    """Return a text with a line for each reason of skipped checks; None without skipped checks.

    The checks are grouped, because a single fault may prevent fifteen checks.
    """
    shown = f"{FindingStatus.SKIPPED:{_STATUS_WIDTH}}"
    if is_coloured:
        shown = _colour(shown, FindingStatus.SKIPPED)
    return "\n".join(f"{shown}  {', '.join(checks)}: {one_line(cause)}" for cause, checks in undone.items()) or None


def _colour(text: str, status: FindingStatus) -> str:
    import os

    return text if os.environ.get("NO_COLOR") else f"\x1b[{_STYLES[status]}m{text}\x1b[0m"


class _CurrentStep:
    """A line on a terminal with the step in progress; nothing elsewhere."""

    def __init__(self) -> None:
        self._is_shown = False
        self._is_wanted = sys.stderr is not None and sys.stderr.isatty()

    def tell_check(self, check: DoctorCheck, number: int, count: int) -> None:
        """Show the name of the running check."""
        self.tell(f"{number}/{count} {check.summary}")

    def tell(self, text: str) -> None:
        """Show a text about the running step."""
        if self._is_wanted:
            self._is_shown = True
            sys.stderr.write(f"{_CLEAR}{text} ...")
            sys.stderr.flush()

    def clear(self) -> None:
        """Erase the line."""
        if self._is_shown:
            self._is_shown = False
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()
