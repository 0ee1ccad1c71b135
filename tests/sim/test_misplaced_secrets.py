"""A secret in place of a name that a program gives to a node: refused before anything is sent, and never repeated."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import iris_py as iris
from iris_py.testing import NodeSimulation, run
from tests.unit.security.test_text_form import SECRETS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


async def echo(request: iris.Request) -> bytes:
    return request.payload


async def subscribe(node: iris.Node, pattern: str) -> None:
    async with node.subscribe(pattern):
        pass


async def survey(node: iris.Node, name: str) -> None:
    async for _reply in node.survey(name, b"x"):
        pass


async def watch(node: iris.Node, name: str) -> None:
    await node.members(name)


USES: dict[str, Callable[[iris.Node, str], Awaitable[object]]] = {
    "request": lambda node, name: node.request(name, b"x"),
    "request to a cloud": lambda node, name: node.request(f"databases@{name}", b"x"),
    "request of a cloud": lambda node, name: node.request(f"{name}@eu", b"x"),
    "request to a zone": lambda node, name: node.request("databases", b"x", require=name),
    "request near a zone": lambda node, name: node.request("databases", b"x", prefer=name),
    "broadcast": lambda node, name: node.broadcast(name, b"x"),
    "survey": survey,
    "tunnel": lambda node, name: node.tunnel(name),
    "join": lambda node, name: node.join(name, echo),
    "members": watch,
    "publish": lambda node, name: node.publish(name, b"x"),
    "publish below": lambda node, name: node.publish(f"news.{name}", b"x"),
    "subscribe": subscribe,
    "subscribe below": lambda node, name: subscribe(node, f"news.{name}.>"),
    "find_route": lambda node, name: node.find_route(name),
}


@pytest.mark.parametrize("use", USES)
def test_each_use_of_a_name_refuses_a_secret_without_repeating_it(use: str) -> None:
    async def main() -> None:
        async with NodeSimulation(1) as simulation:
            node = await simulation.start_node()
            for secret in SECRETS.values():
                with pytest.raises(iris.ConfigurationError) as raised:
                    await USES[use](node, secret)
                told = [str(raised.value), repr(raised.value), *getattr(raised.value, "__notes__", ())]
                assert not any(secret.partition(".")[2][:20] in text for text in told)
                assert "secret" in told[0]
            assert not node.statistics().clusters

    run(main(), limit_s=60)
