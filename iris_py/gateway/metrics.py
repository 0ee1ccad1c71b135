"""Metrics of a gateway for Prometheus (docs/design.md 15.18).

A scrape reads counters that the gateway keeps anyway. Labels are aliases, rules, directions and reasons, all from the code or
from files, so a neighbour cannot create series. The label ``gateway`` is an address, dialled or dialling; the number of
addresses is bounded for each cloud.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from iris_py.metrics.families import Labels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from prometheus_client.core import Metric

#: Gateways of one cloud with their own series, the first to appear; further ones share the label ``_other``. Too small: the
#: gateways of a large cloud cannot be told apart; too large: a neighbour that dials from ever new addresses creates series.
GATEWAYS_MAX: Final = 64

_PER_CLOUD: Final = ("cloud",)
_PER_LINE: Final = ("cloud", "gateway")
_PER_RULE: Final = ("cloud", "direction", "kind", "rule")


class GatewayCollector:
    """Collects the metrics of a gateway for a scrape.

    Args:
        status: Returns the state of the gateway.
        refused_handshakes: The number of refused handshakes, by reason; grows.
    """

    def __init__(self, status: Callable[[], Mapping[str, Any]], refused_handshakes: Mapping[str, int]) -> None:
        self._status = status
        self._refused_handshakes = refused_handshakes
        self._gateways: dict[str, Labels] = {}  # by cloud

    def collect(self) -> Iterator[Metric]:
        """Return the current metrics; called by the registry."""
        from prometheus_client.core import CounterMetricFamily

        clouds: dict[str, dict[str, Any]] = self._status()["clouds"]
        yield from _cloud_metrics(clouds)
        yield from self._line_metrics(clouds)
        yield from _rule_metrics(clouds)
        refused = CounterMetricFamily(
            "iris_federation_refused_handshakes", "Connections whose handshake failed, by reason.", labels=("reason",)
        )
        for reason, count in self._refused_handshakes.items():
            refused.add_metric((reason,), count)
        yield refused

    def _line_metrics(self, clouds: Mapping[str, Mapping[str, Any]]) -> Iterator[Metric]:
        """Return the metrics of each cloud link; for several links to one address, the best value or the sum."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        up = GaugeMetricFamily("iris_federation_line_up", "Whether the cloud link to the gateway is usable.", labels=_PER_LINE)
        trip = GaugeMetricFamily("iris_federation_line_round_trip_seconds", "The smoothed round trip.", labels=_PER_LINE)
        sent_again = CounterMetricFamily(
            "iris_federation_line_retransmissions",
            "TCP segments sent again since the cloud link opened; 0 if the system does not provide it.",
            labels=_PER_LINE,
        )
        self._gateways = {alias: labels for alias, labels in self._gateways.items() if alias in clouds}
        for alias, cloud in clouds.items():
            for gateway, (bundles, is_up) in self._lines_of(alias, cloud).items():
                labels = alias, gateway
                up.add_metric(labels, float(is_up))
                trips = [bundle["round_trip_s"] for bundle in bundles if bundle["round_trip_s"] is not None]
                if trips:
                    trip.add_metric(labels, min(trips))
                if bundles:
                    sent_again.add_metric(labels, sum(bundle["retransmissions"] for bundle in bundles))
        yield from (up, trip, sent_again)

    def _lines_of(self, alias: str, cloud: Mapping[str, Any]) -> dict[str, tuple[list[Mapping[str, Any]], bool]]:
        """Return, by gateway address, a cloud's links and whether one is usable; no links for an address of failed dials."""
        label_of = self._gateways.setdefault(alias, Labels(GATEWAYS_MAX))
        found: dict[str, tuple[list[Mapping[str, Any]], bool]] = {}
        for dial in cloud["dials"]:
            if dial["failures"] and not dial["is_up"]:
                found[label_of(dial["address"])] = [], False
        for bundle in cloud["bundles"]:
            label = label_of(bundle["address"])
            bundles, is_up = found.get(label, ([], False))
            found[label] = [*bundles, bundle], is_up or bundle["is_usable"]
        return found


