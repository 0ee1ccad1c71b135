"""The findings of a demo that checks itself: claims, each with the texts or counts that hold up or refute the claim."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import msgspec

from iris_py.cli.demo.progress import print_note
from iris_py.cli.outcome import ExitCode
from iris_py.cli.output import Output

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from iris_py.json_lines import Line

__all__ = ["DemoFinding", "note_finding", "print_findings"]


class DemoFinding(msgspec.Struct):
    """A claim about the demo, after a look at the running demo."""

    claim: str
    """The claim, as a sentence."""
    holds: bool
    """Whether the demo saw it."""
    detail: str
    """The texts or counts of the demo, or the reason why the claim does not hold."""


async def note_finding(
    findings: list[DemoFinding],
    claim: str,
    step: Callable[[], Awaitable[str]],
    *errors: type[Exception],
) -> None:
    """Take a step, and note the finding about a claim.

    Args:
        findings: The findings, to which this function appends.
        claim: The claim, as a sentence.
        step: Returns the detail of a claim that holds.
        errors: The exceptions by which the step refutes the claim, besides `AssertionError`.
    """
    refutations: tuple[type[Exception], ...] = (AssertionError, *errors)
    try:
        detail, holds = await step(), True
    except refutations as exc:
        detail, holds = str(exc).splitlines()[0], False
    findings.append(DemoFinding(claim, holds, detail))
    print_note(sys.stderr, f"{'seen' if holds else 'NOT SEEN'}: {claim}")


def print_findings(findings: list[DemoFinding], line: Line, figures: Iterable[str], *, as_json: bool) -> int:
    """Print the findings and the figures of a demo; return the exit code, 0 only if all claims hold.

    Args:
        findings: The findings; none without a check.
        line: All of it for JSON.
        figures: All further lines of text.
        as_json: Print the line of JSON instead of text.
    """
    is_good = all(each.holds for each in findings)
    texts = [f"{'yes' if each.holds else 'NO':4}{each.claim}: {each.detail}" for each in findings]
    texts += figures
    if findings:
        texts.append("Everything held." if is_good else "NOT EVERYTHING HELD.")
    Output(as_json=as_json).line(line, "\n".join(texts))
    return ExitCode.OK if is_good else ExitCode.FAILED
