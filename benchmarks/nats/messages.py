"""Messages from one client to another one, as fast as they arrive."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Final

from benchmarks.harness import MEASURE_TIMEOUT_S, START_TIMEOUT_S, Sample, Section, Stage, Trial
from benchmarks.nats.clients import Client, Pump, msg_bytes, pub
from benchmarks.nats.processor import Processor, processor_samples
from benchmarks.nats.servers import CONTENDERS, SERVER, start_servers
from benchmarks.worker import tell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.worker import Parameters

#: Messages under way at most, and bytes. Too small: servers wait for clients; too large: servers cut a client as slow.
WINDOW_MESSAGES: Final = 8192
WINDOW_BYTES: Final = 2 * 1024 * 1024
#: Part of the messages that is sent before anything is counted.
_WARM_UP_SHARE: Final = 1 / 5
_SUBJECT: Final = "bench.{:03d}"
_PATTERN: Final = "bench.*"
#: Messages that are made; they are sent again and again.
_MADE: Final = 1000


def section(name: str, payload_bytes: int, subjects: int, messages: int) -> Section:
    """Return the comparison for one size of payloads and one number of subjects."""
    where = "one subject" if subjects == 1 else f"{subjects} subjects in turn"
    parameters = {"payload_bytes": payload_bytes, "subjects": subjects, "messages": messages}
    return Section(
        name,
        f"{messages:,} messages of {payload_bytes:,} bytes to {where}; one publisher, one subscriber to {_PATTERN}. "
        "Processor: of all servers.",
        [Trial(contender, partial(_measure, contender, parameters)) for contender in CONTENDERS],
        (SERVER,),
    )


def _measure(contender: str, parameters: Parameters) -> Sequence[Sample]:
    with Stage() as stage:
        servers = start_servers(contender, stage.home, stage)
        worker = stage.start(carry)
        worker.begin({**parameters, "ports": servers.ports, "pids": servers.pids})
        found = worker.listen(START_TIMEOUT_S + MEASURE_TIMEOUT_S)
    received = found["received"]
    lost = parameters["messages"] - received
    note = f"{contender}: {lost:,} messages were lost" if lost else ""
    return [
        *processor_samples([seconds / received * 1e6 for seconds in found["cpu_s"]], "us/message", note),
        Sample("rate", received / found["took_s"], "/s", note),
    ]


def carry(parameters: Parameters) -> None:
    """Publish at the first server and receive at the last one; tell the times and the number of received messages."""
    payload, subjects = b"x" * parameters["payload_bytes"], parameters["subjects"]
    names = [_SUBJECT.format(number % subjects) for number in range(_MADE)]
    made = [pub(name, payload) for name in names]
    processor = Processor(parameters["pids"])
    subscriber = Client(parameters["ports"][-1])
    subscriber.subscribe(_PATTERN)
    window = min(WINDOW_MESSAGES, WINDOW_BYTES // len(made[0]))
    publisher = Client(parameters["ports"][0])
    received_bytes = msg_bytes(names[0], payload)
    pump = Pump(publisher.socket, subscriber.socket, b"".join(made), len(made), received_bytes, window)
    pump.move(int(parameters["messages"] * _WARM_UP_SHARE))
    pump.settle()
    began, before = time.monotonic(), processor.read()
    received = pump.move(parameters["messages"])
    took_s = time.monotonic() - began
    tell(received=received, took_s=took_s, cpu_s=processor.since(before))
