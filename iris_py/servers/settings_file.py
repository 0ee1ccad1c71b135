"""Reads the file of a door, and refuses settings that would open the door to strangers by mistake."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from iris_py.doors.settings import FILE_BYTES_MAX, DoorSettings, parse_settings
from iris_py.errors import ConfigurationError
from iris_py.files.secrets import expand_home, read_settings_text
from iris_py.net.addresses import is_loopback, parse_address

__all__ = ["check_exposure", "check_nats_exposure", "load_nats_settings", "load_settings", "read_settings"]


def read_settings(path: Path) -> DoorSettings:
    """Read the settings of a door from a file. Relative paths in the file begin at its folder.

    Raises:
        ConfigurationError: The file cannot be read, is writable by other users, or has mistakes; then the text has a line for
            each mistake.
    """
    settings = parse_settings(read_settings_text(path, FILE_BYTES_MAX, danger="the rights of clients"), path.name)
    web, nats = settings.web, settings.nats
    if web.certificate_file:
        certificate, key = _expand(path, web.certificate_file, web.key_file)
        settings = replace(settings, web=replace(web, certificate_file=certificate, key_file=key))
    if nats.certificate_file:
        certificate, key = _expand(path, nats.certificate_file, nats.key_file)
        client_ca = nats.client_ca_file and str(path.parent / expand_home(Path(nats.client_ca_file), "client_ca_file"))
        settings = replace(settings, nats=replace(nats, certificate_file=certificate, key_file=key, client_ca_file=client_ca))
    return settings


def load_settings(path: Path | None, at: str | None = None) -> DoorSettings:
    """Return the settings for a door with a listener of its own.

    Args:
        path: The file; None for the defaults.
        at: The address to listen at, ``host:port``; None for the address in the file.

    Raises:
        ConfigurationError: The file has mistakes, or the door would be open to strangers.
    """
    settings = _load(path, at)
    if at is not None:
        settings = replace(settings, web=replace(settings.web, listen=at))
    check_exposure(settings)
    return settings


def load_nats_settings(path: Path | None, at: str | None = None) -> DoorSettings:
    """Return the settings for a NATS door.

    Args:
        path: The file; None for the defaults.
        at: The address to listen at, ``host:port``; None for the address in the file.

    Raises:
        ConfigurationError: The file has mistakes, or the door would be open to strangers.
    """
    settings = _load(path, at)
    if at is not None:
        settings = replace(settings, nats=replace(settings.nats, listen=at))
    check_nats_exposure(settings)
    return settings


def check_exposure(settings: DoorSettings) -> None:
    """Refuse a door that other machines reach, and that lacks encryption or roles.

    Raises:
        ConfigurationError: The door listens elsewhere than on loopback; the text says what is missing.
    """
    web = settings.web
    roles = [] if settings.roles else ["a table [roles.NAME] with the rights of clients"]
    _check_listen(web.listen, bool(web.certificate_file) or web.behind_proxy is not None, roles)


def check_nats_exposure(settings: DoorSettings) -> None:
    """Refuse a NATS door that other machines reach, and that lacks encryption or users.

    Raises:
        ConfigurationError: The door listens elsewhere than on loopback; the text says what is missing.
    """
    nats = settings.nats
    users = [] if settings.users or nats.tokens else ["a table [users.NAME] with credentials and rights"]
    _check_listen(nats.listen, bool(nats.certificate_file) or nats.behind_proxy is not None, users)


def _load(path: Path | None, at: str | None) -> DoorSettings:
    if at is not None:
        parse_address(at, "--at")
    return DoorSettings() if path is None else read_settings(path)


def _check_listen(listen: str, is_encrypted: bool, missing: list[str]) -> None:
    host, _port = parse_address(listen)
    if is_loopback(host):
        return
    if not is_encrypted:
        proxy = "certificate_file and key_file, or behind_proxy if a proxy in front of the door has the certificate"
        missing = [proxy, *missing]
    if missing:
        raise ConfigurationError(
            f"the door would listen at {listen} for other machines, and its file lacks {'; and '.join(missing)}. Add it, "
            "or listen at 127.0.0.1."
        )


def _expand(path: Path, certificate_file: str, key_file: str) -> tuple[str, str]:
    """Return the paths of a certificate and its key, which begin at the folder of the settings file."""
    certificate = expand_home(Path(certificate_file), "certificate_file")
    key = expand_home(Path(key_file), "key_file")
    return str(path.parent / certificate), str(path.parent / key)
