"""The options `--seal-file` and `--seal-name`: end-to-end encryption of payloads between a caller and a member."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_py import Seal, Sealed
from iris_py.errors import ConfigurationError
from iris_py.files.secrets import read_secret_file

if TYPE_CHECKING:
    from pathlib import Path

    from iris_py import Handler
    from iris_security import Secret

__all__ = ["read_seal", "read_sealed"]

_OPTION = "--seal-file"


def read_seal(path: Path | None, name: str | None) -> Seal | None:
    """Return the seal for the payloads of requests, from the options; None without `--seal-file`.

    Args:
        path: The file with the secret; the first of several generations encrypts.
        name: The name for sealing; None for the name of the cluster.

    Raises:
        ConfigurationError: The file cannot be used, or a name is given without a file.
    """
    return None if _is_absent(path, name) else Seal(_read(path), name=name)


def read_sealed(handler: Handler, path: Path | None, name: str | None) -> Handler | Sealed:
    """Wrap a handler for sealed payloads only; return the handler itself without `--seal-file`."""
    return handler if _is_absent(path, name) else Sealed(handler, _read(path), name=name)


def _is_absent(path: Path | None, name: str | None) -> bool:
    if path is None and name is not None:
        raise ConfigurationError(f"--seal-name needs the file with the secret: {_OPTION}.")
    return path is None


def _read(path: Path | None) -> tuple[Secret, ...]:
    assert path is not None
    return read_secret_file(path, _OPTION)
