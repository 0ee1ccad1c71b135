"""The terms that the two sides of `iris demo --spark` share: names, and the order to the program with the Spark session.

The side of Spark is `spark_connector.demo.program`, a program of its own: imports point from there to here, never back.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Final

from iris_py.cli.demo.lexer import Totals

__all__ = ["DRIVER_PROGRAM", "EXECUTORS", "MEMBER_PROGRAM", "PROGRESS_TOPIC", "RESULT_TOPIC", "TOTAL_NAMES", "Job"]

DRIVER_PROGRAM: Final = "spark_connector.demo.program"
MEMBER_PROGRAM: Final = "spark_connector.demo.member"
#: The cluster of the executors.
EXECUTORS: Final = "executors"
#: Members publish the numbers of the files of each request here, as whole numbers of 4 bytes, big end first.
PROGRESS_TOPIC: Final = "demo.counted"
#: A task of Spark publishes the result here: a list of JSON with what each member has counted.
RESULT_TOPIC: Final = "demo.totals"
TOTAL_NAMES: Final = tuple(asdict(Totals()))


@dataclass(frozen=True)
class Job:
    """The order to the program with the Spark session, a line of JSON on its standard input."""

    secret: str = field(repr=False)
    """Of the demo's own network."""
    seed: str
    """``host:port`` of the demo's node."""
    paths: list[str]
    """The files to count."""
    directory: str
    """For everything that it and its processes write."""
    is_kill: bool
    """Whether to kill an executor."""
    timeout_s: float
    """How long it may take."""

    def encode(self) -> bytes:
        """Return the line. Names of files need not be text: JSON knows how to say half a surrogate."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> Job:
        """Read what `encode` returned."""
        return cls(**json.loads(line))
