"""A directory of this user alone, held open from the time of the check.

Theory of operation. A path in a directory that every user can write, such as ``/tmp/iris-1000``, may have been created by
another user, and may change between two system calls. So the path is resolved once, without following a symbolic link, and the
descriptor is checked for owner and mode. All later operations use the descriptor: a change of the path no longer matters, and
only this user can change the contents.

Unix sockets have no call with a descriptor, so the address contains the descriptor: ``/proc/self/fd/<n>/<name>`` (see proc(5)).
Such an address is also short, however long the path is.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, Final, Self

from spark_connector.errors import PathNotPrivate

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

__all__ = ["SOCKET_NAME", "PrivateDirectory"]

#: The socket in an agent's directory at which tasks use its node.
SOCKET_NAME: Final = "socket"

#: Errors of opening a path that leads to another kind of file.
_WRONG_KIND: Final = (errno.ENOTDIR, errno.ELOOP, errno.EISDIR, errno.ENXIO, errno.EACCES, errno.EPERM)


class PrivateDirectory:
    """A directory of this user that no other user can enter; see :meth:`open`.

    Attributes:
        path: The path of the directory when it was opened; only for display, because another directory may have it by now.
    """

    def __init__(self, descriptor: int, path: Path, parent: int | None = None) -> None:
        """Take a descriptor, which :meth:`close` closes.

        Args:
            descriptor: The descriptor of the directory.
            path: The path that was opened.
            parent: A descriptor of the parent directory, if that is private too; :meth:`close` closes it.

        Raises:
            PathNotPrivate: It belongs to another user, or other users can enter it. Both descriptors are closed then.
        """
        self.path = path
        self._descriptor = descriptor
        self._parent = parent
        try:
            status = os.fstat(descriptor)
            if status.st_uid != os.getuid():
                raise PathNotPrivate(path, f"belongs to user {status.st_uid}, and this process to {os.getuid()}", status.st_uid)
            if stat.S_IMODE(status.st_mode) & 0o077:
                mode = f"{stat.S_IMODE(status.st_mode):04o}"
                raise PathNotPrivate(path, f"has mode {mode}, so others can enter it", status.st_uid)
        except BaseException:
            self.close()
            raise

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open a directory, and check that only this user has access.

        Raises:
            FileNotFoundError: The directory does not exist.
            PathNotPrivate: Another user owns or can enter it, or it is not a directory, perhaps a link.
        """
        return cls(_open(path, _directory_flags(), path), path)

    @classmethod
    def open_both(cls, path: Path) -> PrivateDirectory:
        """Open a directory, and check that only this user has access to it and the parent.

        Raises:
            FileNotFoundError: One of them does not exist.
            PathNotPrivate: Other users have access to one of them.
        """
        with cls.open(path.parent) as parent:
            return parent.open_directory(path.name)

    @classmethod
    def make(cls, path: Path) -> Self:
        """Open a directory as :meth:`open` does; create it if it does not exist.

        Raises:
            OSError: It cannot be created.
            PathNotPrivate: As for :meth:`open`.
        """
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            pass
        return cls.open(path)

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._descriptor

    def close(self) -> None:
        """Close the descriptor; harmless if repeated."""
        descriptors, self._descriptor, self._parent = (self._descriptor, self._parent), -1, None
        for descriptor in descriptors:
            if descriptor is not None and descriptor >= 0:
                os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<PrivateDirectory {self.path}>"

    # -- directories in it

    def open_directory(self, name: str) -> PrivateDirectory:
        """Open a subdirectory.

        Raises:
            FileNotFoundError: It does not exist.
            PathNotPrivate: Other users have access to it.
        """
        descriptor = _open(name, _directory_flags(), self.path / name, directory=self._descriptor)
        return PrivateDirectory(descriptor, self.path / name, os.dup(self._descriptor))

    def make_directory(self, name: str) -> PrivateDirectory:
        """Open a subdirectory; create it if it does not exist.

        Raises:
            FileNotFoundError: Another process has removed one of the directories at the same time.
            PathNotPrivate: Other users have access to it.
        """
        try:
            os.mkdir(name, 0o700, dir_fd=self._descriptor)
        except FileExistsError:
            pass
        return self.open_directory(name)

    def remove(self) -> None:
        """Remove this directory from its private parent.

        Raises:
            OSError: It is not empty, or has been removed.
        """
        assert self._parent is not None, "the directory above it is not known to be private"
        os.rmdir(self.path.name, dir_fd=self._parent)

    # -- files in it

    def names(self) -> list[str]:
        """Return the names of all entries."""
        return os.listdir(self._descriptor)

    def stat(self, name: str) -> os.stat_result:
        """Return the status of an entry, without following links.

        Raises:
            FileNotFoundError: The entry does not exist.
        """
        return os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)

    def has(self, name: str) -> bool:
        """Tell whether the directory has an entry of this name."""
        try:
            self.stat(name)
        except FileNotFoundError:
            return False
        return True

    def is_socket(self, name: str) -> bool:
        """Tell whether an entry is a Unix socket."""
        return self.has(name) and stat.S_ISSOCK(self.stat(name).st_mode)

    def open_file(self, name: str, flags: int) -> int:
        """Open a file of this user; return the descriptor. A new file has mode 0600.

        Args:
            name: The name of the file.
            flags: As for :func:`os.open`. Links are not followed, and opening a FIFO does not block.

        Raises:
            FileNotFoundError: The file does not exist, or the directory has been removed.
            PathNotPrivate: It is not a regular file, belongs to another user, can be written by others, or has a second name.
        """
        path = self.path / name
        descriptor = _open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, path, directory=self._descriptor)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise PathNotPrivate(path, "is not a regular file", status.st_uid)
            if status.st_uid != os.getuid():
                raise PathNotPrivate(path, f"belongs to user {status.st_uid}, and this process to {os.getuid()}", status.st_uid)
            if status.st_mode & 0o022:
                raise PathNotPrivate(path, "can be written by others", status.st_uid)
            if status.st_nlink > 1:
                raise PathNotPrivate(path, "has another name elsewhere", status.st_uid)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def read(self, name: str, bytes_max: int) -> bytes:
        """Return the content of a file of this user, or its first ``bytes_max`` bytes.

        Raises:
            FileNotFoundError: The file does not exist.
            PathNotPrivate: As for :meth:`open_file`.
        """
        with open(self.open_file(name, os.O_RDONLY), "rb") as file:
            return file.read(bytes_max)

    def write(self, name: str, content: bytes) -> None:
        """Replace the content of a file atomically, by way of a file ``<name>.draft``.

        Raises:
            OSError: It cannot be written.
            PathNotPrivate: As for :meth:`open_file`.
        """
        draft = f"{name}.draft"
        self.unlink(draft)  # not truncated, because it could be a second name of another file
        with open(self.open_file(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
            file.write(content)
        os.rename(draft, name, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)

    def unlink(self, name: str) -> None:
        """Remove an entry if it exists. Of a symbolic link, only the link is removed.

        Raises:
            OSError: It is a directory.
        """
        try:
            os.unlink(name, dir_fd=self._descriptor)
        except FileNotFoundError:
            pass

    def address(self, name: str) -> str:
        """Return the address of a Unix socket in this directory, valid in this process until :meth:`close`."""
        return f"/proc/self/fd/{self._descriptor}/{name}"


def _directory_flags() -> int:
    return os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def _open(name: str | Path, flags: int, path: Path, directory: int | None = None) -> int:
    try:
        return os.open(name, flags, 0o600, dir_fd=directory)
    except OSError as exc:
        if exc.errno not in _WRONG_KIND:
            raise
        raise PathNotPrivate(path, *_explain(name, flags, directory, exc)) from exc


def _explain(name: str | Path, flags: int, directory: int | None, exc: OSError) -> tuple[str, int | None]:
    """Return the reason why a path could not be opened, and the owner's user id, for the text of an error."""
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except OSError:
        return f"cannot be used: {exc.strerror}", None
    if stat.S_ISLNK(status.st_mode):
        return f"is a symbolic link of user {status.st_uid}", status.st_uid
    if flags & os.O_DIRECTORY and not stat.S_ISDIR(status.st_mode):
        return f"is not a directory, and belongs to user {status.st_uid}", status.st_uid
    if status.st_uid != os.getuid():
        return f"belongs to user {status.st_uid}, and this process to {os.getuid()}", status.st_uid
    return f"cannot be used: {exc.strerror}", status.st_uid
