"""The status of several workers: what one address says of all of them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from prometheus_client import CollectorRegistry, generate_latest

from iris_py.api.status import Health
from iris_py.cli.serve.messages import StateAnswer
from iris_py.cli.serve.status import REASONS_MAX, WorkersStatus, merge
from iris_py.metrics.families import Family, HistogramValue

if TYPE_CHECKING:
    from iris_py.cli.serve.slot import WorkerSlot

SERVING = Health(status="SERVING")


def worker(number: int, health: Health | None, *, is_ready: bool = True, metrics: list[Family] | None = None) -> WorkerSlot:
    """Return a slot whose process says this; None if it says nothing."""

    async def ask(_cluster: str | None, _within_s: float, *, has_metrics: bool = False) -> StateAnswer | None:
        return None if health is None else StateAnswer(number, health, (metrics or []) if has_metrics else [])

    process = SimpleNamespace(is_ready=is_ready, ask=ask)
    return cast("WorkerSlot", SimpleNamespace(number=number, current=process, ends=3))


def status_of(*slots: WorkerSlot) -> WorkersStatus:
    status = WorkersStatus()
    status.slots = slots
    return status


def test_one_worker_that_serves_is_enough() -> None:
    status = status_of(worker(1, None), worker(2, SERVING), worker(3, Health(status="NOT_SERVING", reasons=("it leaves",))))
    assert asyncio.run(status.ready(None)) == SERVING
    assert asyncio.run(status.alive()) == SERVING


def test_the_first_worker_that_serves_is_not_kept_by_one_that_is_silent() -> None:
    async def ask_for_ever(*_arguments: Any, **_options: Any) -> None:
        await asyncio.get_running_loop().create_future()

    silent = cast("WorkerSlot", SimpleNamespace(number=1, current=SimpleNamespace(is_ready=True, ask=ask_for_ever)))
    assert asyncio.run(status_of(silent, worker(2, SERVING)).ready(None)) == SERVING


def test_without_one_each_says_why() -> None:
    ended = cast("WorkerSlot", SimpleNamespace(number=4, current=None, ends=1))
    new = cast("WorkerSlot", SimpleNamespace(number=5, current=None, ends=0))
    status = status_of(
        worker(1, Health(status="NOT_SERVING", reasons=("it is leaving 'x'",))),
        worker(2, SERVING, is_ready=False),
        worker(3, None),
        ended,
        new,
    )
    assert asyncio.run(status.ready(None)) == Health(
        status="NOT_SERVING",
        reasons=(
            "worker 1: it is leaving 'x'",
            "worker 2: it is starting",
            "worker 3: it has reported nothing for 0.7 s",
            "worker 4: it has ended, and is started again",
            "worker 5: it is starting",
        ),
    )
    many = status_of(*[worker(number, None) for number in range(1, 33)])
    assert len(asyncio.run(many.ready(None)).reasons) == REASONS_MAX + 1


def test_a_cluster_of_nobody_is_unknown() -> None:
    unknown = Health(status="SERVICE_UNKNOWN", reasons=("no part in it",))
    assert asyncio.run(status_of(worker(1, unknown), worker(2, unknown)).ready("x")).status == "SERVICE_UNKNOWN"
    assert asyncio.run(status_of(worker(1, unknown), worker(2, None)).ready("x")).status == "NOT_SERVING"


def test_what_stands_still_is_to_be_started_again_and_what_starts_is_not() -> None:
    assert asyncio.run(status_of(worker(1, None), worker(2, None)).alive()) == Health(
        status="NOT_SERVING", reasons=("no event loop runs in any of 2 workers",)
    )
    assert asyncio.run(status_of(worker(1, None), worker(2, SERVING)).alive()) == SERVING
    assert asyncio.run(status_of(worker(1, None, is_ready=False)).alive()) == SERVING
    assert asyncio.run(status_of().alive()) == SERVING


def test_metrics_name_the_worker() -> None:
    def metrics(value: float) -> list[Family]:
        return [
            Family("iris_a_total", "counter", "A.", ("cluster",), [(("x",), value)]),
            Family("iris_b", "histogram", "B.", (), [((), HistogramValue((value,) * 9, value))]),
        ]

    status = status_of(worker(1, SERVING, metrics=metrics(1)), worker(2, None), worker(3, SERVING, metrics=metrics(3)))
    asyncio.run(status.refresh())
    registry = CollectorRegistry()
    registry.register(status)
    text = generate_latest(registry).decode()
    assert text.count("# TYPE iris_a_total counter") == 1
    lines = text.splitlines()
    assert {
        'iris_worker_up{worker="1"} 1.0',
        'iris_worker_up{worker="2"} 0.0',
        'iris_worker_ends_total{worker="2"} 3.0',
        'iris_a_total{cluster="x",worker="1"} 1.0',
        'iris_a_total{cluster="x",worker="3"} 3.0',
        'iris_b_bucket{le="+Inf",worker="3"} 3.0',
    } <= set(lines)
    assert not [line for line in lines if line.startswith("iris_a") and 'worker="2"' in line]


def test_a_family_that_older_files_have_with_other_labels_is_left_out() -> None:
    new, old = Family("a", "gauge", "A.", ("x",), [(("1",), 1.0)]), Family("a", "gauge", "A.", (), [((), 2.0)])
    (family,) = merge({"1": [new], "2": [old]})
    assert (family.labels, family.samples) == (("worker", "x"), [(("1", "1"), 1.0)])
