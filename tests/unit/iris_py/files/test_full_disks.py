"""A disk that is full, and a quota that is used up: each file that Iris writes stays whole, and nothing else is left."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

import pytest

from iris_py.errors import ConfigurationError
from iris_py.files.generations import GenerationsFile
from iris_py.files.remembered_peers import RememberedPeers
from iris_py.files.secrets import create_file, replace_file, rewrite_secret_file, write_secret_file
from iris_py.gateway.audit import AuditFile
from iris_security import AdministrationKey, Keyring, Secret

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

OLD, NEW = Secret(b"o" * 32), Secret(b"n" * 32)
NODE = "ab" * 16


@pytest.fixture(params=[errno.ENOSPC, errno.EDQUOT], ids=["disk", "quota"])
def number(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def fill(monkeypatch: pytest.MonkeyPatch, number: int) -> Callable[[], None]:
    """Let whatever is written from now on meet the end of the room: on its way to the disk, or when it is to stay there."""

    def refuse(*_arguments: Any, **_options: Any) -> Any:
        raise OSError(number, os.strerror(number))

    def fill() -> None:
        for name in ("write", "fsync", "link", "replace", "mkdir"):
            monkeypatch.setattr(f"os.{name}", refuse)

    return fill


@pytest.mark.parametrize("write", [create_file, replace_file])
def test_a_new_file_does_not_appear(
    tmp_path: Path, fill: Callable[[], None], number: int, write: Callable[[Path, bytes], None]
) -> None:
    fill()
    with pytest.raises(OSError, match=os.strerror(number)):
        write(tmp_path / "file", b"content")
    assert list(tmp_path.iterdir()) == []


def test_without_hard_links_no_empty_file_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fill: Callable[[], None], number: int
) -> None:
    fsync = os.fsync
    fill()
    monkeypatch.setattr("os.fsync", fsync)
    with pytest.raises(OSError, match=os.strerror(number)):
        create_file(tmp_path / "file", b"content")
    assert list(tmp_path.iterdir()) == []


def test_a_rotation_fails_with_the_reason_and_the_secret_stays(tmp_path: Path, fill: Callable[[], None], number: int) -> None:
    path = tmp_path / "secret"
    write_secret_file(path, OLD)
    before = path.read_bytes()
    fill()
    with pytest.raises(ConfigurationError, match=f"cannot be rewritten: {os.strerror(number)}"):
        rewrite_secret_file(path, [NEW, OLD])
    with pytest.raises(ConfigurationError, match=f"cannot be written: {os.strerror(number)}"):
        write_secret_file(tmp_path / "another", NEW)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_node_goes_on_and_warns_that_it_keeps_nothing(
    tmp_path: Path, fill: Callable[[], None], number: int, caplog: pytest.LogCaptureFixture
) -> None:
    key = AdministrationKey(b"a" * 32)
    generations = GenerationsFile(tmp_path, Keyring(OLD, network="net", administrator=key.administrator))
    fill()
    generations.save(key.sign("net", 1, [NEW, OLD]))
    assert not RememberedPeers(tmp_path, "tag").add(NODE, ["127.0.0.1:1"])
    assert os.strerror(number) in caplog.text


def test_an_audit_says_the_reason(tmp_path: Path, fill: Callable[[], None], number: int) -> None:
    audit = AuditFile(tmp_path / "audit.jsonl")
    fill()
    with pytest.raises(OSError, match=os.strerror(number)):
        audit.write(["a record"])
    audit.close()
