"""Spark's Python daemon, extended to start the executor's agent: ``spark.python.daemon.module=spark_connector.daemon``.

It also keeps PySpark from being compiled again in every executor; see :func:`search_path`.

Spark starts a daemon with the first Python task of an executor, and forks the daemon for every task. Starting the agent here
lets the agent import its modules while the first task does the same. This agent has no secret and serves nothing yet, because
other users could read an environment or a command line. A task sent by the driver adopts the agent (:mod:`.spawn`).

Nothing here may delay or break Spark. The daemon waits for no process and takes no lock. A failure is one line on standard
error. Nothing is printed to standard output, where Spark reads the daemon's port. Because the daemon forks, it has no threads
and imports no module that could start one.
"""

from __future__ import annotations

import os
import signal
import stat
import sys
from importlib.machinery import PathFinder

__all__ = [
    "AHEAD",
    "KEY_DIGITS",
    "MODULE",
    "NOT_NEEDED",
    "directory_of",
    "inherited_environment",
    "main",
    "search_path",
    "start_agent",
    "start_early",
]

#: The name of this module in Spark's settings.
MODULE = "spark_connector.daemon"
#: The argument that tells an agent to start without instructions.
AHEAD = "ahead"
#: Exit status of a process that did not become the agent, because the executor has an agent or another process is starting it.
NOT_NEEDED = 3

#: Digits of the hash that names an agent's directory.
KEY_DIGITS = 16
#: Secrets of Spark in the environment of Python workers; an agent has no use for them.
_NOT_INHERITED = ("PYTHON_WORKER_FACTORY_SECRET", "_SPARK_AUTH_SECRET")


def directory_of(local: str) -> str:
    """Return the directory of an executor's agent. The directory may be missing or belong to another user.

    It is below ``XDG_RUNTIME_DIR`` if only this user can access that directory; otherwise below the temporary directory.

    Args:
        local: ``SPARK_LOCAL_DIRS`` in the executor's Python processes.
    """
    import hashlib

    key = hashlib.sha256(local.encode()).hexdigest()[:KEY_DIGITS]
    return os.path.join(_runtime_directory() or _temporary_directory(), f"iris-{os.getuid()}", key)


def _runtime_directory() -> str:
    """Return this user's runtime directory; empty if none is usable."""
    path = os.environ.get("XDG_RUNTIME_DIR", "")
    try:
        status = os.lstat(path)
    except OSError:
        return ""
    is_own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077
    return path if is_own and os.path.isabs(path) else ""  # the XDG specification says to ignore a relative path


def _temporary_directory() -> str:
    import tempfile

    return tempfile.gettempdir()


def search_path(path: list[str]) -> list[str]:
    """Return the module search path without the useless entries Spark puts first.

    Spark's core is a JAR without Python code, and reading its index takes every process 50 ms. Spark's archive of PySpark holds
    only sources, and compiling them costs every daemon a second of processor time. An installed PySpark is compiled already.
    Only its own archive is replaced, so both are the same release.

    Args:
        path: As ``sys.path``.
    """
    path = [each for each in path if not os.path.basename(each).startswith("spark-core_")]
    others = [each for each in path if os.path.basename(each) != "pyspark.zip"]
    found = PathFinder.find_spec("pyspark", others)
    if found is None or found.origin is None:
        return path
    own = os.path.realpath(os.path.join(os.path.dirname(found.origin), "python", "lib", "pyspark.zip"))
    return others if all(os.path.realpath(each) == own for each in path if each not in others) else path


def inherited_environment() -> dict[str, str]:
    """Return the environment for an agent, with the module search path."""
    environment = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in search_path(sys.path) if path)  # the imports of tasks
    return environment


def start_agent() -> None:
    """Start a process that becomes this executor's agent, if necessary. Return at once, without raising."""
    handler = signal.getsignal(signal.SIGCHLD)
    try:
        if not _is_of_use():
            return
        # The process ends after forking the agent, and its status is not read. Spark's daemon ignores SIGCHLD a moment later,
        # too.
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        _spawn()
    except Exception as exc:
        signal.signal(signal.SIGCHLD, handler)
        print(f"iris: cannot start an agent in advance: {type(exc).__name__}: {exc}", file=sys.stderr)  # noqa: T201


def start_early() -> int | None:
    """Start an agent before a task imports modules, to run both imports at the same time.

    Returns:
        The pid of the started process; the task waits for the end of this process before starting an agent itself. None if no
        process was started: the executor has or had an agent, another process is starting one, or starting failed. The task
        then starts the agent in the usual way, and reports any error.
    """
    main_module = getattr(sys.modules.get("__main__"), "__spec__", None)
    local = os.environ.get("SPARK_LOCAL_DIRS")
    if not local or (main_module is not None and main_module.name == MODULE):
        return None
    try:
        return None if os.path.exists(directory_of(local)) else _spawn()
    except OSError:
        return None


def _spawn() -> int:
    return os.posix_spawn(
        sys.executable,
        [sys.executable, "-P", "-m", "spark_connector.executors.agent", AHEAD],
        inherited_environment(),
        file_actions=[(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0), (os.POSIX_SPAWN_DUP2, 2, 1)],
        setsigdef=[signal.SIGCHLD],
    )


def _is_of_use() -> bool:
    """Tell whether the executor may lack an agent. Starting none where an agent exists saves half a second of imports."""
    with open(f"/proc/{os.getppid()}/cmdline", "rb") as file:
        command = file.read().split(b"\0")
    if os.path.basename(command[0]) == b"java" and b"--executor-id" not in command:
        return False  # the driver
    local = os.environ.get("SPARK_LOCAL_DIRS")
    return not (local and os.path.exists(os.path.join(directory_of(local), "info.json")))


def main() -> None:
    """Run as Spark's daemon."""
    sys.path[:] = search_path(sys.path)
    start_agent()
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()
