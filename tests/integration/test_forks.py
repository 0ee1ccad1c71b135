"""Nodes of asyncio in the child of a fork are of no use, and the parent's are unharmed (docs/design.md 10.5)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import iris_py
from tests.integration.fork_program import USES
from tests.standstills import without_standstills

ROOT = Path(__file__).parents[2]
PROGRAM = "tests.integration.fork_program"
PATIENCE_S = 60.0


def test_every_call_of_a_node_is_tried() -> None:
    public = {name for name in dir(iris_py.Node) if not name.startswith("_") and callable(getattr(iris_py.Node, name))}
    assert set(USES) == public - {"close", "handle_events", "handle_outcomes"}


@pytest.mark.parametrize("where", ["loop", "thread"])
@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_a_child_sends_nothing_and_is_told_so(where: str, loop: str, home: Path) -> None:
    hidden = "import sys; sys.modules['uvloop'] = None; " if loop == "asyncio" else ""
    program = f"{hidden}import sys, runpy; sys.argv = ['', '{where}']; runpy.run_module('{PROGRAM}', run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-W", "ignore:This process:DeprecationWarning", "-c", program],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.stdout.splitlines() == [
        "inherited 0",
        *(f"{use} True" for use in USES),
        "status 0",
        "by the parent",
        "still subscribed",
        "pending True",
    ]
    assert (done.returncode, without_standstills(done.stderr)) == (0, "")
