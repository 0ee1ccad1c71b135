"""Two tables of channels, joined by a line in memory, for tests of what gateways hold."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Self

from iris_py.federation.channels import FAR_SIDE, Channels, WindowBudget
from iris_py.gateway.duplex import Channel
from iris_py.link.pacing import CHUNK_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from iris_py.patterns.tunnel.duplex import Piece


class Wire:
    """One direction of the line: what was sent arrives later, in order."""

    def __init__(self, latency_s: float) -> None:
        self._latency_s = latency_s
        self._under_way: deque[tuple[bytes, bytes]] = deque()
        self._target: Channels
        self._joined: JoinedChannels

    def join(self, target: Channels, joined: JoinedChannels) -> None:
        """Say where it leads."""
        self._target, self._joined = target, joined

    @property
    def chunk_room(self) -> int:
        return CHUNK_BYTES_MAX if self._joined.is_up else 0

    def send_tunnel(self, kind: int, tunnel_id: bytes, chunk: Sequence[Piece], size: int, now: float) -> None:
        self._under_way.append((tunnel_id, b"".join(chunk)))
        asyncio.get_running_loop().call_later(self._latency_s, self._arrive)

    def _arrive(self) -> None:
        tunnel_id, chunk = self._under_way.popleft()  # timers of one time come in any order
        if self._joined.is_up:
            self._target.receive(tunnel_id, chunk, 0, len(chunk), asyncio.get_running_loop().time())
            self._joined.wake()


class JoinedChannels:
    """The channels of two gateways on one line.

    Attributes:
        tables: Those of both gateways.
        is_up: Whether the line carries anything.
    """

    def __init__(self, latency_s: float = 0.01) -> None:
        wires = Wire(latency_s), Wire(latency_s)
        self.drops: list[str] = []
        self.budgets = WindowBudget(1 << 30), WindowBudget(1 << 30)
        self.tables = tuple(Channels(wire, budget, self.drops.append) for wire, budget in zip(wires, self.budgets, strict=True))
        for wire, target in zip(wires, reversed(self.tables), strict=True):
            wire.join(target, self)
        for table in self.tables:
            table.round_trip_s = 2 * latency_s
        self.is_up = True
        self._woken = False
        self._opened = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.cut("the test is over")

    def open(self, name: str = "files@eu", *, window_bytes: int = 100_000) -> tuple[Channel, Channel]:
        """Open a channel, from the first gateway to the second one."""
        self._opened += 1
        near = self.tables[0].open(self._opened, rule="rule", window_bytes=window_bytes)
        far = self.tables[1].open(self._opened | FAR_SIDE, rule="rule", window_bytes=window_bytes, credit_bytes=window_bytes)
        self.tables[0].opened(self._opened, window_bytes)
        return Channel(near, name, "eu", self.wake), Channel(far, "files", "us", self.wake)

    def cut(self, reason: str) -> None:
        """End the line."""
        self.is_up = False
        for table in self.tables:
            table.close(reason)
        self.wake()

    def wake(self) -> None:
        """Have everything sent in the next turn of the event loop."""
        if not self._woken:
            self._woken = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._woken = False
        for table in self.tables:
            table.fill(asyncio.get_running_loop().time())
            for end in table.changed():
                if end.on_changed is not None:
                    end.on_changed()
