"""The fixtures for users' tests: each test has a network of its own, and it is closed afterwards."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

import iris_py.sync

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from iris_py.testing import VirtualNetwork
    from iris_py.testing.fixtures import VirtualRunner

pytest_plugins = ["iris_py.testing.fixtures"]

secrets: set[bytes] = set()


@pytest.fixture
def configured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who has set up a network, which tests must not touch."""
    monkeypatch.setenv("IRIS_NETWORK", "production")
    monkeypatch.setenv("IRIS_SECRET", "not to be read")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nonexistent/config")
    monkeypatch.setenv("XDG_STATE_HOME", "/nonexistent/state")


@pytest.fixture
def leaves_nothing(tmp_path: Path) -> Iterator[None]:
    """A node that was connected must be closed when the test is over."""
    yield
    assert [files for _, _, files in os.walk(tmp_path / "iris" / "state") if files] == []


@pytest.mark.parametrize("_turn", range(2))
def test_each_test_has_a_network_of_its_own(
    configured: None, leaves_nothing: None, iris_isolated: Path, iris_node: iris_py.sync.Node, _turn: int
) -> None:
    assert iris_node.network == "default"
    assert not [name for name in os.environ if name.startswith("IRIS_")]
    assert (iris_isolated / "state" / "iris" / "peers").is_dir()
    secret = (iris_isolated / "config" / "iris" / "secret").read_bytes()
    assert secret not in secrets
    secrets.add(secret)
    with iris_py.sync.connect() as other:
        assert {node.id for node in iris_node.nodes()} == {iris_node.id, other.id}


def test_a_virtual_network_needs_no_sockets(iris_network: VirtualRunner) -> None:
    async def main(network: VirtualNetwork) -> float:
        await network.connect_many(2)
        await network.advance(100.0)
        return network.now

    assert iris_network.run(main, seed=1) == iris_network.run(main, seed=1) > 100.0
    with pytest.raises(iris_py.sync.ConfigurationError):
        iris_network.run(lambda network: main(network))
