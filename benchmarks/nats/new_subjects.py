"""Requests to subjects that nobody has used before, beside as many to one subject, over two doors."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Final

from benchmarks.harness import MEASURE_TIMEOUT_S, START_TIMEOUT_S, Sample, Section, Stage, Trial
from benchmarks.nats.calls import PAYLOAD_BYTES, ask, respond
from benchmarks.nats.clients import Caller, Client
from benchmarks.nats.processor import Processor, processor_samples
from benchmarks.nats.servers import TWO_DOORS, start_servers
from benchmarks.worker import tell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.worker import Parameters

ONE_SUBJECT: Final = "one subject"
NEW_SUBJECTS: Final = "new subjects"
UNDER_WAY: Final = 32
_PATTERN: Final = "users.*"
_SUBJECT: Final = "users.{:08d}"


def section(name: str, requests: int) -> Section:
    """Return the comparison for some requests."""
    return Section(
        name,
        f"{requests:,} requests of {PAYLOAD_BYTES} bytes over two doors, {UNDER_WAY} under way, to a responder of {_PATTERN}: "
        "all to one subject, or each to a subject of its own. Processor: of both doors.",
        [Trial(contender, partial(_measure, contender, requests)) for contender in (ONE_SUBJECT, NEW_SUBJECTS)],
        (ONE_SUBJECT,),
    )


def _measure(contender: str, requests: int) -> Sequence[Sample]:
    with Stage() as stage:
        servers = start_servers(TWO_DOORS, stage.home, stage)
        responder, caller = stage.start(respond), stage.start(call)
        responder.begin({"port": servers.ports[-1], "subject": _PATTERN})
        responder.listen(START_TIMEOUT_S)
        are_new = contender == NEW_SUBJECTS
        caller.begin({"port": servers.ports[0], "pids": servers.pids, "requests": requests, "are_new": are_new})
        found = caller.listen(START_TIMEOUT_S + MEASURE_TIMEOUT_S)
    return [
        Sample("time", found["took_s"], "s"),
        *processor_samples([seconds / requests * 1e6 for seconds in found["cpu_s"]], "us/request"),
    ]


def call(parameters: Parameters) -> None:
    """Send requests; tell the times."""
    caller = Caller(Client(parameters["port"]), b"x" * PAYLOAD_BYTES)
    first = _SUBJECT.format(0)
    caller.wait_for_responder(first)
    processor = Processor(parameters["pids"])
    requests = parameters["requests"]
    ask(caller, [first] * requests, UNDER_WAY)
    subjects = [_SUBJECT.format(number) for number in range(1, requests + 1)] if parameters["are_new"] else [first] * requests
    began, before = time.monotonic(), processor.read()
    ask(caller, subjects, UNDER_WAY)
    tell(took_s=time.monotonic() - began, cpu_s=processor.since(before))
