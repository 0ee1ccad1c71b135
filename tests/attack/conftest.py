"""Nodes under attack: the event loop and the home directory of the integration tests, and a count of what nodes dial."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from iris_py.net.sockets import SocketNetwork
from tests.integration.conftest import crew, home, loop, proxy

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["crew", "dials", "home", "loop", "proxy"]


@pytest.fixture
def dials(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Return how many connections the nodes of this process have begun to make."""
    dialled = 0
    dial = SocketNetwork.dial

    async def count(network: SocketNetwork, *where: Any, **options: Any) -> Any:
        nonlocal dialled
        dialled += 1
        return await dial(network, *where, **options)

    monkeypatch.setattr(SocketNetwork, "dial", count)
    return lambda: dialled
