"""What becomes of futures whose tasks end in a loop of another thread."""

from __future__ import annotations

import asyncio
import concurrent.futures

import pytest

from iris_py.errors import NodeClosed
from iris_py.sync.background import _end_future


async def _answer() -> bytes:
    return b"answer"


async def _fail() -> bytes:
    raise ValueError("why")


@pytest.mark.parametrize("is_cancelled", [False, True])
@pytest.mark.parametrize("fails", [False, True])
def test_a_future_that_nobody_waits_for_any_more_ends_without_an_error(is_cancelled: bool, fails: bool) -> None:
    """Its user cancels it while the task ends: an error here would go to the handler of the loop."""

    async def main() -> concurrent.futures.Future[bytes]:
        future: concurrent.futures.Future[bytes] = concurrent.futures.Future()
        task = asyncio.ensure_future(_fail() if fails else _answer())
        await asyncio.wait([task])
        if is_cancelled:
            future.cancel()
        _end_future(future, task)
        return future

    future = asyncio.run(main())
    if is_cancelled:
        assert future.cancelled()
    elif fails:
        with pytest.raises(ValueError, match="why"):
            future.result(0)
    else:
        assert future.result(0) == b"answer"


def test_a_task_that_was_cancelled_is_a_closed_node() -> None:
    async def main() -> concurrent.futures.Future[bytes]:
        future: concurrent.futures.Future[bytes] = concurrent.futures.Future()
        task = asyncio.ensure_future(_answer())
        task.cancel()
        await asyncio.wait([task])
        _end_future(future, task)
        return future

    with pytest.raises(NodeClosed):
        asyncio.run(main()).result(0)
