"""Start the agent of an executor, from a Spark task: exactly one, whoever else tries at the same time.

Theory of operation. An executor is known by ``SPARK_LOCAL_DIRS``, which Spark gives to every Python worker and which is another
directory for each executor process. From it follows the *agent's directory*, below the temporary directory of the machine::

    iris-<uid>/<16 hex digits>/lock         locked by the agent for as long as it lives
                               spawn.lock   locked by the task that starts one
                               info.json    who the agent is; written when it can be talked to
                               control      Unix socket where tasks tell it what to serve
                               socket       Unix socket for tasks that use its node

The kernel drops a lock however its holder dies, so *locked* is *alive*. Who starts an agent holds the second lock, sees that
the first one is free, and waits until the agent can be talked to. An agent that ends removes its directory while it still
holds the lock; so whoever has locked a file looks whether that file is still the one at the path, and begins again if not.

Where Spark's Python daemon is :mod:`.daemon`, an agent is started ahead, by nobody's order. It holds the second lock itself
until it can be talked to, so tasks wait for it, and the first one adopts it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pickle
import socket
import stat
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iris_py import ConfigurationError
from spark_connector.daemon import NOT_NEEDED, directory_of, inherited_environment
from spark_connector.errors import AgentFailed
from spark_connector.executors.orders import seal_adoption, seal_local

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from spark_connector.executors.orders import Order

__all__ = [
    "LOCAL_ID",
    "ExecutorProcess",
    "Launch",
    "agent_directory",
    "agent_environment",
    "ensure_agent",
    "is_alive",
    "lock_file",
    "redirect_to_log",
    "reserve",
    "run_ensure",
]

#: The path of a socket may have no more, as Linux has it; see unix(7).
SOCKET_PATH_BYTES_MAX = 107
#: How long a task tries to get an agent. One starts in a second; on a machine with a dozen executors that all start, in ten.
ENSURE_TIMEOUT_S = 60.0
#: How often it looks again meanwhile.
LOOK_INTERVAL_S = 0.02
#: How long an agent may take to serve a cluster: it starts a node, and imports whatever the handler needs.
SERVE_TIMEOUT_S = 60.0
#: The largest answer of an agent: a few names and numbers, or the text of an error.
ANSWER_BYTES_MAX = 1 << 20
LOG_NAME = "iris-agent.log"

#: The executor of local mode, which is the driver's own process.
LOCAL_ID = "driver"


@dataclass(frozen=True)
class ExecutorProcess:
    """The process of an executor: a Java virtual machine."""

    id: str
    """Of the executor, as Spark calls it; ``driver`` in local mode."""
    pid: int
    """Of the process."""
    started: int
    """When it started, as the kernel counts: a pid alone may be another process tomorrow."""


@dataclass(frozen=True)
class Launch:
    """The order to start, which an agent reads from a pipe; or finds out, if it was started ahead."""

    directory: Path
    """Its directory."""
    executor: ExecutorProcess
    """The application of the agent."""
    token: bytes | None
    """Of the application: who knows it may give orders. None until a task adopts an agent that was started ahead."""

    def __repr__(self) -> str:
        return f"<Launch of the agent of {self.executor}>"  # without the token


# -- where


def agent_directory() -> Path:
    """Return the directory of the agent of this executor; call it in a Spark task. There may be none there yet.

    Raises:
        ConfigurationError: This is no Spark task, or the temporary directory cannot be used.
    """
    local = os.environ.get("SPARK_LOCAL_DIRS")
    if not local:
        raise ConfigurationError("SPARK_LOCAL_DIRS is not set, as it is in every Spark task. Call this in a task.")
    return Path(directory_of(local))


def make_directory(path: Path) -> None:
    """Make the directory of an agent, and the one above it, or see that they are ours alone.

    Raises:
        ConfigurationError: They are not, or its path is too long.
    """
    if len(os.fsencode(path / "control")) > SOCKET_PATH_BYTES_MAX:
        raise ConfigurationError(f"{path} is too long for a socket. Set TMPDIR to a shorter path on the executors.")
    for each in (path.parent, path):
        with contextlib.suppress(FileExistsError):
            each.mkdir(mode=0o700)
        found = os.lstat(each)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
            raise ConfigurationError(
                f"{each} must be a directory that belongs to user {os.getuid()} and that nobody else can enter, and is not. "
                "Remove it, or set TMPDIR on the executors."
            )


# -- locks


def lock_file(path: Path) -> int | None:
    """Lock a file; return its descriptor, or None if somebody else has locked it or it has just been removed."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except FileNotFoundError:
        return None  # its directory is being removed
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), os.stat(path)):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(descriptor)
    return None


