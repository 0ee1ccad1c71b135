"""Tests of iris_py/files/secrets.py."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from iris_py.files.secrets import replace_file

if TYPE_CHECKING:
    from pathlib import Path


def test_a_new_file_is_private(tmp_path: Path) -> None:
    replace_file(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new"
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["file"]


def test_mode_and_owner_stay_where_that_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(0o640)
    before = path.stat()
    replace_file(path, b"new", like=before)
    after = path.stat()
    assert path.read_bytes() == b"new"
    assert after.st_ino != before.st_ino, "whoever has the old one open reads on in it"
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)


def test_what_cannot_be_replaced_stays_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.mkdir()
    with pytest.raises(IsADirectoryError):
        replace_file(path, b"new")
    assert path.is_dir()
    assert os.listdir(tmp_path) == ["file"]
