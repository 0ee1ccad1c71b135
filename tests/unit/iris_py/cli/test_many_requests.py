"""Many requests of one command, and standard input line by line."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from iris_py.cli.many_requests import ask_all
from iris_py.cli.standard_input import THREAD, read_lines
from iris_py.errors import ConfigurationError, NoMembers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


async def numbers(count: int, together: int = 4) -> AsyncIterator[list[bytes]]:
    for begin in range(0, count, together):
        yield [b"%d" % number for number in range(begin, min(count, begin + together))]


def test_outcomes_are_in_order_and_bounded() -> None:
    """Each waits for the one behind it, as long as that may be under way, too."""
    under_way, most = 0, 0

    async def ask(payload: bytes) -> bytes:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        for _ in range(10 - int(payload) % 10):  # later ones are done first
            await asyncio.sleep(0)
        under_way -= 1
        if int(payload) % 7 == 0:
            raise NoMembers("a", 0)
        return payload

    async def main() -> list[bytes | None]:
        return [outcome.reply async for outcome in ask_all(ask, numbers(50), 5)]

    replies = asyncio.run(main())
    assert replies == [None if number % 7 == 0 else b"%d" % number for number in range(50)]
    assert most == 5


def test_an_outcome_does_not_wait_for_more_input() -> None:
    async def main() -> None:
        more = asyncio.Event()

        async def input_that_waits() -> AsyncIterator[list[bytes]]:
            yield [b"first"]
            await more.wait()
            yield [b"second"]

        async def ask(payload: bytes) -> bytes:
            return payload

        outcomes = ask_all(ask, input_that_waits(), 2)
        assert (await anext(outcomes)).reply == b"first"
        more.set()
        assert (await anext(outcomes)).reply == b"second"

    asyncio.run(main())


def test_what_is_wrong_with_the_input_is_raised_after_the_outcomes_before() -> None:
    async def main() -> None:
        async def broken() -> AsyncIterator[list[bytes]]:
            yield [b"first"]
            raise ConfigurationError("line 2 is too long")

        async def ask(payload: bytes) -> bytes:
            return payload

        outcomes = ask_all(ask, broken(), 2)
        assert (await anext(outcomes)).reply == b"first"
        with pytest.raises(ConfigurationError, match="line 2"):
            await anext(outcomes)

    asyncio.run(main())


def read(content: bytes, bytes_max: int, path: Path, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    path.write_bytes(content)
    with path.open() as stream:
        monkeypatch.setattr(sys, "stdin", stream)

        async def main() -> list[bytes]:
            return [line async for lines in read_lines(bytes_max) for line in lines]

        try:
            return asyncio.run(main())
        finally:
            for thread in threading.enumerate():
                if thread.name == THREAD:
                    thread.join()  # or it would read what has the same descriptor next


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"a", [b"a"]),
        (b"a\n", [b"a"]),
        (b"a\n\nb\xff\r\nlast", [b"a", b"", b"b\xff\r", b"last"]),
        (b"x" * 300_000 + b"\ny\n" * 50_000, [b"x" * 300_000, b"y", *[b"", b"y"] * 49_999]),
    ],
)
def test_lines(content: bytes, lines: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = read(content, 1 << 20, tmp_path / "input", monkeypatch)
    assert found == content.removesuffix(b"\n").split(b"\n") if content else found == []
    assert len(found) == len(lines)


def test_a_line_that_is_too_long_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="line 3 of standard input has more than 1000 bytes"):
        read(b"a\nb\n" + b"x" * 1001, 1000, tmp_path / "input", monkeypatch)
    with pytest.raises(ConfigurationError, match="line 150001 of standard input"):
        read(b"a\n" * 150_000 + b"x" * 300_000, 1000, tmp_path / "input", monkeypatch)


def test_a_folder_as_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    descriptor = os.open(tmp_path, os.O_RDONLY)

    class Stream:
        def fileno(self) -> int:
            return descriptor

    monkeypatch.setattr(sys, "stdin", Stream())

    async def main() -> None:
        async for _ in read_lines(1000):
            pass

    with pytest.raises(ConfigurationError, match="standard input cannot be read"):
        asyncio.run(main())
    os.close(descriptor)
