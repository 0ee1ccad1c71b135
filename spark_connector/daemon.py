"""Spark's Python daemon, which first starts the agent of its executor: ``spark.python.daemon.module=spark_connector.daemon``.

It also sees that PySpark is not compiled anew in every executor; see :func:`search_path`.

Spark starts a daemon with the first Python task of an executor, and forks it for every task. So here an agent imports what it
needs while the first task does the same, instead of after it. It knows nothing and serves nothing: whatever told it more, an
environment or a command line, could be read by others. The task that the driver sends adopts it (:mod:`.spawn`).

Nothing here may hold up or break Spark. The daemon waits for nobody and takes no lock. What fails is one line on the standard
error output, and nothing is printed to the standard output, where Spark reads the port of the daemon. As it forks, it has no
threads, and imports nothing that could start some.
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

#: What Spark calls this module.
MODULE = "spark_connector.daemon"
#: The argument that says to an agent that nobody will tell it anything before it runs.
AHEAD = "ahead"
#: The status with which such a process ends that has not become an agent: there is one, or somebody else is starting it.
NOT_NEEDED = 3

#: Of the hash that names an agent's directory.
KEY_DIGITS = 16
#: Secrets of Spark in the environment of Python workers, which an agent has no use for.
_NOT_INHERITED = ("PYTHON_WORKER_FACTORY_SECRET", "_SPARK_AUTH_SECRET")


def directory_of(local: str) -> str:
    """Return the directory of an executor's agent. Nothing says that it is there, or whose it is.

    It is below ``XDG_RUNTIME_DIR``, where nobody else can make anything, if that is a directory of this user alone; else below
    the temporary directory.

    Args:
        local: ``SPARK_LOCAL_DIRS`` in the executor's Python processes.
    """
    import hashlib

    key = hashlib.sha256(local.encode()).hexdigest()[:KEY_DIGITS]
    return os.path.join(_runtime_directory() or _temporary_directory(), f"iris-{os.getuid()}", key)


def _runtime_directory() -> str:
    """Return the directory of this user for what lives as long as processes do; empty if there is none."""
    path = os.environ.get("XDG_RUNTIME_DIR", "")
    try:
        status = os.lstat(path)
    except OSError:
        return ""
    is_own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077
    return path if is_own and os.path.isabs(path) else ""  # the XDG specification says to ignore a relative one


def _temporary_directory() -> str:
    import tempfile

    return tempfile.gettempdir()


def search_path(path: list[str]) -> list[str]:
    """Return the places where modules are found, without those that Spark puts first and that only take time.

    Its core is a JAR without a line of Python, and to read what is in it takes every process 50 ms. Its archive of PySpark has
    sources only, which every daemon compiles: a second of its processor. An installed PySpark is compiled. It takes the place
    of the archive that is a part of it, and of no other: so both are the same release.

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
    """Return what an agent inherits of this process: the environment, and where modules are found."""
    environment = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in search_path(sys.path) if path)  # it can import what a task can
    return environment


def start_agent() -> None:
    """Start a process that becomes the agent of this executor if it has none; return at once, whatever happens."""
    handler = signal.getsignal(signal.SIGCHLD)
    try:
        if not _is_of_use():
            return
        # That process ends when it has forked the agent, and nobody asks how. Spark's daemon does the same a moment later.
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        _spawn()
    except Exception as exc:
        signal.signal(signal.SIGCHLD, handler)
        print(f"iris: no agent is started ahead: {type(exc).__name__}: {exc}", file=sys.stderr)  # noqa: T201


def start_early() -> int | None:
    """Start such a process in a task, before the task imports what it needs to talk to it: the two import at the same time.

    Returns:
        Its pid, whose end the task is to wait for before it starts an agent itself. None if none was started: the executor
        has or had an agent, or one is being started; or it cannot be, and the task will find out why.
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
    """Tell whether an agent may be lacking. The process would find out too, after half a second of imports."""
    with open(f"/proc/{os.getppid()}/cmdline", "rb") as file:
        command = file.read().split(b"\0")
    if os.path.basename(command[0]) == b"java" and b"--executor-id" not in command:
        return False  # the driver
    local = os.environ.get("SPARK_LOCAL_DIRS")
    return not (local and os.path.exists(os.path.join(directory_of(local), "info.json")))


def main() -> None:
    """Be the daemon that Spark wants."""
    sys.path[:] = search_path(sys.path)
    start_agent()
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()
