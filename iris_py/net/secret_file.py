"""Secrets in files: the per-user secret and those that an operator provides."""

from __future__ import annotations

import os
import secrets
import stat
from typing import TYPE_CHECKING, Final

from iris_py.errors import ConfigurationError
from iris_security.keyring import Secret

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["parse_secret", "read_guarded", "read_secret_file", "user_secret", "write_secret_file"]

SECRET_FILE_BYTES_MAX: Final = 1024  # one line, and some comment lines
PRIVATE: Final = 0o600
PRIVATE_DIRECTORY: Final = 0o700


def parse_secret(value: object, origin: str) -> Secret:
    """Turn text, bytes or a `Secret` into a `Secret`. An error names the origin and never shows the value."""
    try:
        if isinstance(value, Secret):
            return value
        if isinstance(value, str):
            return Secret.parse(value.strip())
        if isinstance(value, bytes):
            return Secret.from_bytes(value)
    except ValueError as exc:
        raise ConfigurationError(f"{origin} is not a secret: {exc}. Make one with `iris keys new`.") from None
    raise ConfigurationError(f"{origin} must be a secret, not {type(value).__name__}. Make one with `iris keys new`.")


def user_secret(config_directory: Path) -> Secret:
    """Return the per-user secret, made at the first call ever (docs/design.md 2.5).

    Two processes that start at the same time end with one secret: each writes a file of its own and links it to the name, which
    only one of them can.

    Args:
        config_directory: The user's configuration directory for Iris.

    Raises:
        ConfigurationError: The file is not private to this user, damaged, or cannot be made.
    """
    path = config_directory / "secret"
    try:
        config_directory.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
        _check_private(os.stat(config_directory), config_directory, 0o022, "go-w")
        try:
            return _read_user_secret(path)
        except FileNotFoundError:
            pass
        try:
            _create(path, Secret.generate(secrets.token_bytes).text + "\n")
        except FileExistsError:
            pass  # another process was faster: its secret is the one
        return _read_user_secret(path)
    except OSError as exc:
        raise ConfigurationError(
            f"the per-user secret {path} cannot be read or made: {exc.strerror}. "
            "Make the directory writable, or set IRIS_SECRET to a secret from `iris keys new`."
        ) from exc


def _read_user_secret(path: Path) -> Secret:
    content, status = _read(path, SECRET_FILE_BYTES_MAX)
    _check_private(status, path, 0o077, "600")
    return _secret_of(content, str(path), f"Remove {path} to get a new one; all your processes then have to start again")


def read_secret_file(path: Path, origin: str) -> Secret:
    """Read a secret that an operator put into a file.

    Another owner and a group that may read are fine here (a service manager provides files so), the rest of the world is not.

    Raises:
        ConfigurationError: The file is missing, open to others, or holds no secret.
    """
    try:
        content, is_guarded = read_guarded(path, SECRET_FILE_BYTES_MAX)
    except OSError as exc:
        raise ConfigurationError(
            f"{origin}: {path} cannot be read: {exc.strerror}. Correct the path or its permissions."
        ) from exc
    if not is_guarded:
        raise ConfigurationError(f"{origin}: others can read {path}. Run: chmod 600 {path}")
    return _secret_of(content, f"{origin}: {path}", "Make one with `iris keys new`")


def write_secret_file(path: Path, secret: Secret) -> None:
    """Put a secret into a new private file.

    Raises:
        ConfigurationError: The file exists already or cannot be written. A secret is never overwritten: others may hold it.
    """
    try:
        _create(path, secret.text + "\n")
    except FileExistsError:
        raise ConfigurationError(f"{path} exists already. Choose another name, or remove it first.") from None
    except OSError as exc:
        raise ConfigurationError(f"{path} cannot be written: {exc.strerror}. Choose another place.") from exc


def read_guarded(path: Path, bytes_max: int) -> tuple[bytes, bool]:
    """Read a small file; tell also whether all but its owner and group are kept from it.

    Raises:
        OSError: It cannot be read.
        ConfigurationError: It is no regular file, or larger than `bytes_max`.
    """
    content, status = _read(path, bytes_max)
    return content, not stat.S_IMODE(status.st_mode) & 0o007


def _read(path: Path, bytes_max: int) -> tuple[bytes, os.stat_result]:
    # The file that is judged is the one that is open, so nobody can swap it in between; O_NONBLOCK, lest a FIFO holds us up.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ConfigurationError(f"{path} is no regular file. Put a file there.")
        content = os.read(descriptor, bytes_max + 1)
    finally:
        os.close(descriptor)
    if len(content) > bytes_max:
        raise ConfigurationError(f"{path} is larger than {bytes_max} bytes. It is not what it should be: correct the path.")
    return content, status


def _create(path: Path, text: str) -> None:
    """Make a private file that is there whole or not at all; `FileExistsError` if the name is taken."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE)
    try:
        with open(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        os.link(draft, path)
    finally:
        os.unlink(draft)


def _check_private(status: os.stat_result, path: Path, forbidden: int, mode: str) -> None:
    if status.st_uid != os.geteuid():
        raise ConfigurationError(
            f"{path} belongs to another user (uid {status.st_uid}). Remove it, or set XDG_CONFIG_HOME to a directory of yours."
        )
    if stat.S_IMODE(status.st_mode) & forbidden:
        raise ConfigurationError(f"{path} is open to other users. Run: chmod {mode} {path}")


def _secret_of(content: bytes, name: str, advice: str) -> Secret:
    lines = list(_lines(content))
    if len(lines) != 1:
        raise ConfigurationError(f"{name} holds {len(lines)} lines in place of one secret. {advice}.")
    try:
        return Secret.parse(lines[0])
    except ValueError as exc:
        raise ConfigurationError(f"{name} is not a secret: {exc}. {advice}.") from None


def _lines(content: bytes) -> Iterator[str]:
    """Yield the lines that count: no blank ones, no ``#`` comments."""
    for line in content.decode("latin-1").splitlines():
        text = line.strip()
        if text and not text.startswith("#"):
            yield text
