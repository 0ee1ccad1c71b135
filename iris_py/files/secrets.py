"""Secrets in files: the per-user secret, and the files of an operator.

The rules differ. Iris makes the per-user secret: a file of mode 0600, owned by the user, and no link; anything else is an
error. Systems provide an operator's file in different ways: Docker mounts secrets with mode 0444, Kubernetes with 0644, from
another owner and behind a symbolic link, and read-only mounts cannot be changed. A file writable by others is refused, because
they could choose the secret. A file readable by others is used, with a warning if the user can change its mode.

Files are replaced at once: readers get all of the old content or all of the new.
"""

from __future__ import annotations

import enum
import errno
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from iris_py.errors import ConfigurationError
from iris_py.logs import EventLogger
from iris_security import AdministrationKey, CloudKey, Secret
from iris_security.text_form import holds_secret

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

__all__ = [
    "Exposure",
    "check_exposure",
    "check_path",
    "create_file",
    "expand_home",
    "find_added",
    "is_present",
    "parse_content",
    "parse_secrets",
    "read_administration_key",
    "read_cloud_key",
    "read_exposed",
    "read_secret_file",
    "replace_file",
    "user_secret",
    "write_secret_file",
]


def replace_file(path: Path, content: bytes, like: os.stat_result | None = None) -> None:
    """Write the content to a temporary file in the same directory, and rename it to the path.

    Args:
        path: The file.
        content: The new content.
        like: The source of mode and owner; by default the file is private to this user.

    Raises:
        OSError: The file cannot be replaced, and is unchanged.
    """
    import tempfile  # a megabyte of memory, and most nodes replace no file

    made, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(made, "wb") as file:
            file.write(content)
            file.flush()
            if like is not None:
                os.fchmod(made, stat.S_IMODE(like.st_mode))
                if (like.st_uid, like.st_gid) != (os.geteuid(), os.getegid()):
                    os.fchown(made, like.st_uid, like.st_gid)
            os.fsync(made)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def create_file(path: Path, content: bytes) -> None:
    """Write a new private file of this user, complete as soon as the name exists.

    Args:
        path: The file.
        content: Its content.

    Raises:
        FileExistsError: The file exists, and is unchanged.
        OSError: The file cannot be written, and does not exist.
    """
    import tempfile  # as above

    made, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(made, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(made)
        try:
            os.link(name, path)  # fails if the name exists, where a rename would replace the file
        except FileExistsError:
            raise
        except OSError:  # a file system without hard links, such as a memory stick
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            try:
                os.replace(name, path)
            except BaseException:  # such as a full disk: no empty file stays behind
                os.unlink(path)
                raise
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name)


logger = EventLogger("iris_py.config")

_Key = TypeVar("_Key")

SECRET_FILE_BYTES_MAX: Final = 1024  # one line, and some comment lines
#: The comment in a secret file that marks an added generation that has never encrypted.
_ADDED_NOTE: Final = "added by `iris keys add`; seals only after `iris keys rotate`: "
_ADDED: Final = re.compile(rf"\s*#\s*{re.escape(_ADDED_NOTE)}([0-9a-f]+)\s*$")
PRIVATE: Final = 0o600
PRIVATE_DIRECTORY: Final = 0o700


class Exposure(enum.Enum):
    """The rights of the other users of a machine to a file."""

    NONE = enum.auto()
    """Readable at most by its group, as service managers provide files."""
    MOUNTED = enum.auto()
    """Readable by others, owned by another user and on a read-only file system: a mounted secret."""
    READABLE = enum.auto()
    """Readable by others, because its owner has not restricted the mode."""
    WRITABLE = enum.auto()
    """Its group or others can change it."""


def parse_secrets(value: object, origin: str) -> tuple[Secret, ...]:
    """Convert text, bytes, a `Secret`, or several of these, to the generations of a secret, the encrypting one first.

    A text may hold several secrets, separated by blanks, commas or line ends. Errors name the origin, never the value.

    Raises:
        ConfigurationError: The value has another type, or holds no secret.
    """
    try:
        if isinstance(value, Secret):
            return (value,)
        if isinstance(value, str):
            return tuple(Secret.parse(text) for text in value.replace(",", " ").split() or ("",))
        if isinstance(value, bytes):
            return (Secret.from_bytes(value),)
    except ValueError as exc:
        raise ConfigurationError(f"{origin} is not a secret: {exc}. Make one with `iris keys new`.") from None
    if isinstance(value, Sequence):
        if not value:
            raise ConfigurationError(f"{origin} is an empty list in place of a secret. Make one with `iris keys new`.")
        return tuple(secret for one in value for secret in parse_secrets(one, origin))
    raise ConfigurationError(f"{origin} must be a secret, not {type(value).__name__}. Make one with `iris keys new`.")


