"""A program starts on uvloop, and on asyncio's own loop where that is missing."""

from __future__ import annotations

import asyncio
import sys

import pytest
import uvloop

import iris_py as iris


async def running_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


def test_uvloop_is_used_where_it_is_installed() -> None:
    assert isinstance(iris.run(running_loop()), uvloop.Loop)


def test_asyncio_is_used_where_uvloop_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)  # importing it fails

    loop = iris.run(running_loop())

    assert isinstance(loop, asyncio.BaseEventLoop)


@pytest.mark.parametrize("has_uvloop", [True, False])
def test_the_result_and_the_error_of_the_program_come_through(monkeypatch: pytest.MonkeyPatch, has_uvloop: bool) -> None:
    if not has_uvloop:
        monkeypatch.setitem(sys.modules, "uvloop", None)

    async def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        iris.run(fail())


def test_a_program_that_cancels_itself_ends_with_that() -> None:
    async def main() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        iris.run(main())
