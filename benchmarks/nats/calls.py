"""Requests of one client to another one."""

from __future__ import annotations

import time
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Final

from benchmarks.harness import MEASURE_TIMEOUT_S, START_TIMEOUT_S, BenchmarkFailed, Sample, Section, Stage, Trial
from benchmarks.nats.clients import READ_BYTES, Caller, Client, MessageReader, pub
from benchmarks.nats.processor import Processor, processor_samples
from benchmarks.nats.servers import CONTENDERS, SERVER, start_servers
from benchmarks.web.clients import percentile
from benchmarks.worker import tell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.worker import Parameters

PAYLOAD_BYTES: Final = 64
#: Part of the requests that is sent before anything is counted.
_WARM_UP_SHARE: Final = 1 / 5
_SUBJECT: Final = "service"


def section(name: str, requests: int, under_way: int) -> Section:
    """Return the comparison for some requests, of which so many are under way at a time."""
    return Section(
        name,
        f"{requests:,} requests of {PAYLOAD_BYTES} bytes, {under_way} under way; one caller, one responder. Processor: of all "
        "servers.",
        [Trial(contender, partial(_measure, contender, requests, under_way)) for contender in CONTENDERS],
        (SERVER,),
    )


def _measure(contender: str, requests: int, under_way: int) -> Sequence[Sample]:
    with Stage() as stage:
        servers = start_servers(contender, stage.home, stage)
        responder, caller = stage.start(respond), stage.start(call)
        responder.begin({"port": servers.ports[-1], "subject": _SUBJECT})
        responder.listen(START_TIMEOUT_S)
        caller.begin({"port": servers.ports[0], "pids": servers.pids, "requests": requests, "under_way": under_way})
        found = caller.listen(START_TIMEOUT_S + MEASURE_TIMEOUT_S)
    samples = processor_samples([seconds / requests * 1e6 for seconds in found["cpu_s"]], "us/request")
    if under_way == 1:
        return [*samples, Sample("p50", found["p50_us"], "us"), Sample("p99", found["p99_us"], "us")]
    return [*samples, Sample("rate", requests / found["took_s"], "/s")]


def respond(parameters: Parameters) -> None:
    """Answer each request to a subject or pattern, and tell when callers know it."""
    client, reader, payload = Client(parameters["port"]), MessageReader(), b"x" * PAYLOAD_BYTES
    client.subscribe(parameters["subject"])
    tell()
    client.socket.settimeout(None)
    while data := client.socket.recv(READ_BYTES):
        replies = [pub(each.reply.decode(), payload) for each in reader.read(data) if each.reply]
        if replies:
            client.socket.sendall(b"".join(replies))


def call(parameters: Parameters) -> None:
    """Send requests; tell the times."""
    caller = Caller(Client(parameters["port"]), b"x" * PAYLOAD_BYTES)
    caller.wait_for_responder(_SUBJECT)
    processor = Processor(parameters["pids"])
    requests, under_way = parameters["requests"], parameters["under_way"]
    ask(caller, [_SUBJECT] * int(requests * _WARM_UP_SHARE), under_way)
    began, before = time.monotonic(), processor.read()
    times_us = ask(caller, [_SUBJECT] * requests, under_way)
    took_s, cpu_s = time.monotonic() - began, processor.since(before)
    tell(took_s=took_s, cpu_s=cpu_s, p50_us=median(times_us), p99_us=percentile(times_us, 0.99))


def ask(caller: Caller, subjects: Sequence[str], under_way: int) -> list[float]:
    """Send requests, some of them under way at a time; return the microseconds between each send and the next replies.

    Args:
        caller: The caller.
        subjects: The subject of each request.
        under_way: The number of requests under way.

    Raises:
        BenchmarkFailed: A request has found no responder, or no reply came.
    """
    made = [caller.request(subject) for subject in subjects]
    times_us: list[float] = []
    answered, sent = 0, min(under_way, len(made))
    began = time.perf_counter_ns()
    caller.send(b"".join(made[:sent]))
    while answered < len(made):
        replies = caller.wait()
        times_us.append((time.perf_counter_ns() - began) / 1000)
        if any(reply.is_refusal for reply in replies):
            raise BenchmarkFailed("a request has found no responder")
        answered += len(replies)
        following = made[sent : sent + len(replies)]
        sent += len(following)
        began = time.perf_counter_ns()
        if following:
            caller.send(b"".join(following))
    return times_us
