"""Detection: how long nodes that stand still, or are cut off, stay in the views of the others, in virtual time.

Whoever is stopped is a member of three clusters, as all others are, and perhaps the node that keeps their lists of members; all
others watch these. The network is the simulated one, so that a run says the same on every machine.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from benchmarks.harness import Sample, Section, Trial
from iris_overlay.ids import ID_BYTES, GroupId
from iris_py.testing.cores.overlay import OverlaySimulation

if TYPE_CHECKING:
    from collections.abc import Sequence

CLUSTERS: Final = 3
#: How old the network is: as young as a detector may be that does not trust the network yet, or older.
AGES_S: Final = (6.0, 30.0)
#: So long it is looked who is in the views.
OBSERVED_S: Final = 10.0
STEP_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Case:
    """Say what happens to how many of how many nodes."""

    name: str
    nodes: int
    hit: int
    is_stopped: bool = False
    is_mute: bool = False
    is_deaf: bool = False
    every_s: float | None = None
    """It ends after so long, and begins again after as long."""


@dataclass(frozen=True, slots=True)
class Observed:
    """Say what the views of the others showed."""

    out_s: float
    """After this time all who were hit were out of every view."""
    innocent_s: float
    """The longest time that a view missed somebody who was not hit."""


CASES: Final = (
    Case("one of 3 stopped", 3, 1, is_stopped=True),
    Case("one of 8 stopped", 8, 1, is_stopped=True),
    Case("3 of 8 stopped", 8, 3, is_stopped=True),
    Case("10 of 30 stopped", 30, 10, is_stopped=True),
    Case("5 of 8 stopped", 8, 5, is_stopped=True),
    Case("one of 8 mute", 8, 1, is_mute=True),
    Case("one of 8 deaf", 8, 1, is_deaf=True),
    Case("3 of 8 deaf", 8, 3, is_deaf=True),
    Case("one of 8 cut off, 2 s on, 2 s off", 8, 1, is_mute=True, is_deaf=True, every_s=2.0),
)


def section(*, quick: bool) -> Section:
    """Return the cases."""
    runs = 2 if quick else 30
    trials = [Trial(case.name, partial(_measure, case, runs)) for case in CASES]
    return Section("detection", f"{runs} networks each, in virtual time. One run is enough: each is the same.", trials)


def _measure(case: Case, runs: int) -> Sequence[Sample]:
    observed = [observe(case, seed) for seed in range(runs)]
    samples = [Sample("innocents missing, max", max(each.innocent_s for each in observed), "s")]
    if case.every_s is None:
        out_s = sorted(each.out_s for each in observed)
        samples[:0] = [
            Sample("out of every view, p50", out_s[len(out_s) // 2], "s"),
            Sample("out of every view, p95", out_s[int(0.95 * len(out_s))], "s"),
            Sample("out of every view, max", out_s[-1], "s"),
        ]
    return samples


def observe(case: Case, seed: int) -> Observed:
    """Let it happen in one network."""
    simulation = OverlaySimulation(seed, is_checked=False)
    rng = random.Random(seed * 1000 + case.nodes)
    groups = [GroupId(bytes([seed * 37 % 256, number]) * (ID_BYTES // 2)) for number in range(CLUSTERS)]
    for _ in range(case.nodes):
        simulation.start_node()
    simulation.run_for(4.0)
    for index in range(case.nodes):
        for group in groups:
            simulation.join_group(index, group)
            simulation.watch_group(index, group)
    simulation.run_for(AGES_S[seed % len(AGES_S)] + 3.0 * rng.random())
    hit = rng.sample(range(case.nodes), case.hit)
    others = [index for index in range(case.nodes) if index not in hit]
    began_at, is_on, turn_at = simulation.now, False, simulation.now
    out_s = innocent_s = 0.0
    missing_since: dict[tuple[int, GroupId, int], float] = {}
    while simulation.now - began_at < OBSERVED_S:
        if simulation.now >= turn_at:
            is_on, turn_at = not is_on, float("inf") if case.every_s is None else turn_at + case.every_s
            _hit(simulation, case, hit, is_on=is_on)
        simulation.run_for(STEP_S)
        for watcher in others:
            for group in groups:
                view = simulation.nodes[watcher].views.get(group)
                members = view.members if view is not None else {}
                for index in range(case.nodes):
                    if simulation.nodes[index].id not in members:
                        if index not in hit:
                            since = missing_since.setdefault((watcher, group, index), simulation.now - STEP_S)
                            innocent_s = max(innocent_s, simulation.now - since)
                    elif index in hit:
                        out_s = simulation.now - began_at
                    else:
                        missing_since.pop((watcher, group, index), None)
    return Observed(out_s, innocent_s)


def _hit(simulation: OverlaySimulation, case: Case, hit: Sequence[int], *, is_on: bool) -> None:
    for index in hit:
        if not case.is_stopped:
            simulation.cut(index, mute=case.is_mute and is_on, deaf=case.is_deaf and is_on)
        elif is_on:
            simulation.stop(index)
        else:
            simulation.resume(index)
