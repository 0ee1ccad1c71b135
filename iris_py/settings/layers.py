"""The sources of settings, each a layer: arguments, a `Config`, the environment, the file. Upper layers override lower ones."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from iris_py.errors import ConfigurationError
from iris_py.files.secrets import Exposure, check_exposure, check_path, expand_home, read_exposed
from iris_py.logs import EventLogger
from iris_py.settings.table import FILE_KEYS, KEYS_CHOICE, VARIABLES, variable_of
from iris_py.settings.values import looks_secret, refuse_secret_value
from iris_py.wire.names import nearest_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "CONFIG_BYTES_MAX",
    "Layer",
    "Source",
    "config_directory",
    "config_file",
    "environment_layer",
    "file_layer",
    "first_value",
    "state_directory",
]

logger = EventLogger("iris_py.config")

CONFIG_BYTES_MAX: Final = 1 << 20

Source: TypeAlias = Literal["argument", "config", "variable", "file"]

#: The unknown variables that a warning has named already. Kept for the whole process, as the environment is.
_warned: Final[set[str]] = set()


class Layer:
    """One source of settings: the arguments, a `Config`, the environment or the file.

    Args:
        values: The values of the settings, with secrets among them.
        path: The file with the values, whose directory is the base of relative paths; None for other sources.
    """

    __slots__ = ("path", "source", "values")

    def __init__(self, source: Source, values: Mapping[str, object], path: Path | None = None) -> None:
        self.source: Source = source
        self.values = values
        self.path = path

    def locate(self, path: Path, key: str) -> Path:
        """Return the path given for a setting, with ``~`` replaced; relative paths of a file start in its directory.

        Args:
            path: The given path.
            key: The name of the setting.

        Raises:
            ConfigurationError: The path begins with ``~``, and the home directory is unknown.
        """
        path = expand_home(path, self.origin(key))
        return path if self.path is None else self.path.parent / path

    def origin(self, key: str) -> str:
        """Return the name of a setting of this layer, for errors."""
        if self.source == "variable":
            return variable_of(key)
        prefix = {"argument": "", "config": "Config.", "file": f"{self.path}: "}[self.source]
        return prefix + key


def first_value(layers: Sequence[Layer], key: str, default: object) -> tuple[object, str]:
    """Return a setting's value in the first layer that has the setting, and the origin for errors. Not for secrets.

    Raises:
        ConfigurationError: The value holds a secret.
    """
    for layer in layers:
        if key in layer.values:
            value, origin = layer.values[key], layer.origin(key)
            if key != "administrator":  # its own check distinguishes both halves of a key, and shows neither
                refuse_secret_value(value, origin)
            return value, origin
    return default, key


def environment_layer(environ: Mapping[str, str]) -> Layer:
    """Return the settings of the environment. An empty variable counts as unset, except for the secret.

    Raises:
        ConfigurationError: A variable for the secret is empty.
    """
    values: dict[str, object] = {}
    _warn_of_typos(environ)
    for key, variable in VARIABLES.items():
        text = environ.get(variable)
        if text is None or key == "config":
            continue
        if text.strip():
            values[key] = text.strip()
        elif key in KEYS_CHOICE:
            raise ConfigurationError(f"{variable} is set but empty. Unset it to use the per-user secret, or give it a secret.")
    return Layer("variable", values)


def file_layer(config: Path | str | None, environ: Mapping[str, str]) -> Layer:
    """Return the settings of the file. A file named by the user must exist; the file at the default path may be missing.

    Raises:
        ConfigurationError: The file is missing, cannot be read, is no TOML, has an unknown key, or others can write its secret.
    """
    is_named = _name_of_file(config, environ) is not None
    path = config_file(config, environ)
    if path is None:
        return Layer("file", {})
    try:
        content, exposure = read_exposed(path, CONFIG_BYTES_MAX)
    except (FileNotFoundError, NotADirectoryError):
        if not is_named:
            return Layer("file", {})
        raise ConfigurationError(f"the configuration file {path} does not exist. Correct config= or IRIS_CONFIG.") from None
    except OSError as exc:
        if not is_named and not os.access(path.parent, os.X_OK):
            return Layer("file", {})  # the home directory belongs to another user, as in a container with a numeric user
        raise ConfigurationError(
            f"the configuration file {path} cannot be read: {exc.strerror}. Correct its permissions."
        ) from exc

    import tomllib  # imported only here: most nodes run without a file

    try:
        values = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise ConfigurationError(f"{path} is not valid TOML: {exc}. Correct the file.") from exc
    for key in values:
        if looks_secret(key):
            raise ConfigurationError(f'{path}: a secret is given in place of the name of a setting. Write secret = "...".')
        if key not in FILE_KEYS:
            raise ConfigurationError(f"{path}: unknown key {key!r}. {nearest_name(key, FILE_KEYS)}")
    check_file_exposure(values, exposure, path)
    return Layer("file", values, path)


def check_file_exposure(values: Mapping[str, object], exposure: Exposure, path: Path) -> None:
    """Refuse a configuration file if other users could write its secret or command, and warn if they can read its secret.

    Raises:
        ConfigurationError: Others can write the file.
    """
    is_command_open = "secret_command" in values and exposure is Exposure.WRITABLE
    if "secret" in values or "clusters" in values or is_command_open:
        check_exposure(exposure, path)


def config_file(config: Path | str | None, environ: Mapping[str, str]) -> Path | None:
    """Return the path of the configuration file, existing or not; None if no home directory is known.

    Raises:
        ConfigurationError: The path is a secret, or begins with ``~`` while no home directory is known.
    """
    named = _name_of_file(config, environ)
    if named is None:
        directory = config_directory(environ)
        return None if directory is None else directory / "iris.toml"
    origin = "IRIS_CONFIG" if config is None else "config"
    if not isinstance(named, str | Path):
        raise ConfigurationError(f"config={named!r} must be a Config, or the path of a TOML file.")
    check_path(named, origin)
    return expand_home(Path(named), origin)


def _name_of_file(config: Path | str | None, environ: Mapping[str, str]) -> Path | str | None:
    return config if config is not None else environ.get("IRIS_CONFIG", "").strip() or None


def _warn_of_typos(environ: Mapping[str, str]) -> None:
    """Warn once of each unknown ``IRIS_*`` variable: other products use this prefix, too."""
    known = VARIABLES.values()
    for name in sorted(environ):
        if name.startswith("IRIS_") and name not in known and name not in _warned:
            _warned.add(name)
            logger.warning(
                "variable_unknown",
                "the environment variable %s has no effect. %s",
                name,
                nearest_name(name, list(known)),
                about=name,
                variable=name,
            )


def state_directory(environ: Mapping[str, str]) -> Path | None:
    """Return the directory of Iris's state; None if no home directory is known."""
    return _xdg_directory(environ, "XDG_STATE_HOME", ".local/state")


def config_directory(environ: Mapping[str, str]) -> Path | None:
    """Return the directory of the per-user secret and of ``iris.toml``; None if no home directory is known."""
    return _xdg_directory(environ, "XDG_CONFIG_HOME", ".config")


def _xdg_directory(environ: Mapping[str, str], variable: str, below_home: str) -> Path | None:
    """Return Iris's directory below an XDG base. The XDG specification ignores a relative base."""
    base = environ.get(variable, "")
    if os.path.isabs(base):
        return Path(base) / "iris"
    home = environ.get("HOME", "")
    if os.path.isabs(home):
        return Path(home) / below_home / "iris"
    import pwd  # imported only without HOME: in services, containers and cron jobs

    try:
        home = pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return None  # as in a container with a numeric user
    return Path(home) / below_home / "iris" if os.path.isabs(home) else None
