"""Messages between a supervisor of `iris serve` and its workers: a line of JSON each, over a pair of sockets."""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from iris_py.api.status import Health
from iris_py.metrics.families import Family
from iris_py.metrics.prometheus import ProgramFamily

__all__ = ["LINE_BYTES_MAX", "LINE_VARIABLE", "Ask", "FromSupervisor", "FromWorker", "Go", "Report", "Told"]

#: The variable by which a supervisor gives a worker its end of the line: the number of a file descriptor.
LINE_VARIABLE: Final = "IRIS_SERVE_LINE"
#: Bytes of a message. Too small: the names of tens of thousands of files do not fit, or the 7,000 lines that metrics have at
#: most, some 1 MB; too large: one that is out of its mind fills the memory of the supervisor.
LINE_BYTES_MAX: Final = 1 << 22


class Report(msgspec.Struct, frozen=True, omit_defaults=True, tag="report"):
    """The news of a worker."""

    is_loaded: bool = False
    """Whether the handler is imported. It waits for a :class:`Go` then."""
    is_ready: bool = False
    """Whether it serves."""
    files: list[str] = []
    """The files that it was made of."""


class Told(msgspec.Struct, frozen=True, omit_defaults=True, tag="told"):
    """The answer of a worker to an :class:`Ask`."""

    number: int
    health: Health
    metrics: list[Family] = []
    """Those of its node."""
    of_program: list[ProgramFamily] = []
    """Those that the handler and its modules keep themselves."""


class Go(msgspec.Struct, frozen=True, omit_defaults=True, tag="go"):
    """The worker is to connect and to join."""

    http: str = ""
    """Where the supervisor serves metrics and health of all, for who reads what the worker says of itself."""


class Ask(msgspec.Struct, frozen=True, omit_defaults=True, tag="ask"):
    """The supervisor wants to know how the worker is."""

    number: int
    """That of the answer."""
    cluster: str | None = None
    """The cluster that is asked about; None for the whole node."""
    has_metrics: bool = False
    """Whether metrics are wanted."""


FromWorker: TypeAlias = Report | Told
FromSupervisor: TypeAlias = Go | Ask
