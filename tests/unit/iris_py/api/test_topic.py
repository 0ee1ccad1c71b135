"""The smallest bounds that a subscription may be given."""

from __future__ import annotations

import pytest

import iris_py as iris
from iris_py.testing import NodeSimulation, run


@pytest.mark.parametrize("bound", ["queue_messages", "queue_bytes"])
def test_the_queue_of_a_subscription_may_hold_one_and_no_less(bound: str) -> None:
    async def main() -> None:
        async with NodeSimulation(1) as simulation:
            node = await simulation.start_node()
            with pytest.raises(iris.ConfigurationError, match="at least 1"):
                node.subscribe("t", **{bound: 0})  # type: ignore[arg-type] # both are integers
            async with node.subscribe("t", **{bound: 1}) as subscription:  # type: ignore[arg-type] # both are integers
                assert await node.publish("t", b"x") == 1
                assert (await anext(subscription)).payload == b"x"

    run(main())
