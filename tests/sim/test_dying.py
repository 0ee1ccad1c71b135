"""A process that is killed may listen a moment longer than its links live: what a dial in that moment tells."""

from __future__ import annotations

import asyncio
import errno
import os
from typing import TYPE_CHECKING, Any

import pytest

from iris_py.testing import NodeSimulation, run
from iris_py.testing.network import MemoryHost

if TYPE_CHECKING:
    import iris_py as iris

#: Far less than a peer rests that could not be reached (1 s), and than its silence takes to be noticed.
GONE_WITHIN_S = 0.1


async def echo(request: iris.Request) -> bytes:
    return request.payload


@pytest.mark.parametrize(
    "number", [errno.ECONNRESET, errno.ENOTCONN, errno.ECONNREFUSED], ids=lambda number: errno.errorcode[number]
)
def test_a_member_is_gone_at_once_however_the_first_dial_after_its_end_fails(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing: list[int] = []
    dial = MemoryHost.dial

    async def dial_a_dying_process(host: MemoryHost, *arguments: Any) -> Any:
        if failing:
            raise OSError(failing.pop(), os.strerror(number))
        return await dial(host, *arguments)

    async def scenario() -> None:
        async with NodeSimulation(seed=1) as simulation:
            asker, member, dying = await simulation.start_nodes(3)
            for node in (member, dying):
                await node.join("accounts", echo)
            members = asker.members("accounts")
            assert len(await members) == 2
            # The asker alone can tell: nobody else is there to do it.
            await member.close()
            failing.append(number)
            simulation.kill(dying)
            await asyncio.sleep(GONE_WITHIN_S)
            assert not failing, "nobody has dialled"
            assert len(members) == 0

    monkeypatch.setattr(MemoryHost, "dial", dial_a_dying_process)
    run(scenario())
