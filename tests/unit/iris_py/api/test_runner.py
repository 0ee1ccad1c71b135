"""A program starts on uvloop, and on asyncio's own loop where that is missing."""

from __future__ import annotations

import asyncio
import gc
import sys
import types

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


def enter_trio(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let it look as if trio ran in this thread."""
    lowlevel = types.SimpleNamespace(current_trio_token=object)
    monkeypatch.setitem(sys.modules, "trio", types.SimpleNamespace(lowlevel=lowlevel))


def test_to_run_within_an_event_loop_is_refused(recwarn: pytest.WarningsRecorder) -> None:
    async def main() -> None:
        with pytest.raises(
            iris.ConfigurationError, match=r"an event loop already runs in this thread.* Use `await main\(\)` there\."
        ):
            iris.run(running_loop())

    asyncio.run(main())
    gc.collect()
    assert not recwarn.list, "the coroutine is closed, so nobody misses its await"


def test_to_run_under_trio_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    enter_trio(monkeypatch)
    with pytest.raises(iris.ConfigurationError, match=r"trio runs in this thread\. Iris needs asyncio: use iris_py\.sync"):
        iris.run(running_loop())


def test_trio_that_is_only_imported_disturbs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def current_trio_token() -> None:
        raise RuntimeError("must be called from async context")

    lowlevel = types.SimpleNamespace(current_trio_token=current_trio_token)
    monkeypatch.setitem(sys.modules, "trio", types.SimpleNamespace(lowlevel=lowlevel))
    assert iris.run(running_loop()).is_closed()


@pytest.mark.parametrize("main", [running_loop, None, 5])
def test_what_is_no_coroutine_is_refused(main: object) -> None:
    with pytest.raises(iris.ConfigurationError, match=r"takes a coroutine, not .* Call the function"):
        iris.run(main)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("is_trio", "advice"), [(False, r"Start the program with iris_py\.run\(main\(\)\)"), (True, r"trio\.to_thread\.run_sync")]
)
def test_to_connect_without_asyncio_is_refused(monkeypatch: pytest.MonkeyPatch, is_trio: bool, advice: str) -> None:
    if is_trio:
        enter_trio(monkeypatch)
    opening = iris.connect(secret=iris.Secret(bytes(32))).__await__()
    with pytest.raises(iris.ConfigurationError, match=f"no event loop of asyncio runs here.*{advice}"):
        next(iter(opening))
