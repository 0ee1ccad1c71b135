"""Nodes that stand still or are cut off, alone and together: when they are out of every view, and who else is."""

from __future__ import annotations

from statistics import median

import pytest

from benchmarks.detection import CASES, Case, observe

#: What docs/guarantees.md 7.2 promises for each case: usually, and at most.
OUT_S = {
    "one of 3 stopped": (2.5, 3.5),
    "one of 8 stopped": (2.0, 3.5),
    "3 of 8 stopped": (2.25, 4.0),
    "10 of 30 stopped": (3.25, 4.5),
    "5 of 8 stopped": (2.75, 4.5),
    "one of 8 mute": (2.0, 3.5),
    "one of 8 deaf": (3.0, 5.0),
    "3 of 8 deaf": (3.25, 5.0),
}
#: For so long a view may miss somebody for the sake of a host that flaps: not for long, and mostly not at all.
INNOCENT_S = 0.5


#: Those that others of the same kind stand for in `make test`.
LONG = ("5 of 8 stopped", "3 of 8 deaf")


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name, marks=[pytest.mark.long] * (case.nodes > 8 or case.name in LONG))
        for case in CASES
        if case.every_s is None
    ],
)
def test_who_stands_still_or_is_cut_off_is_out_of_every_view_in_time(case: Case) -> None:
    out_s = [observe(case, seed).out_s for seed in range(3 if case.nodes > 8 else 6)]
    assert median(out_s) <= OUT_S[case.name][0]
    assert max(out_s) <= OUT_S[case.name][1]


def test_a_host_that_flaps_drags_nobody_along() -> None:
    (case,) = [case for case in CASES if case.every_s is not None]
    for seed in range(6):
        assert observe(case, seed).innocent_s <= INNOCENT_S