def is_alive(directory: Path) -> bool:
    """Tell whether an agent lives in a directory."""
    try:
        descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        # Shared: two that look at once must not take each other for an agent.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def sweep(base: Path) -> None:
    """Remove the directories of agents that were killed: their locks are free."""
    with contextlib.suppress(FileNotFoundError):
        for path in base.iterdir():
            spawning = lock_file(path / "spawn.lock") if path.is_dir() and not path.is_symlink() else None
            if spawning is None:
                continue
            try:
                lock = lock_file(path / "lock")
                if lock is not None:
                    remove_directory(path)
                    os.close(lock)
            finally:
                os.close(spawning)


def remove_directory(path: Path) -> None:
    """Remove the directory of an agent; the caller holds its lock, which goes last: from then on others may use the path."""
    with contextlib.suppress(OSError):
        for each in path.iterdir():
            if each.name != "lock":
                each.unlink(missing_ok=True)
        (path / "lock").unlink(missing_ok=True)
        path.rmdir()


# -- the process of the executor


def find_executor() -> ExecutorProcess:
    """Return the executor that this Python worker belongs to: the nearest Java above it.

    Raises:
        AgentFailed: There is none, or this is no Linux.
    """
    pid = os.getpid()
    try:
        while pid > 1:
            pid = _parent(pid)
            command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
            if os.path.basename(command[0]) == "java":
                position = command.index("--executor-id") + 1 if "--executor-id" in command else 0
                return ExecutorProcess(command[position] if position else LOCAL_ID, pid, started_at(pid))
    except OSError as exc:
        raise AgentFailed(f"the executor's process cannot be found: {exc}. Agents need Linux, and /proc.") from exc
    raise AgentFailed("there is no Java above this Python worker. Agents need Spark's own executors.")


def started_at(pid: int) -> int:
    """Return when a process started, in ticks since the machine did.

    Raises:
        OSError: It has ended.
    """
    return int(_stat(pid)[19])


def is_zombie(pid: int) -> bool:
    """Tell whether a process has ended, and nobody has taken note.

    Raises:
        OSError: It is gone.
    """
    return _stat(pid)[0] in ("Z", "X")


def _parent(pid: int) -> int:
    return int(_stat(pid)[1])


def _stat(pid: int) -> list[str]:
    """Return the fields behind the name, which may have blanks and parentheses itself; see proc(5)."""
    return Path(f"/proc/{pid}/stat").read_bytes().decode(errors="replace").rpartition(")")[2].split()


# -- starting


def ensure_agent(token: bytes, order: Order, early: int | None = None) -> dict[str, Any]:
    """See that this executor has an agent, and that it serves what an order says. Call it in a task, as often as you like.

    Args:
        token: Of the application.
        order: What is to be served.
        early: The pid of a child of this process that may become the agent; see :func:`spark_connector.daemon.start_early`.

    Returns:
        What the agent says of itself: ``executor``, ``pid``, ``jvm``, ``node``, ``generation``; and whether it was ``spawned``.

    Raises:
        AgentFailed: It cannot be started, or cannot serve that.
        ConfigurationError: The temporary directory cannot be used.
    """
    directory = agent_directory()
    deadline = time.monotonic() + ENSURE_TIMEOUT_S
    spawned = False
    while True:
        if early is not None and (status := _status_of(early)) is not None:
            early, spawned = None, status == 0
        info = _read_info(directory)
        if early is not None:
            pass  # it is about to take the place: who starts another one now only makes both slower
        elif info is not None and is_alive(directory):
            adoption = [seal_adoption(token, [path for path in sys.path if path])] if info["waiting"] else []
            answer = _tell(directory / "control", [*adoption, seal_local(token, order)])
            if answer is not None:
                if "error" in answer:
                    raise AgentFailed(answer["error"])
                return {**answer, "spawned": spawned}
        else:
            spawned |= _maybe_spawn(directory, token, deadline)
        if time.monotonic() > deadline:
            raise AgentFailed(f"no agent within {ENSURE_TIMEOUT_S:g} s. See {LOG_NAME} in {_log_directory(find_executor())}.")
        time.sleep(LOOK_INTERVAL_S)


def _status_of(child: int) -> int | None:
    """Return the status with which a child has ended; None if it has not."""
    try:
        pid, status = os.waitpid(child, os.WNOHANG)
    except ChildProcessError:  # somebody has asked before
        return NOT_NEEDED
    return os.waitstatus_to_exitcode(status) if pid else None


