"""The metrics of a door for Prometheus. Labels are kinds of doors, operations, problems and reasons, all from the code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from iris_py.metrics.families import Family, Kind
from iris_py.metrics.prometheus import make_metric

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from prometheus_client.core import Metric

    from iris_py.doors.counts import DoorStatistics

__all__ = ["DoorCollector", "door_families"]


class _DoorMetric(NamedTuple):
    """A metric with a single number for each door."""

    name: str
    kind: Kind
    help: str
    read: Callable[[DoorStatistics], int | None]


class _DoorMetricByName(NamedTuple):
    """A counter of a door with a number for each operation, problem or reason."""

    name: str
    label: str
    help: str
    read: Callable[[DoorStatistics], Mapping[str, int]]


_METRICS: Final = (
    _DoorMetric(
        "iris_door_connections", "gauge", "Open connections; missing for a mounted door.", lambda door: door.connections
    ),
    _DoorMetric("iris_door_streams", "gauge", "Open event streams.", lambda door: door.streams),
    _DoorMetric("iris_door_patterns", "gauge", "Distinct patterns of all event streams.", lambda door: door.patterns),
    _DoorMetric(
        "iris_door_subscriptions", "gauge", "Subscriptions of the node for event streams.", lambda door: door.subscriptions
    ),
    _DoorMetric(
        "iris_door_client_subscriptions",
        "gauge",
        "Subscriptions of NATS clients; missing for a web door.",
        lambda door: door.client_subscriptions,
    ),
    _DoorMetric("iris_door_waiting_bytes", "gauge", "Bytes that clients have not taken.", lambda door: door.waiting_bytes),
    _DoorMetric(
        "iris_door_received_messages_total",
        "counter",
        "Messages that the door received for event streams and histories; one for many streams counts once.",
        lambda door: door.received_messages,
    ),
    _DoorMetric(
        "iris_door_sent_bytes_total", "counter", "Bytes given to connections of event streams.", lambda door: door.sent_bytes
    ),
    _DoorMetric(
        "iris_door_dropped_messages_total",
        "counter",
        "Messages that clients did not get: they were too slow, or the door had no way to tell them.",
        lambda door: door.dropped_messages,
    ),
    _DoorMetric("iris_door_history_messages", "gauge", "Entries of all histories.", lambda door: door.history_messages),
    _DoorMetric("iris_door_history_bytes", "gauge", "Bytes of the payloads in histories.", lambda door: door.history_bytes),
    _DoorMetric("iris_door_viewers", "gauge", "Viewers of the dashboard.", lambda door: door.viewers),
    _DoorMetric("iris_door_others", "gauge", "Other doors of the network, of all kinds.", lambda door: door.others),
    _DoorMetric("iris_door_revocations", "gauge", "Revocations that the door remembers.", lambda door: door.revocations),
)
_METRICS_BY_NAME: Final = (
    _DoorMetricByName(
        "iris_door_messages_total", "way", "Messages from NATS clients, and to them.", lambda door: door.client_messages
    ),
    _DoorMetricByName(
        "iris_door_losses_total", "reason", "Messages that NATS clients did not get, by reason.", lambda door: door.losses
    ),
    _DoorMetricByName(
        "iris_door_native_requests_total",
        "outcome",
        "Requests of NATS clients to native members.",
        lambda door: door.native_requests,
    ),
    _DoorMetricByName(
        "iris_door_replies_total", "way", "Replies of NATS clients to clients of other doors.", lambda door: door.replies
    ),
    _DoorMetricByName("iris_door_bytes_total", "way", "Bytes of these messages.", lambda door: door.client_bytes),
    _DoorMetricByName(
        "iris_door_connections_refused_total",
        "reason",
        "Connections that the door refused or ended.",
        lambda door: door.connections_refused,
    ),
    _DoorMetricByName(
        "iris_door_operations_total",
        "operation",
        "Operations begun, without those with a wrong token or beyond the rate.",
        lambda door: door.operations,
    ),
    _DoorMetricByName("iris_door_problems_total", "problem", "Problems told to clients.", lambda door: door.problems),
    _DoorMetricByName(
        "iris_door_streams_ended_total",
        "reason",
        "Event streams that the door ended, because the client took nothing or its window was full.",
        lambda door: door.streams_ended,
    ),
)


def door_families(statistics: DoorStatistics) -> Iterator[Family]:
    """Yield the metrics of a door."""
    for metric in _METRICS:
        value = metric.read(statistics)
        samples = [] if value is None else [((statistics.kind,), float(value))]
        yield Family(metric.name, metric.kind, metric.help, ("kind",), samples)
    for each in _METRICS_BY_NAME:
        named = [((statistics.kind, name), float(value)) for name, value in each.read(statistics).items()]
        yield Family(each.name, "counter", each.help, ("kind", each.label), named)


class DoorCollector:
    """Collects the metrics of a door for a scrape.

    Args:
        read: Returns the counts of the door.
    """

    def __init__(self, read: Callable[[], DoorStatistics]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        """Return the present metrics; called by the registry."""
        yield from map(make_metric, door_families(self._read()))
