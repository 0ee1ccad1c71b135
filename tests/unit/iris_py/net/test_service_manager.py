"""The messages of a service to its manager, and their times: on a socket of its own, under the virtual clock."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from iris_py.net import service_manager as module
from iris_py.net.service_manager import STATUS_CHARACTERS_MAX, STATUS_S, ServiceManager, service_manager
from iris_py.testing import clock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Manager:
    """The other side: a socket, and what came."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._sock.setblocking(False)
        self._sock.bind("\0" + address[1:] if address.startswith("@") else address)

    def take(self) -> list[dict[str, str]]:
        """Return the messages that have come since the last call."""
        messages: list[dict[str, str]] = []
        while True:
            try:
                data = self._sock.recv(65_536)
            except BlockingIOError:
                return messages
            messages.append(dict(line.split("=", 1) for line in data.decode().split("\n")))

    def close(self) -> None:
        self._sock.close()


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    manager = Manager(str(tmp_path / "notify") if request.param == "path" else f"@iris-test-{os.getpid()}")
    yield manager
    manager.close()


def test_without_one_nobody_is_told() -> None:
    environ = {"WATCHDOG_USEC": "1000"}
    silent = ServiceManager.take(environ)
    assert not silent.is_there
    assert environ == {}
    silent.ready(str)
    silent.reloading()
    silent.reloaded()
    silent.stopping()


def test_it_is_told_that_the_service_is_ready_reloads_and_stops(manager: Manager) -> None:
    async def main() -> None:
        environ = {"NOTIFY_SOCKET": manager.address, "OTHER": "stays"}
        told = ServiceManager.take(environ)
        assert environ == {"OTHER": "stays"}, "what the service runs is not the service"
        told.ready(lambda: "serves\n 'databases'\t")
        assert manager.take() == [{"READY": "1", "STATUS": "serves 'databases'"}]
        told.reloading()
        told.reloaded()
        reloading, reloaded = manager.take()
        assert reloading.keys() == {"RELOADING", "MONOTONIC_USEC"}
        assert reloaded == {"READY": "1"}
        told.stopping()
        assert manager.take() == [{"STOPPING": "1", "STATUS": "leaving"}]

    clock.run(main(), limit_s=60)


@pytest.mark.parametrize(("watchdog_s", "interval_s"), [(3.0, 1.5), (60.0, STATUS_S)])
def test_the_watchdog_is_fed_while_the_event_loop_turns_and_not_else(
    manager: Manager, watchdog_s: float, interval_s: float
) -> None:
    async def main() -> None:
        told = ServiceManager.take({"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": str(int(watchdog_s * 1e6))})
        told.ready(lambda: "runs")
        told.ready(lambda: "runs")  # once more is no second feeder
        manager.take()
        await asyncio.sleep(interval_s / 2)
        manager.take()
        for _ in range(3):
            assert manager.take() == []
            await asyncio.sleep(interval_s)
            assert manager.take() == [{"WATCHDOG": "1"}]
        told.stopping()
        manager.take()
        await asyncio.sleep(interval_s)
        assert manager.take() == [{"WATCHDOG": "1"}], "leaving takes its time"

    clock.run(main(), limit_s=600)


def test_a_status_is_told_when_it_has_changed(manager: Manager) -> None:
    async def main() -> None:
        does = ["nothing"]
        told = ServiceManager.take({"NOTIFY_SOCKET": manager.address})
        told.ready(lambda: does[-1])
        manager.take()
        await asyncio.sleep(10 * STATUS_S)
        assert manager.take() == []
        for text, status in (("serves", "serves"), ("x" * 10_000, "x" * STATUS_CHARACTERS_MAX)):
            does.append(text)
            await asyncio.sleep(STATUS_S)
            assert manager.take() == [{"STATUS": status}]

    clock.run(main(), limit_s=600)


@pytest.mark.parametrize(
    ("variables", "is_fed"),
    [
        ({}, False),
        ({"WATCHDOG_USEC": "1000000"}, True),
        ({"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": str(os.getpid())}, True),
        ({"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"}, False),
        ({"WATCHDOG_USEC": "0"}, False),
        ({"WATCHDOG_USEC": "soon"}, False),
    ],
)
def test_a_watchdog_that_waits_for_another_process_or_is_off_is_not_fed(
    tmp_path: Path, variables: dict[str, str], is_fed: bool
) -> None:
    manager = Manager(str(tmp_path / "notify"))

    async def main() -> None:
        ServiceManager.take({"NOTIFY_SOCKET": manager.address, **variables}).ready(str)
        await asyncio.sleep(1.0)
        said = Counter(name for message in manager.take() for name in message)
        assert bool(said["WATCHDOG"]) == is_fed

    try:
        clock.run(main(), limit_s=60)
    finally:
        manager.close()


def test_what_it_does_not_take_at_once_it_is_told_again(manager: Manager) -> None:
    async def main() -> None:
        told = ServiceManager.take({"NOTIFY_SOCKET": manager.address})
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as flood:
            flood.setblocking(False)
            flood.connect("\0" + manager.address[1:] if manager.address.startswith("@") else manager.address)
            with contextlib.suppress(BlockingIOError):
                while flood.send(b"FLOOD=1"):
                    pass
        told.ready(lambda: "runs")
        assert {"READY": "1", "STATUS": "runs"} not in manager.take()
        await asyncio.sleep(STATUS_S)
        assert manager.take() == [{"READY": "1", "STATUS": "runs"}]

    clock.run(main(), limit_s=60)


@pytest.mark.parametrize("address", ["/nowhere/notify", "@iris-nobody-is-here"])
def test_one_that_cannot_be_reached_is_warned_of_once(caplog: pytest.LogCaptureFixture, address: str) -> None:
    async def main() -> None:
        told = ServiceManager.take({"NOTIFY_SOCKET": address})
        told.ready(str)
        told.stopping()

    clock.run(main(), limit_s=60)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert address[1:] in caplog.text


@pytest.mark.parametrize("address", ["vsock:2:1234", "notify", "@", "/"])
def test_what_is_no_socket_of_this_machine_is_warned_of(caplog: pytest.LogCaptureFixture, address: str) -> None:
    assert not ServiceManager.take({"NOTIFY_SOCKET": address}).is_there
    assert repr(address) in caplog.text


def test_a_fork_of_the_service_is_not_the_service(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "_managers", {})
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    first = service_manager()
    assert first.is_there
    assert service_manager() is first
    monkeypatch.setattr("iris_py.net.service_manager.os.getpid", lambda: -1)
    assert not service_manager().is_there
