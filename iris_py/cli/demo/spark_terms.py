"""The names, measurements and messages that both sides of `iris demo --spark` share.

The Spark side is `spark_connector.demo.program`, a program of its own, which imports this module. This module imports nothing
of Spark.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final

from iris_py.cli.demo.lexer import TokenTotals

if TYPE_CHECKING:
    from iris_py.cli.demo.crew import CrewMember
    from iris_py.cli.demo.files import Inventory

__all__ = [
    "DRIVER_PROGRAM",
    "EXECUTORS",
    "MEMBER_PROGRAM",
    "PROGRESS_TOPIC",
    "RESULT_TOPIC",
    "TOTAL_NAMES",
    "ExecutorSeen",
    "SparkJob",
    "SparkOutcome",
]

KILLED: Final = "killed at work"


@dataclass(slots=True)
class ExecutorSeen:
    """An executor of Spark, with its own statistics."""

    state: str = "served"
    process: int = 0
    agent: int = 0
    cpu_s: float = 0.0
    memory_bytes: int = 0
    latencies_s: list[float] = field(default_factory=list)
    """Latencies of the requests to the executor while the job ran."""


@dataclass(slots=True)
class SparkOutcome:
    """The measurements of one run of `iris demo --spark`."""

    inventory: Inventory
    is_kill: bool
    totals: TokenTotals = field(default_factory=TokenTotals)
    """The totals published by Spark."""
    plain: TokenTotals = field(default_factory=TokenTotals)
    """The totals counted by a single process."""
    by_member: dict[str, int] = field(default_factory=dict)
    """Number of files counted by each member, by node id."""
    executors: dict[str, ExecutorSeen] = field(default_factory=dict)
    application: str = ""
    version: str = ""
    start_s: float = 0.0
    job_s: float = 0.0
    plain_s: float = 0.0
    members: list[CrewMember] = field(default_factory=list)

    @property
    def failures(self) -> list[str]:
        """Sentences about all that differs from the expected result; empty for a successful demo."""
        found = []
        if self.totals != self.plain:
            found.append("the totals that Spark published differ from the plain count")
        if self.is_kill and not any(member.state.startswith("killed") for member in self.members):
            found.append("no member was killed")
        if self.is_kill and not any(seen.state == KILLED for seen in self.executors.values()):
            found.append("no executor was killed at work")
        return found


DRIVER_PROGRAM: Final = "spark_connector.demo.program"
MEMBER_PROGRAM: Final = "spark_connector.demo.member"
#: The cluster that Spark's executors form.
EXECUTORS: Final = "executors"
#: The topic to which members publish the numbers of counted files, as 4-byte big-endian integers, a message for each request.
PROGRESS_TOPIC: Final = "demo.counted"
#: The topic to which a task of Spark publishes the result: a JSON list with the totals of each member.
RESULT_TOPIC: Final = "demo.totals"
TOTAL_NAMES: Final = tuple(asdict(TokenTotals()))


@dataclass(frozen=True)
class SparkJob:
    """The job for the program with the Spark session: a line of JSON on the program's standard input."""

    secret: str = field(repr=False)
    """The secret of the demo's private network."""
    seed: str
    """``host:port`` of the demo's node."""
    paths: list[str]
    """The files to count."""
    directory: str
    """The directory for all files of the program and its processes."""
    is_kill: bool
    """Whether to kill an executor."""
    timeout_s: float
    """Timeout of the program."""

    def encode(self) -> bytes:
        """Encode the job as a line. File names need not be valid text, because JSON can represent lone surrogates."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> SparkJob:
        """Decode the result of :meth:`encode`."""
        return cls(**json.loads(line))
