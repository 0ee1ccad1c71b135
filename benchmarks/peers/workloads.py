"""The workloads, the cases of each, and how much of it is measured."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from benchmarks.peers import measure
from benchmarks.peers.systems import find_system

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.harness import Sample

KIB: Final = 1024
#: Messages of the run that finds out how many a system sends in the time that is given.
_PROBED: Final = 500


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured."""

    seconds: float
    """About how long each measurement lasts, beside setting it up."""
    messages: int
    """Messages of the classic benchmark."""
    subscribers: tuple[int, ...] = (1, 8, 64)
    """Subscribers of one publisher."""
    callers: tuple[int, ...] = (1, 64, 1_000)
    """Callers in one process."""
    members: int = 64
    """Members that are surveyed."""
    sizes: tuple[int, ...] = (64, KIB, 16 * KIB, KIB * KIB)
    """Sizes of messages."""
    trips: int = 3_000
    """Small requests beside bulk."""
    kept: int = 50
    """Links, and idle tunnels, whose memory is looked at; twenty times as many subscriptions."""


QUICK: Final = Scale(0.3, 20_000, subscribers=(1, 8), callers=(1, 64), members=16, trips=500, kept=20)
FULL: Final = Scale(1.5, 100_000)
#: Shows that everything works; no figure means anything.
TINY: Final = Scale(0.01, 1_000, subscribers=(1, 2), callers=(1, 4), members=4, sizes=(KIB,), trips=20, kept=5)


@dataclass(frozen=True, slots=True)
class Case:
    """One comparison: the same work for all systems."""

    name: str
    measure: Callable[[str], Sequence[Sample]]
    """Measures a system, by its name, once."""
    needs: tuple[str, ...] = ()
    """The methods that a system needs to take part."""
    callers: int = 1
    """How many callers one process of it needs to have."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Comparisons of one kind."""

    name: str
    caption: str
    """The work that is measured, and what is not, for the reader of the table."""
    cases: Sequence[Case]
    rounds_max: int = 100
    """How often it is measured at most: memory hardly differs from one time to the next."""

    def reason_against(self, system: str, case: Case) -> str | None:
        """Return why a system has no number here: an empty text if it simply does not do this; None if it can."""
        found = find_system(system)
        if (found.about.only is not None and self.name not in found.about.only) or not found.can(*case.needs):
            return ""
        if case.callers > found.about.callers_max:
            return ""
        return found.missing()


