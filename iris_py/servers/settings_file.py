"""Reads the file of a door, and refuses settings that would open the door to strangers by mistake."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_py.doors.settings import FILE_BYTES_MAX, parse_settings
from iris_py.errors import ConfigurationError
from iris_py.files.settings_text import read_settings_text
from iris_py.net.addresses import is_loopback, parse_address

if TYPE_CHECKING:
    from pathlib import Path

    from iris_py.doors.settings import DoorSettings

__all__ = ["check_exposure", "read_settings"]


def read_settings(path: Path) -> DoorSettings:
    """Read the settings of a door from a file.

    Raises:
        ConfigurationError: The file cannot be read, is writable by other users, or has mistakes; then the text has a line for
            each mistake.
    """
    return parse_settings(read_settings_text(path, FILE_BYTES_MAX, danger="the rights of clients"), path.name)


def check_exposure(settings: DoorSettings) -> None:
    """Refuse a door that other machines reach, and that lacks encryption or roles.

    Raises:
        ConfigurationError: The door listens elsewhere than on loopback; the text says what is missing.
    """
    web = settings.web
    host, _port = parse_address(web.listen)
    if is_loopback(host):
        return
    missing = []
    if not web.certificate_file and web.behind_proxy is None:
        missing.append("certificate_file and key_file, or behind_proxy if a proxy in front of the door has the certificate")
    if not settings.roles:
        missing.append("a table [roles.NAME] with the rights of clients")
    if missing:
        raise ConfigurationError(
            f"the door would listen at {web.listen} for other machines, and its file lacks {'; and '.join(missing)}. Add it, "
            "or listen at 127.0.0.1."
        )
