"""The files of an executor's agent, by which the executor's tasks find it: their directory, owner, locks, and removal.

The path is resolved once, and only the descriptor is used from then on (:mod:`spark_connector.local.private_directory`).
:mod:`.spawn` has the theory of operation of the locks.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from pathlib import Path
from typing import Final

from iris_py import ConfigurationError
from spark_connector.daemon import KEY_DIGITS, directory_of
from spark_connector.errors import PathNotPrivate
from spark_connector.local.private_directory import SOCKET_NAME, PrivateDirectory

__all__ = [
    "BIRTH_KEY_NAME",
    "CONTROL_NAME",
    "INFO_NAME",
    "LOCK_NAME",
    "agent_directory",
    "is_alive",
    "lock_file",
    "remove_directory",
    "reserve",
    "sweep",
]

LOCK_NAME: Final = "lock"
SPAWN_LOCK_NAME: Final = "spawn.lock"
INFO_NAME: Final = "info.json"
CONTROL_NAME: Final = "control"
BIRTH_KEY_NAME: Final = "birth.key"

#: The files and sockets of a live agent. An agent that replaces it makes new ones.
_SAID: Final = (INFO_NAME, f"{INFO_NAME}.draft", CONTROL_NAME, SOCKET_NAME, BIRTH_KEY_NAME, f"{BIRTH_KEY_NAME}.draft")
_DIRECTORY_NAME: Final = re.compile(f"[0-9a-f]{{{KEY_DIGITS}}}")


def agent_directory() -> Path:
    """Return the directory of this executor's agent; call it in a Spark task. The directory may not exist yet.

    Raises:
        ConfigurationError: This process is not a Spark task.
    """
    local = os.environ.get("SPARK_LOCAL_DIRS")
    if not local:
        raise ConfigurationError("SPARK_LOCAL_DIRS is not set, so this is not a Spark task. Call this in a task.")
    return Path(directory_of(local))


# -- locks


def lock_file(directory: PrivateDirectory, name: str) -> int | None:
    """Lock a file; return its descriptor. None if another process holds the lock or has just removed the file.

    Raises:
        PathNotPrivate: Other users have access to the file.
    """
    try:
        descriptor = directory.open_file(name, os.O_RDWR | os.O_CREAT)
    except FileNotFoundError:
        return None  # its directory is being removed
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), directory.stat(name)):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(descriptor)
    return None


def is_alive(directory: PrivateDirectory) -> bool:
    """Tell whether a live agent owns a directory: whether its lock is held.

    Raises:
        PathNotPrivate: Other users have access to the lock.
    """
    try:
        descriptor = directory.open_file(LOCK_NAME, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        # Shared, so that two concurrent checks do not take each other for an agent.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def reserve(path: Path) -> tuple[PrivateDirectory, int] | None:
    """Acquire the right to start an agent, and remove the files of the previous agent.

    Returns:
        The directory, and the spawn lock, to be closed when the new agent accepts connections. None if an agent is alive or
        starting.

    Raises:
        ConfigurationError: The directory cannot be created.
        PathNotPrivate: Other users have access to the directory, to its parent, or to the locks.
    """
    try:
        with PrivateDirectory.make(path.parent) as base:
            directory = base.make_directory(path.name)
    except FileNotFoundError as exc:
        if path.parent.parent.is_dir():
            return None  # it is being removed
        raise ConfigurationError(
            f"there is no directory {path.parent.parent}. Set TMPDIR on the executors to an existing directory."
        ) from exc
    except OSError as exc:
        raise ConfigurationError(
            f"{path} cannot be made: {exc.strerror}. Set XDG_RUNTIME_DIR on the executors to a directory of their user that "
            "has mode 0700, or TMPDIR to one that can be written."
        ) from exc
    spawning = None
    try:
        spawning = lock_file(directory, SPAWN_LOCK_NAME)
        if spawning is not None and not is_alive(directory):
            for name in _SAID:
                directory.unlink(name)
            return directory, spawning
    except BaseException:
        _close(directory, spawning)
        raise
    _close(directory, spawning)
    return None


def _close(directory: PrivateDirectory, lock: int | None) -> None:
    directory.close()
    if lock is not None:
        os.close(lock)


# -- the end


def sweep(base: Path) -> None:
    """Remove the directories of killed agents, whose locks are free.

    Raises:
        PathNotPrivate: Other users have access to the parent directory. Nothing is removed then.
    """
    with contextlib.suppress(FileNotFoundError), PrivateDirectory.open(base) as opened:
        for name in opened.names():
            if _DIRECTORY_NAME.fullmatch(name):
                with contextlib.suppress(FileNotFoundError, PathNotPrivate), opened.open_directory(name) as directory:
                    _sweep_one(directory)


def _sweep_one(directory: PrivateDirectory) -> None:
    spawning = lock_file(directory, SPAWN_LOCK_NAME)
    if spawning is None:
        return
    try:
        lock = lock_file(directory, LOCK_NAME)
        if lock is not None:
            remove_directory(directory)
            os.close(lock)
    finally:
        os.close(spawning)


def remove_directory(directory: PrivateDirectory) -> None:
    """Remove the directory of an agent, with the agent's own files and nothing else.

    The caller holds the lock, which is removed last: from then on others may use the path.
    """
    with contextlib.suppress(OSError):
        for name in (*_SAID, SPAWN_LOCK_NAME, LOCK_NAME):
            directory.unlink(name)
        directory.remove()
