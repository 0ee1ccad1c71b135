"""Replace a file at once: whoever reads it sees all of the old contents or all of the new ones."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["create_file", "replace_file"]


def replace_file(path: Path, content: bytes, like: os.stat_result | None = None) -> None:
    """Write the contents to a file beside it, and give that its name.

    Args:
        path: The file.
        content: The new contents.
        like: Whose mode and owner it gets; by default only this user can read and write it.

    Raises:
        OSError: It cannot be replaced; nothing has changed then.
    """
    import tempfile  # a megabyte of memory, and most nodes replace nothing

    made, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(made, "wb") as file:
            file.write(content)
            file.flush()
            if like is not None:
                os.fchmod(made, stat.S_IMODE(like.st_mode))
                if (like.st_uid, like.st_gid) != (os.geteuid(), os.getegid()):
                    os.fchown(made, like.st_uid, like.st_gid)
            os.fsync(made)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def create_file(path: Path, content: bytes) -> None:
    """Write a new file that only this user can read and write: nobody sees a part of it under its name.

    Args:
        path: The file.
        content: Its contents.

    Raises:
        FileExistsError: There is a file of that name; it has not changed.
        OSError: It cannot be written; there is no such file then.
    """
    import tempfile  # as above

    made, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(made, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(made)
        try:
            os.link(name, path)  # which fails where a rename would take the place of a file
        except FileExistsError:
            raise
        except OSError:  # a file system without hard links, as on a memory stick
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            os.replace(name, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name)