@dataclass
class _Counts:
    """How many messages each system sends in the given time, found out once and then the same in every round."""

    seconds: float
    known: dict[tuple[str, int, int], int] = field(default_factory=dict)

    def of(self, system: str, size: int, subscribers: int) -> int:
        key = system, size, subscribers
        if key not in self.known:
            probed = min(_PROBED, max(20, 64 * KIB * KIB // size))
            samples = measure.measure_stream(system, size=size, count=probed, subscribers=subscribers)
            rate = samples[0].value / subscribers
            most = max(probed, 2 * KIB * KIB * KIB // size)
            self.known[key] = int(min(max(probed, rate * self.seconds), most, 2_000_000))
        return self.known[key]


def make_workloads(scale: Scale) -> list[Workload]:
    """Return all workloads, in the order in which they are measured."""
    return [*_message_workloads(scale), *_request_workloads(scale), *_upkeep_workloads(scale)]


def _message_workloads(scale: Scale) -> list[Workload]:
    counts = _Counts(scale.seconds)
    streamed = ("publisher", "subscriber")

    def stream(system: str, *, size: int, subscribers: int = 1) -> Sequence[Sample]:
        count = counts.of(system, size, subscribers)
        return measure.measure_stream(system, size=size, count=count, subscribers=subscribers)

    classic = partial(measure.measure_stream, size=KIB, count=scale.messages)
    return [
        Workload(
            "queue",
            f"The classic benchmark of message queues: {scale.messages:,} messages of 1 KiB from one process to another, at "
            "full speed.",
            [Case("1 KiB", classic, streamed)],
        ),
        Workload(
            "queue-latency",
            f"The same with timestamps: the mean latency of the first 100, 1,000 and so on of {scale.messages:,} messages. A "
            "message waits in queues behind earlier ones, so the latency grows with the buffers of a system.",
            [Case("1 KiB", partial(classic, is_stamped=True), streamed)],
        ),
        Workload(
            "stream",
            "Messages from one process to another, at full speed, without loss where a system can wait.",
            [Case(_size(size), partial(stream, size=size), streamed) for size in scale.sizes],
        ),
        Workload(
            "fan-out",
            f"Messages of 1 KiB from one publisher to several subscribers, each with a client or node of its own, in at most "
            f"{measure.PROCESSES_MAX} processes: deliveries to all of them together.",
            [
                Case(f"{count} subscribers", partial(stream, size=KIB, subscribers=count), streamed)
                for count in scale.subscribers
                if count > 1
            ],
        ),
    ]


def _request_workloads(scale: Scale) -> list[Workload]:
    asked = ("service", "callers")
    surveys = partial(measure.measure_surveys, members=scale.members, size=100, seconds=scale.seconds)
    return [
        Workload(
            "request",
            "Requests of 1 KiB from one process to another, which returns the payload. The cases differ in the number of "
            "concurrent callers, each with one request under way.",
            [
                Case(
                    "1 caller" if callers == 1 else f"{callers:,} callers",
                    partial(measure.measure_requests, callers=callers, size=KIB, seconds=scale.seconds),
                    asked,
                    callers,
                )
                for callers in scale.callers
            ],
        ),
        Workload(
            "bulk",
            "Requests of 100 bytes, one after the other: alone, and while the same client sends blocks of 256 KiB to the same "
            "member at full speed (tcp: through a separate connection).",
            [Case("1 caller", partial(measure.measure_bulk, size=100, trips=scale.trips), ("service", "bulk"))],
        ),
        Workload(
            "survey",
            f"One question of 100 bytes to all of {scale.members} members, in at most {measure.PROCESSES_MAX} processes, until "
            "all have answered. NATS and NNG do not know the number of members: the benchmark program tells them.",
            [Case(f"{scale.members} members", surveys, ("surveyor", "member"))],
        ),
        Workload(
            "tunnel",
            "Blocks of 256 KiB through one ordered connection with flow control, until the other end has confirmed their "
            "number.",
            [Case("256 KiB", partial(measure.measure_tunnel, seconds=scale.seconds), ("service", "tunnel"))],
        ),
    ]


def _upkeep_workloads(scale: Scale) -> list[Workload]:
    messages = max(2_000, int(100_000 * scale.seconds))
    kept = (("links", "links", 1), ("subscriptions", "subscriptions", 20), ("tunnels", "idle_tunnels", 1))
    return [
        Workload(
            "overflow",
            f"{messages:,} messages of 64 bytes to a subscriber that takes them, and to a stopped one whose queue of 1,024 is "
            "full: processor time of the subscriber's process.",
            [
                Case(
                    "64 B",
                    partial(measure.measure_overflow, size=64, count=messages, queue_messages=1_024),
                    ("publisher", "subscriber", "overflowing"),
                )
            ],
        ),
        Workload(
            "start-up",
            "The time from the start of a process, including the interpreter, until the reply to its first request to a "
            "running service, and the part of the import in it. The bytecode of all modules was made before.",
            [
                Case("first reply", measure.measure_start, ("service", "callers")),
                Case("import", measure.measure_import),
            ],
        ),
        Workload(
            "memory",
            "Resident memory: the growth of all processes, including the server, with each further link, node, subscription or "
            "tunnel; and the memory of the service's process alone.",
            [
                Case(name, partial(measure.measure_memory, what=name, count=scale.kept * times), ("service", method))
                for name, method, times in kept
            ],
            rounds_max=3,
        ),
    ]


def _size(size: int) -> str:
    for unit, name in ((KIB * KIB, "MiB"), (KIB, "KiB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"
