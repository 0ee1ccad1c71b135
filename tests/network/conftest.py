"""The labs, fresh for every test."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.network.clouds import Clouds
from tests.network.lab import FAR, Lab

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


def _terminate(number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt(signal.strsignal(number))


@pytest.fixture(autouse=True, scope="session")
def _tear_down_when_terminated() -> Iterator[None]:
    """Let SIGTERM end the tests as Ctrl-C does: namespaces outlive processes, so they have to be removed."""
    before = signal.signal(signal.SIGTERM, _terminate)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def lab() -> Iterator[Lab]:
    """Two sites without nodes, far apart."""
    with Lab() as lab:
        lab.set_wire(FAR)
        yield lab


@pytest.fixture
def clouds() -> Iterator[Clouds]:
    """Three clouds without nodes, far apart."""
    with Clouds() as clouds:
        yield clouds
