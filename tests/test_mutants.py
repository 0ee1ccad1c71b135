"""The list of mutants that change nothing: each names a line that is there, and says why."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_each_mutant_that_changes_nothing_names_a_line_that_is_there() -> None:
    entries = tomllib.loads((ROOT / "tests/mutation/equivalent.toml").read_text())["equivalent"]
    assert entries
    for entry in entries:
        assert entry.keys() == {"module", "operator", "line", "why"}
        lines = [line.strip() for line in (ROOT / entry["module"]).read_text().splitlines()]
        assert entry["line"] in lines, entry
        assert entry["why"]
