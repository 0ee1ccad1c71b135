"""The files of a gateway: its settings, and the private key of its cloud."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from iris_py.errors import ConfigurationError
from iris_py.federation.settings import FILE_BYTES_MAX, parse_settings
from iris_py.files.secrets import Exposure, check_path, expand_home, read_cloud_key, read_exposed

if TYPE_CHECKING:
    from iris_py.federation.settings import FederationSettings
    from iris_security import CloudKey

__all__ = ["read_identity", "read_settings"]


def read_settings(path: Path) -> FederationSettings:
    """Read the settings of a gateway from its file.

    Raises:
        ConfigurationError: It cannot be read, others may write it, or something in it is wrong; then the text has a line for
            each mistake.
    """
    check_path(path, "FILE")
    try:
        content, exposure = read_exposed(path, FILE_BYTES_MAX)
    except OSError as exc:
        raise ConfigurationError(f"{path} cannot be read: {exc.strerror}. Correct the path or its permissions.") from exc
    if exposure is Exposure.WRITABLE:
        raise ConfigurationError(f"other users can write {path}, and so export what they like. Run: chmod go-w {path}")
    try:
        text = content.decode()
    except UnicodeDecodeError as exc:
        line = content.count(b"\n", 0, exc.start) + 1
        raise ConfigurationError(f"{path.name}:{line}: this is not UTF-8. Save the file as UTF-8.") from None
    return parse_settings(text, path.name)


def read_identity(settings: FederationSettings, path: Path) -> CloudKey:
    """Read the private key of the cloud from the file that the settings name; a relative path starts where they are.

    Args:
        settings: Those of the gateway.
        path: The file that they come from.

    Raises:
        ConfigurationError: The file is missing, can be written by others, or holds no such key.
    """
    return read_cloud_key(path.parent / expand_home(Path(settings.gateway.identity_file), "identity_file"), "identity_file")
