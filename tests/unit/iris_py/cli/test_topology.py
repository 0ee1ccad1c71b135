"""The nodes of a network as a tree on a terminal, and as rows elsewhere."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from iris_py import NodeName
from iris_py.cli.output import Output
from iris_py.cli.topology import show
from iris_py.overview.topology import nodes_of
from tests.unit.iris_py.overview.test_topology import found, id_of, report

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from iris_py.overview.topology import By, TopologyNodeLine


def shown(capsys: pytest.CaptureFixture[str], nodes: Sequence[TopologyNodeLine], by: By = "zone", nodes_max: int = 10) -> str:
    show(nodes, Output(as_json=False), network="n", by=by, nodes_max=nodes_max)
    return capsys.readouterr().out


def test_a_tree_on_a_terminal_and_rows_elsewhere(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    told = found(
        report(1, "eu", ["a", "b"], [2]),
        report(2, "us", ["b"], [1]),
        missing=(NodeName(id_of(3), "10.0.0.3:1", name="web-1/a.py"),),
    )
    nodes = nodes_of(told)
    assert shown(capsys, nodes).splitlines() == [
        "eu         10000000  -           10.0.0.1:1  1  a, b",
        "us         20000000  -           10.0.0.2:1  1  b",
        "(no zone)  30000000  web-1/a.py  10.0.0.3:1  ?  -",
    ]
    assert [line.split()[0] for line in shown(capsys, nodes, "cluster").splitlines()] == ["a", "b", "b", "(serves"]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "200")
    tree = [line.rstrip() for line in shown(capsys, nodes).splitlines()]
    assert tree == [
        "Network n: 3 nodes, 1 link",
        "├── eu  1 node",
        "│   └── 10000000  10.0.0.1:1  1 link  a, b",
        "├── us  1 node",
        "│   └── 20000000  10.0.0.2:1  1 link  b",
        "└── (no zone)  1 node",
        "    └── 30000000  web-1/a.py  10.0.0.3:1  ? links",
    ]
    assert shown(capsys, nodes, nodes_max=2).splitlines() == [*tree[:2], tree[3], tree[5]]
