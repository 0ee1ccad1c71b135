"""Files of remembered peers: found, bounded, and harmless whatever is in the directory."""

from __future__ import annotations

import logging
import os
import stat
from typing import TYPE_CHECKING, Any

import pytest

from iris_py.files import remembered_peers
from iris_py.files.remembered_peers import ADDRESSES_PER_NODE_MAX, FILE_BYTES_MAX, REMEMBERED_MAX, RememberedPeers

if TYPE_CHECKING:
    from pathlib import Path

A, B, C = "aa" * 16, "bb" * 16, "cc" * 16


def directory_of(base: Path) -> Path:
    return base / "peers" / "tag"


def age(base: Path, node_id: str, seconds: int) -> None:
    os.utime(directory_of(base) / node_id, (seconds, seconds))


def test_newest_first_without_repetition(tmp_path: Path) -> None:
    ours, theirs = RememberedPeers(tmp_path, "tag"), RememberedPeers(tmp_path, "tag")
    assert theirs.addresses() == []
    assert ours.add(A, ["127.0.0.1:1", "[::1]:1"])
    assert ours.add(B, ["127.0.0.1:2"])
    assert ours.add(C, ["127.0.0.1:1"])
    for node_id, seconds in ((A, 10), (B, 30), (C, 20)):
        age(tmp_path, node_id, seconds)
    assert theirs.addresses() == ["127.0.0.1:2", "127.0.0.1:1", "[::1]:1"]
    ours.remove(B)
    ours.remove(B)
    assert theirs.addresses() == ["127.0.0.1:1", "[::1]:1"]
    assert RememberedPeers(tmp_path, "other").addresses() == []


def test_adding_again_renews(tmp_path: Path) -> None:
    peers = RememberedPeers(tmp_path, "tag")
    peers.add(A, ["127.0.0.1:1"])
    peers.add(A, ["127.0.0.1:2"])
    assert peers.addresses() == ["127.0.0.1:2"]
    assert os.listdir(directory_of(tmp_path)) == [A]


def test_the_last_to_leave_removes_the_directory(tmp_path: Path) -> None:
    peers = RememberedPeers(tmp_path, "tag")
    peers.add(A, ["127.0.0.1:1"])
    peers.add(B, ["127.0.0.1:2"])
    peers.remove(A)
    assert directory_of(tmp_path).exists()
    peers.remove(B)
    assert not directory_of(tmp_path).exists()
    assert peers.addresses() == []
    assert peers.add(A, ["127.0.0.1:1"])


@pytest.mark.parametrize(("times", "is_added"), [(2, True), (3, False)])
def test_directory_removed_while_a_node_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, times: int, is_added: bool
) -> None:
    replace, left = os.replace, [None] * times

    def replace_late(*arguments: Any, **options: Any) -> None:
        if left:
            left.pop()
            raise FileNotFoundError(2, "No such file or directory")
        replace(*arguments, **options)

    monkeypatch.setattr(os, "replace", replace_late)
    peers = RememberedPeers(tmp_path, "tag")
    assert peers.add(A, ["127.0.0.1:1"]) is is_added
    assert peers.is_available is is_added
    assert len(caplog.records) == (not is_added)


def test_private(tmp_path: Path) -> None:
    RememberedPeers(tmp_path / "state", "tag").add(A, ["127.0.0.1:1"])
    directory = directory_of(tmp_path / "state")
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE((directory / A).stat().st_mode) == 0o600


def test_forget_removes_all_files_with_the_address(tmp_path: Path) -> None:
    peers = RememberedPeers(tmp_path, "tag")
    peers.add(A, ["127.0.0.1:1"])
    peers.add(B, ["127.0.0.1:1", "127.0.0.1:2"])
    peers.add(C, ["127.0.0.1:3"])
    peers.addresses()
    peers.forget("127.0.0.1:1")
    peers.forget("127.0.0.1:9")
    assert peers.addresses() == ["127.0.0.1:3"]


def test_forget_spares_a_fresh_node_at_the_same_address(tmp_path: Path) -> None:
    peers = RememberedPeers(tmp_path, "tag")
    peers.add(A, ["127.0.0.1:1"])
    peers.addresses()
    peers.add(B, ["127.0.0.1:1"])
    peers.forget("127.0.0.1:1")
    assert os.listdir(directory_of(tmp_path)) == [B]


def test_bounded(tmp_path: Path) -> None:
    peers = RememberedPeers(tmp_path, "tag")
    for number in range(REMEMBERED_MAX + 10):
        peers.add(f"{number:032x}", [f"127.0.0.1:{number + 1}"])
        age(tmp_path, f"{number:032x}", 1000 + number)
    found = peers.addresses()
    assert len(found) == REMEMBERED_MAX
    assert found[0] == f"127.0.0.1:{REMEMBERED_MAX + 10}"
    for address in found:
        peers.forget(address)
    assert len(peers.addresses()) == 10


@pytest.mark.parametrize(
    "content", [b"", b"127.0.0.1:1", b"127.0.0.1:0\n", b"no\n", b"\xff\n", b"a:1\n\n", b"a:1\n" * 9, b"a" * 5000]
)
def test_malformed_files_are_counted_and_left(tmp_path: Path, content: bytes) -> None:
    peers = RememberedPeers(tmp_path, "tag")
    peers.add(A, ["127.0.0.1:1"])
    (directory_of(tmp_path) / B).write_bytes(content)
    assert peers.addresses() == ["127.0.0.1:1"]
    assert peers.malformed == 1
    assert peers.is_available


