"""Start the agent of an executor from a Spark task: exactly one, even with concurrent attempts.

Theory of operation. ``SPARK_LOCAL_DIRS`` identifies an executor: Spark gives it to every Python worker, and each executor
process has another directory. From it follows the *agent's directory*, below the temporary directory of the machine::

    iris-<uid>/<16 hex digits>/lock         locked by the agent for as long as it lives
                               spawn.lock   locked by the task that starts one
                               info.json    who the agent is; written when it can be talked to
                               control      Unix socket where tasks tell it what to serve
                               socket       Unix socket for tasks that use its node

The kernel releases a lock with any death of its holder, so *locked* means *alive*. A task that starts an agent holds the second
lock, checks that the first is free, and waits until the agent accepts connections. An agent removes its directory while it
still holds the lock. So after locking a file, a process checks that this file is still at the path, and otherwise retries.

Where :mod:`.daemon` is Spark's Python daemon, an agent is started early, without an order. It holds the second lock itself
until
it accepts connections, so tasks wait for it, and the first task adopts it.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from spark_connector.daemon import NOT_NEEDED, inherited_environment
from spark_connector.errors import AgentFailed, AgentNotTrusted
from spark_connector.executors.agent_files import (
    BIRTH_KEY_NAME,
    CONTROL_NAME,
    INFO_NAME,
    agent_directory,
    is_alive,
    reserve,
    sweep,
)
from spark_connector.executors.challenge import NONCE_BYTES, AgentHello, Talk
from spark_connector.executors.orders import KEY_BYTES, agent_key, seal_adoption, seal_local
from spark_connector.local.private_directory import PrivateDirectory
from spark_connector.local.sockets import ForeignPeer, connect

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from spark_connector.executors.orders import Order

__all__ = [
    "LOCAL_ID",
    "ExecutorProcess",
    "Launch",
    "agent_environment",
    "ensure_agent",
    "new_agent_id",
    "redirect_to_log",
    "run_ensure",
    "tell",
]

#: How long a task tries to get an agent. Starting one takes a second; on a machine where a dozen executors start, ten.
ENSURE_TIMEOUT_S = 60.0
#: Interval at which a task checks whether the agent has started.
LOOK_INTERVAL_S = 0.02
#: How long an agent may take to serve a cluster: it starts a node, and imports the modules of the handler.
SERVE_TIMEOUT_S = 60.0
#: The largest answer of an agent to a task: a few names and numbers, or the text of an error.
ANSWER_BYTES_MAX = 1 << 20
LOG_NAME = "iris-agent.log"
#: Bytes of an agent's id: enough to be unique.
AGENT_ID_BYTES = 16

#: The id of the only executor in local mode, which is the driver's own process.
LOCAL_ID = "driver"


@dataclass(frozen=True)
class ExecutorProcess:
    """The process of an executor: a Java virtual machine."""

    id: str
    """The id of the executor in Spark; ``driver`` in local mode."""
    pid: int
    """The process id."""
    started: int
    """Start time of the process in kernel ticks, because a pid may be reused."""


@dataclass(frozen=True)
class Launch:
    """The instructions for an agent: read from a pipe, or found by the agent itself if it was started early."""

    directory: Path
    """The directory of the agent."""
    executor: ExecutorProcess
    """The executor of the agent."""
    agent: str
    """The id of the agent."""
    key: bytes | None = field(repr=False)
    """The key for orders. None until a task adopts an agent that was started early."""


def new_agent_id() -> str:
    """Return a new agent id: 32 hexadecimal digits."""
    return os.urandom(AGENT_ID_BYTES).hex()


# -- the process of the executor


def find_executor() -> ExecutorProcess:
    """Return the executor of this Python worker: the nearest Java process above it.

    Raises:
        AgentFailed: No such process exists, or this system is not Linux.
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
    """Return the start time of a process, in ticks since the boot of the machine.

    Raises:
        OSError: The process has ended.
    """
    return int(_stat(pid)[19])


def is_zombie(pid: int) -> bool:
    """Tell whether a process has ended while its parent has not yet collected its exit status.

    Raises:
        OSError: The process is gone.
    """
    return _stat(pid)[0] in ("Z", "X")


def _parent(pid: int) -> int:
    return int(_stat(pid)[1])


def _stat(pid: int) -> list[str]:
    """Return the fields after the name, which may itself have blanks and parentheses; see proc(5)."""
    return Path(f"/proc/{pid}/stat").read_bytes().decode(errors="replace").rpartition(")")[2].split()


# -- starting


def ensure_agent(token: bytes, order: Order, early: int | None = None) -> dict[str, Any]:
    """Ensure that this executor has an agent that serves the cluster of an order. Call it in a task, any number of times.

    Args:
        token: The token of the application.
        order: The order.
        early: The pid of a child of this process that may become the agent; see :func:`spark_connector.daemon.start_early`.

    Returns:
        The agent's description: ``executor``, ``pid``, ``jvm``, ``node``, ``generation``; and whether it was ``spawned``.

    Raises:
        AgentFailed: The agent cannot be started, or cannot serve the cluster.
        AgentNotTrusted: Another process answers at the agent's socket.
        ConfigurationError: The directory of the agent cannot be created.
        PathNotPrivate: Other users have access to the directory.
    """
    path = agent_directory()
    deadline = time.monotonic() + ENSURE_TIMEOUT_S
    spawned = False
    while True:
        if early is not None and (status := _status_of(early)) is not None:
            early, spawned = None, status == 0
        if early is None:  # otherwise that child is about to be the agent, and starting another would slow both down
            is_there, answer = _ask(path, token, order)
            if answer is not None:
                if "error" in answer:
                    raise AgentFailed(answer["error"])
                return {**answer, "spawned": spawned}
            if not is_there:
                spawned |= _maybe_spawn(path, token, deadline)
        if time.monotonic() > deadline:
            raise AgentFailed(f"no agent within {ENSURE_TIMEOUT_S:g} s. See {LOG_NAME} in {_log_directory(find_executor())}.")
        time.sleep(LOOK_INTERVAL_S)


