"""How each workload is measured once: the processes that take part, and the numbers that come out.

All processes, and the server if there is one, are those of this measurement alone. What they use is read when everything is set
up and warm, and again when the work is done.
"""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Final, Self

from benchmarks.harness import MEASURE_TIMEOUT_S, START_TIMEOUT_S, BenchmarkFailed, Sample, Stage, keeping_bytecode
from benchmarks.peers import roles
from benchmarks.peers.meter import Meter, Spent, resident_bytes
from benchmarks.peers.servers import Broker
from benchmarks.peers.systems import find_system

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.harness import Worker
    from benchmarks.worker import Role

#: Processes in which many subscribers or members are: with one for each, a small machine would do nothing but start them.
PROCESSES_MAX: Final = 8
#: The slowest system sends so many messages in a second at least; how long a measurement may take follows from it.
MESSAGES_PER_S_MIN: Final = 2000
#: With more subscribers, a process is started when those of the one before are connected. Too large: on a machine without spare
#: processors, those that are connected already are late for each other while hundreds connect, and take each other for dead.
SUBSCRIBERS_AT_ONCE: Final = 64
#: Subscribers that connect in a second at least: hundreds of nodes share few processors when they start.
SUBSCRIBERS_PER_S_MIN: Final = 3
#: A process that used less than this part of a look is done with its work.
_IDLE_PART: Final = 0.05
_LOOK_S: Final = 0.1


class Scene(Stage):
    """The processes of one measurement of one system, and what they use.

    Args:
        system: Its name.
    """

    def __init__(self, system: str) -> None:
        super().__init__()
        self._system = system
        self._common: dict[str, Any] = {"system": system}
        self._meters: dict[int, Meter] = {}

    def __enter__(self) -> Self:
        super().__enter__()
        self._common["secret"] = self.home.secret
        server = find_system(self._system).about.server
        if server is not None:
            broker = self.enter_context(Broker(server, self.home.directory))
            self._common["broker"] = broker.port
            self._measure(broker.pid)
        return self

    def cast(self, role: Role, **parameters: object) -> Worker:
        """Start a process with a role."""
        worker = self.start(role)
        self._measure(worker.pid)
        worker.begin(self._common | parameters)
        return worker

    def spent(self, worker: Worker | None = None) -> Spent:
        """Return what all processes have used so far, or one of them."""
        meters = self._meters.values() if worker is None else [self._meters[worker.pid]]
        first, *others = [meter.read() for meter in meters]
        return sum(others, first)

    def resident_bytes(self, *without: Worker) -> int:
        """Return the memory of all processes but these."""
        return sum(resident_bytes(pid) for pid in self._meters if pid not in {worker.pid for worker in without})

    def _measure(self, pid: int) -> None:
        meter = self._meters[pid] = Meter(pid)
        self.callback(meter.close)


def _costs(spent: Spent, count: int, of: str) -> list[Sample]:
    samples = [Sample("processor time", spent.cpu_s / count * 1e6, f"us/{of}")]
    if spent.cycles is not None:
        samples.append(Sample("cycles", spent.cycles / count / 1e3, f"kcycles/{of}"))
    return samples


