"""Messages between a supervisor of `iris serve` and its workers: a line of JSON each, over a pair of sockets."""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from iris_py.api.status import Health
from iris_py.metrics.families import Family
from iris_py.metrics.prometheus import ProgramFamily

__all__ = ["LINE_BYTES_MAX", "LINE_VARIABLE", "Ask", "FromSupervisor", "FromWorker", "Go", "Report", "Told"]

#: The environment variable with the file descriptor of a worker's end of the connection.
LINE_VARIABLE: Final = "IRIS_SERVE_LINE"
#: Maximum bytes of a message. Too small: the names of tens of thousands of files do not fit, or the maximum of 7,000 lines of
#: metrics, about 1 MB; too large: a faulty worker fills the memory of the supervisor.
LINE_BYTES_MAX: Final = 1 << 22


class Report(msgspec.Struct, frozen=True, omit_defaults=True, tag="report"):
    """A change in a worker."""

    is_loaded: bool = False
    """Whether the handler is imported. The worker then waits for a :class:`Go`."""
    is_ready: bool = False
    """Whether the worker serves."""
    files: list[str] = []
    """The source files of the handler."""


class Told(msgspec.Struct, frozen=True, omit_defaults=True, tag="told"):
    """The answer of a worker to an :class:`Ask`."""

    number: int
    health: Health
    metrics: list[Family] = []
    """The metrics of the node."""
    of_program: list[ProgramFamily] = []
    """The metrics of the handler and its modules."""


class Go(msgspec.Struct, frozen=True, omit_defaults=True, tag="go"):
    """The order to connect and to join."""

    http: str = ""
    """The address of the supervisor's metrics and health of all workers, for the worker's announcement."""


class Ask(msgspec.Struct, frozen=True, omit_defaults=True, tag="ask"):
    """A query of the supervisor about the worker's state."""

    number: int
    """The number of the answer."""
    cluster: str | None = None
    """The cluster concerned; None for the whole node."""
    has_metrics: bool = False
    """Whether metrics are wanted."""


FromWorker: TypeAlias = Report | Told
FromSupervisor: TypeAlias = Go | Ask
