"""The metrics of the lines of a gateway, as Prometheus reads them."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from iris_py.gateway.metrics import GATEWAYS_MAX, GatewayCollector
from iris_py.observe.counts import OTHER

Samples = dict[tuple[str, str], float]
ADDRESS, ANOTHER = "10.0.0.1:7450", "10.0.0.2:7450"


def bundle(address: str, *, is_usable: bool = True, round_trip_s: float | None = 0.05, retransmissions: int = 0) -> Any:
    counts = dict.fromkeys(("is_suspect", "requests_out", "requests_in", "channels", "heard_s_ago"), 0)
    return counts | {
        "address": address,
        "is_usable": is_usable,
        "round_trip_s": round_trip_s,
        "retransmissions": retransmissions,
    }


def dial(address: str, *, is_up: bool, failures: int = 0) -> dict[str, object]:
    return {"address": address, "is_up": is_up, "failures": failures, "error": ""}


def cloud(bundles: list[Any], dials: list[Any] | None = None) -> dict[str, Any]:
    return {
        "is_up": bool(bundles),
        "round_trip_s": None,
        "queue_bytes": 0,
        "unmatched_imports": [],
        "catalogues_differ": False,
        "accounts": {"line_bytes_sent": 0, "line_bytes_received": 0, "rules": []},
        "dials": dials or [],
        "bundles": bundles,
    }


class Gateway:
    """The status of a gateway with lines to the cloud eu, and the collector that reads it."""

    def __init__(self) -> None:
        self.eu = cloud([])
        self._registry = CollectorRegistry()
        self._registry.register(GatewayCollector(lambda: {"clouds": {"eu": self.eu}}, {}))

    def scrape(self) -> Samples:
        families = text_string_to_metric_families(generate_latest(self._registry).decode())
        return {
            (sample.name.removeprefix("iris_federation_"), sample.labels.get("gateway", "")): sample.value
            for family in families
            for sample in family.samples
        }


def test_each_line_has_the_gateway_as_a_label() -> None:
    gateway = Gateway()
    gateway.eu = cloud(
        [bundle(ADDRESS, retransmissions=7), bundle(ANOTHER, is_usable=False, round_trip_s=None)],
        [dial(ADDRESS, is_up=True), dial(ANOTHER, is_up=True)],
    )
    found = gateway.scrape()
    assert found["lines", ""] == 1
    assert (found["line_up", ADDRESS], found["line_up", ANOTHER]) == (1, 0)
    assert found["line_round_trip_seconds", ADDRESS] == 0.05
    assert ("line_round_trip_seconds", ANOTHER) not in found
    assert found["line_retransmissions_total", ADDRESS] == 7


def test_an_address_that_cannot_be_dialled_is_down_and_one_that_is_not_wanted_is_not_shown() -> None:
    gateway = Gateway()
    gateway.eu = cloud([bundle(ADDRESS)], [dial(ADDRESS, is_up=True), dial(ANOTHER, is_up=False, failures=3)])
    found = gateway.scrape()
    assert (found["line_up", ADDRESS], found["line_up", ANOTHER]) == (1, 0)
    # A second dial that came to the gateway of the first one has found it well.
    gateway.eu = cloud([bundle(ADDRESS)], [dial(ADDRESS, is_up=True), dial(ADDRESS, is_up=False)])
    found = gateway.scrape()
    assert [key for key in found if key[0] == "line_up"] == [("line_up", ADDRESS)]
    assert found["line_up", ADDRESS] == 1


def test_several_lines_to_one_address_are_added_up() -> None:
    gateway = Gateway()
    gateway.eu = cloud(
        [
            bundle(ADDRESS, is_usable=False, round_trip_s=0.2, retransmissions=1),
            bundle(ADDRESS, round_trip_s=0.1, retransmissions=2),
            bundle(ADDRESS, is_usable=False, round_trip_s=0.3, retransmissions=4),
        ]
    )
    found = gateway.scrape()
    assert (found["lines", ""], found["line_up", ADDRESS]) == (1, 1)
    assert found["line_round_trip_seconds", ADDRESS] == 0.1
    assert found["line_retransmissions_total", ADDRESS] == 7


def test_a_neighbour_that_dials_from_ever_new_addresses_makes_a_bound_of_series() -> None:
    gateway, seen = Gateway(), set()
    for start in range(0, 500, 50):
        gateway.eu = cloud([bundle(f"10.0.{number // 250}.{number % 250}") for number in range(start, start + 50)])
        seen |= {gateway_label for name, gateway_label in gateway.scrape() if name == "line_up"}
    assert len(seen) == GATEWAYS_MAX + 1
    assert OTHER in seen