def test_files_with_other_names_are_not_read(tmp_path: Path) -> None:
    peers = RememberedPeers(tmp_path, "tag")
    peers.add(A, ["127.0.0.1:1"])
    for name in (f".{B}", "README", f"{B}.old", B.upper()):
        (directory_of(tmp_path) / name).write_text("127.0.0.1:2\n")
    assert peers.addresses() == ["127.0.0.1:1"]
    assert peers.malformed == 0


def test_links_pipes_and_directories_are_not_followed(tmp_path: Path) -> None:
    peers = RememberedPeers(tmp_path, "tag")
    peers.add(A, ["127.0.0.1:1"])
    target = tmp_path / "target"
    target.write_text("127.0.0.1:2\n")
    (directory_of(tmp_path) / B).symlink_to(target)
    os.mkfifo(directory_of(tmp_path) / C)
    (directory_of(tmp_path) / "dd").mkdir()
    assert peers.addresses() == ["127.0.0.1:1"]
    assert peers.malformed == 3
    peers.add(B, ["127.0.0.1:3"])
    assert target.read_text() == "127.0.0.1:2\n", "the link was replaced, not written through"
    assert set(peers.addresses()) == {"127.0.0.1:1", "127.0.0.1:3"}


def test_files_of_others_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    peers = RememberedPeers(tmp_path, "tag")
    peers.add(A, ["127.0.0.1:1"])
    os.chown(directory_of(tmp_path) / A, 12345, -1)
    assert peers.addresses() == []
    assert peers.malformed == 1


def test_a_draft_left_behind_is_no_obstacle(tmp_path: Path) -> None:
    peers = RememberedPeers(tmp_path, "tag")
    peers.add(A, ["127.0.0.1:1"])
    (directory_of(tmp_path) / f".{A}").write_text("half")
    assert peers.add(A, ["127.0.0.1:2"])
    assert os.listdir(directory_of(tmp_path)) == [A]


@pytest.mark.parametrize("obstacle", ["file", "link", "open", "foreign"])
def test_one_warning_when_there_is_no_directory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, obstacle: str
) -> None:
    directory = directory_of(tmp_path)
    directory.parent.mkdir()
    if obstacle == "file":
        directory.write_text("")
    elif obstacle == "link":
        (tmp_path / "elsewhere").mkdir()
        directory.symlink_to(tmp_path / "elsewhere")
    elif obstacle == "open":
        directory.mkdir()
        directory.chmod(0o777)
    else:
        directory.mkdir()
        uid = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    peers = RememberedPeers(tmp_path, "tag")
    with caplog.at_level(logging.WARNING):
        assert not peers.add(A, ["127.0.0.1:1"])
        assert peers.addresses() == []
        peers.forget("127.0.0.1:1")
        peers.remove(A)
    assert not peers.is_available
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert str(directory) in caplog.text


@pytest.mark.parametrize(("mode", "is_used"), [(0o755, True), (0o720, False), (0o702, False)])
def test_a_directory_is_used_unless_others_may_write_to_it(tmp_path: Path, mode: int, is_used: bool) -> None:
    directory = directory_of(tmp_path)
    directory.mkdir(parents=True)
    directory.chmod(mode)
    assert RememberedPeers(tmp_path, "tag").add(A, ["127.0.0.1:1"]) is is_used


def test_a_file_may_be_as_large_as_its_bounds(tmp_path: Path) -> None:
    peers = RememberedPeers(tmp_path, "tag")
    addresses = [
        f"{number}{'a' * (FILE_BYTES_MAX // ADDRESSES_PER_NODE_MAX - 4)}:1" for number in range(ADDRESSES_PER_NODE_MAX)
    ]
    assert peers.add(A, [*addresses, "127.0.0.1:1"])
    assert (directory_of(tmp_path) / A).stat().st_size == FILE_BYTES_MAX
    assert peers.addresses() == addresses
    assert peers.malformed == 0


def test_a_directory_that_somebody_filled_up_is_read_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered_peers, "FILES_SEEN_MAX", 3)
    peers = RememberedPeers(tmp_path, "tag")
    for number in range(5):
        peers.add(f"{number:032x}", [f"127.0.0.1:{number + 1}"])
    assert len(peers.addresses()) == 3


def test_read_only_file_system(tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "mkdir", refuse)
    peers = RememberedPeers(tmp_path / "state", "tag")
    assert not peers.add(A, ["127.0.0.1:1"])
    assert "Read-only file system" in caplog.text


@pytest.mark.parametrize("name", ["", "..", "../x", "a/b", "AB", "x" * 65, "a\n"])
def test_names_are_checked(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="not a node id"):
        RememberedPeers(tmp_path, "tag").add(name, ["127.0.0.1:1"])
    with pytest.raises(ValueError, match="not a node id"):
        RememberedPeers(tmp_path, "tag").remove(name)


@pytest.mark.parametrize("tag", ["", "..", "a/b", "a b"])
def test_tags_are_checked(tmp_path: Path, tag: str) -> None:
    with pytest.raises(ValueError, match="cannot name a directory"):
        RememberedPeers(tmp_path, tag)
