"""Reads a settings file of an operator, which others must not be able to change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_py.errors import ConfigurationError
from iris_py.files.secrets import Exposure, check_path, read_exposed

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["read_settings_text"]


def read_settings_text(path: Path, bytes_max: int, *, danger: str) -> str:
    """Return the text of a settings file.

    Args:
        path: The file.
        bytes_max: The largest size.
        danger: The things that other users could change in the file, for the error.

    Raises:
        ConfigurationError: The file cannot be read, is too large, is writable by other users, or is no UTF-8.
    """
    check_path(path, "FILE")
    try:
        content, exposure = read_exposed(path, bytes_max)
    except OSError as exc:
        raise ConfigurationError(f"{path} cannot be read: {exc.strerror}. Correct the path or its permissions.") from exc
    if exposure is Exposure.WRITABLE:
        raise ConfigurationError(f"other users can write {path}, and so change {danger}. Run: chmod go-w {path}")
    try:
        return content.decode()
    except UnicodeDecodeError as exc:
        line = content.count(b"\n", 0, exc.start) + 1
        raise ConfigurationError(f"{path.name}:{line}: this is not UTF-8. Save the file as UTF-8.") from None
