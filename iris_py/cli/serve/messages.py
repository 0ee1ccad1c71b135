"""Messages between the supervisor of `iris serve` and its workers: lines of JSON over a pair of sockets."""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from iris_py.api.status import Health
from iris_py.metrics.families import Family
from iris_py.metrics.prometheus import ProgramFamily

__all__ = ["LINE_BYTES_MAX", "LINE_VARIABLE", "FromSupervisor", "FromWorker", "Go", "Report", "StateAnswer", "StateQuery"]

#: The environment variable with the file descriptor of a worker's end of the connection.
LINE_VARIABLE: Final = "IRIS_SERVE_LINE"
#: Maximum bytes of a message. Too small: the names of tens of thousands of files do not fit, or the maximum of 7,000 lines of
#: metrics, about 1 MB; too large: a faulty worker fills the memory of the supervisor.
LINE_BYTES_MAX: Final = 1 << 22


class Report(msgspec.Struct, frozen=True, omit_defaults=True, tag="report"):
    """From a worker: a change of the worker's state, or its source files."""

    is_loaded: bool = False
    """Whether the handler is imported. The worker then waits for a :class:`Go`."""
    is_ready: bool = False
    """Whether the worker serves."""
    files: list[str] = []
    """The source files of the handler."""


class StateAnswer(msgspec.Struct, frozen=True, omit_defaults=True, tag="told"):
    """From a worker: the answer to an :class:`StateQuery`."""

    number: int
    health: Health
    metrics: list[Family] = []
    """The metrics of the node."""
    of_program: list[ProgramFamily] = []
    """The metrics of the handler and its modules."""


class Go(msgspec.Struct, frozen=True, omit_defaults=True, tag="go"):
    """To a worker with an imported handler: the order to connect and to join."""

    http: str = ""
    """The address at which the supervisor serves metrics and health of all workers, for the worker's announcement."""


class StateQuery(msgspec.Struct, frozen=True, omit_defaults=True, tag="ask"):
    """To a worker: a query about health and metrics."""

    number: int
    """The number of the query, repeated in the answer."""
    cluster: str | None = None
    """The cluster concerned; None for the whole node."""
    has_metrics: bool = False
    """Whether metrics are wanted."""


FromWorker: TypeAlias = Report | StateAnswer
FromSupervisor: TypeAlias = Go | StateQuery
