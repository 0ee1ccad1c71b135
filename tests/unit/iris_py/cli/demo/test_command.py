"""The parts of the demo that need no process."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING

import pytest

from iris_py.cli.demo.files import FILE_BYTES_MAX, take_inventory
from iris_py.cli.demo.progress import make_progress
from iris_py.cli.demo.report import percentiles_ms
from iris_py.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path


def test_text_files_are_found_in_order_and_others_counted(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    for name in ("b/z.txt", "b/a.py", "c.md", "empty"):
        (tmp_path / name).write_text("x" if name != "empty" else "")
    (tmp_path / "binary").write_bytes(b"ELF\0")
    with (tmp_path / "large").open("wb") as file:
        file.truncate(FILE_BYTES_MAX + 1)
    (tmp_path / "link").symlink_to(tmp_path / "c.md")
    os.mkfifo(tmp_path / "pipe")
    inventory = take_inventory(tmp_path)
    assert [str(path.relative_to(tmp_path)) for path in inventory.paths] == ["c.md", "empty", "b/a.py", "b/z.txt"]
    assert inventory.skipped == {"binary": 1, "too large": 1, "no regular file": 2}


def test_default_is_the_standard_library() -> None:
    inventory = take_inventory(None)
    names = {path.name for path in inventory.paths}
    assert {"heapq.py", "tokenize.py"} <= names
    assert all(path.suffix == ".py" and "site-packages" not in path.parts for path in inventory.paths)


def test_nothing_to_count(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no text file"):
        take_inventory(tmp_path)
    with pytest.raises(ConfigurationError, match="not a directory"):
        take_inventory(tmp_path / "none")


def test_percentiles() -> None:
    assert percentiles_ms([]) == {}
    assert percentiles_ms([0.001]) == {"p50": 1.0, "p90": 1.0, "p99": 1.0, "max": 1.0}
    hundred = [number / 1000 for number in range(100, 0, -1)]
    assert percentiles_ms(hundred) == {"p50": 50.0, "p90": 90.0, "p99": 99.0, "max": 100.0}


@pytest.mark.parametrize(("total", "lines"), [(1, 1), (3, 3), (8, 4), (1001, 4)])
def test_progress_in_lines(total: int, lines: int) -> None:
    stream = io.StringIO()
    with make_progress(stream) as progress:
        progress.begin("counted", total)
        for _ in range(total):
            progress.advance()
    printed = stream.getvalue().splitlines()
    assert len(printed) == lines
    assert printed[-1] == f"{total} of {total} files counted"
