"""The types that mypy and pyright infer for services. They read this file; nothing runs it (see typed_programs.py)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator  # noqa: TC003 - services read annotations
from typing import Any, assert_type

import iris_py as iris
import iris_py.sync
from iris_py.service import Service

service = Service()


class Pool:
    pass


@service.on_startup
async def opens(node: iris.Node) -> AsyncIterator[Pool]:
    yield Pool()


@service.on_startup
def opens_in_a_thread(node: iris_py.sync.Node) -> Iterator[None]:
    yield


@service.on_shutdown
def closes(pool: Pool) -> None: ...


@service.handler("users", concurrency=8, weight=2.0, codec=iris.Codec(int, str), seal="secret")
async def find(number: int, pool: Pool) -> str:
    return str(number)


@service.handler("plain", format="msgpack")
def plain(request: iris.Request[list[int]]) -> int:
    return sum(request.payload)


@service.handler("class")
class Users(iris.Handler[int, str]):
    async def on_request(self, request: iris.Request[int]) -> str:
        return str(request.payload)


@service.consumer("clicks.>", policy="block", queue_messages=10)
async def note(click: int, node: iris.Node) -> None: ...


service.handler("object")(Users())
service.handler("lambda")(lambda request: request.payload)
service.handler("sealed")(iris.Sealed(find, "secret"))
service.handler("wrong", concurrent=3)  # type: ignore[call-arg]
service.handler("wrong", format="yaml")  # type: ignore[arg-type]
service.consumer("wrong", policy="drop")  # type: ignore[arg-type]
service.on_startup(3)  # type: ignore[type-var]

# Decorated functions stay what they are.
FIND: Callable[[int, Pool], Coroutine[Any, Any, str]] = find
USERS: type[Users] = Users


async def run(node: iris.Node, pool: Pool) -> None:
    assert_type(await find(7, pool), str)
    assert_type(plain.__name__, str)
    async with service.running(node, weight=0.5) as running:
        assert_type(running.reasons(), tuple[str, ...])
        assert_type(running.failed_hook, str)
