"""The collector in registries of programs: asked in any thread, of a node that is busy, stands still, or is gone."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest
from prometheus_client import CollectorRegistry

import iris_py
import iris_py.sync
from iris_py.build import commit
from iris_py.metrics import NodeCollector, prometheus

if TYPE_CHECKING:
    from pathlib import Path

SECRET = bytes(range(32, 64))


def connect() -> dict[str, object]:
    return {"secret": SECRET, "listen": "127.0.0.1:0", "discovery": False}


def nodes_in(registry: CollectorRegistry) -> float | None:
    return registry.get_sample_value("iris_network_nodes")


def test_another_thread_asks_the_loop_and_gets_what_was_last_if_that_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    def wait(seconds: float) -> None:
        monkeypatch.setattr(prometheus, "WAIT_S", seconds)

    async def main() -> CollectorRegistry:
        registry = CollectorRegistry(auto_describe=False)
        async with iris_py.connect(**connect()) as node:  # type: ignore[arg-type]
            registry.register(NodeCollector(node))
            answers: list[float | None] = []
            wait(0.1)
            still = threading.Thread(target=lambda: answers.append(nodes_in(registry)))
            still.start()
            still.join()  # the loop stands still, and nothing was read before
            assert answers == [None]
            wait(60.0)  # the loop turns, and may be late
            assert await asyncio.to_thread(nodes_in, registry) == 1
            wait(0.1)
            again = threading.Thread(target=lambda: answers.append(nodes_in(registry)))
            again.start()
            again.join()
            assert answers == [None, 1]
            assert nodes_in(registry) == 1, "in the loop itself nobody waits"
        return registry

    registry = iris_py.run(main())
    assert nodes_in(registry) == 1, "what it said last"


def test_a_node_of_threads_is_collected_likewise() -> None:
    with iris_py.sync.connect(**connect()) as node:  # type: ignore[arg-type]
        registry = CollectorRegistry()
        registry.register(NodeCollector(node))
        assert nodes_in(registry) == 1
        labels = {"version": iris_py.__version__, "commit": commit(), "python": _python()}
        assert registry.get_sample_value("iris_build_info", labels) == 1


def _python() -> str:
    import platform

    return platform.python_version()


def test_a_registry_that_describes_takes_one_node(tmp_path: Path) -> None:
    async def main() -> None:
        async with iris_py.connect(**connect()) as one, iris_py.connect(**connect()) as other:  # type: ignore[arg-type]
            registry = CollectorRegistry(auto_describe=True)
            registry.register(NodeCollector(one))
            with pytest.raises(ValueError, match="Duplicated timeseries"):
                registry.register(NodeCollector(other))

    iris_py.run(main())
