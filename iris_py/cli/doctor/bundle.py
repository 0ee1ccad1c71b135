"""The bundle of `iris doctor --bundle`: an archive with the data for a bug report."""

from __future__ import annotations

import io
import os
import tarfile
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from iris_py.errors import ConfigurationError
from iris_py.files.secrets import create_file, replace_file

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from iris_py.cli.doctor.bundle_parts import BundlePart

__all__ = ["check_place", "describe", "write"]

#: The directory of all files inside a bundle.
FOLDER: Final = "iris-doctor"
#: Width of the column of names in README.txt (characters).
_WIDTH: Final = 20


def check_place(path: Path, *, may_replace: bool) -> None:
    """Refuse an unusable path for the bundle before the checks begin.

    Args:
        path: The option `--bundle`.
        may_replace: The option `--force`.

    Raises:
        ConfigurationError: The path is `-`, it exists, or its directory cannot be written.
    """
    if str(path) == "-":
        raise ConfigurationError(
            "--bundle needs the name of a file: standard output has the findings. Write --bundle iris.tar.gz."
        )
    if os.path.lexists(path):
        if not may_replace:
            raise ConfigurationError(_exists(path))
        if not path.is_file() or path.is_symlink():
            raise ConfigurationError(
                f"--bundle: {path} is not a regular file, and --force replaces only regular files. Name another file."
            )
    if not path.parent.is_dir():
        raise ConfigurationError(f"--bundle: {path.parent} is not a directory. Make it, or name another file.")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise ConfigurationError(f"--bundle: {path.parent} cannot be written. Name a file in another directory.")


def write(path: Path, readme: str, parts: Iterable[BundlePart], *, may_replace: bool) -> None:
    """Write a bundle in a single step, readable only by its owner. The call blocks.

    Args:
        path: The path of the archive.
        readme: The text of README.txt.
        parts: The files of the bundle; parts without content are left out.
        may_replace: Whether an existing file may be replaced.

    Raises:
        ConfigurationError: The bundle cannot be written. An existing file then stays unchanged.
    """
    content = _pack([("README.txt", readme.encode()), *((part.name, part.content) for part in parts if part.content)])
    try:
        if may_replace:
            replace_file(path, content)
        else:
            create_file(path, content)
    except FileExistsError:
        raise ConfigurationError(_exists(path)) from None
    except OSError as exc:
        raise ConfigurationError(f"--bundle: {path} cannot be written: {exc.strerror}. Name another file.") from exc


def describe(command: str, made_unix_s: float, build: str, parts: Iterable[BundlePart], notes: Iterable[str]) -> str:
    """Return the text of README.txt in the bundle: its contents, its time, the command, and the missing parts.

    Args:
        command: The command.
        made_unix_s: Time of the bundle, in seconds since 1970.
        build: The build of Iris.
        parts: All parts, including the missing ones.
        notes: Sentences about data missing from all parts.
    """
    parts = list(parts)
    lines = [
        "A bundle of `iris doctor`, for a bug report.",
        "",
        f"Made:     {datetime.fromtimestamp(made_unix_s, UTC):%Y-%m-%d %H:%M:%S} UTC",
        f"Command:  {command}",
        f"Iris:     {build}",
        "",
        "Contents, each file with an object of JSON in each line:",
        "",
        *(f"  {part.name:{_WIDTH}}{part.summary}" for part in parts if part.content),
        "",
        "Left out:",
        "",
        *(f"  {part.name}: {part.missing}" for part in parts if part.missing),
        *(f"  {note}" for note in notes),
    ]
    return "\n".join(lines) + "\n"


def _exists(path: Path) -> str:
    return f"--bundle: {path} exists already. Name another file, or replace it with --force."


def _pack(files: Iterable[tuple[str, bytes]]) -> bytes:
    """Return the files as an archive. All files have the owner 0, so the archive contains no user name."""
    packed, now = io.BytesIO(), int(time.time())
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in files:
            about = tarfile.TarInfo(f"{FOLDER}/{name}")
            about.size, about.mode, about.mtime = len(content), 0o600, now
            archive.addfile(about, io.BytesIO(content))
    return packed.getvalue()
