"""Iris beside its peers, from outside: every workload gives numbers, in a documented shape, however large they are."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.harness import Sample
from benchmarks.peers import document
from benchmarks.peers.figures import Figures
from benchmarks.peers.systems import NAMES, find_system
from benchmarks.peers.workloads import TINY, make_workloads

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = [
    pytest.mark.xdist_group("machine"),  # what needs all of it does not meet others of the kind
    pytest.mark.timeout(240),  # a hundred processes, one after the other
]

QUICK = Path(__file__).with_name("quick_benchmarks.py")
#: Those that every environment for development has.
PEERS = ("iris", "pyzmq", "tcp")
#: Workloads, and those of these systems that take part.
TAKING_PART = {
    "queue-latency": {"iris", "pyzmq", "tcp"},
    "stream": {"iris", "pyzmq", "tcp"},
    "fan-out": {"iris", "pyzmq", "tcp"},
    "request": {"iris", "pyzmq", "tcp"},
    "bulk": {"iris", "tcp"},
    "survey": {"iris"},
    "tunnel": {"iris", "tcp"},
    "overflow": {"iris"},
    "start-up": {"iris", "tcp"},
    "memory": {"iris", "tcp"},
}


def measure(*arguments: str, timeout_s: float = 220) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        (sys.executable, str(QUICK), "benchmarks.peers", "--scale", "tiny", *arguments),
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    file = tmp_path_factory.mktemp("peers") / "report.json"
    chosen = "--peers", " ".join(PEERS), "--workloads", " ".join(TAKING_PART), "--rounds", "2"
    done = measure(*chosen, "--json", str(file))
    assert done.returncode == 0, done.stderr
    assert "Iris beside the best peer" in done.stdout
    result = json.loads(file.read_text())
    assert isinstance(result, dict)
    return result


def test_every_system_that_can_has_a_number_and_nothing_failed(report: dict[str, Any]) -> None:
    found = {
        workload["name"]: {cell["system"] for row in workload["rows"] for cell in row["cells"]}
        for workload in report["workloads"]
    }
    assert found == TAKING_PART
    assert [workload["missing"] for workload in report["workloads"]] == [[]] * len(TAKING_PART)


def test_every_figure_follows_from_the_values_of_the_rounds(report: dict[str, Any]) -> None:
    for workload in report["workloads"]:
        for row in workload["rows"]:
            medians = {cell["system"]: median(cell["runs"]) for cell in row["cells"]}
            for cell in row["cells"]:
                assert len(cell["runs"]) == report["rounds"] == 2, (workload["name"], row["metric"], cell)
                assert 0 < min(cell["runs"]) == cell["min"] <= cell["median"] <= cell["max"] == max(cell["runs"])
                assert cell["to_iris"] == (medians[cell["system"]] / medians["iris"] if row["unit"] else None)
            if row["best_peer"] is not None:
                assert row["iris_to_best_peer"] == pytest.approx(medians["iris"] / medians[row["best_peer"]])


def test_nothing_is_lost_where_systems_wait(report: dict[str, Any]) -> None:
    waiting = [
        workload for workload in report["workloads"] if workload["name"] in ("queue-latency", "stream", "fan-out", "survey")
    ]
    assert [cell["notes"] for workload in waiting for row in workload["rows"] for cell in row["cells"] if cell["notes"]] == []


def test_systems_take_turns_and_the_order_alternates(report: dict[str, Any]) -> None:
    turns = [(number, system) for workload, _case, number, system in report["turns"] if workload == "stream"]
    assert turns == [(0, "iris"), (0, "pyzmq"), (0, "tcp"), (1, "tcp"), (1, "pyzmq"), (1, "iris")]


def test_costs_count_all_processes_and_cycles_where_there_are_any(report: dict[str, Any]) -> None:
    metrics = {(workload["name"], row["metric"]) for workload in report["workloads"] for row in workload["rows"]}
    assert ("stream", "processor time") in metrics
    assert (("stream", "cycles") in metrics) == ("not readable" not in report["counters"])


def test_the_report_says_what_was_measured_on_what(report: dict[str, Any]) -> None:
    assert report["format"] == 1
    assert set(report["systems"]) == set(PEERS)
    assert [name for name, system in report["systems"].items() if system["is_encrypted"]] == ["iris"]
    assert all(system["versions"] and system["use"] for system in report["systems"].values())
    assert report["machine"]["processors"] > 0
    assert report["scale"]["messages"] == TINY.messages


def test_the_page_has_every_workload_and_every_reason(report: dict[str, Any], tmp_path: Path) -> None:
    figures = figures_from(report["workloads"])
    figures.explain("stream", "1 KiB", "nats", "not installed: nats-server")
    file = tmp_path / "benchmarks.md"
    document.write(figures, report, [(each["name"], each["caption"]) for each in report["workloads"]], [], file)
    text = file.read_text()
    assert [name for name in TAKING_PART if f"\n## {name}\n" not in text] == []
    assert "nats, stream, 1 KiB: not installed: nats-server" in text
    assert report["counters"] in text
    widths = [line.count("|") for table in text.split("\n\n") if table.startswith("|") for line in [table.split("\n")[0]]]
    assert min(widths) > 2


def figures_from(workloads: Sequence[dict[str, Any]]) -> Figures:
    figures = Figures()
    for workload in workloads:
        for row in workload["rows"]:
            for cell in row["cells"]:
                samples = [Sample(row["metric"], value, row["unit"]) for value in cell["runs"]]
                for sample in samples:
                    figures.add(workload["name"], row["case"], cell["system"], [sample])
    return figures


@pytest.mark.parametrize("name", NAMES)
def test_a_system_is_whole(name: str) -> None:
    system = find_system(name)
    assert system.about.name == name
    assert [workload.name for workload in make_workloads(TINY) if system.about.only and workload.name in system.about.only] or (
        system.about.only is None
    )
    for pair in (("publisher", "subscriber"), ("surveyor", "member")):
        assert system.can(*pair) or not any(map(system.can, pair))
    for method in ("callers", "tunnel", "bulk", "links", "subscriptions", "idle_tunnels"):
        assert system.can("service") or not system.can(method)


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [("--peers", "iris rabbitmq", "rabbitmq"), ("--workloads", "speed", "speed"), ("--scale", "huge", "huge")],
)
def test_a_name_that_is_not_known_is_an_error_that_says_which_are(option: str, value: str, said: str) -> None:
    done = measure(option, value)
    assert done.returncode == 2
    assert said in done.stderr
    assert {"--peers": "pyzmq", "--workloads": "stream", "--scale": "quick"}[option] in done.stderr
    assert "Traceback" not in done.stderr


def test_a_peer_that_is_not_installed_has_a_row_with_its_reason(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    program = (
        "import sys, importlib.util as util\n"
        "found = util.find_spec\n"
        "util.find_spec = lambda name, *more: None if name == 'zenoh' else found(name, *more)\n"
        "from benchmarks.peers.cli import main\n"
        "import typer\n"
        "typer.run(main)\n"
    )
    arguments = "--scale", "tiny", "--peers", "tcp zenoh", "--workloads", "stream", "--rounds", "1", "--json", str(file)
    done = subprocess.run(
        (sys.executable, "-c", program, *arguments),
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "not installed: eclipse-zenoh" in done.stdout
    (workload,) = json.loads(file.read_text())["workloads"]
    assert workload["missing"] == [{"case": "1 KiB", "system": "zenoh", "reason": "not installed: eclipse-zenoh"}]
    assert {cell["system"] for row in workload["rows"] for cell in row["cells"]} == {"tcp"}
