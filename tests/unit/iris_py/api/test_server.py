"""How handlers run, and their answers when the link to the caller is full."""

from __future__ import annotations

import asyncio
import contextvars
from typing import TYPE_CHECKING

import pytest

from iris_py import RemoteError
from iris_py.testing import NodeSimulation, run

if TYPE_CHECKING:
    from collections.abc import Coroutine

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


def test_a_handler_of_a_lone_request_is_a_task_of_its_own_from_its_first_line() -> None:
    """Where Python can, it begins before the member reads on: nobody must notice."""
    own: contextvars.ContextVar[bytes] = contextvars.ContextVar("own", default=b"none")

    async def main() -> None:
        async with NodeSimulation(1) as simulation:
            caller, server = await simulation.start_nodes(2)
            tasks = {asyncio.current_task()}

            async def handle(request: iris.Request) -> bytes:
                assert own.get() == b"none"
                own.set(request.payload)
                task = asyncio.current_task()
                assert task is not None
                assert task not in tasks
                tasks.add(task)
                async with asyncio.timeout(10.0):
                    if request.payload == b"wait":
                        await asyncio.sleep(0.1)
                    elif request.payload == b"ask":
                        return await server.request("other", b"?")
                    elif request.payload == b"fail":
                        raise ValueError("no")
                return b"re:" + request.payload

            async def other(request: iris.Request) -> bytes:
                return b"another handler"

            await server.join("tasks", handle)
            await server.join("other", other)
            for payload in (b"now", b"wait", b"now"):
                assert await caller.request("tasks", payload) == b"re:" + payload
            assert await caller.request("tasks", b"ask") == b"another handler"
            with pytest.raises(RemoteError, match="no"):
                await caller.request("tasks", b"fail")
            assert await caller.request("tasks", b"now") == b"re:now"
            assert len(tasks) == 7

    run(main(), limit_s=60.0)


def test_a_task_factory_of_the_program_makes_the_tasks_of_handlers() -> None:
    async def main() -> None:
        async with NodeSimulation(1) as simulation:
            caller, server = await simulation.start_nodes(2)
            made = 0

            async def handle(request: iris.Request) -> bytes:
                await asyncio.sleep(0)
                return request.payload

            def make(
                loop: asyncio.AbstractEventLoop, coroutine: Coroutine[object, object, object], **options: object
            ) -> asyncio.Task[object]:
                nonlocal made
                made += 1
                return asyncio.Task(coroutine, loop=loop)

            await server.join("echo", handle)
            asyncio.get_running_loop().set_task_factory(make)  # type: ignore[arg-type] # of newer versions, with more options
            for _ in range(3):
                assert await caller.request("echo", b"x") == b"x"
            asyncio.get_running_loop().set_task_factory(None)
            assert made >= 3

    run(main(), limit_s=60.0)
