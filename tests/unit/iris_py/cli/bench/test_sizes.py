"""Sizes on the command line."""

from __future__ import annotations

import pytest

from iris_py.cli.bench.plan import format_size, parse_size
from iris_py.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("100", 100),
        ("100b", 100),
        ("1k", 1024),
        ("1K", 1024),
        ("64KiB", 64 * 1024),
        ("64kB", 64_000),
        ("1.5k", 1536),
        ("2 MiB", 2 << 20),
        ("2MB", 2_000_000),
        (" 1g ", 1 << 30),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text, "--size") == size


@pytest.mark.parametrize("text", ["", "k", "-1", "1x", "1kk", "0x10", "1,000", "1e3", "1" * 19, "٣", "nan"])
def test_what_is_no_size_is_said_to_be_none(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"--size .* is not a size. Write it as 100, as 1k or 64KiB"):
        parse_size(text, "--size")


@pytest.mark.parametrize(("text", "advice"), [("1.5", "such as 1."), ("0.0001k", "such as 0."), ("1.0005kB", "such as 1000.")])
def test_parts_of_bytes_are_none(text: str, advice: str) -> None:
    with pytest.raises(ConfigurationError, match=f"not a whole number of bytes. Give a whole number, {advice}"):
        parse_size(text, "--reply")


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1000, "1,000 B"),
        (1024, "1 KiB"),
        (1500, "1,500 B"),
        (64 << 10, "64 KiB"),
        (16 << 20, "16 MiB"),
        (3.5, "4 B"),
    ],
)
def test_shown(size: float, text: str) -> None:
    assert format_size(size) == text
