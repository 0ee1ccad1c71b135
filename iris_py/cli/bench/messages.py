"""The lines of JSON between `iris bench` and its processes.

A process gets its orders, gets ready and says so. From then on it is told what to do by cues: to begin, and to report what
happened since it was last asked. Who makes load reports once more, unasked, when all of it has ended. The clock is that of
:func:`time.monotonic_ns`, which all processes of a machine share.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from iris_py.cli.bench.percentiles import Durations

__all__ = ["Begin", "Cue", "Failed", "Look", "Orders", "Ready", "Report", "Said", "to_line"]


class Orders(msgspec.Struct, kw_only=True):
    """The part that a process takes."""

    role: str
    """The name in :data:`iris_py.cli.bench.roles.ROLES`."""
    secret: str = ""
    """The secret of the network of the measurement; empty for the network of the settings."""
    seeds: list[str] = []
    connect: dict[str, Any] = {}
    """The arguments of `iris_py.connect`, for the network of the settings."""
    target: str = ""
    """The cluster or the topic."""
    payload: bytes = b""
    """The bytes that are sent; the first bytes of a publication are overwritten with the time."""
    reply: bytes | None = None
    """The reply of members; None for what they are sent."""
    callers: int = 1
    """Operations that this process has under way at once."""
    interval_ns: int = 0
    """From one operation to the next one, in a fixed rhythm; 0 for each caller to begin when its last one has ended."""
    offset_ns: int = 0
    """By how much the first is later than the beginning, so that processes take turns."""
    timeout_s: float = 5.0
    policy: str = "block"


class Begin(msgspec.Struct, tag="begin"):
    """The cue to make load from now on."""

    begin_ns: int
    """The end of the warm-up: what began before does not count."""
    end_ns: int
    """Nothing begins from then on."""


class Look(msgspec.Struct, tag="look"):
    """The cue to report what has happened since the last one."""


Cue = Begin | Look


class Ready(msgspec.Struct, tag="ready"):
    """A process that is about to hear cues."""

    node: str
    """The id of its node; empty if it has none of its own."""
    address: str
    makes_load: bool
    """Whether it does something by itself once it is told to begin."""
    event_loop: str
    """The package that its event loop is of."""


class Report(msgspec.Struct, tag="report", kw_only=True):
    """The time since the last report, as a process has seen it."""

    at_ns: int
    cpu_ns: int
    """The processor time of the process since it began."""
    counts: dict[str, int] = {}
    errors: dict[str, int] = {}
    """Operations that failed, by the class of the error."""
    durations: dict[str, Durations] = {}
    is_last: bool = False
    """Whether everything has ended that this process had begun."""


class Failed(msgspec.Struct, tag="failed"):
    """An error that ends the process."""

    error: str
    """The name of its class."""
    text: str


Said = Ready | Report | Failed

_ENCODER: Final = msgspec.json.Encoder()


def to_line(message: msgspec.Struct) -> bytes:
    """Return a message as one line."""
    return _ENCODER.encode(message) + b"\n"
