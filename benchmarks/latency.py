"""Round trips: one process asks, another answers with the 1 KiB that it was sent.

Measured: the time from the call to the reply, of one caller that has one request on its way, as p50 and p99; and for Iris the
requests per second of 64 such callers in one process. All sockets are TCP on loopback, all event loops are uvloop.

Not measured: a real network, large messages, many members. And it is not all the same work: Iris authenticates and encrypts,
chooses a member, keeps a deadline for every request and reports what became of it. pyzmq and plain TCP do none of that. The
first pyzmq row has blocking sockets and no event loop, which no program that also does something else can have; the asyncio row
is the fair peer of an asyncio program. More peers: :mod:`benchmarks.peers`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from benchmarks.harness import Sample, Section, Trial
from benchmarks.peers.measure import measure_requests

if TYPE_CHECKING:
    from collections.abc import Sequence

CALLERS: Final = 64
_SIZE: Final = 1024
#: Each contender, and the system that it is.
_CONTENDERS: Final = {
    "iris, async handler": "iris",
    "iris, inline handler": "iris-inline",
    "pyzmq": "pyzmq",
    "pyzmq asyncio": "pyzmq-asyncio",
    "tcp echo": "tcp",
}


def section(*, quick: bool) -> Section:
    """Return the contenders."""
    seconds = 0.02 if quick else 1.0
    return Section(
        "latency",
        f"Round trips of 1 KiB between two processes, {seconds:g} s a run; pyzmq with REQ/REP. Only Iris encrypts.",
        [Trial(name, partial(_measure, system, seconds)) for name, system in _CONTENDERS.items()],
        ("pyzmq", "pyzmq asyncio"),
    )


def _measure(system: str, seconds: float) -> Sequence[Sample]:
    samples = list(measure_requests(system, callers=1, size=_SIZE, seconds=seconds))
    if system.startswith("iris"):
        found = measure_requests(system, callers=CALLERS, size=_SIZE, seconds=seconds)
        samples += [Sample(f"{CALLERS} callers", each.value, each.unit) for each in found if each.metric == "replies"]
    return samples
