"""The smallest bounds that a handler may be given."""

from __future__ import annotations

import pytest

import iris_py as iris
from iris_py.testing import NodeSimulation, run


async def answer(request: iris.Request) -> bytes:
    return request.payload


@pytest.mark.parametrize("bounds", [{"queue_messages": 0}, {"queue_bytes": 0}, {"tunnels": 0}, {"concurrency": 1}])
def test_a_handler_may_have_no_queue_and_no_tunnels(bounds: dict[str, int]) -> None:
    async def main() -> None:
        async with NodeSimulation(1) as simulation:
            node = await simulation.start_node()
            await node.join("echo", answer, **bounds)  # type: ignore[call-overload] # all of them are integers
            assert await node.request("echo", b"x") == b"x"

    run(main())


@pytest.mark.parametrize("bounds", [{"queue_messages": -1}, {"queue_bytes": -1}, {"tunnels": -1}, {"concurrency": 0}])
def test_less_than_that_is_refused(bounds: dict[str, int]) -> None:
    async def main() -> None:
        async with NodeSimulation(1) as simulation:
            node = await simulation.start_node()
            with pytest.raises(iris.ConfigurationError, match="at least"):
                node.join("echo", answer, **bounds)  # type: ignore[call-overload] # all of them are integers

    run(main())
