"""A directory that is its user's alone, and what is done in it when its path has become another one."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any

import pytest

from iris_py import ConfigurationError
from spark_connector.errors import PathNotPrivate
from spark_connector.local.private_directory import PrivateDirectory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[PrivateDirectory]:
    with PrivateDirectory.make(tmp_path / "own") as made:
        yield made


def swap(directory: PrivateDirectory) -> Path:
    """Put another directory in the place of one; return it."""
    directory.path.rename(directory.path.with_name("gone"))
    directory.path.mkdir(mode=0o700)
    return directory.path


def test_it_is_made_for_this_user_alone_and_found_again(tmp_path: Path) -> None:
    with PrivateDirectory.make(tmp_path / "own") as made:
        assert (tmp_path / "own").stat().st_mode & 0o777 == 0o700
        assert repr(made) == f"<PrivateDirectory {tmp_path / 'own'}>"
        assert not os.get_inheritable(made.fileno())
        made.write("note", b"hello")
    with PrivateDirectory.make(tmp_path / "own") as again, PrivateDirectory.open(tmp_path / "own") as opened:
        assert again.read("note", 100) == opened.read("note", 100) == b"hello"
    with pytest.raises(FileNotFoundError):
        PrivateDirectory.open(tmp_path / "missing")


@pytest.mark.parametrize("mode", [0o701, 0o710, 0o720, 0o777, 0o1777])
def test_one_that_others_can_enter_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "own"
    path.mkdir()
    path.chmod(mode)

    with pytest.raises(PathNotPrivate, match=f"has mode {mode:04o}, so others can enter it") as caught:
        PrivateDirectory.open(path)
    assert (caught.value.path, caught.value.owner) == (path, os.getuid())
    assert isinstance(caught.value, ConfigurationError)


def test_what_is_refused_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []
    closed: list[int] = []
    opening, closing, duplicating = os.open, os.close, os.dup

    def note_opening(*arguments: Any, **settings: Any) -> int:
        opened.append(opening(*arguments, **settings))
        return opened[-1]

    def note_duplicating(descriptor: int) -> int:
        opened.append(duplicating(descriptor))
        return opened[-1]

    def note_closing(descriptor: int) -> None:
        closed.append(descriptor)
        closing(descriptor)

    (tmp_path / "base" / "own").mkdir(parents=True)
    (tmp_path / "base").chmod(0o700)
    (tmp_path / "base" / "file").touch(mode=0o666)
    (tmp_path / "base" / "file").chmod(0o666)
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", note_opening)
        patch.setattr(os, "dup", note_duplicating)
        patch.setattr(os, "close", note_closing)
        with pytest.raises(PathNotPrivate):
            PrivateDirectory.open_both(tmp_path / "base" / "own")
        with pytest.raises(PathNotPrivate), PrivateDirectory.open(tmp_path / "base") as base:
            base.read("file", 100)
    assert len(opened) == 5
    assert sorted(closed) == sorted(opened)


def test_one_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = os.getuid()
    (tmp_path / "own").mkdir(mode=0o700)
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)

    for opening in (PrivateDirectory.open, PrivateDirectory.make):
        with pytest.raises(PathNotPrivate, match=f"belongs to user {owner}, and this process to {owner + 1}") as caught:
            opening(tmp_path / "own")
        assert caught.value.owner == owner
        assert str(caught.value).endswith(
            "Remove it, or set XDG_RUNTIME_DIR on the executors to a directory of their user that has mode 0700."
        )


def test_a_link_and_a_file_are_no_directory(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "own")
    (tmp_path / "file").touch()

    for name, reason in (("link", "is a symbolic link of user"), ("file", "is not a directory, and belongs to user")):
        with pytest.raises(PathNotPrivate, match=reason):
            PrivateDirectory.open(tmp_path / name)
        with pytest.raises(PathNotPrivate, match=reason):
            PrivateDirectory.make(tmp_path / name)


def test_of_two_directories_both_are_to_be_private(tmp_path: Path) -> None:
    (tmp_path / "base" / "own").mkdir(parents=True)
    for base, own in ((0o755, 0o700), (0o700, 0o755)):
        (tmp_path / "base" / "own").chmod(own)
        (tmp_path / "base").chmod(base)
        with pytest.raises(PathNotPrivate, match="has mode 0755"):
            PrivateDirectory.open_both(tmp_path / "base" / "own")
    (tmp_path / "base" / "own").chmod(0o700)
    PrivateDirectory.open_both(tmp_path / "base" / "own").close()
    with pytest.raises(FileNotFoundError):
        PrivateDirectory.open_both(tmp_path / "base" / "other")


def test_everything_goes_through_the_descriptor(directory: PrivateDirectory) -> None:
    directory.write("note", b"hello")
    directory.make_directory("below").close()
    other = swap(directory)
    (other / "note").write_text("a stranger's")
    (other / "below").mkdir()

    assert sorted(directory.names()) == ["below", "note"]
    assert directory.read("note", 100) == b"hello"
    directory.write("new", b"")
    assert directory.has("new")
    directory.unlink("note")
    directory.unlink("note")  # harmless
    assert not directory.has("note")
    with directory.open_directory("below") as below:
        below.remove()
    assert sorted(directory.names()) == ["new"]
    assert sorted(path.name for path in other.iterdir()) == ["below", "note"]


def test_a_socket_is_reached_through_the_descriptor_and_the_path_may_be_long(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 200)
    with PrivateDirectory.make(long) as directory, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(directory.address("socket"))
        listener.listen()
        assert directory.is_socket("socket")
        assert not directory.is_socket("other")
        swap(directory)
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(directory.address("socket"))
            listener.accept()[0].close()


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("link", "is a symbolic link"),
        ("FIFO", "is not a regular file"),
        ("directory", "is not a regular file"),
        ("second name", "has another name elsewhere"),
        ("writable", "can be written by others"),
    ],
)
def test_a_file_that_is_not_this_users_alone_is_neither_read_nor_written(
    tmp_path: Path, directory: PrivateDirectory, kind: str, reason: str
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("what somebody needs")
    path = directory.path / "file"
    if kind == "link":
        path.symlink_to(elsewhere)
    elif kind == "FIFO":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "second name":
        path.hardlink_to(elsewhere)
    else:
        path.touch()
        path.chmod(0o622)

    with pytest.raises(PathNotPrivate, match=reason) as caught:
        directory.read("file", 100)
    assert caught.value.path == path
    if kind != "directory":
        with pytest.raises(PathNotPrivate):
            directory.open_file("file", os.O_RDWR | os.O_CREAT)
        path.rename(directory.path / "file.draft")
        directory.write("file", b"new")  # in the place of what is there, and not into it
        assert directory.read("file", 100) == b"new"
    assert elsewhere.read_text() == "what somebody needs"


def test_a_file_of_another_user_is_refused(directory: PrivateDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    directory.write("file", b"hello")
    owner = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    with pytest.raises(PathNotPrivate, match=f"belongs to user {owner}"):
        directory.read("file", 100)


def test_a_file_is_read_up_to_a_bound_and_replaced_as_a_whole(directory: PrivateDirectory) -> None:
    directory.write("file", b"one")
    reader = directory.open_file("file", os.O_RDONLY)
    directory.write("file", b"two and more")
    assert os.read(reader, 100) == b"one"
    os.close(reader)
    assert directory.read("file", 3) == b"two"
    assert directory.names() == ["file"]
    assert directory.stat("file").st_mode & 0o777 == 0o600


def test_closing_twice_closes_nothing_of_others(tmp_path: Path) -> None:
    directory = PrivateDirectory.make(tmp_path / "own")
    directory.close()
    other = os.open(tmp_path, os.O_RDONLY)
    directory.close()
    os.fstat(other)
    os.close(other)