def _shares(total: int) -> list[int]:
    """Return how many of something each process has."""
    processes = min(total, PROCESSES_MAX)
    return [total // processes + (number < total % processes) for number in range(processes)]


# -- messages to subscribers


def measure_stream(system: str, *, size: int, count: int, subscribers: int = 1, is_stamped: bool = False) -> Sequence[Sample]:
    """Send messages from one process to one or more subscribers, as fast as it goes."""
    timeout_s = MEASURE_TIMEOUT_S + count / MESSAGES_PER_S_MIN
    with Scene(system) as scene:
        publisher, readers = _set_up_stream(scene, count, subscribers, is_stamped)
        before = scene.spent()
        publisher.begin({"size": size, "count": count, "is_stamped": is_stamped})
        sent = publisher.listen(timeout_s)
        for reader in readers:
            reader.begin({"sent": True})
        found = [
            reader.listen(timeout_s) for reader, here in zip(readers, _shares(subscribers), strict=True) for _ in range(here)
        ]
        spent = scene.spent() - before
    seen = sum(each["seen"] for each in found)
    lost = count * subscribers - seen
    note = f"lost {lost:,} of {count * subscribers:,}" if lost else ""
    if is_stamped:
        return [Sample(f"mean of {int(first):,}", mean, "ms", note) for first, mean in found[0]["means_ms"].items()]
    begun = [each for each in found if each["seen"]]
    if not begun:
        raise BenchmarkFailed(f"all of {count * subscribers:,} messages were lost")
    duration_s = max(each["last"] for each in begun) - min(each["first"] for each in begun)
    received = Sample("received" if subscribers == 1 else "delivered", seen / max(duration_s, 1e-6), "/s", note)
    return [
        received,
        Sample("sent", count / sent["sent_s"], "/s"),
        *_costs(spent, max(seen, 1), "message" if subscribers == 1 else "delivery"),
    ]


def _set_up_stream(scene: Scene, count: int, subscribers: int, is_stamped: bool) -> tuple[Worker, list[Worker]]:
    timeout_s = START_TIMEOUT_S + subscribers / SUBSCRIBERS_PER_S_MIN
    publisher = scene.cast(roles.publish, subscribers=subscribers)
    place = publisher.listen(START_TIMEOUT_S)["place"]
    readers = []
    for here in _shares(subscribers):
        reader = scene.cast(
            roles.subscribe, place=place, subscribers=subscribers, subscribers_here=here, count=count, is_stamped=is_stamped
        )
        readers.append(reader)
        if subscribers > SUBSCRIBERS_AT_ONCE:
            reader.listen(timeout_s)
    for reader in readers:
        reader.listen(timeout_s)
        if subscribers <= SUBSCRIBERS_AT_ONCE:
            reader.listen(timeout_s)
    return publisher, readers


def measure_overflow(system: str, *, size: int, count: int, queue_messages: int) -> Sequence[Sample]:
    """Compare what a message costs a subscriber that takes it, and one whose queue is full."""
    with Scene(system) as scene:
        publisher, (reader,) = _set_up_stream(scene, count, 1, False)
        taken = _subscriber_spent(scene, publisher, reader, size, count)
    with Scene(system) as scene:
        publisher = scene.cast(roles.publish, subscribers=1)
        place = publisher.listen(START_TIMEOUT_S)["place"]
        reader = scene.cast(roles.overflow, place=place, queue_messages=queue_messages)
        reader.listen(START_TIMEOUT_S)
        overflowing = _subscriber_spent(scene, publisher, reader, size, count)
        reader.begin({})
        dropped = reader.listen(START_TIMEOUT_S)["dropped"]
    note = "" if dropped < 0 else f"dropped {dropped:,} of {count:,}"
    taken_us, overflowing_us = (spent.cpu_s / count * 1e6 for spent in (taken, overflowing))
    return [
        Sample("taken", taken_us, "us/message"),
        Sample("overflowing", overflowing_us, "us/message", note),
        Sample("overflowing / taken", overflowing_us / taken_us, ""),
    ]


def _subscriber_spent(scene: Scene, publisher: Worker, reader: Worker, size: int, count: int) -> Spent:
    before = scene.spent(reader)
    publisher.begin({"size": size, "count": count, "is_stamped": False})
    publisher.listen(MEASURE_TIMEOUT_S)
    deadline, since = time.monotonic() + MEASURE_TIMEOUT_S, scene.spent(reader)
    while time.monotonic() < deadline:  # until it has nothing to do any more
        time.sleep(_LOOK_S)
        now = scene.spent(reader)
        if (now - since).cpu_s < _LOOK_S * _IDLE_PART:
            break
        since = now
    return scene.spent(reader) - before


# -- requests and replies


def measure_requests(system: str, *, callers: int, size: int, seconds: float) -> Sequence[Sample]:
    """Ask from one process, with so many callers at once."""
    with Scene(system) as scene:
        place = scene.cast(roles.serve).listen(START_TIMEOUT_S)["place"]
        client = scene.cast(roles.ask, place=place, callers=callers, size=size)
        client.listen(START_TIMEOUT_S)
        each = max(1, 200 // callers)
        client.begin({"each": each})
        took_s = client.listen(MEASURE_TIMEOUT_S)["took_s"]
        each = max(1, int(each * seconds / took_s))
        before = scene.spent()
        client.begin({"each": each})
        found = client.listen(MEASURE_TIMEOUT_S)
        spent = scene.spent() - before
    total = each * callers
    if callers == 1:
        samples = [Sample("p50", found["p50_us"], "us"), Sample("p99", found["p99_us"], "us")]
    else:
        samples = [Sample("replies", total / found["took_s"], "/s"), Sample("p99", found["p99_us"] / 1e3, "ms")]
    return [*samples, *_costs(spent, total, "request")]


def measure_bulk(system: str, *, size: int, trips: int) -> Sequence[Sample]:
    """Ask for small replies alone, and beside large blocks to the same member."""
    with Scene(system) as scene:
        place = scene.cast(roles.serve).listen(START_TIMEOUT_S)["place"]
        client = scene.cast(roles.ask_beside_bulk, place=place, size=size, trips=trips)
        found = client.listen(START_TIMEOUT_S + MEASURE_TIMEOUT_S)
    idle, beside = found["idle"], found["beside"]
    note = f"only {found['trips']:,} of {trips:,} in {roles.BULK_LIMIT_S:g} s" if found["trips"] < trips else ""
    return [
        Sample("idle p99", idle["p99_us"], "us"),
        Sample("beside bulk p99", beside["p99_us"], "us", note),
        Sample("beside bulk p50", beside["p50_us"], "us"),
        Sample("beside / idle, p99", beside["p99_us"] / idle["p99_us"], ""),
    ]


# -- surveys


def measure_surveys(system: str, *, members: int, size: int, seconds: float) -> Sequence[Sample]:
    """Ask all members, one survey after the other."""
    with Scene(system) as scene:
        surveyor = scene.cast(roles.survey, members=members, size=size, warm_up=10)
        place = surveyor.listen(START_TIMEOUT_S)["place"]
        for worker in [scene.cast(roles.be_members, place=place, members_here=here) for here in _shares(members)]:
            worker.listen(START_TIMEOUT_S)
        surveyor.begin({"all": "there"})
        surveyor.listen(START_TIMEOUT_S)
        surveyor.begin({"surveys": 5})
        surveys = max(5, int(5 * seconds / surveyor.listen(MEASURE_TIMEOUT_S)["took_s"]))
        before = scene.spent()
        surveyor.begin({"surveys": surveys})
        found = surveyor.listen(MEASURE_TIMEOUT_S)
        spent = scene.spent() - before
    missed = surveys * members - found["answered"]
    note = f"lost {missed:,} of {surveys * members:,} answers" if missed else ""
    return [
        Sample("p50", found["p50_us"] / 1e3, "ms", note),
        Sample("answers", found["answered"] / found["took_s"], "/s", note),
        *_costs(spent, surveys * members, "answer"),
    ]


# -- tunnels


def measure_tunnel(system: str, *, seconds: float) -> Sequence[Sample]:
    """Send blocks of 256 KiB through one tunnel."""
    with Scene(system) as scene:
        place = scene.cast(roles.serve).listen(START_TIMEOUT_S)["place"]
        client = scene.cast(roles.send_through_tunnel, place=place)
        client.listen(START_TIMEOUT_S)
        client.begin({"blocks": 64})
        blocks = max(64, int(64 * seconds / client.listen(MEASURE_TIMEOUT_S)["took_s"]))
        before = scene.spent()
        client.begin({"blocks": blocks})
        took_s = client.listen(MEASURE_TIMEOUT_S)["took_s"]
        spent = scene.spent() - before
    size = blocks * len(roles.BLOCK)
    return [Sample("bytes", size / took_s / 1e6, "MB/s"), *_costs(spent, size >> 20, "MiB")]


# -- start and memory


def measure_start(system: str) -> Sequence[Sample]:
    """Start a process that asks once. An equal start before has written the bytecode of all modules."""
    with Scene(system) as scene:
        place = scene.cast(roles.serve).listen(START_TIMEOUT_S)["place"]
        scene.cast(roles.ask_first, place=place, size=100).listen(START_TIMEOUT_S)
        began = time.perf_counter()
        client = scene.cast(roles.ask_first, place=place, size=100)
        replied_at = client.listen(START_TIMEOUT_S)["replied_at"]
        spent = scene.spent(client)
    return [
        Sample("first reply after", (replied_at - began) * 1e3, "ms"),
        Sample("processor time until then", spent.cpu_s * 1e3, "ms"),
    ]


def measure_import(system: str) -> Sequence[Sample]:
    """Import the system in a fresh interpreter. An equal import before has written the bytecode of all modules."""
    statement = find_system(system).about.imports
    program = f"import time; began = time.perf_counter(); {statement}; print(time.perf_counter() - began)"
    _time_import(statement, program)
    return [Sample("import", _time_import(statement, program) * 1e3, "ms")]


def _time_import(statement: str, program: str) -> float:
    command, environment = (sys.executable, "-c", program), keeping_bytecode()
    done = subprocess.run(command, capture_output=True, text=True, timeout=START_TIMEOUT_S, check=False, env=environment)
    if done.returncode:
        raise BenchmarkFailed(f"{statement}: {done.stderr.strip().splitlines()[-1]}")
    return float(done.stdout)


def measure_memory(system: str, *, what: str, count: int) -> Sequence[Sample]:
    """Open many of something, and look at how memory grows."""
    with Scene(system) as scene:
        service = scene.cast(roles.serve)
        place = service.listen(START_TIMEOUT_S)["place"]
        alone = scene.resident_bytes()
        opener = scene.cast(roles.open_more, place=place, what=what)
        opener.listen(START_TIMEOUT_S)
        opener.begin({"count": max(1, count // 20)})  # what the first ones cost besides
        opener.listen(MEASURE_TIMEOUT_S)
        before, before_there = scene.resident_bytes(), scene.resident_bytes(opener)
        opener.begin({"count": count})
        opener.listen(MEASURE_TIMEOUT_S)
        grown, grown_there = scene.resident_bytes() - before, scene.resident_bytes(opener) - before_there
    if what != "links":
        # At least a page: nothing at all would say that it was not measured.
        return [Sample(f"a {what.rstrip('s')}, both ends", max(grown, 4096) / count / 1024, "KiB")]
    return [
        Sample("a process that serves, with its server", alone / (1 << 20), "MiB"),
        Sample("a link, where it is served", max(grown_there, 4096) / count / 1024, "KiB"),
        Sample("a node or client more", max(grown - grown_there, 4096) / count / 1024, "KiB"),
    ]
