"""The lines of JSON between `iris bench` and its processes.

`iris bench` sends a process its orders, and the process reports that it is ready. From then on cues tell the process to begin,
or to report on the time since its last report. A load generator sends one more report, unrequested, when all its operations
have ended. All processes share the clock of :func:`time.monotonic_ns`.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from iris_py.cli.bench.latency_histogram import Durations

__all__ = ["Begin", "Cue", "Orders", "Ready", "ReportCue", "Said", "WorkerFailed", "WorkerReport", "to_line"]


class Orders(msgspec.Struct, kw_only=True):
    """To a process of `iris bench`: its role, and the load to generate or receive."""

    role: str
    """The name in :data:`iris_py.cli.bench.roles.ROLES`."""
    secret: str = ""
    """The secret of a private network; empty for the network of the settings."""
    seeds: list[str] = []
    connect: dict[str, Any] = {}
    """The arguments of `iris_py.connect`, for the network of the settings."""
    target: str = ""
    """The cluster or the topic."""
    payload: bytes = b""
    """The bytes to send; the first bytes of a publication are overwritten with the time."""
    reply: bytes | None = None
    """The reply of members; None to echo the request."""
    callers: int = 1
    """Operations of this process in flight."""
    interval_ns: int = 0
    """Time between operations, in a fixed rhythm; 0 for a closed loop."""
    offset_ns: int = 0
    """Delay of the first operation, so that processes alternate."""
    timeout_s: float = 5.0
    policy: str = "block"


class Begin(msgspec.Struct, tag="begin"):
    """The cue to begin: load generators start, and all processes count from the end of the warm-up."""

    begin_ns: int
    """The end of the warm-up; earlier operations do not count."""
    end_ns: int
    """No operation begins from then on."""


class ReportCue(msgspec.Struct, tag="look"):
    """The cue to send a report on the time since the last report."""


Cue = Begin | ReportCue


class Ready(msgspec.Struct, tag="ready"):
    """From a process: it is ready for cues."""

    node: str
    """The id of the process's node; empty without a node."""
    address: str
    makes_load: bool
    """Whether the process generates load."""
    event_loop: str
    """The package of the process's event loop."""


class WorkerReport(msgspec.Struct, tag="report", kw_only=True):
    """From a process: counts, errors and durations since its last report."""

    at_ns: int
    cpu_ns: int
    """The processor time of the process since its start."""
    counts: dict[str, int] = {}
    errors: dict[str, int] = {}
    """Failed operations, by the class of the error."""
    durations: dict[str, Durations] = {}
    is_last: bool = False
    """Whether all operations of this process have ended."""


class WorkerFailed(msgspec.Struct, tag="failed"):
    """From a process: the error at its end."""

    error: str
    """The class of the error."""
    text: str


Said = Ready | WorkerReport | WorkerFailed

_ENCODER: Final = msgspec.json.Encoder()


def to_line(message: msgspec.Struct) -> bytes:
    """Encode a message as one line of JSON."""
    return _ENCODER.encode(message) + b"\n"
