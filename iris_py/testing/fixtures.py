"""Fixtures for pytest. Ask for them in your ``conftest.py``: ``pytest_plugins = ["iris_py.testing.fixtures"]``.

They are no plugin that loads itself: every run of pytest wherever Iris is installed would import Iris then, used or not.
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
    """Runs tests in networks of their own under the virtual clock: the fixture ``iris_network``."""

    def run(
        self, main: Callable[[VirtualNetwork], Coroutine[Any, Any, Result]], *, seed: int = 0, limit_s: float = LIMIT_S
    ) -> Result:
        """Run an async function that takes a :class:`~iris_py.testing.VirtualNetwork`; return what it returns.

        Args:
            main: The function.
            seed: Decides what is left to chance. Another one is another course of events.
            limit_s: The virtual time, in seconds, that it may take.

        Raises:
            DeadlockError: It waits for something that cannot happen any more.
            LimitError: It has not finished in time.
        """
        return run_in_network(main, seed=seed, limit_s=limit_s)


@pytest.fixture
def iris_network() -> VirtualRunner:
    """Networks in memory under the virtual clock: ``iris_network.run(main)``, where ``main`` takes the network."""
    return VirtualRunner()


@pytest.fixture
def iris_isolated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An Iris network of this test alone, on real sockets of this machine.

    Whatever is connected without configuration during the test meets what the test and its child processes connect, and nothing
    else: not the user's network, not that of a test which runs at the same time. It sets ``XDG_CONFIG_HOME`` and
    ``XDG_STATE_HOME``, where the secret of the network is made, and unsets every ``IRIS_*``.

    Returns:
        The directory that holds both.
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
    """A node of :mod:`iris_py.sync` in the network of ``iris_isolated``, closed when the test is over."""
    import iris_py.sync  # it starts no thread before it is used, but fork handlers are set

    with iris_py.sync.connect() as node:
        yield node
