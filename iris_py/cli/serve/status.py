"""Metrics and health of several workers at one address (docs/design.md 16.4), collected by the supervisor of `iris serve`."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from iris_py.api.status import Health
from iris_py.metrics.families import Family

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence

    from prometheus_client.core import Metric

    from iris_py.cli.serve.messages import StateAnswer
    from iris_py.cli.serve.slot import WorkerSlot
    from iris_py.metrics.families import HistogramValue

__all__ = ["WorkersStatus", "merge"]

#: How long a worker may take to report its health (seconds). Too small: a worker with a busy event loop counts as silent; too
#: large: a probe of Kubernetes, whose default timeout is a second, gets no answer.
TELL_S: Final = 0.7
#: How long a worker may take to report its metrics (seconds). Too small: metrics of a busy worker are missing; too large: a
#: hung worker delays the metrics of all. Prometheus waits 10 s.
METRICS_S: Final = 3.0
#: Maximum number of reasons that are reported while no worker serves.
REASONS_MAX: Final = 8


class WorkersStatus:
    """Serves the metrics and the health of all workers of `iris serve` at one address.

    Attributes:
        slots: The slots of the workers, once they exist.
    """

    def __init__(self) -> None:
        self.slots: Sequence[WorkerSlot] = ()
        self._told: Mapping[int, StateAnswer | None] = {}

    @asynccontextmanager
    async def listening(self, listen: str | None) -> AsyncIterator[str]:
        """Serve metrics and health in the ``with`` block, and yield the address.

        Args:
            listen: The value of the option ``--http``; None to start no server, and yield an empty address.

        Raises:
            ConfigurationError: The address is invalid or cannot be used, or a package is missing.
        """
        if listen is None:
            yield ""
            return
        from iris_py.metrics.status import StatusEndpoint

        endpoint = StatusEndpoint(None, alive=self.alive, ready=self.ready, refresh=self.refresh)
        endpoint.registry.register(self)
        await endpoint.listen(listen)
        try:
            yield endpoint.address
        finally:
            await endpoint.close()

    async def alive(self) -> Health:
        """Return unhealthy only if all running workers hang. Ended workers do not count, because they are restarted."""
        told = await self._ask_all(None)
        if told and not any(told.values()):
            return Health(status="NOT_SERVING", reasons=(f"no event loop runs in {_workers(len(told))}",))
        return Health(status="SERVING")

    async def ready(self, cluster: str | None) -> Health:
        """Return healthy as soon as any worker reports to be serving; otherwise the reasons of the workers.

        Args:
            cluster: The cluster concerned; None for the whole service.
        """
        found: dict[int, Health] = {}
        asking = {asyncio.create_task(_health_of(slot, cluster)): slot.number for slot in self.slots}
        left = set(asking)
        try:
            while left:
                done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
                for each in done:
                    health = found[asking[each]] = each.result()
                    if health.is_ready:
                        return health
        finally:
            for each in left:
                each.cancel()
        return _none_of(found)

    async def refresh(self) -> None:
        """Query the metrics of all workers, and keep them for :meth:`collect`."""
        self._told = await self._ask_all(None, has_metrics=True)

    def collect(self) -> Iterator[Metric]:
        """Return the metrics of the last :meth:`refresh`, each labelled with the number of the worker."""
        from iris_py.metrics.prometheus import make_metric, merge_families

        up = [((str(slot.number),), float(self._told.get(slot.number) is not None)) for slot in self.slots]
        ends = [((str(slot.number),), float(slot.ends)) for slot in self.slots]
        yield make_metric(Family("iris_worker_up", "gauge", "1 if the worker answers.", ("worker",), up))
        yield make_metric(Family("iris_worker_ends_total", "counter", "Unexpected exits of the worker.", ("worker",), ends))
        by_worker = {str(number): told for number, told in self._told.items() if told is not None}
        self._told = {}
        yield from map(make_metric, merge({worker: told.metrics for worker, told in by_worker.items()}))
        yield from merge_families({worker: told.of_program for worker, told in by_worker.items()})

    async def _ask_all(self, cluster: str | None, *, has_metrics: bool = False) -> Mapping[int, StateAnswer | None]:
        """Query all serving workers; return the answer by worker number, None for a worker without an answer."""
        asked = [(slot.number, slot.current) for slot in self.slots if slot.current is not None and slot.current.is_ready]
        within_s = METRICS_S if has_metrics else TELL_S
        told = await asyncio.gather(*(process.ask(cluster, within_s, has_metrics=has_metrics) for _number, process in asked))
        return {number: answer for (number, _process), answer in zip(asked, told, strict=True)}


def merge(families: Mapping[str, Iterable[Family]]) -> Iterator[Family]:
    """Merge the metrics of several workers: families of the same name become one, with the worker as a label.

    Args:
        families: The families by the worker's label. Workers may have different families, because their files may differ.
    """
    merged: dict[str, Family] = {}
    samples: dict[str, list[tuple[tuple[str, ...], float | HistogramValue]]] = {}
    for worker, its_own in families.items():
        for family in its_own:
            labels = ("worker", *family.labels)
            if merged.setdefault(family.name, family._replace(labels=labels)).labels == labels:
                samples.setdefault(family.name, []).extend(((worker, *values), value) for values, value in family.samples)
    for name, family in merged.items():
        yield family._replace(samples=samples[name])


async def _health_of(slot: WorkerSlot, cluster: str | None) -> Health:
    process = slot.current
    if process is None and slot.ends:
        return Health(status="NOT_SERVING", reasons=("it has ended, and is started again",))
    if process is None or not process.is_ready:
        return Health(status="NOT_SERVING", reasons=("it is starting",))
    told = await process.ask(cluster, TELL_S)
    return Health(status="NOT_SERVING", reasons=(f"it has reported nothing for {TELL_S:g} s",)) if told is None else told.health


def _none_of(found: Mapping[int, Health]) -> Health:
    """Return the health of all workers if none serves: unhealthy, with the reasons of the workers."""
    reasons = [f"worker {number}: {reason}" for number, health in sorted(found.items()) for reason in health.reasons]
    if len(reasons) > REASONS_MAX:
        reasons = [*reasons[:REASONS_MAX], f"and {len(reasons) - REASONS_MAX} more reasons"]
    is_unknown = bool(found) and all(health.status == "SERVICE_UNKNOWN" for health in found.values())
    return Health(
        status="SERVICE_UNKNOWN" if is_unknown else "NOT_SERVING", reasons=tuple(reasons or ["no worker was started yet"])
    )


def _workers(number: int) -> str:
    return "the worker" if number == 1 else f"any of {number} workers"
