"""Start a program on the fastest event loop there is, and end it when it is told to stop."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, TypeVar

from iris_py.api.base import close_nodes
from iris_py.api.loops import IN_TRIO, is_in_asyncio, is_in_trio
from iris_py.api.stopping import Stopping, use_stopping
from iris_py.api.unclosed import ignore_abandoned_tasks
from iris_py.errors import ConfigurationError
from iris_py.net import standard_streams

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

Result = TypeVar("Result")


def run(main: Coroutine[object, object, Result], *, debug: bool | None = None, leave_on_sigterm: bool = True) -> Result:
    """Run a coroutine to its end, on uvloop where it is installed and on asyncio's own loop where it is not.

    Nodes that are still open when it has ended are closed. SIGTERM, with which supervisors stop a program, cancels the
    coroutine as Ctrl-C does: it leaves its ``async with`` blocks, and so its clusters without failing a request. Then the
    program ends with the status 143, as one does that this signal has ended. A service that is to end well waits in
    :func:`until_stopped`.

    Args:
        main: The coroutine.
        debug: Whether asyncio's debug mode is on; None leaves that to ``PYTHONASYNCIODEBUG``.
        leave_on_sigterm: Whether SIGTERM is handled. It never is where the program handles or ignores it already, or outside
            the main thread.

    Returns:
        What the coroutine returns.

    Raises:
        ConfigurationError: An event loop runs in this thread already, of asyncio or of trio, or ``main`` is no coroutine.
        SystemExit: SIGTERM came, and the coroutine did not handle being cancelled.
    """
    _check(main)
    stopping = Stopping()

    async def run_main() -> Result:
        use_stopping(stopping)
        if leave_on_sigterm:
            stopping.cancel_by(signal.SIGTERM)
        try:
            return await main
        finally:
            ignore_abandoned_tasks(asyncio.get_running_loop())
            await close_nodes()

    try:
        with asyncio.Runner(debug=debug, loop_factory=loop_factory()) as runner:
            return runner.run(run_main())
    except asyncio.CancelledError:
        if stopping.number is None:
            raise
        raise SystemExit(128 + stopping.number) from None
    finally:
        stopping.end()


def _check(main: object) -> None:
    """Refuse a program that cannot be run here. A coroutine is closed, or Python would warn that nobody awaited it.

    Raises:
        ConfigurationError: It cannot.
    """
    if not asyncio.iscoroutine(main):
        raise ConfigurationError(f"run() takes a coroutine, and was given {main!r}. Call the function: run(main()).")
    reason = ""
    if is_in_trio():
        reason = f"trio runs in this thread. {IN_TRIO}"
    elif is_in_asyncio():
        reason = "one runs in this thread already, as in an async function or a notebook. Use `await main()` there."
    if reason:
        main.close()
        raise ConfigurationError(f"run() starts an event loop, and {reason}")


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's loop factory, or None where uvloop is not installed. Closed standard streams are opened before."""
    standard_streams.occupy()
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
