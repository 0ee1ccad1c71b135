"""The place for the directory of an agent."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from spark_connector.daemon import directory_of


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    return tmp_path / "temporary"


def test_each_executor_has_another_directory_of_this_user(temporary: Path) -> None:
    one, other = Path(directory_of("/a/blockmgr-1")), Path(directory_of("/a/blockmgr-2"))
    assert one.parent == other.parent == temporary / f"iris-{os.getuid()}"
    assert one != other
    assert directory_of("/a/blockmgr-1") == str(one)


def test_it_is_in_the_runtime_directory_if_there_is_one(
    temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    name = Path(directory_of("/a")).name
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    assert Path(directory_of("/a")) == runtime / f"iris-{os.getuid()}" / name


@pytest.mark.parametrize("how", ["missing", "empty", "relative", "open to others", "a link", "a file", "of another user"])
def test_a_runtime_directory_that_is_not_ours_alone_is_passed_over(
    temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    runtime, own = tmp_path / "runtime", os.getuid()
    value = str(runtime)
    if how == "a link":
        (tmp_path / "own").mkdir(mode=0o700)
        runtime.symlink_to(tmp_path / "own")
    elif how == "a file":
        runtime.touch(mode=0o600)
    elif how != "missing":
        runtime.mkdir(mode=0o755 if how == "open to others" else 0o700)
    if how in ("empty", "relative"):
        monkeypatch.chdir(tmp_path)
        value = "" if how == "empty" else "runtime"
    elif how == "of another user":
        monkeypatch.setattr(os, "getuid", lambda: own + 1)
    monkeypatch.setenv("XDG_RUNTIME_DIR", value)

    assert Path(directory_of("/a")).parent == temporary / f"iris-{os.getuid()}"
