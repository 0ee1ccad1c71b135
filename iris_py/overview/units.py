"""Numbers as texts with units: durations, counts, bytes and estimates."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from iris_py.observe.reports import Estimate

__all__ = ["format_bytes", "format_count", "format_counted", "format_estimate", "format_seconds", "rounded"]


def format_seconds(duration_s: float | None) -> str:
    """Return a duration as text, with three digits and a unit; empty for None."""
    if duration_s is None:
        return ""
    if duration_s == float("inf"):
        return "> 8 s"
    for unit, size in (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if duration_s >= size:
            return f"{duration_s / size:.1f} {unit}"
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if duration_s >= size * 0.9995:  # shown as a whole unit with three digits
            return f"{duration_s / size:.3g} {unit}"
    return f"{duration_s * 1e6:.3g} us"


def rounded(duration_s: float | None) -> float | None:
    """Round a duration to whole microseconds, as ``--json`` prints durations."""
    return None if duration_s is None else round(duration_s, 6)


def format_count(count: float) -> str:
    """Return a number as text; ``?`` for an infinite or invalid number from a node."""
    if not isfinite(count):
        return "?"
    return f"{count:,.0f}" if count >= 100 or count == int(count) else f"{count:.1f}"


def format_bytes(count: float) -> str:
    """Return a number of bytes as text."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} B"


def format_estimate(estimate: Estimate, unit: str = "") -> str:
    """Return a sum as text; for an estimate, with the error in percent."""
    text = f"{format_count(estimate.total)}{unit}"
    if not estimate.error:
        return text
    share = estimate.error / estimate.total if estimate.total else float("inf")
    return f"{text} +- {share:.0%}" if share <= 10 else f"about {text}"


def format_counted(count: float, noun: str) -> str:
    """Return a number as text, with a noun."""
    return f"{format_count(count)} {noun}{'s' * (count != 1)}"
