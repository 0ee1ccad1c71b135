"""The file with the revocations: read after a restart, and harmless if it cannot be used."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from iris_py.doors.revocations import Revocation, SubjectRevocation, TokenRevocation, TotalRevocation
from iris_py.servers import revocations_file as module
from iris_py.servers.revocations_file import RevocationsFile
from iris_security import Keyring, Secret

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

KEYRING = Keyring(Secret(b"o" * 32))
NOW = 1_700_000_000.0
OLD, NEW = Secret(b"o" * 32), Secret(b"n" * 32)
ALL: list[Revocation] = [TokenRevocation("0" * 32, NOW + 60), SubjectRevocation("ann\n{}", NOW), TotalRevocation(NOW - 5)]


def file_of(directory: Path, keyring: Keyring = KEYRING) -> RevocationsFile:
    return RevocationsFile(directory, lambda: keyring)


def path_of(directory: Path) -> Path:
    (path,) = (directory / "revocations").iterdir()
    return path


def test_revocations_are_found_after_a_restart_until_they_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = file_of(tmp_path)
    assert file.load(NOW) == []
    file.append(ALL[:2], lambda: ALL)
    file.append(ALL[2:], lambda: ALL)
    assert file_of(tmp_path).load(NOW) == ALL
    assert stat.S_IMODE(path_of(tmp_path).stat().st_mode) == 0o600
    assert stat.S_IMODE(path_of(tmp_path).parent.stat().st_mode) == 0o700
    size = path_of(tmp_path).stat().st_size
    assert file_of(tmp_path).load(NOW + 60) == ALL[1:]
    assert path_of(tmp_path).stat().st_size < size
    assert file_of(tmp_path).load(NOW + 1e6) == []
    assert caplog.text == ""


def test_a_rotation_of_the_secret_forgets_nothing_and_another_network_reads_nothing(tmp_path: Path) -> None:
    file_of(tmp_path).append(ALL[:1], lambda: ALL)
    rotated = Keyring(NEW, accepted=[OLD])
    file_of(tmp_path, rotated).append(ALL[1:], lambda: ALL)
    assert set(file_of(tmp_path, rotated).load(NOW)) == set(ALL)
    assert file_of(tmp_path, Keyring(NEW)).load(NOW) == ALL[1:]
    assert file_of(tmp_path, Keyring(OLD, network="other")).load(NOW) == []


def test_a_line_that_was_cut_costs_itself_alone(tmp_path: Path) -> None:
    file_of(tmp_path).append(ALL[:2], lambda: ALL)
    path = path_of(tmp_path)
    path.write_bytes(path.read_bytes()[:-9])
    file_of(tmp_path).append(ALL[2:], lambda: ALL)
    assert file_of(tmp_path).load(NOW) == [ALL[0], ALL[2]]
    assert path.read_bytes().count(b"\n") == 2


def test_a_file_that_grows_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REPLACED_BYTES_MIN", 1000)
    file = file_of(tmp_path)
    sizes = []
    for _ in range(100):
        file.append(ALL, lambda: ALL)
        sizes.append(path_of(tmp_path).stat().st_size)
    assert max(sizes) < 2500
    assert file_of(tmp_path).load(NOW) == ALL


def test_a_file_of_others_is_not_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file_of(tmp_path).append(ALL, lambda: ALL)
    path_of(tmp_path).chmod(0o644)
    assert file_of(tmp_path).load(NOW) == []
    assert "not a private file of this user" in caplog.text


def test_an_unusable_directory_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "revocations").write_text("")
    for file, words in ((file_of(tmp_path), "they are forgotten"), (RevocationsFile(None, lambda: Keyring(OLD)), "no home")):
        caplog.clear()
        assert file.load(NOW) == []
        for _ in range(3):
            file.append(ALL, lambda: ALL)
        assert words in caplog.text
        assert len(caplog.records) == 1


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    file_of(tmp_path).append(ALL, lambda: ALL)
    path = path_of(tmp_path)
    target = tmp_path / "target"
    target.write_text("")
    path.unlink()
    os.symlink(target, path)
    file_of(tmp_path).append(ALL, lambda: ALL)
    assert target.read_text() == ""
