"""Run one simulation that is planned."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from iris_py.cli.simulate.pace import Pace
    from iris_py.cli.simulate.plan import Plan
    from iris_py.cli.simulate.report import Report

__all__ = ["run_plan"]


def run_plan(plan: Plan, pace: Pace) -> Report:
    """Simulate what is planned."""
    # The collector looks through millions of objects for cycles that simulations do not make: a third of their time.
    gc.disable()
    try:
        return _run_plan(plan, pace)
    finally:
        gc.enable()


def _run_plan(plan: Plan, pace: Pace) -> Report:
    if plan.layer == "groups":
        from iris_py.cli.simulate.groups import run_groups

        return run_groups(plan, pace)
    if plan.layer == "full":
        from iris_py.cli.simulate.full import run_full

        return run_full(plan, pace)
    from iris_py.cli.simulate.ring import run_ring

    return run_ring(plan, pace)
