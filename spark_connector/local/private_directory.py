"""A directory that is its user's alone, held open from the time when that was checked.

Theory of operation. A path in a directory that everybody may write, such as ``/tmp/iris-1000``, is whatever somebody has put
there, and from one system call to the next it may be something else. So such a path is resolved once, and not through a
symbolic link. The descriptor is asked for owner and mode. Whatever is done in the directory from then on goes through the
descriptor: no later change of the path leads anywhere else, and nobody but the user can change what is inside.

Unix sockets have no call that takes a descriptor, so their addresses name it: ``/proc/self/fd/<n>/<name>`` (see proc(5)). Such
an address is short, too, however long the path is.
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

#: The file in the directory of an agent at which tasks use its node.
SOCKET_NAME: Final = "socket"

#: Errors of a path that leads to something else than what is wanted there.
_WRONG_KIND: Final = (errno.ENOTDIR, errno.ELOOP, errno.EISDIR, errno.ENXIO, errno.EACCES, errno.EPERM)


class PrivateDirectory:
    """A directory that belongs to this user, and that nobody else can enter; see :meth:`open`.

    Attributes:
        path: Where it was found; for people, as it may be another directory by now.
    """

    def __init__(self, descriptor: int, path: Path, parent: int | None = None) -> None:
        """Take a descriptor, which is closed with this.

        Args:
            descriptor: Of the directory.
            path: What was opened.
            parent: A descriptor of the directory above it, if that is private too; it is closed with this.

        Raises:
            PathNotPrivate: It belongs to somebody else, or others can enter it. Both descriptors are closed then.
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
        """Open a directory, and see that it is this user's alone.

        Raises:
            FileNotFoundError: There is none.
            PathNotPrivate: It belongs to somebody else, others can enter it, or it is no directory but maybe a link to one.
        """
        return cls(_open(path, _directory_flags(), path), path)

    @classmethod
    def open_both(cls, path: Path) -> PrivateDirectory:
        """Open a directory in a directory, both of which are to be this user's alone.

        Raises:
            FileNotFoundError: One of them is not there.
            PathNotPrivate: One of them is not this user's alone.
        """
        with cls.open(path.parent) as parent:
            return parent.open_directory(path.name)

    @classmethod
    def make(cls, path: Path) -> Self:
        """Open a directory as :meth:`open` does; make it if there is none.

        Raises:
            OSError: It cannot be made.
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
        """Close the descriptor; harmless when it is closed."""
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
        """Open a directory in it.

        Raises:
            FileNotFoundError: There is none.
            PathNotPrivate: It is not this user's alone.
        """
        descriptor = _open(name, _directory_flags(), self.path / name, directory=self._descriptor)
        return PrivateDirectory(descriptor, self.path / name, os.dup(self._descriptor))

    def make_directory(self, name: str) -> PrivateDirectory:
        """Open a directory in it; make it if there is none.

        Raises:
            FileNotFoundError: Somebody has removed it, or this one, at the same time.
            PathNotPrivate: It is not this user's alone.
        """
        try:
            os.mkdir(name, 0o700, dir_fd=self._descriptor)
        except FileExistsError:
            pass
        return self.open_directory(name)

    def remove(self) -> None:
        """Remove this directory from the private one that it was opened in.

        Raises:
            OSError: It is not empty, or has been removed.
        """
        assert self._parent is not None, "the directory above it is not known to be private"
        os.rmdir(self.path.name, dir_fd=self._parent)

    # -- files in it

    def names(self) -> list[str]:
        """Return the names of everything in it."""
        return os.listdir(self._descriptor)

    def stat(self, name: str) -> os.stat_result:
        """Return the status of what has a name; not of what that links to.

        Raises:
            FileNotFoundError: Nothing has it.
        """
        return os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)

    def has(self, name: str) -> bool:
        """Tell whether there is something of a name."""
        try:
            self.stat(name)
        except FileNotFoundError:
            return False
        return True

    def is_socket(self, name: str) -> bool:
        """Tell whether there is a Unix socket of a name."""
        return self.has(name) and stat.S_ISSOCK(self.stat(name).st_mode)

    def open_file(self, name: str, flags: int) -> int:
        """Open a file of this user; return the descriptor. A file that is made has mode 0600.

        Args:
            name: Of the file.
            flags: As for :func:`os.open`. Links are not followed, and no FIFO is waited for.

        Raises:
            FileNotFoundError: There is none, or the directory has been removed.
            PathNotPrivate: It is no regular file, belongs to somebody else, can be written by others, or has a second name.
        """
        path = self.path / name
        descriptor = _open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, path, directory=self._descriptor)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise PathNotPrivate(path, "is no regular file", status.st_uid)
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
        """Return what a file of this user holds, or its first ``bytes_max`` bytes.

        Raises:
            FileNotFoundError: There is none.
            PathNotPrivate: As for :meth:`open_file`.
        """
        with open(self.open_file(name, os.O_RDONLY), "rb") as file:
            return file.read(bytes_max)

    def write(self, name: str, content: bytes) -> None:
        """Let a file hold something from one moment to the next; there is one under the name ``<name>.draft`` before.

        Raises:
            OSError: It cannot be written.
            PathNotPrivate: As for :meth:`open_file`.
        """
        draft = f"{name}.draft"
        self.unlink(draft)  # and not emptied: it might be another name of something else
        with open(self.open_file(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
            file.write(content)
        os.rename(draft, name, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)

    def unlink(self, name: str) -> None:
        """Remove what has a name, if anything has; a link itself, and never what it leads to.

        Raises:
            OSError: It is a directory.
        """
        try:
            os.unlink(name, dir_fd=self._descriptor)
        except FileNotFoundError:
            pass

    def address(self, name: str) -> str:
        """Return the address of a Unix socket in it, for this process and as long as this is open."""
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
    """Return what is wrong with a path that could not be opened, and whose it is; for people alone."""
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except OSError:
        return f"cannot be used: {exc.strerror}", None
    if stat.S_ISLNK(status.st_mode):
        return f"is a symbolic link of user {status.st_uid}", status.st_uid
    if flags & os.O_DIRECTORY and not stat.S_ISDIR(status.st_mode):
        return f"is no directory, and belongs to user {status.st_uid}", status.st_uid
    if status.st_uid != os.getuid():
        return f"belongs to user {status.st_uid}, and this process to {os.getuid()}", status.st_uid
    return f"cannot be used: {exc.strerror}", status.st_uid
