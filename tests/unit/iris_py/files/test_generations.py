"""Tests of iris_py/files/generations.py."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

import pytest

from iris_py.files.generations import GenerationsFile, fingerprint
from iris_security import AdministrationKey, Keyring, Secret

if TYPE_CHECKING:
    from pathlib import Path

KEY = AdministrationKey(b"a" * 32)
OLD, NEW = Secret(b"o" * 32), Secret(b"n" * 32)
CONFIGURED = Keyring(OLD, administrator=KEY.administrator)
SIGNED = [KEY.sign("default", number, [NEW]) for number in (1, 2)]


def file_of(directory: Path) -> Path:
    (path,) = (directory / "generations").iterdir()
    return path


def test_what_was_kept_is_found_by_nodes_with_the_same_settings(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = GenerationsFile(tmp_path, CONFIGURED)
    assert file.load() is None
    file.save(SIGNED[0])
    again = GenerationsFile(tmp_path, Keyring(OLD, administrator=KEY.administrator))
    assert again.load() == SIGNED[0]
    assert file_of(tmp_path).stat().st_mode & 0o777 == 0o600
    assert file_of(tmp_path).parent.stat().st_mode & 0o777 == 0o700
    others = [
        Keyring(NEW, administrator=KEY.administrator),
        Keyring(OLD, accepted=[NEW], administrator=KEY.administrator),
        Keyring(OLD, network="other", administrator=KEY.administrator),
        Keyring(OLD, administrator=AdministrationKey(b"b" * 32).administrator),
        Keyring(OLD),
    ]
    for other in others:
        assert fingerprint(other) != fingerprint(CONFIGURED)
        assert GenerationsFile(tmp_path, other).load() is None
    assert caplog.text == ""


def test_the_order_of_generations_in_the_settings_does_not_matter() -> None:
    """Such as after a step of a rotation in a file: the secrets are the same."""
    assert fingerprint(Keyring(OLD, accepted=[NEW])) == fingerprint(Keyring(NEW, accepted=[OLD]))


def test_what_is_newer_stays(tmp_path: Path) -> None:
    file = GenerationsFile(tmp_path, CONFIGURED)
    file.save(SIGNED[1])
    file.save(SIGNED[0])
    assert file.load() == SIGNED[1]
    assert len(list((tmp_path / "generations").iterdir())) == 1


@pytest.mark.parametrize("kind", ["damaged", "of another administrator", "readable", "a link", "a directory", "large"])
def test_what_is_not_ours_is_not_used_and_nothing_fails(tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    file = GenerationsFile(tmp_path, CONFIGURED)
    file.save(SIGNED[0])
    path = file_of(tmp_path)
    if kind == "damaged":
        path.write_bytes(SIGNED[0].encoded[:-1])
    elif kind == "large":
        path.write_bytes(SIGNED[0].encoded + bytes(1 << 20))
    elif kind == "of another administrator":
        path.write_bytes(AdministrationKey(b"b" * 32).sign("default", 9, [NEW]).encoded)
    elif kind == "readable":
        path.chmod(0o644)
    elif kind == "a link":
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
    else:
        path.unlink()
        path.mkdir()
    with caplog.at_level(logging.WARNING):
        assert file.load() is None
    assert "the current secrets cannot be read" in caplog.text


def test_without_a_place_to_write_it_warns(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "generations").write_bytes(b"in the way")
    GenerationsFile(tmp_path, CONFIGURED).save(SIGNED[0])
    assert "cannot be written" in caplog.text
    assert os.listdir(tmp_path) == ["generations"]
