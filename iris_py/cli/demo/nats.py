"""`iris demo --nats`: a private network with two doors for NATS clients, while members and doors are killed.

Native members and clients of NATS serve one cluster. At the end the demo tells how many requests and messages were lost.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from iris_py.cli.demo.keys import reading_keys
from iris_py.cli.demo.nats_check import check_network
from iris_py.cli.demo.nats_network import open_demo
from iris_py.cli.demo.nats_report import announce, report
from iris_py.cli.join import ending_by_signal
from iris_py.cli.outcome import ExitCode

if TYPE_CHECKING:
    from iris_py.cli.demo.nats_network import NatsDemo

__all__ = ["demo_nats"]


async def demo_nats(*, member_count: int, is_check: bool, as_json: bool) -> int:
    """Run `iris demo --nats` until a signal or the key q, or with `is_check` until a member and a door were killed.

    Args:
        member_count: Number of native members.
        is_check: Whether to kill a member and a door, and to compare the losses with the promises.
        as_json: Print lines of JSON.

    Returns:
        The exit code; with `is_check` 0 only if everything held.

    Raises:
        MemberFailed: A member or a door did not start.
    """
    async with ending_by_signal() as ended, open_demo(member_count) as demo:
        if is_check:
            return await _check(demo, ended, as_json=as_json)
        announce(demo, as_json=as_json)

        def end() -> None:
            if not ended.done():
                ended.set_result(ExitCode.OK)

        with reading_keys({"k": demo.member_replacement.begin, "d": demo.door_replacement.begin, "q": end}):
            code = await ended
        await demo.load.settle()
        report([], demo.load, as_json=as_json)
        return code


async def _check(demo: NatsDemo, ended: asyncio.Future[int], *, as_json: bool) -> int:
    """Check the demo, unless a signal comes first; return the exit code."""
    checking = asyncio.create_task(check_network(demo))
    await asyncio.wait((checking, ended), return_when=asyncio.FIRST_COMPLETED)
    if not checking.done():
        checking.cancel()
        await asyncio.wait((checking,))
        return await ended
    return report(await checking, demo.load, as_json=as_json)
