"""The process of a NATS door: the garbage collector stops it for short times."""

from __future__ import annotations

import asyncio
import gc
import sys
from typing import TYPE_CHECKING, Any

import pytest

from iris_py.cli import nats_door
from iris_py.cli.door_service import DoorCommand
from iris_py.cli.outcome import SHORT_COLLECTIONS, ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def thresholds() -> Iterator[tuple[int, int, int]]:
    before = gc.get_threshold()
    yield before
    gc.set_threshold(*before)


def test_the_collector_visits_few_objects_at_a_time(thresholds: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[tuple[int, int, int]] = []

    async def serve(*_arguments: Any) -> int:
        found.append(gc.get_threshold())
        return ExitCode.OK

    monkeypatch.setattr(nats_door, "serve_door", serve)
    command = DoorCommand(settings=None, file=None, at=None, http=None, as_json=False)  # type: ignore[arg-type]
    assert asyncio.run(nats_door.serve_nats(command)) == ExitCode.OK
    assert found == [SHORT_COLLECTIONS if sys.version_info < (3, 14) else thresholds]
