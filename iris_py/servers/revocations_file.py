"""The file of the doors of one user with the revocations of a network, for a restart of the last door (docs/design.md 17.51).

A line of JSON for each revocation, appended before the door confirms. A door reads the files of all generations of the secret
at the start, and writes to the file of the sealing generation. No function raises for the state of the file system: a warning
says that a restart may forget revocations.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Final

import msgspec

from iris_py.doors.revocations import REVOCATIONS_MAX, Revocation
from iris_py.files.secrets import replace_file
from iris_py.logs import EventLogger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from iris_security import Keyring

__all__ = ["REPLACED_BYTES_MIN", "RevocationsFile"]

logger = EventLogger("iris_py.servers")

#: Bytes of a file, and growth by a factor, until ended revocations are removed. Too small: the door often writes the whole
#: file; too large: a start takes long.
REPLACED_BYTES_MIN: Final = 1024 * 1024
_GROWTH: Final = 2
#: Bytes of a file that are read: more than any file has. A line has at most 640 bytes, for a subject of 128 characters.
FILE_BYTES_MAX: Final = 2 * _GROWTH * 640 * REVOCATIONS_MAX
_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final[msgspec.json.Decoder[Revocation]] = msgspec.json.Decoder(Revocation)


class RevocationsFile:
    """The file with the revocations.

    Args:
        state_directory: The user's state directory for Iris; None keeps nothing, with a warning at the first revocation.
        keyring_source: Returns the keyring in use.
    """

    def __init__(self, state_directory: Path | None, keyring_source: Callable[[], Keyring]) -> None:
        self._directory = None if state_directory is None else state_directory / "revocations"
        self._keyring_source = keyring_source
        self._is_warned = False
        self._replaced_bytes = REPLACED_BYTES_MIN  # after the last replacement of the file

    def load(self, now: float) -> list[Revocation]:
        """Return the stored revocations, and remove ended revocations from the files.

        Args:
            now: The time, in seconds since 1970.
        """
        found: dict[Revocation, None] = {}
        for path in self._paths():
            try:
                content = _read(path)
            except FileNotFoundError:
                continue
            except OSError as exc:
                self._warn("read", exc.strerror)
                continue
            if content is None:
                self._warn("read", "it is not a private file of this user")
                continue
            lines = [line for line in content.split(b"\n") if line]
            live = [each for each in _parse(lines) if each.until > now]
            found.update(dict.fromkeys(live))
            if len(live) < len(lines):
                self._replace(path, live)
        return list(found)

    def append(self, revocations: Sequence[Revocation], all_present: Callable[[], Iterable[Revocation]]) -> None:
        """Store revocations.

        Args:
            revocations: The new revocations.
            all_present: Returns all revocations of the door, for a file that has grown too large.
        """
        path = next(iter(self._paths()), None)
        if path is None:
            self._warn("written", "this user has no home directory; set XDG_STATE_HOME to a directory")
            return
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            with open(os.open(path, flags, 0o600), "ab", buffering=0) as file:
                file.write(b"\n" + _format(revocations))  # the last line may be cut, by a crash
                size = file.tell()
        except OSError as exc:
            self._warn("written", exc.strerror)
            return
        if size > _GROWTH * self._replaced_bytes:
            self._replace(path, all_present())

    # --

    def _paths(self) -> list[Path]:
        """Return the files of all generations, the sealing one first."""
        if self._directory is None:
            return []
        return [self._directory / keys.key_id.hex() for keys in self._keyring_source().generations]

    def _replace(self, path: Path, revocations: Iterable[Revocation]) -> None:
        content = _format(revocations)
        self._replaced_bytes = max(REPLACED_BYTES_MIN, len(content))
        try:
            replace_file(path, content)
        except OSError as exc:
            self._warn("written", exc.strerror)

    def _warn(self, action: str, reason: str | None) -> None:
        if self._is_warned:
            return
        self._is_warned = True
        logger.warning(
            "revocations_unkept",
            "the revocations cannot be %s in %s (%s): they are forgotten when the last door of the network ends",
            action,
            self._directory or "the state directory",
            reason,
            about=str(self._directory or ""),
        )


def _read(path: Path) -> bytes | None:
    """Return the content of a file; None unless the file is a private file of this user.

    Raises:
        OSError: The file cannot be read.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with open(os.open(path, flags), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
            return None
        return file.read(FILE_BYTES_MAX)


def _parse(lines: Iterable[bytes]) -> list[Revocation]:
    """Return the revocations of a file, without malformed lines, such as the beginning of a line at a crash."""
    found: list[Revocation] = []
    for line in lines:
        try:
            found.append(_DECODER.decode(line))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
    return found


def _format(revocations: Iterable[Revocation]) -> bytes:
    return b"".join([_ENCODER.encode(each) + b"\n" for each in revocations])
