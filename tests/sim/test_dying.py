"""A process that is killed may listen a moment longer than its links live: what a dial in that moment tells."""

from __future__ import annotations

import asyncio
import errno
import os
from typing import TYPE_CHECKING, Any

import pytest

from iris_py.testing import NodeSimulation, run
from iris_py.testing.network import MemoryHost
from tests.profiles import first_cases

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

    async def dial_a_dying_process(host: MemoryHost, *arguments: Any, **options: Any) -> Any:
        if failing:
            raise OSError(failing.pop(), os.strerror(number))
        return await dial(host, *arguments, **options)

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


@pytest.mark.parametrize(
    ("count", "killed", "after_s", "waiting_max"),
    first_cases(3, [(2, 1, 1.5, 0), (3, 2, 0.0, 0), (3, 1, 0.3, 4), (6, 3, 0.01, 3)]),
)
def test_closing_does_not_wait_for_the_killed(count: int, killed: int, after_s: float, waiting_max: int) -> None:
    """A node that takes over from a killed root does not wait for watchers that died with that root.

    Where another node lives on, some ids make it the one that takes over while this one leaves, and it may wait for its second.
    """

    async def main(seed: int) -> float:
        async with NodeSimulation(seed) as simulation:
            node, *others = await simulation.start_nodes(count)
            for each in (node, *others):
                await each.join("works", echo)
                await each.subscribe("t.a")
            await node.request("works", b"")
            await node.publish("t.a", b"")
            await asyncio.sleep(3.0)
            for each in others[:killed]:
                simulation.kill(each)
            await asyncio.sleep(after_s)
            began = asyncio.get_running_loop().time()
            simulation.nodes.remove(node)
            await node.close()
            return asyncio.get_running_loop().time() - began

    took = [run(main(seed), limit_s=60.0) for seed in range(12)]
    assert sum(each >= 0.2 for each in took) <= waiting_max, took
