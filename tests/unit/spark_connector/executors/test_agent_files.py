"""The files of an agent: the locks in its directory, how the directory is reserved, and how it is removed."""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING

import pytest

from iris_py import ConfigurationError
from spark_connector.errors import PathNotPrivate
from spark_connector.executors.agent_files import agent_directory, is_alive, lock_file, remove_directory, reserve, sweep
from spark_connector.local.private_directory import PrivateDirectory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAME = "0123456789abcdef"


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[PrivateDirectory]:
    with PrivateDirectory.make(tmp_path / "own") as made:
        yield made


def leave_behind(path: Path, *more: str) -> None:
    """Make what a killed agent leaves."""
    for each in (path.parent, path):
        each.mkdir(mode=0o700, exist_ok=True)
    for name in ("lock", "spawn.lock", "info.json", "control", "socket", "birth.key", "info.json.draft", *more):
        (path / name).touch(mode=0o600)


def test_it_is_known_in_a_task_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    with pytest.raises(ConfigurationError, match="in a task"):
        agent_directory()


def test_a_lock_is_of_the_file_that_is_there(directory: PrivateDirectory) -> None:
    first = lock_file(directory, "lock")
    assert first is not None
    assert lock_file(directory, "lock") is None
    assert is_alive(directory)

    directory.unlink("lock")  # its holder is about to end
    second = lock_file(directory, "lock")
    assert second is not None
    os.close(first)
    assert is_alive(directory)
    os.close(second)
    assert not is_alive(directory)


def test_a_file_that_was_replaced_before_it_was_locked_is_not_locked(
    directory: PrivateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock = fcntl.flock

    def replaced(descriptor: int, how: int) -> None:
        (directory.path / "lock").rename(directory.path / "old")
        (directory.path / "lock").touch()
        flock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", replaced)
    assert lock_file(directory, "lock") is None


def test_a_lock_that_is_a_link_is_refused(tmp_path: Path, directory: PrivateDirectory) -> None:
    (directory.path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PathNotPrivate, match="is a symbolic link"):
        lock_file(directory, "lock")
    with pytest.raises(PathNotPrivate, match="is a symbolic link"):
        is_alive(directory)
    assert not (tmp_path / "elsewhere").exists()


def test_it_is_reserved_by_one_and_what_the_last_one_said_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "base" / NAME
    leave_behind(path)

    reserved = reserve(path)
    assert reserved is not None
    directory, spawning = reserved
    assert sorted(directory.names()) == ["lock", "spawn.lock"]
    assert reserve(path) is None  # somebody is starting it
    os.close(spawning)

    lock = lock_file(directory, "lock")
    assert lock is not None
    assert reserve(path) is None  # it lives
    os.close(lock)
    directory.close()


def test_it_is_made_if_it_is_not_there(tmp_path: Path) -> None:
    reserved = reserve(tmp_path / "base" / NAME)
    assert reserved is not None
    directory, spawning = reserved
    assert (tmp_path / "base").stat().st_mode & 0o777 == directory.path.stat().st_mode & 0o777 == 0o700
    os.close(spawning)
    directory.close()


def test_it_is_not_reserved_where_it_is_not_ours(tmp_path: Path) -> None:
    path = tmp_path / "base" / NAME
    leave_behind(path)
    before = sorted(path.iterdir())

    for unsafe in (path.parent, path):
        unsafe.chmod(0o755)
        with pytest.raises(PathNotPrivate, match=f"^{unsafe} has mode 0755"):
            reserve(path)
        unsafe.chmod(0o700)
    (path / "spawn.lock").chmod(0o666)
    with pytest.raises(PathNotPrivate, match="can be written by others"):
        reserve(path)
    assert sorted(path.iterdir()) == before


def test_where_there_can_be_none_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match=r"there is no directory .*missing\. Set TMPDIR"):
        reserve(tmp_path / "missing" / "base" / NAME)

    def fail(*_arguments: object, **_settings: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "mkdir", fail)
    with pytest.raises(ConfigurationError, match=r"cannot be made: No space left on device\. Set XDG_RUNTIME_DIR"):
        reserve(tmp_path / "base" / NAME)


def test_one_that_is_being_removed_is_tried_again_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = os.mkdir

    def removed(path: str | Path, mode: int, *, dir_fd: int | None = None) -> None:
        made(path, mode, dir_fd=dir_fd)
        if path == NAME:
            os.rmdir(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "mkdir", removed)
    assert reserve(tmp_path / "base" / NAME) is None


def test_dead_ones_are_swept_and_nothing_else(tmp_path: Path) -> None:
    base = tmp_path / "base"
    sweep(base)  # there is none
    dead, kept, alive, linked = (base / (digit * 16) for digit in "1234")
    for path in (dead, alive, base / "not-of-an-agent"):
        leave_behind(path)
    leave_behind(kept, "thesis")
    leave_behind(tmp_path / "elsewhere")
    linked.symlink_to(tmp_path / "elsewhere")
    with PrivateDirectory.open(alive) as opened:
        lock = lock_file(opened, "lock")
    assert lock is not None

    sweep(base)

    os.close(lock)
    assert sorted(path.name for path in base.iterdir()) == [kept.name, alive.name, linked.name, "not-of-an-agent"]
    assert [path.name for path in kept.iterdir()] == ["thesis"]
    assert len(list(alive.iterdir())) == len(list((base / "not-of-an-agent").iterdir())) == 7
    assert len(list((tmp_path / "elsewhere").iterdir())) == 7


def test_nothing_is_swept_where_others_have_a_hand_in_it(tmp_path: Path) -> None:
    dead = tmp_path / "base" / NAME
    leave_behind(dead)
    (tmp_path / "base").chmod(0o770)
    with pytest.raises(PathNotPrivate):
        sweep(tmp_path / "base")
    assert len(list(dead.iterdir())) == 7

    (tmp_path / "base").chmod(0o700)
    dead.chmod(0o770)
    sweep(tmp_path / "base")
    assert len(list(dead.iterdir())) == 7


def test_the_lock_goes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, unlink, gone = tmp_path / "base" / NAME, os.unlink, []
    leave_behind(path)

    def note(name: str, *, dir_fd: int | None = None) -> None:
        gone.append(name)
        unlink(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", note)
    with PrivateDirectory.open_both(path) as directory:
        remove_directory(directory)
    assert gone[-1] == "lock"
    assert not path.exists()
