"""The file with the generations of the network's secret that the administrator has signed (docs/design.md 2.10).

Generations are the secrets accepted during a rotation.

A node starts with the secret of its settings, which a rotation may have retired. So nodes
store the effective generations in the user's state directory, for the same settings: with changed settings nodes begin anew.

No function raises for the state of the file system: without the file a node still has the secrets of its settings, and a
warning says that these secrets may become too old.
"""

from __future__ import annotations

import hashlib
import os
import stat
from typing import TYPE_CHECKING

from iris_py.files.secrets import replace_file
from iris_py.logs import EventLogger
from iris_security import AuthenticationError, SignedGenerations

if TYPE_CHECKING:
    from pathlib import Path

    from iris_security import Keyring

__all__ = ["GenerationsFile", "fingerprint"]

_FILE_BYTES_MAX = 4096  # more than any file has
_NAME_CHARACTERS = 32

logger = EventLogger("iris_py.config")


def fingerprint(keyring: Keyring) -> str:
    """Return a hash of the network's secret, its name and the administrator in the settings."""
    said = hashlib.sha256(keyring.administrator or b"")
    for key_id in sorted(keys.key_id for keys in keyring.generations):
        said.update(key_id)
    return said.hexdigest()[:_NAME_CHARACTERS]


class GenerationsFile:
    """The file in which this user's nodes with the same settings store the effective generations.

    Args:
        state_directory: The user's state directory for Iris. None stores nothing, with a warning.
        configured: The keyring of the settings.
    """

    def __init__(self, state_directory: Path | None, configured: Keyring) -> None:
        self._path = None if state_directory is None else state_directory / "generations" / fingerprint(configured)
        self._network = configured.network
        self._administrator = configured.administrator

    def load(self) -> SignedGenerations | None:
        """Return the stored generations if the signature is the administrator's; otherwise None."""
        if self._administrator is None or self._path is None:
            return None
        try:
            encoded = self._read(self._path)
        except FileNotFoundError:
            return None
        except OSError as exc:
            self._warn("read", exc.strerror)
            return None
        if encoded is None:
            self._warn("read", "it is not a private file of this user")
            return None
        try:
            return SignedGenerations.open(encoded, self._network, self._administrator)
        except AuthenticationError:
            self._warn("read", "the administrator has not signed it")
            return None

    def save(self, signed: SignedGenerations) -> None:
        """Store the effective generations, unless newer ones are stored."""
        if self._path is None:
            self._warn("kept", "this user has no home directory; set XDG_STATE_HOME to a directory")
            return
        kept = self.load()
        if kept is not None and kept.rank >= signed.rank:
            return
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(self._path, signed.encoded)
        except OSError as exc:
            self._warn("written", exc.strerror)

    @staticmethod
    def _read(path: Path) -> bytes | None:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with open(os.open(path, flags), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
                return None
            return file.read(_FILE_BYTES_MAX)

    def _warn(self, what: str, reason: str | None) -> None:
        logger.warning(
            "generations_unusable",
            "the current secrets cannot be %s in %s (%s): after a restart this node may hold no accepted secret",
            what,
            self._path or "the state directory",
            reason,
            about=str(self._path or ""),
            path=str(self._path or ""),
        )
