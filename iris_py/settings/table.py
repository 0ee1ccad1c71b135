"""The table of settings: the name of each, and its sources."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["ARGUMENTS", "FILE_KEYS", "KEYS_CHOICE", "SETTINGS", "VARIABLES", "Setting", "variable_of"]


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting. Every setting is an argument of :func:`iris_py.connect`."""

    name: str
    is_variable: bool = True
    """Whether an environment variable sets it: ``IRIS_`` and the name in capitals."""
    is_key: bool = True
    """Whether a key of the file sets it."""


SETTINGS: Final = (
    Setting("network"),
    Setting("secret"),
    Setting("secret_file"),
    Setting("secret_command"),
    Setting("keyring", is_variable=False, is_key=False),
    Setting("listen"),
    Setting("advertise"),
    Setting("seeds"),
    Setting("zone"),
    Setting("name"),
    Setting("discovery"),
    Setting("max_message_bytes"),
    Setting("tracing"),
    Setting("observe"),
    Setting("busy_poll"),
    Setting("clusters", is_variable=False),
    Setting("clusters_directory"),
    Setting("strict"),
    Setting("administrator"),
)


def variable_of(name: str) -> str:
    """Return the environment variable of a setting."""
    return f"IRIS_{name.upper()}"


#: The arguments of :func:`iris_py.connect`, apart from ``config``.
ARGUMENTS: Final = tuple(setting.name for setting in SETTINGS)
#: The keys of the file.
FILE_KEYS: Final = tuple(setting.name for setting in SETTINGS if setting.is_key)
#: The environment variables by setting; ``IRIS_CONFIG`` names the file.
VARIABLES: Final = {setting.name: variable_of(setting.name) for setting in SETTINGS if setting.is_variable} | {
    "config": variable_of("config")
}
#: The settings for the source of the keys. A layer has at most one of them.
KEYS_CHOICE: Final = ("keyring", "secret", "secret_file", "secret_command")