def _cloud_metrics(clouds: Mapping[str, Mapping[str, Any]]) -> Iterator[Metric]:
    """Return the metrics of each cloud: the best value of its gateways, or their sum."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    gauges: dict[str, tuple[str, Callable[[Mapping[str, Any]], float | None]]] = {
        "up": ("Whether the cloud is reachable.", lambda cloud: cloud["is_up"]),
        "lines": ("Usable gateways of the cloud.", lambda cloud: _sum(cloud, "is_usable")),
        "suspect": ("Silent gateways of the cloud.", lambda cloud: _sum(cloud, "is_suspect")),
        "round_trip_seconds": ("The shortest smoothed round trip.", lambda cloud: cloud["round_trip_s"]),
        "heard_seconds_ago": ("Seconds since the last data from the cloud.", _heard_s_ago),
        "in_flight": ("Requests in flight, in both directions.", lambda cloud: _sum(cloud, "requests_out", "requests_in")),
        "flows": ("Channels: tunnels, surveys, subscriptions, publishing.", lambda cloud: _sum(cloud, "channels")),
        "queue_bytes": ("Bytes that wait for the cloud link.", lambda cloud: cloud["queue_bytes"]),
        "unmatched_imports": ("Imports without an export of the cloud.", lambda cloud: len(cloud["unmatched_imports"])),
        "catalogues_differ": (
            "Whether the cloud's gateways export different things.",
            lambda cloud: cloud["catalogues_differ"],
        ),
    }
    for name, (text, value_of) in gauges.items():
        gauge = GaugeMetricFamily(f"iris_federation_{name}", text, labels=_PER_CLOUD)
        for alias, cloud in clouds.items():
            value = value_of(cloud)
            if value is not None:
                gauge.add_metric((alias,), float(value))
        yield gauge
    line = CounterMetricFamily("iris_federation_line_bytes", "All bytes on the cloud link.", labels=("cloud", "direction"))
    for alias, cloud in clouds.items():
        line.add_metric((alias, "sent"), cloud["accounts"]["line_bytes_sent"])
        line.add_metric((alias, "received"), cloud["accounts"]["line_bytes_received"])
    yield line


def _rule_metrics(clouds: Mapping[str, Mapping[str, Any]]) -> Iterator[Metric]:
    """Return the traffic of each rule."""
    from prometheus_client.core import CounterMetricFamily

    requests = CounterMetricFamily("iris_federation_requests", "Requests, by outcome.", labels=(*_PER_RULE, "outcome"))
    dropped = CounterMetricFamily("iris_federation_dropped", "Dropped messages.", labels=(*_PER_RULE, "reason"))
    messages = CounterMetricFamily("iris_federation_messages", "Messages.", labels=(*_PER_RULE, "way"))
    payload = CounterMetricFamily("iris_federation_payload_bytes", "Bytes of payloads.", labels=(*_PER_RULE, "way"))
    share = CounterMetricFamily(
        "iris_federation_rule_line_bytes", "The share of the rule in the bytes on the cloud link.", labels=(*_PER_RULE, "way")
    )
    for alias, cloud in clouds.items():
        for rule in cloud["accounts"]["rules"]:
            labels = (alias, rule["direction"], rule["kind"], rule["pattern"])
            for outcome, count in rule["requests"].items():
                requests.add_metric((*labels, outcome), count)
            for reason, count in rule["dropped"].items():
                dropped.add_metric((*labels, reason), count)
            for way in ("sent", "received"):
                messages.add_metric((*labels, way), rule[f"messages_{way}"])
                payload.add_metric((*labels, way), rule[f"payload_bytes_{way}"])
                share.add_metric((*labels, way), rule[f"line_bytes_{way}"])
    yield from (requests, dropped, messages, payload, share)


def _sum(cloud: Mapping[str, Any], *names: str) -> float:
    return float(sum(bundle[name] for bundle in cloud["bundles"] for name in names))


def _heard_s_ago(cloud: Mapping[str, Any]) -> float | None:
    return min((bundle["heard_s_ago"] for bundle in cloud["bundles"]), default=None)
