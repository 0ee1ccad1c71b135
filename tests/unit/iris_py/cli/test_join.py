"""SIGHUP of the long-running commands."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING

from iris_py.cli import join

if TYPE_CHECKING:
    import pytest


def test_a_hangup_during_the_start_reloads_once_when_the_node_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join, "_is_service", lambda: True)
    reloads: list[str] = []

    async def reload() -> None:
        reloads.append("reloaded")

    async def receive(number: signal.Signals) -> None:
        """Send a signal to this process; return when the event loop has handled it."""
        handled = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, handled.set)
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), signal.SIGUSR1)
        await handled.wait()
        await asyncio.sleep(0)  # a reload is a task

    async def scenario() -> None:
        async with join.ending_by_signal():
            await receive(signal.SIGHUP)
            await receive(signal.SIGHUP)
            assert reloads == []
            join.run_on_hangup(reload)
            await asyncio.sleep(0)
            assert reloads == ["reloaded"]  # reading the files once is enough
            await receive(signal.SIGHUP)
            assert reloads == ["reloaded"] * 2

    asyncio.run(scenario())