def _read_info(directory: Path) -> dict[str, Any] | None:
    """Return what an agent has written of itself, or None if it cannot be talked to yet."""
    try:
        info: dict[str, Any] = json.loads((directory / "info.json").read_bytes())
    except FileNotFoundError:
        return None
    return info


def reserve(directory: Path) -> int | None:
    """Take the right to start an agent, and remove what the last one has left.

    Returns:
        What is to be closed when the new one can be talked to; None if there is one, or somebody else is starting it.

    Raises:
        ConfigurationError: The temporary directory cannot be used.
    """
    make_directory(directory)
    spawning = lock_file(directory / "spawn.lock")
    if spawning is None:
        return None
    try:
        if not is_alive(directory):
            for name in ("info.json", "control", "socket"):
                (directory / name).unlink(missing_ok=True)
            return spawning
    except BaseException:
        os.close(spawning)
        raise
    os.close(spawning)
    return None


def _maybe_spawn(directory: Path, token: bytes, deadline: float) -> bool:
    """Start an agent unless there is one, or somebody else is starting it; wait until it is there."""
    spawning = reserve(directory)
    if spawning is None:
        return False
    try:
        _spawn(Launch(directory, find_executor(), token))
        is_seen = False
        while not (directory / "info.json").exists():
            was_seen, is_seen = is_seen, is_alive(directory)
            if (was_seen and not is_seen) or time.monotonic() > deadline:
                return False  # it has ended at once: its log says why
            time.sleep(LOOK_INTERVAL_S)
        return True
    finally:
        os.close(spawning)


def _spawn(launch: Launch) -> None:
    """Start the process of an agent, which is nobody's child and in no group of Spark's, so that it survives Python workers."""
    with _open_log(launch.executor) as log:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "spark_connector.executors.agent"],
            input=pickle.dumps(launch),
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**inherited_environment(), **agent_environment(launch.executor)},
            check=False,
            timeout=ENSURE_TIMEOUT_S,
        )
    if done.returncode:
        raise AgentFailed(
            f"the agent ended with status {done.returncode} as it started. See {LOG_NAME} in {_log_directory(launch.executor)}."
        )


def agent_environment(executor: ExecutorProcess) -> dict[str, str]:
    """Return the variables that tell handlers whose agent they run in."""
    return {"SPARK_EXECUTOR_ID": executor.id, "SPARK_EXECUTOR_PID": str(executor.pid)}


def redirect_to_log(executor: ExecutorProcess) -> None:
    """Let this process print to the log of agents."""
    with _open_log(executor) as log:
        os.dup2(log, 1)
        os.dup2(log, 2)


def _log_directory(executor: ExecutorProcess) -> Path:
    """Return where the log is: beside those of the executor; in local mode, where that is the user's, with Spark's."""
    return Path(os.environ["SPARK_LOCAL_DIRS"].split(",")[0]) if executor.id == LOCAL_ID else Path.cwd()


@contextlib.contextmanager
def _open_log(executor: ExecutorProcess) -> Iterator[int]:
    try:
        log = os.open(_log_directory(executor) / LOG_NAME, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError:
        log = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    try:
        yield log
    finally:
        os.close(log)


# -- telling


def _tell(path: Path, orders: Iterable[bytes]) -> dict[str, Any] | None:
    """Give an agent orders; return its answer to the last one, or None if it has just ended."""
    try:
        with socket.socket(socket.AF_UNIX) as control:
            control.settimeout(SERVE_TIMEOUT_S)
            control.connect(os.fspath(path))
            for order in orders:
                control.sendall(len(order).to_bytes(8, "big") + order)
            with control.makefile("rb") as file:
                line = file.readline(ANSWER_BYTES_MAX)
    except TimeoutError:
        raise AgentFailed(f"the agent did not serve the cluster within {SERVE_TIMEOUT_S:g} s. See {LOG_NAME}.") from None
    except OSError:
        return None
    answer: dict[str, Any] | None = json.loads(line) if line else None
    return answer


def run_ensure(content: bytes, early: int | None = None) -> dict[str, Any]:
    """Do what the driver's task is for. Everything that can fail is in the result, for no Spark job should fail by this.

    Args:
        content: A pickled tuple: the token, and the order.
        early: For :func:`ensure_agent`.
    """
    token, order = pickle.loads(content)  # noqa: S301 - from the driver, inside a function of its
    try:
        sweep(agent_directory().parent)
        return ensure_agent(token, order, early)
    except Exception as exc:
        return {"executor": _executor_id(), "error": f"{type(exc).__name__}: {exc}"}


def _executor_id() -> str:
    try:
        return find_executor().id
    except AgentFailed:
        return ""