def user_secret(config_directory: Path) -> Secret:
    """Return the per-user secret, made at the first call ever (docs/design.md 2.5).

    Two processes that start at the same time get the same secret: each writes a temporary file and links it to the name, and
    only the first link succeeds. The directory is opened once, so the secret is in the checked directory even if its path
    changes.

    Args:
        config_directory: The user's configuration directory for Iris.

    Raises:
        ConfigurationError: The file is not private to this user, a symbolic link, damaged, or cannot be made.
    """
    path = config_directory / "secret"
    try:
        config_directory.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
        directory = os.open(config_directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _check_private(os.fstat(directory), config_directory, 0o022, "go-w")
            return _read_or_make_user_secret(path, directory)
        finally:
            os.close(directory)
    except OSError as exc:
        raise ConfigurationError(
            f"the per-user secret {path} cannot be read or made: {exc.strerror}. "
            "Make the directory writable, or set IRIS_SECRET to a secret from `iris keys new`."
        ) from exc


def _read_or_make_user_secret(path: Path, directory: int) -> Secret:
    try:
        return _read_user_secret(path, directory)
    except FileNotFoundError:
        pass
    try:
        _create(path, Secret.generate(secrets.token_bytes).text + "\n", directory)
    except FileExistsError:
        pass  # another process was faster: use its secret
    return _read_user_secret(path, directory)


def _read_user_secret(path: Path, directory: int) -> Secret:
    try:
        content, status, _ = _read(path, SECRET_FILE_BYTES_MAX, os.O_NOFOLLOW, directory)
    except OSError as exc:
        if exc.errno != errno.ELOOP:
            raise
        raise ConfigurationError(
            f"{path} is a symbolic link, but the per-user secret is a regular file made by Iris. Remove the link, or set "
            "IRIS_SECRET_FILE to the file with the secret."
        ) from None
    _check_private(status, path, 0o077, "600")
    secrets = parse_content(content, str(path), f"Remove {path} to get a new one; all your processes then have to start again")
    if len(secrets) != 1:
        raise ConfigurationError(f"{path} holds {len(secrets)} secrets, but Iris made it with one. Remove the others.")
    return secrets[0]


def check_path(path: str | Path, origin: str) -> None:
    """Refuse a secret in place of a path, before an error or a message shows it.

    Args:
        path: The given path.
        origin: Its source: a setting, a variable or an option.

    Raises:
        ConfigurationError: The path looks like a secret.
    """
    if holds_secret(str(path)):
        raise ConfigurationError(
            f"{origin} is a secret, not the path of a file. Write the secret into a file that only its user can read, and "
            "give the path of that file. If the secret was on a command line, others may have seen it: make a new one."
        )


def read_settings_text(path: Path, bytes_max: int, *, danger: str) -> str:
    """Return the text of a settings file.

    Args:
        path: The file.
        bytes_max: The largest size.
        danger: The things that other users could change in the file, for the error.

    Raises:
        ConfigurationError: The file cannot be read, is too large, is writable by other users, or is no UTF-8.
    """
    check_path(path, "FILE")
    try:
        content, exposure = read_exposed(path, bytes_max)
    except OSError as exc:
        raise ConfigurationError(f"{path} cannot be read: {exc.strerror}. Correct the path or its permissions.") from exc
    if exposure is Exposure.WRITABLE:
        raise ConfigurationError(f"other users can write {path}, and so change {danger}. Run: chmod go-w {path}")
    try:
        return content.decode()
    except UnicodeDecodeError as exc:
        line = content.count(b"\n", 0, exc.start) + 1
        raise ConfigurationError(f"{path.name}:{line}: this is not UTF-8. Save the file as UTF-8.") from None


def is_present(path: Path) -> bool:
    """Return whether a file exists; False also if this user has no access to its directory."""
    return os.path.exists(path)


def expand_home(path: Path, origin: str) -> Path:
    """Return a path with the home directory in place of ``~``.

    Args:
        path: The path.
        origin: Its source, for errors: a setting, a variable or an option.

    Raises:
        ConfigurationError: The home directory does not exist.
    """
    try:
        return path.expanduser()
    except RuntimeError:
        raise ConfigurationError(
            f"{origin}: {path} begins with {path.parts[0]}, and that home directory is unknown here. "
            "Write the whole path, or set HOME."
        ) from None


def read_secret_file(path: Path, origin: str) -> tuple[Secret, ...]:
    """Read an operator's secret file: a generation per line, the primary first.

    Another owner and a readable group are accepted, as service managers provide files. A file readable by all users is used
    with a warning in the log, but without a warning on a read-only mount of another owner.

    Args:
        path: The file.
        origin: Its source, for errors: a setting, a variable or an option.

    Raises:
        ConfigurationError: The file is missing, writable by others, or holds no secret; or the path is a secret.
    """
    return parse_content(_read_checked(path, origin), f"{origin}: {path}", "Make one with `iris keys new`")


def check_exposure(exposure: Exposure, path: Path, prefix: str = "") -> None:
    """Refuse a secret file writable by others, and warn if others can read it.

    Args:
        exposure: The exposure of the file.
        path: The file.
        prefix: The text before the path in errors and warnings.

    Raises:
        ConfigurationError: Others can write the file.
    """
    if exposure is Exposure.WRITABLE:
        raise ConfigurationError(f"{prefix}other users can write {path}, and so choose the secret. Run: chmod 600 {path}")
    if exposure is Exposure.READABLE:
        logger.warning(
            "secret_readable",
            "%severy user of this machine can read the secret in %s. Run: chmod 600 %s",
            prefix,
            path,
            path,
            about=str(path),
            path=str(path),
        )


def read_administration_key(path: Path, origin: str) -> AdministrationKey:
    """Read an administrator key from a file with only the key and comments.

    Raises:
        ConfigurationError: The file is missing, writable by others, or holds no administrator key.
    """
    return _read_key(path, origin, AdministrationKey.parse, "an administration key", "administrator")


def read_cloud_key(path: Path, origin: str) -> CloudKey:
    """Read the private key of a cloud from a file with only the key and comments.

    Args:
        path: The file.
        origin: Its source, for errors: a setting or an argument.

    Raises:
        ConfigurationError: The file is missing, writable by others, or holds no cloud key; or the path is a key.
    """
    return _read_key(path, origin, CloudKey.parse, "the private key of a cloud", "identity")


def write_secret_file(path: Path, secret: Secret | AdministrationKey | CloudKey) -> None:
    """Write a secret to a new private file.

    Raises:
        ConfigurationError: The file exists or cannot be written, or its path is a secret. A secret is never overwritten: other
            nodes may hold it.
    """
    check_path(path, "the name of the file")
    try:
        _create(path, secret.text + "\n")
    except FileExistsError:
        raise ConfigurationError(f"{path} exists already. Choose another name, or remove it first.") from None
    except OSError as exc:
        raise ConfigurationError(f"{path} cannot be written: {exc.strerror}. Choose another place.") from exc


def rewrite_secret_file(path: Path, secrets: Sequence[Secret], added: Collection[Secret] = ()) -> None:
    """Replace the generations in a secret file at once: readers get all the old ones or all the new ones.

    Mode, owner and comments stay; comments move to the top. If the path is a link, its target is replaced.

    Args:
        path: The file, which exists.
        secrets: The generations, the primary first.
        added: The added generations that have never encrypted: marked by a comment, for :func:`find_added`.

    Raises:
        ConfigurationError: The file cannot be read or replaced, for example a mounted file.
    """
    path = path.resolve()
    try:
        content, status, _ = _read(path, SECRET_FILE_BYTES_MAX)
        comments = [line for line in _comments(content) if not _ADDED.match(line)]
        notes = [f"# {_ADDED_NOTE}{_mark(secret)}" for secret in secrets if secret in added]
        lines = [*comments, *notes, *(secret.text for secret in secrets)]
        rewritten = "".join(line + "\n" for line in lines).encode("latin-1")
        if len(rewritten) > SECRET_FILE_BYTES_MAX:
            raise ConfigurationError(
                f"{path} would have {len(rewritten)} bytes, and {SECRET_FILE_BYTES_MAX} are allowed. Shorten its comments."
            )
        replace_file(path, rewritten, like=status)
    except OSError as exc:
        raise ConfigurationError(f"{path} cannot be rewritten: {exc.strerror}. Change it where it comes from.") from exc


def find_added(path: Path, secrets: Sequence[Secret]) -> tuple[Secret, ...]:
    """Return the generations of a secret file that comments mark as added and never used to encrypt.

    Args:
        path: The file.
        secrets: The generations in the file.

    Raises:
        ConfigurationError: The file cannot be read.
    """
    try:
        content, _, _ = _read(path, SECRET_FILE_BYTES_MAX)
    except OSError as exc:
        raise ConfigurationError(f"{path} cannot be read: {exc.strerror}. Correct the path or its permissions.") from exc
    marks = {match[1] for line in _comments(content) if (match := _ADDED.match(line))}
    return tuple(secret for secret in secrets if _mark(secret) in marks)


def _comments(content: bytes) -> list[str]:
    return [line for line in content.decode("latin-1").splitlines() if line.strip().startswith("#")]


def _mark(secret: Secret) -> str:
    """Return a short hash of a secret, to find a generation in its file; independent of the name of the network."""
    return hashlib.sha256(b"iris generation mark" + secret.value).hexdigest()[:8]


def _read_key(path: Path, origin: str, parse: Callable[[str], _Key], what: str, command: str) -> _Key:
    lines = list(_lines(_read_checked(path, origin)))
    advice = f"Make one with `iris keys {command}`"
    if len(lines) != 1:
        raise ConfigurationError(f"{origin}: {path} holds {len(lines)} lines, but {what} is one line. {advice}.")
    try:
        return parse(lines[0])
    except ValueError as exc:
        raise ConfigurationError(f"{origin}: {path} is not {what}: {exc}. {advice}.") from None


def _read_checked(path: Path, origin: str) -> bytes:
    check_path(path, origin)
    try:
        content, exposure = read_exposed(path, SECRET_FILE_BYTES_MAX)
    except OSError as exc:
        raise ConfigurationError(
            f"{origin}: {path} cannot be read: {exc.strerror}. Correct the path or its permissions."
        ) from exc
    check_exposure(exposure, path, f"{origin}: ")
    return content


def read_exposed(path: Path, bytes_max: int) -> tuple[bytes, Exposure]:
    """Read a small file; return the content, and the rights of other users to the file.

    Raises:
        OSError: The file cannot be read.
        ConfigurationError: The file is no regular file, or larger than `bytes_max`.
    """
    content, status, is_read_only = _read(path, bytes_max)
    mode = stat.S_IMODE(status.st_mode)
    if not is_read_only and mode & 0o022:
        return content, Exposure.WRITABLE
    if not mode & 0o004:
        return content, Exposure.NONE
    is_mounted = is_read_only and status.st_uid != os.geteuid()
    return content, Exposure.MOUNTED if is_mounted else Exposure.READABLE


def _read(path: Path, bytes_max: int, flags: int = 0, directory: int | None = None) -> tuple[bytes, os.stat_result, bool]:
    """Read a file; return the content, the status, and whether the file system is read-only.

    Args:
        path: The file.
        bytes_max: The largest valid size.
        flags: Additional flags for opening.
        directory: A descriptor of its directory; by default the directory of its path.

    Raises:
        OSError: The file cannot be read.
        ConfigurationError: The file is no regular file, or too large.
    """
    # Check the open file, which nobody can swap for another one; with O_NONBLOCK a FIFO does not block.
    name = path if directory is None else path.name
    descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags, dir_fd=directory)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ConfigurationError(f"{path} is not a regular file. Put a regular file there.")
        content = os.read(descriptor, bytes_max + 1)
        is_read_only = bool(os.fstatvfs(descriptor).f_flag & os.ST_RDONLY)
    finally:
        os.close(descriptor)
    if len(content) > bytes_max:
        raise ConfigurationError(f"{path} is larger than {bytes_max} bytes. It is probably the wrong file: correct the path.")
    return content, status, is_read_only


