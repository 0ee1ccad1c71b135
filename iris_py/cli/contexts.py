"""Contexts: named configuration files selected by `--context`, for example one for each network of an operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_py.config import config_path
from iris_py.errors import ConfigurationError
from iris_py.files.secrets import check_path
from iris_py.wire.names import nearest_name

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["context_file", "context_names"]

SUFFIX: Final = ".toml"


def context_names() -> list[str]:
    """Return the names of all contexts, sorted."""
    folder = _folder()
    if folder is None:
        return []
    try:
        return sorted(path.stem for path in folder.iterdir() if path.suffix == SUFFIX and not path.name.startswith("."))
    except OSError:
        return []


def context_file(name: str) -> Path:
    """Return the configuration file of a context.

    Raises:
        ConfigurationError: The context does not exist, or the name is a secret.
    """
    check_path(name, "--context")
    folder = _folder()
    if folder is None:
        raise ConfigurationError(
            "--context: contexts are files in the home directory, and this user has none. Set HOME, or use --config."
        )
    path = folder / f"{name}{SUFFIX}"
    known = context_names()
    if name in known:
        return path
    advice = nearest_name(name, known) if known else "There is no context yet."
    raise ConfigurationError(f"--context: there is no {path}. {advice} A context is a configuration file in that folder.")


def _folder() -> Path | None:
    path = config_path(environ=_without_config())
    return None if path is None else path.parent


def _without_config() -> dict[str, str]:
    """Return the environment without the variable for the configuration file, in whose place the context's file is used."""
    import os

    return {name: value for name, value in os.environ.items() if name != "IRIS_CONFIG"}
