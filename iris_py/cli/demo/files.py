"""The files that `iris demo` counts: the selection of text files in a directory, and their count without a cluster."""

from __future__ import annotations

import os
import stat
import sysconfig
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from iris_py.cli.demo.lexer import TokenTotals, count
from iris_py.cli.outcome import complain
from iris_py.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from iris_py.cli.demo.progress import Progress

__all__ = ["Inventory", "count_plainly", "take_inventory"]

FILE_BYTES_MAX: Final = 8 << 20  # a file is one request, and a message has at most 16 MiB
PROBE_BYTES: Final = 8192  # a NUL among the first bytes distinguishes binary from text, as in git and grep


@dataclass(slots=True)
class Inventory:
    """The files to count, and the files left out."""

    root: Path
    paths: list[Path] = field(default_factory=list)
    """In a reproducible order."""
    skipped: Counter[str] = field(default_factory=Counter)
    """Number of files left out, by reason."""


def take_inventory(directory: Path | None) -> Inventory:
    """Find the text files in a directory, by default the Python sources of the running interpreter's standard library.

    Raises:
        ConfigurationError: The directory does not exist, or has no file to count.
    """
    candidates: Iterator[Path]
    if directory is None:
        inventory = Inventory(Path(sysconfig.get_path("stdlib")))
        candidates = (
            path for path in _walk(inventory.root, leave_out=("site-packages", "dist-packages")) if path.suffix == ".py"
        )
    else:
        inventory = Inventory(directory)
        if not directory.is_dir():
            raise ConfigurationError(f"--input: {directory} is not a directory. Name one with text files.")
        candidates = _walk(directory)
    for path in candidates:
        reason = _reason_to_skip(path)
        if reason is None:
            inventory.paths.append(path)
        else:
            inventory.skipped[reason] += 1
    if not inventory.paths:
        raise ConfigurationError(f"there is no text file in {inventory.root}. Name a directory with some by --input.")
    return inventory


def count_plainly(inventory: Inventory, progress: Progress) -> TokenTotals:
    """Read and count all files in this process, one after the other, for comparison with the count of the cluster."""
    totals = TokenTotals()
    progress.begin("counted plainly", len(inventory.paths))
    for path in inventory.paths:
        try:
            totals.add(count(path.read_bytes()))
        except OSError as exc:
            complain(f"{path}: {exc}")  # the totals will differ, as they should
        progress.advance()
    return totals


def _walk(root: Path, leave_out: tuple[str, ...] = ()) -> Iterator[Path]:
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = sorted(name for name in subfolders if name not in leave_out)
        for name in sorted(names):
            yield Path(folder, name)


def _reason_to_skip(path: Path) -> str | None:
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            return "no regular file"
        if status.st_size > FILE_BYTES_MAX:
            return "too large"
        with path.open("rb") as file:
            return "binary" if b"\0" in file.read(PROBE_BYTES) else None
    except OSError:
        return "unreadable"
