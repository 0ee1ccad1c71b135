"""Sizes on the command line: ``100``, ``1k``, ``64KiB``, ``2 MB``."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

from iris_py.errors import ConfigurationError

__all__ = ["format_size", "parse_size"]

#: As iperf and dd have it: a letter alone is of 1,024, as with `i`; a letter with B is of 1,000.
_UNITS: Final = {
    "": 1,
    "b": 1,
    **{f"{letter}{end}": 1024**power for power, letter in enumerate("kmg", 1) for end in ("", "ib")},
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmg", 1)},
}
_FORM: Final = re.compile(r"(\d{1,18}(?:\.\d{1,18})?)\s*([a-z]*)", re.ASCII)


def parse_size(text: str, option: str) -> int:
    """Return how many bytes a size is.

    Args:
        text: A number and a unit: k, m and g or KiB, MiB and GiB are of 1,024, kB, MB and GB of 1,000; none is bytes.
        option: The option that it was given with, for errors.

    Raises:
        ConfigurationError: It is no size.
    """
    found = _FORM.fullmatch(text.strip().lower())
    if found is None or found[2] not in _UNITS:
        raise ConfigurationError(f"{option} {text!r} is no size. Write it as 100, 1k or 64KiB (of 1,024) or 64kB (of 1,000).")
    size = Fraction(found[1]) * _UNITS[found[2]]
    if size.denominator != 1:
        raise ConfigurationError(f"{option} {text!r} is no whole number of bytes. Give one, as {int(size)}.")
    return int(size)


def format_size(size: float) -> str:
    """Return a size for people: in the largest unit of 1,024 that it is a whole number of, or to three digits."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and (size % unit == 0 or size >= 100 * unit // 10):
            return f"{size / unit:.4g} {name}"
    return f"{size:,.0f} B"
