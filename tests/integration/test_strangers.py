"""Strangers that dial a node: their addresses are in its log and events, and they fill neither."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import iris_py
from iris_py.errors import HandshakeError
from iris_py.logs import LINES_MAX, forget_lines

if TYPE_CHECKING:
    import pytest

PATIENCE_S = 60.0
OURS, THEIRS = bytes(32), bytes([1]) * 32
HERE = "127.0.0.1"
DIALS = 2 * LINES_MAX


async def until_refused(node: iris_py.Node, count: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while node.statistics().security.handshakes_refused < count:  # noqa: ASYNC110 - no event says so
            await asyncio.sleep(0.01)


def refusals(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if getattr(record, "iris", {}).get("event") == "connection_refused"]


def test_who_holds_another_secret_is_named_in_log_and_events(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with iris_py.connect(secret=OURS, listen=f"{HERE}:0", discovery=False) as node:
            for number in range(DIALS):
                try:
                    async with iris_py.connect(secret=THEIRS, seeds=[node.address], listen=f"{HERE}:0", discovery=False):
                        pass
                except HandshakeError:
                    pass
                await until_refused(node, number + 1)
            events = [event for event in node.recent_events() if event.kind == "refused"]
            assert 1 <= len(events) < DIALS
            assert all(event.detail.startswith(f"{HERE}: ") for event in events)

    forget_lines()
    with caplog.at_level(logging.WARNING, "iris_py"):
        iris_py.run(main())
    records = [record for record in refusals(caplog) if record.levelno == logging.WARNING]
    assert 1 <= len(records) <= 2 * LINES_MAX  # of a minute, or of two if this takes so long
    for record in records:
        assert f"refused a connection from {HERE}, which is not of this network: " in record.getMessage()
        assert record.__dict__["iris"]["address"] == HERE


def test_a_connection_that_only_ends_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Balancers look so whether a port is open."""

    async def main() -> None:
        async with iris_py.connect(secret=OURS, listen=f"{HERE}:0", discovery=False) as node:
            host, port = node.address.rsplit(":", 1)
            _reader, writer = await asyncio.open_connection(host, int(port))
            writer.close()
            await until_refused(node, 1)
            assert [event.detail for event in node.recent_events() if event.kind == "refused"] == [
                f"{HERE}: the connection broke"
            ]

    forget_lines()
    with caplog.at_level(logging.DEBUG, "iris_py"):
        iris_py.run(main())
    assert [record.levelno for record in refusals(caplog)] == [logging.DEBUG]