def _ask(path: Path, token: bytes, order: Order) -> tuple[bool, dict[str, Any] | None]:
    """Send an order to the executor's agent; return whether an agent exists, and its answer.

    The answer is None without an agent, and if the agent has just ended.
    """
    try:
        with PrivateDirectory.open_both(path) as directory:
            if directory.has(INFO_NAME) and is_alive(directory):
                return True, tell(directory, token, order)
    except FileNotFoundError:
        pass
    return False, None


def _status_of(child: int) -> int | None:
    """Return the exit status of a child; None if the child is running."""
    try:
        pid, status = os.waitpid(child, os.WNOHANG)
    except ChildProcessError:  # already waited for
        return NOT_NEEDED
    return os.waitstatus_to_exitcode(status) if pid else None


def _maybe_spawn(path: Path, token: bytes, deadline: float) -> bool:
    """Start an agent and wait until the agent accepts connections; return whether this process started an agent.

    Nothing is started if an agent exists or another process is starting one.
    """
    reserved = reserve(path)
    if reserved is None:
        return False
    directory, spawning = reserved
    try:
        agent = new_agent_id()
        _spawn(Launch(path, find_executor(), agent, agent_key(token, agent)))
        is_seen = False
        while not directory.has(INFO_NAME):
            was_seen, is_seen = is_seen, is_alive(directory)
            if (was_seen and not is_seen) or time.monotonic() > deadline:
                return False  # it has ended at once: its log has the reason
            time.sleep(LOOK_INTERVAL_S)
        return True
    finally:
        os.close(spawning)
        directory.close()


def _spawn(launch: Launch) -> None:
    """Start the process of an agent without a parent and outside Spark's process groups, so that it survives Python workers."""
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
    """Return the environment variables that name an agent's executor to handlers."""
    return {"SPARK_EXECUTOR_ID": executor.id, "SPARK_EXECUTOR_PID": str(executor.pid)}


def redirect_to_log(executor: ExecutorProcess) -> None:
    """Redirect the output of this process to the log of agents."""
    with _open_log(executor) as log:
        os.dup2(log, 1)
        os.dup2(log, 2)


def _log_directory(executor: ExecutorProcess) -> Path:
    """Return the directory for the log of agents: the directory of the executor's own logs.

    In local mode this is Spark's log directory if the user owns it.
    """
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


def tell(directory: PrivateDirectory, token: bytes, order: Order) -> dict[str, Any] | None:
    """Send an order to an agent; return its answer, or None if it has just ended or was just adopted by another task.

    Raises:
        AgentFailed: The agent does not answer.
        AgentNotTrusted: Another process answers. It was told nothing.
        PathNotPrivate: Other users have access to the birth key of the agent.
    """
    path = directory.path / CONTROL_NAME
    try:
        with connect(directory, CONTROL_NAME, SERVE_TIMEOUT_S) as control, control.makefile("rb") as lines:
            hello = AgentHello.decode(_read_line(lines))
            key = agent_key(token, hello.agent)
            shared = directory.read(BIRTH_KEY_NAME, KEY_BYTES) if hello.is_waiting else key
            if len(shared) != KEY_BYTES:
                raise AgentNotTrusted(path, f"its {BIRTH_KEY_NAME} is not a key")
            talk = Talk(shared, hello, os.urandom(NONCE_BYTES))
            control.sendall(talk.opening())
            answer = json.loads(_read_line(lines))
            if "error" in answer:
                return {"error": str(answer["error"])}
            if not talk.is_proved_by(bytes.fromhex(answer["proof"])):
                raise AgentNotTrusted(path, "it cannot prove its identity")
            if hello.is_waiting:
                _send(control, seal_adoption(shared, talk.session, key, [each for each in sys.path if each]))
            _send(control, seal_local(key, talk.session, order))
            result: dict[str, Any] = json.loads(_read_line(lines))
            return result
    except TimeoutError:
        raise AgentFailed(f"the agent did not serve the cluster within {SERVE_TIMEOUT_S:g} s. See {LOG_NAME}.") from None
    except ForeignPeer as exc:
        raise AgentNotTrusted(path, str(exc)) from exc
    except (ValueError, TypeError, KeyError) as exc:
        raise AgentNotTrusted(path, f"it does not use the protocol of an agent ({type(exc).__name__})") from exc
    except (OSError, EOFError):
        return None


def _read_line(lines: IO[bytes]) -> bytes:
    """Read one line an agent sends.

    Raises:
        EOFError: The agent has ended.
    """
    line = lines.readline(ANSWER_BYTES_MAX)
    if not line:
        raise EOFError
    return line


def _send(control: socket.socket, sealed: bytes) -> None:
    control.sendall(len(sealed).to_bytes(8, "big") + sealed)


def run_ensure(content: bytes, early: int | None = None) -> dict[str, Any]:
    """Run the driver's task. The result includes every failure, because no Spark job should fail by it.

    Args:
        content: A pickled tuple: the token, and the order.
        early: For :func:`ensure_agent`.
    """
    token, order = pickle.loads(content)  # noqa: S301 - sent by the driver, inside a function of the driver
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