def _create(path: Path, text: str, directory: int | None = None) -> None:
    """Make a private file with its whole content or not at all; `FileExistsError` if the name is taken.

    Args:
        path: The file.
        text: Its content.
        directory: A descriptor of its directory; by default the directory of its path.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    if directory is not None:
        path, draft = Path(path.name), Path(draft.name)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE, dir_fd=directory)
    try:
        with open(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        os.link(draft, path, src_dir_fd=directory, dst_dir_fd=directory)
    finally:
        os.unlink(draft, dir_fd=directory)


def _check_private(status: os.stat_result, path: Path, forbidden: int, mode: str) -> None:
    if status.st_uid != os.geteuid():
        raise ConfigurationError(
            f"{path} belongs to another user (uid {status.st_uid}). Remove it, or set XDG_CONFIG_HOME to a directory of yours."
        )
    if stat.S_IMODE(status.st_mode) & forbidden:
        raise ConfigurationError(f"{path} is open to other users. Run: chmod {mode} {path}")


def parse_content(content: bytes, name: str, advice: str) -> tuple[Secret, ...]:
    """Return the generations in the content of a secret file, without its comments. An error does not show the content.

    Args:
        content: The content.
        name: The source of the content, for errors.
        advice: The remedy for invalid content.

    Raises:
        ConfigurationError: The content holds no secret, or more than secrets and comments.
    """
    lines = list(_lines(content))
    if not lines:
        raise ConfigurationError(f"{name} holds no secret. {advice}.")
    try:
        return tuple(map(Secret.parse, lines))
    except ValueError as exc:
        raise ConfigurationError(f"{name} is not a secret: {exc}. {advice}.") from None


def _lines(content: bytes) -> Iterator[str]:
    """Yield the lines with content: no blank lines, no ``#`` comments."""
    for line in content.decode("latin-1").splitlines():
        text = line.strip()
        if text and not text.startswith("#"):
            yield text
