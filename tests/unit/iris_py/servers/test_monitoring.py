"""Monitoring of the web door: health for everybody without a reason, metrics for observers without a subject or a name."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from iris_py.doors.counts import DoorStatistics
from iris_py.servers.metrics import DoorCollector, door_families
from tests.unit.iris_py.servers.test_app import with_door

if TYPE_CHECKING:
    from tests.unit.iris_py.servers.asgi import Answer
    from tests.unit.iris_py.servers.test_app import Door

NOBODY = {"Authorization": ""}
OBSERVER = {"Authorization": "Bearer observer"}
HISTORY = "[histories]\n'kept.>' = {seconds = 60}"


def series_of(answer: Answer) -> dict[str, float]:
    """Return the values of an answer, by name and the values of the labels, joined by blanks."""
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return {
        " ".join([sample.name, *sample.labels.values()]): sample.value
        for family in text_string_to_metric_families(answer.content.decode())
        for sample in family.samples
    }


def test_everybody_learns_whether_the_door_works_and_nothing_else() -> None:
    async def scenario(door: Door) -> None:
        for path in ("/healthz", "/readyz"):
            answer = await door.ask("GET", path, headers=NOBODY)
            assert (answer.status, answer.content) == (200, b'{"status":"SERVING"}')
            assert answer.headers["cache-control"] == "no-store"

    with_door(scenario)


def test_a_closing_door_is_alive_and_not_ready() -> None:
    async def scenario(door: Door) -> None:
        door.app.drain()
        assert (await door.ask("GET", "/healthz", headers=NOBODY)).status == 200
        assert (await door.ask("GET", "/readyz", headers=NOBODY)).problem == "closing"
        assert (await door.ask("GET", "/metrics", headers=OBSERVER)).status == 200
        await door.nodes[0].close()
        answer = await door.ask("GET", "/healthz", headers=NOBODY)
        assert (answer.status, answer.problem) == (503, "closing")

    with_door(scenario)


def test_a_door_without_its_history_is_not_ready_and_tells_no_reason() -> None:
    async def scenario(door: Door) -> None:
        assert (await door.ask("GET", "/readyz", headers=NOBODY)).status == 200
        assert door.streams.history_node is not None
        await door.streams.history_node.close()
        await door.simulation.until(lambda: not door.streams.is_open)
        answer = await door.ask("GET", "/readyz", headers=NOBODY)
        assert (answer.status, answer.problem) == (503, "not-ready")
        assert set(answer.json()) == {"type", "title", "status", "executed", "retry_after_s"}

    with_door(scenario, HISTORY)


def test_an_unready_node_makes_the_door_unready_and_its_reasons_stay_here() -> None:
    async def scenario(door: Door) -> None:
        await door.nodes[0].close()
        assert door.nodes[0].health().reasons
        answer = await door.ask("GET", "/readyz", headers=NOBODY)
        assert (answer.status, answer.problem) == (503, "not-ready")
        assert all(reason.encode() not in answer.content for reason in door.nodes[0].health().reasons)

    with_door(scenario)


def test_metrics_count_what_clients_do_and_are_told() -> None:
    async def scenario(door: Door) -> None:
        for _ in range(3):
            await door.ask("POST", "/v1/topics/kept.a", b"x")
        await door.ask("POST", "/v1/clusters/other/request", b"x", {"Authorization": "Bearer quotes"})
        await door.ask("POST", "/v1/clusters/quotes/request", b"x", NOBODY)
        await door.ask("GET", "/v1/topics/a/last", b"", {"Host": "evil.example"})
        gone, parts = asyncio.Event(), list[bytes]()
        streaming = asyncio.create_task(
            door.ask("GET", "/v1/topics/events?pattern=kept.*", gone=gone, note=lambda part: parts.append(part))
        )
        await door.simulation.until(lambda: bool(parts) and door.streams.status.history_messages == 3)
        series = series_of(await door.ask("GET", "/metrics", headers=OBSERVER))
        assert series["iris_door_operations_total web publish"] == 3
        assert series["iris_door_operations_total web request"] == 1
        assert series["iris_door_operations_total web survey"] == 0
        assert series["iris_door_problems_total web forbidden"] == 1
        assert series["iris_door_problems_total web no-token"] == 1
        assert series["iris_door_problems_total web foreign-host"] == 1
        assert series["iris_door_problems_total web failed"] == 0
        assert series["iris_door_streams web"] == 1
        assert series["iris_door_history_messages web"] == 3
        assert series["iris_door_received_messages_total web"] == 3
        assert series["iris_door_sent_bytes_total web"] == sum(map(len, parts))
        assert series["iris_uptime_seconds"] > 0
        gone.set()
        await streaming
        series = series_of(await door.ask("GET", "/metrics", headers=OBSERVER))
        assert series["iris_door_streams web"] == 0

    with_door(scenario, HISTORY)


def test_no_label_of_a_door_is_a_client_or_a_name() -> None:
    async def scenario(door: Door) -> None:
        await door.ask("POST", "/v1/topics/kept.a", b"x")
        await door.ask("POST", "/v1/clusters/secret-name/request", b"x")
        await door.ask("GET", "/metrics", headers=OBSERVER)
        labels = [values for family in door_families(door.app.statistics) for values, _value in family.samples]
        assert labels
        assert not {"ann", "kept", "kept.a", "secret-name"} & {text for values in labels for text in values}

    with_door(scenario)


def test_a_mounted_door_has_no_connections_and_the_program_may_register_its_metrics() -> None:
    registry = CollectorRegistry()
    registry.register(DoorCollector(lambda: DoorStatistics(kind="web", streams=7)))
    assert registry.get_sample_value("iris_door_streams", {"kind": "web"}) == 7
    assert registry.get_sample_value("iris_door_connections", {"kind": "web"}) is None
