"""Fixtures for pytest. Enable them in your ``conftest.py``: ``pytest_plugins = ["iris_py.testing.fixtures"]``.

The module is not an automatic plugin: otherwise every run of pytest would import Iris wherever Iris is installed.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from iris_py.testing.clock import LIMIT_S
from iris_py.testing.virtual import VirtualNetwork, run_in_network

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from pathlib import Path

    import iris_py.sync

__all__ = ["VirtualRunner", "iris_isolated", "iris_network", "iris_node"]

Result = TypeVar("Result")


class VirtualRunner:
    """Runs tests in separate networks with a virtual clock: the fixture ``iris_network``."""

    def run(
        self, main: Callable[[VirtualNetwork], Coroutine[Any, Any, Result]], *, seed: int = 0, limit_s: float = LIMIT_S
    ) -> Result:
        """Run an async function that takes a :class:`~iris_py.testing.VirtualNetwork`; return its result.

        Args:
            main: The function.
            seed: The seed of all random choices. Another seed gives another course of events.
            limit_s: The limit in virtual seconds.

        Raises:
            DeadlockError: The function waits for an event that can no longer happen.
            LimitError: The function has not finished in time.
        """
        return run_in_network(main, seed=seed, limit_s=limit_s)


@pytest.fixture
def iris_network() -> VirtualRunner:
    """Simulated networks with a virtual clock: ``iris_network.run(main)``, where ``main`` takes the network."""
    return VirtualRunner()


@pytest.fixture
def iris_isolated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An Iris network for one test alone, on real sockets of the local machine.

    During the test, nodes connected without configuration reach only nodes of the test and its child processes: not the user's
    network, nor the network of a concurrent test. The fixture sets ``XDG_CONFIG_HOME`` and ``XDG_STATE_HOME``, where the
    network's secret is created, and unsets all ``IRIS_*`` variables.

    Returns:
        The parent directory of both.
    """
    for name in list(os.environ):
        if name.startswith("IRIS_"):
            monkeypatch.delenv(name)
    directory = tmp_path / "iris"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(directory / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(directory / "state"))
    return directory


@pytest.fixture
def iris_node(iris_isolated: Path) -> Iterator[iris_py.sync.Node]:
    """A node of :mod:`iris_py.sync` in the network of ``iris_isolated``, closed after the test."""
    import iris_py.sync  # here, because the import sets fork handlers; a thread starts only at first use

    with iris_py.sync.connect() as node:
        yield node
