"""Start a program on the fastest event loop there is."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from iris_py.net import standard_streams

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

Result = TypeVar("Result")


def run(main: Coroutine[object, object, Result], *, debug: bool | None = None) -> Result:
    """Run a coroutine to its end, on uvloop where it is installed and on asyncio's own loop where it is not.

    Args:
        main: The coroutine.
        debug: Whether asyncio's debug mode is on; None leaves that to ``PYTHONASYNCIODEBUG``.

    Returns:
        What the coroutine returns.
    """
    with asyncio.Runner(debug=debug, loop_factory=loop_factory()) as runner:
        return runner.run(main)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's loop factory, or None where uvloop is not installed. Closed standard streams are opened before."""
    standard_streams.occupy()
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
