"""The metrics of a node: what they say, and that no network makes a scrape large."""

from __future__ import annotations

import re
import sys
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

import iris_py.errors
from iris_py.metrics import families as families_module
from iris_py.metrics.families import OUTCOMES, Families, Family
from iris_py.metrics.prometheus import make_metric
from iris_py.observe.counts import OTHER
from iris_py.observe.histogram import BUCKETS, HistogramStatistics
from iris_py.observe.statistics import (
    BroadcastStatistics,
    ClusterStatistics,
    LinksStatistics,
    LinkStatistics,
    OverlayStatistics,
    RequestStatistics,
    SecurityStatistics,
    ServiceStatistics,
    Statistics,
    SubscriptionStatistics,
    TopicStatistics,
    TunnelStatistics,
)

if TYPE_CHECKING:
    from collections.abc import Callable

#: What a server of Prometheus is asked to take of each node (docs/design.md 16.33).
LINES_MAX = 2100
HOSTILE = ['"', "\\", "\n", "a\nb 1\n# HELP", '{cluster="x"} 1', "é" * 127, "\x00\x1b[31m", "0" * 255, "_other", " "]
SECRET_ID = "5be1" * 8
#: Public ids of generations of the secret.
GENERATIONS = ("541ea8b28adc7c04", "362c335a8ce3e066")


def text_of(families: Families, statistics: Statistics) -> str:
    class One:
        def collect(self) -> Any:
            yield from map(make_metric, families.collect(statistics))

    registry = CollectorRegistry()
    registry.register(One())
    return generate_latest(registry).decode()


def samples(text: str) -> dict[tuple[str, tuple[str, ...]], float]:
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def histogram(each: int) -> HistogramStatistics:
    return HistogramStatistics((each,) * BUCKETS, 1.5)


def cluster(errors: int = 60) -> ClusterStatistics:
    return ClusterStatistics(
        members=3,
        requests=RequestStatistics(
            sent=10,
            replied=7,
            retries=1,
            errors=dict.fromkeys([*OUTCOMES, *(f"Error{number}" for number in range(errors))], 1),
            round_trip=histogram(2),
        ),
        service=ServiceStatistics(executed=4, failed=1, concurrency=8, queue_messages=100, handling=histogram(1)),
        broadcasts=BroadcastStatistics(sent=2),
    )


def everything(names: list[str]) -> Statistics:
    reasons = {f"reason{number}": 1 for number in range(200)}
    return Statistics(
        rejected=reasons,
        drops=reasons,
        clusters={name: cluster() for name in names},
        topics={name: TopicStatistics(published=1) for name in names},
        subscriptions=tuple(
            SubscriptionStatistics(pattern=f"{name}.>", policy="block", dropped=reasons, oldest_s=3.0) for name in names
        ),
        tunnels=TunnelStatistics(broken=reasons),
        links=LinksStatistics(
            closed=reasons, each=(LinkStatistics(peer=SECRET_ID, address="192.0.2.7:1", zone="z", round_trip_s=0.1),) * 256
        ),
        overlay=OverlayStatistics(tables=reasons, directories=reasons, ring=reasons, detector=reasons),
        security=SecurityStatistics(primary=GENERATIONS[0], accepted=GENERATIONS[1:]),
    )


def test_no_network_makes_a_scrape_large_or_tells_of_addresses() -> None:
    families = Families()
    names = [f"{number}-{HOSTILE[number % len(HOSTILE)]}"[:255] for number in range(1000)]
    text = text_of(families, everything(names))
    assert text.count("\n") < LINES_MAX
    later = text_of(families, everything([*(f"new{number}" for number in range(1000)), *names[:32]]))
    assert later.count("\n") < LINES_MAX
    assert samples(text).keys() == samples(later).keys()
    for shown in (SECRET_ID[:16], "192.0.2.7"):
        assert shown not in text


def test_each_generation_of_the_secret_has_a_series() -> None:
    read = samples(text_of(Families(), everything(["a"])))
    found = {labels: value for (name, labels), value in read.items() if name == "iris_key_generation_seals"}
    assert found == {(GENERATIONS[0],): 1, (GENERATIONS[1],): 0}
    assert not [name for name, _ in samples(text_of(Families(), Statistics())) if name == "iris_key_generation_seals"]


def test_hostile_names_are_read_as_they_are() -> None:
    text = text_of(Families(), everything(HOSTILE))
    read = samples(text)
    for name in HOSTILE:
        assert read["iris_handled_total", (name,)] == 4
    assert all(re.match(r"(# (HELP|TYPE) )?iris_", line) for line in text.splitlines())


def test_the_figures_are_those_of_the_statistics() -> None:
    statistics = msgspec.structs.replace(everything(["a", "b", OTHER]), drops={"late_reply": 3}, uptime_s=7.0)
    read = samples(text_of(Families(), statistics))
    assert read["iris_requests_total", ("a", "done")] == 7
    assert read["iris_requests_total", ("a", "timeout")] == 1
    assert read["iris_requests_total", ("a", "other")] == 60
    assert read["iris_request_seconds_bucket", ("a", "0.000128")] == 2 * 8
    assert read["iris_request_seconds_bucket", ("a", "+Inf")] == read["iris_request_seconds_count", ("a",)] == 2 * BUCKETS
    assert read["iris_request_seconds_sum", (OTHER,)] == 1.5
    assert read["iris_broadcasts_total", ("sent",)] == 6
    assert read["iris_dropped_total", ("late_reply",)] == 3
    assert read["iris_subscription_oldest_seconds", ()] == 3
    assert read["iris_uptime_seconds", ()] == 7


def test_every_metric_is_there_before_anything_has_happened() -> None:
    first = {family.name for family in Families().collect(Statistics())}
    later = {family.name for family in Families().collect(everything(["a"]))}
    assert first == later
    assert len(first) == len(list(Families().collect(Statistics()))), "no name comes twice"


def test_a_worker_can_send_them() -> None:
    found = list(Families().collect(everything(["a", "b"])))
    sent = msgspec.json.decode(msgspec.json.encode(found), type=list[Family])
    assert [list(family.samples) for family in sent] == [list(family.samples) for family in found]


def test_each_outcome_is_an_error_that_there_is() -> None:
    for name, outcome in OUTCOMES.items():
        assert issubclass(getattr(iris_py.errors, name), iris_py.errors.IrisError)
        assert re.fullmatch(r"[a-z_]+", outcome)
    own = [name for name in OUTCOMES if getattr(iris_py.errors, name).__base__.__name__ not in OUTCOMES]
    assert len({OUTCOMES[name] for name in own}) == len(own), "a kind of another error may share its outcome"
    assert len(families_module.BUCKETS) < BUCKETS


def _work(act: Callable[[], object]) -> int:
    """Return how many functions something calls: what it costs, on any machine."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        act()
    finally:
        sys.setprofile(None)
    return calls


def test_no_metric_takes_much_of_the_work_however_many_names_there_are() -> None:
    """The status rests after each, so the event loop goes on meanwhile."""
    families = Families()
    list(families.collect(everything([f"{number}.x" for number in range(1000)])))
    rest = families.collect(everything([f"{number}.x" for number in range(1000)]))
    found: list[Family] = []
    steps: list[int] = []
    while len(found) == len(steps):
        steps.append(_work(lambda: found.extend(islice(rest, 1))))
    assert len(found) > 50
    assert max(steps) < sum(steps) / 8
