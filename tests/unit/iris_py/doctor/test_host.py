"""The machine, as a made-up /proc and /sys show it."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING

import pytest

from iris_py.doctor import host as module
from iris_py.doctor.host import Host, PeersRead, look_at_state
from iris_py.doctor.surroundings import Disk
from iris_py.files.remembered_peers import RememberedPeers

if TYPE_CHECKING:
    from pathlib import Path

TAG = "ab"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "WATCHED_S", 0.0)
    (tmp_path / "proc/self/fd").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/a/b").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("12:cpu:/old\n0::/a/b\n")
    return tmp_path


def cpu(root: Path, periods: int, throttled: int) -> None:
    (root / "sys/fs/cgroup/a/b/cpu.stat").write_text(f"usage_usec 1\nnr_periods {periods}\nnr_throttled {throttled}\n")


def times(root: Path, idle: int, steal: int) -> None:
    (root / "proc/stat").write_text(f"cpu  10 0 10 {idle} 0 0 0 {steal} 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n")


def test_what_is_withheld_is_a_part_of_the_time_that_was_watched(root: Path) -> None:
    cpu(root, 100, 50)
    times(root, 1000, 500)
    host = Host(root)
    cpu(root, 120, 55)
    times(root, 1080, 520)
    found = asyncio.run(host.processor())
    assert found is not None
    assert (found.throttled, found.stolen) == (0.25, 0.2)


def test_without_a_quota_nothing_is_withheld(root: Path) -> None:
    times(root, 1000, 0)
    found = asyncio.run(Host(root).processor())
    assert found is not None
    assert (found.throttled, found.stolen) == (0.0, 0.0)


@pytest.mark.usefixtures("root")
def test_a_system_that_does_not_say(tmp_path: Path) -> None:
    assert asyncio.run(Host(tmp_path / "none").processor()) is None


def test_the_threads_of_a_control_group(root: Path) -> None:
    (root / "sys/fs/cgroup/a/b/pids.max").write_text("100\n")
    (root / "sys/fs/cgroup/a/b/pids.current").write_text("95\n")
    found = Host(root).limits()
    assert (found.threads, found.threads_max, found.threads_of) == (95, 100, "the control group b")
    (root / "sys/fs/cgroup/a/b/pids.max").write_text("max\n")
    assert Host(root).limits().threads_of != "the control group b"


def test_a_control_group_of_outside_is_that_of_the_container(root: Path) -> None:
    (root / "proc/self/cgroup").write_text("0::/kubepods/x\n")
    (root / "sys/fs/cgroup/pids.max").write_text("10\n")
    (root / "sys/fs/cgroup/pids.current").write_text("9\n")
    assert Host(root).limits().threads_max == 10


def test_a_directory_that_is_not_there_yet_is_fine(tmp_path: Path) -> None:
    found = asyncio.run(look_at_state(tmp_path / "none" / "iris", TAG))
    assert (found.problem, found.remembered) == ("", 0)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("place", ["state", "state/peers", "state/peers/ab"])
def test_a_file_in_the_place_of_a_directory(tmp_path: Path, place: str) -> None:
    path = tmp_path / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")
    assert asyncio.run(look_at_state(tmp_path / "state", TAG)).problem == f"{path} is not a directory"


def test_a_directory_that_others_may_write(tmp_path: Path) -> None:
    (tmp_path / "peers/ab").mkdir(parents=True)
    (tmp_path / "peers/ab").chmod(0o777)
    assert "others may write" in asyncio.run(look_at_state(tmp_path, TAG)).problem


def test_peers_that_listen_are_told_from_those_that_are_gone(tmp_path: Path) -> None:
    peers = RememberedPeers(tmp_path, TAG)
    with socket.create_server(("127.0.0.1", 0)) as one, socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        peers.add("aa", [f"127.0.0.1:{one.getsockname()[1]}"])
        peers.add("bb", [f"127.0.0.1:{other.getsockname()[1]}"])
        found = asyncio.run(look_at_state(tmp_path, TAG))
    assert (found.problem, found.remembered, found.stale) == ("", 2, 1)


def test_peers_are_read_and_left_as_they_are(tmp_path: Path) -> None:
    RememberedPeers(tmp_path, TAG).add("aa", ["127.0.0.1:1"])
    peers = PeersRead(tmp_path, TAG)
    assert peers.addresses() == ["127.0.0.1:1"]
    assert not peers.add("bb", ["127.0.0.1:2"])
    peers.forget("127.0.0.1:1")
    peers.remove("aa")
    assert RememberedPeers(tmp_path, TAG).addresses() == ["127.0.0.1:1"]


def test_disks_are_looked_at_once_and_what_is_not_there_counts_as_its_parent(tmp_path: Path) -> None:
    uses = {tmp_path / "state" / "iris": "the state directory", tmp_path: "secrets", tmp_path / "file" / "below": "a mistake"}
    (tmp_path / "file").touch()
    [found] = module.look_at_disks(uses)
    assert (found.path, found.use) == (str(tmp_path), "the state directory")
    assert found.free_bytes > 0
    assert not (tmp_path / "state").exists(), "it changes nothing"


@pytest.mark.parametrize(("files", "left", "told"), [(1000, 7, 7), (0, 0, None)], ids=["inodes", "without a bound"])
@pytest.mark.parametrize(("user", "free_bytes"), [(0, 300 * 4096), (1000, 20 * 4096)], ids=["root", "a user"])
def test_room_is_what_this_user_may_write(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, files: int, left: int, told: int | None, user: int, free_bytes: int
) -> None:
    system = os.statvfs_result((4096, 4096, 5000, 300, 20, files, left, left, 0, 255))
    monkeypatch.setattr("os.statvfs", lambda _path: system)
    monkeypatch.setattr("os.geteuid", lambda: user)
    assert module.look_at_disks({tmp_path: "x"}) == (Disk(str(tmp_path), "x", free_bytes, told),)


def test_nothing_is_written_to_what_is_mounted_read_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    system = os.statvfs_result((4096, 4096, 5000, 0, 0, 9, 0, 0, os.ST_RDONLY, 255))
    monkeypatch.setattr("os.statvfs", lambda _path: system)
    assert module.look_at_disks({tmp_path: "x"}) == ()


def test_a_disk_that_cannot_be_looked_at_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(_path: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.statvfs", refuse)
    assert module.look_at_disks({tmp_path: "x"}) == ()


@pytest.mark.parametrize(
    ("port", "reserved", "is_outgoing"),
    [
        (32767, "", False),
        (32768, "", True),
        (60999, "", True),
        (61000, "", False),
        (40000, "40000", False),
        (40000, "4711,39000-40000", False),
        (40001, "4711,39000-40000", True),
    ],
)
def test_ports_of_outgoing_connections_but_not_reserved_ones(root: Path, port: int, reserved: str, is_outgoing: bool) -> None:
    (root / "proc/sys/net/ipv4").mkdir(parents=True)
    (root / "proc/sys/net/ipv4/ip_local_port_range").write_text("32768\t60999\n")
    (root / "proc/sys/net/ipv4/ip_local_reserved_ports").write_text(f"{reserved}\n")
    assert Host(root).outgoing_ports(port) == (range(32768, 61000) if is_outgoing else None)


@pytest.mark.parametrize("text", [None, "", "32768", "a b"])
def test_a_system_that_does_not_say_which_ports_connections_get(root: Path, text: str | None) -> None:
    (root / "proc/sys/net/ipv4").mkdir(parents=True)
    if text is not None:
        (root / "proc/sys/net/ipv4/ip_local_port_range").write_text(text)
    assert Host(root).outgoing_ports(40000) is None
