"""Answers of handlers when the link to the caller is full."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from iris_py.testing import NodeSimulation, run

if TYPE_CHECKING:
    import iris_py as iris

LARGE_BYTES = 12 * 1024 * 1024


def test_who_has_nothing_to_say_says_so_while_a_large_reply_is_under_way() -> None:
    async def main() -> None:
        async with NodeSimulation(1, bandwidth_bytes_s=1e6) as simulation:
            caller, server = await simulation.start_nodes(2)
            begun = asyncio.Event()

            def answer(request: iris.Request) -> bytes | None:
                if request.payload == b"survey":
                    return None
                begun.set()
                return bytes(LARGE_BYTES)

            await server.join("inline", answer, inline=True)  # type: ignore[arg-type] # None is for surveys alone
            asking = asyncio.create_task(caller.request("inline", b"request", timeout=100.0))
            await begun.wait()
            await asyncio.sleep(0.5)
            answers = await caller.survey("inline", b"survey", timeout=5.0)
            assert [member.id for member in answers.declined] == [server.id]
            assert not asking.done()
            assert len(await asking) == LARGE_BYTES

    run(main(), limit_s=200.0)
