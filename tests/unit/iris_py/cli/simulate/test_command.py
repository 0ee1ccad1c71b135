"""`iris simulate` with small networks: what it refuses, what it reports, how it ends."""

from __future__ import annotations

import io
import json
import math
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import msgspec
import pytest

from iris_py.cli.app import run
from iris_py.cli.simulate import command, report, suite
from iris_py.cli.simulate import run as simulation
from iris_py.cli.simulate.pace import Display, Interrupts, SimulationPace
from iris_py.cli.simulate.plan import Partition, SimulationPlan, parse_partition
from iris_py.cli.simulate.report import SimulationReport, document, percentile, print_report, print_summary, show
from iris_py.cli.simulate.run import run_plan
from iris_py.errors import ConfigurationError
from iris_py.extras import install_command
from iris_py.testing.cores.pastry import PastrySimulation
from tests.profiles import first_cases

if TYPE_CHECKING:
    from pathlib import Path

SMALL = ["simulate", "--nodes", "30", "--lookups", "200"]


def run_quietly(plan: SimulationPlan) -> SimulationReport:
    return run_plan(plan, SimulationPace(lambda *_: None, lambda: False))


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    code = run([*SMALL, *arguments, "--json"])
    simulation, summary = map(json.loads, capsys.readouterr().out.splitlines())
    assert (simulation["kind"], summary["kind"], summary["simulations"]) == ("simulation", "summary", 1)
    assert summary["good"] == simulation["good"]
    return code, simulation


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--nodes", "1"], "'--nodes'"),
        (["--nodes", "300000"], "--nodes 300000: choose a value from 2 to 200,000"),
        (["--nodes", "many"], "'--nodes'"),
        (["--churn", "0"], "--churn 0: choose a rate above 0"),
        (["--churn", "nan"], "--churn nan: choose a rate above 0"),
        (["--churn", "1", "--session-s", "60"], "--churn and --session-s set the same rate"),
        (["--session-s", "1"], "--session-s 1: choose a value at least 10"),
        (["--session-s", "nan"], "--session-s nan"),
        (["--minutes", "0"], "--minutes 0: choose a value from 0.1"),
        (["--partition", "half"], "--partition half: write PART:SECONDS"),
        (["--partition", "0.7:60"], "--partition PART 0.7: choose a value from 0.01 to 0.5"),
        (["--partition", "0.5:0"], "--partition SECONDS 0: choose"),
        (["--kill", "1"], "--kill 1: choose a value from 0 to 0.9"),
        (["--loss", "0.6"], "--loss 0.6: choose a value from 0 to 0.5"),
        (["--lookups", "-1"], "--lookups -1: choose"),
        (["--zones", "-1"], "--zones -1: choose"),
        (["--layer", "cake"], "--layer cake: choose one of ring, groups, full"),
        (["--layer", "groups", "--loss", "0.1"], "--layer groups supports only --kill"),
        (["--layer", "groups", "--members", "0"], "--members 0: choose"),
        (["--layer", "groups", "--requesters", "999"], "--requesters 999: choose"),
        (["--layer", "full", "--loss", "0.1"], "--layer full draws its faults from --seed"),
        (["--layer", "full", "--kill", "0.1", "--zones", "2"], "--layer full draws its faults from --seed"),
        (["--layer", "full", "--nodes", "501"], "--nodes 501: choose a value from 2 to 500"),
        (["--suite", "sweet"], "--suite sweet: choose one of standard, million, disasters, huge"),
        (["--suite", "standard", "--nodes", "5"], "--suite standard determines the simulation"),
        (["--json", "--output", "/nowhere/at/all"], "--output: /nowhere/at/all cannot be written"),
        (["--output", "report"], "--output is for lines of JSON: add --json"),
        (["--json", "report"], "'--json': there is no place for 'report': write --json --output report"),
        (["--json", "-"], "'--json': there is no place for '-': leave it out"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert words in captured.err
    assert captured.err.count("\n") == 1


def test_partitions() -> None:
    assert parse_partition(None) is None
    assert parse_partition("0.25:60") == Partition(0.25, 60.0)
    with pytest.raises(ConfigurationError, match="PART:SECONDS"):
        parse_partition("0.25")


def test_plans_say_what_they_are() -> None:
    assert SimulationPlan(nodes=1000, session_s=8280.0, loss=0.01).title == "1,000 nodes, sessions of 2.3 h, 1.0% loss"
    assert (
        SimulationPlan(kill=0.2, partition=Partition(0.5, 600.0), zones=3).title
        == "1,000 nodes, 3 zones, 20% killed, split for 10 min"
    )
    assert SimulationPlan(layer="groups").title == "1,000 members, 1,000 subscribers, 100 requesters"
    assert SimulationPlan(session_s=30.0).title == "1,000 nodes, sessions of 30 s"
    assert [
        SimulationPlan(nodes=count, detectors=said).has_detectors for count, said in ((10, None), (9999, None), (9999, True))
    ] == [
        True,
        False,
        True,
    ]
    for name in suite.SUITES:
        for plan in suite.plans_of(name):
            plan.check()


def test_a_failure_names_the_command_that_shows_it_again(capsys: pytest.CaptureFixture[str]) -> None:
    plans = [
        SimulationPlan(),
        SimulationPlan(
            nodes=30, lookups=1_234_567, seed=7, session_s=3600 / 0.7, detectors=False, partition=Partition(0.25, 600.0)
        ),
        SimulationPlan(layer="full", nodes=20, minutes=0.1),
    ]
    seen: list[SimulationPlan] = []

    def take(plan: SimulationPlan, *_: object, **__: object) -> int:
        seen.append(plan)
        return 0

    for plan in plans:
        report = SimulationReport(plan)
        report.demand("something", 2, 1)
        print_report(report)
        shown = capsys.readouterr().out.splitlines()[-1]
        assert shown == f"The same again: {plan.command}"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(command, "simulate", take)
            assert run(plan.command.split()[1:]) == 0
    assert seen == plans


def test_what_a_whole_overlay_broke_is_told_in_words_of_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation.PacedRun, "_finish", lambda run: (_ for _ in ()).throw(run.simulation.error("a promise")))
    report = run_quietly(SimulationPlan(layer="full", nodes=5, minutes=0.1))
    assert not report.is_good
    assert report.checks[-1].found.endswith("a promise")
    assert "soak" not in report.checks[-1].found


def test_a_quiet_ring(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run([*SMALL, "--json", "--output", str(tmp_path / "report")]) == 0
    captured = capsys.readouterr()
    assert "ring: 30 nodes, seed 1" in captured.out
    assert "holds   wrong deliveries: 0, at most 0" in captured.out
    assert "lookups: 60 of 60" in captured.err
    report = json.loads((tmp_path / "report").read_text().splitlines()[0])
    assert report["good"]
    assert not report["interrupted"]
    figures = report["figures"]
    assert figures["deliveries"] == {"lookups": 200, "wrong": 0, "lost": 0, "repeated": 0, "undeliverable": 0}
    assert 0 < figures["routing"]["hops_mean"] <= figures["routing"]["log16"] + 0.2
    assert figures["routing"]["stretch_mean"] >= 1
    assert 2 < figures["upkeep per node and second"]["datagrams"] < 4.5
    assert 0 < figures["join"]["messages"] < 150  # the mean of two or three joins: 3 to 145 by seed, mostly 50
    assert sum(report["series"]["hops"]) == pytest.approx(1)


def test_the_same_seed_gives_the_same_report(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--session-s", "120", "--minutes", "0.5", "--loss", "0.02", "--zones", "2")
    first, second, other = (run_json(capsys, *options, "--seed", seed) for seed in ("1", "1", "2"))
    assert first == second
    assert first[1]["figures"] != other[1]["figures"]


def test_churn(capsys: pytest.CaptureFixture[str]) -> None:
    code, report = run_json(capsys, "--churn", "60", "--minutes", "1", "--loss", "0.01")
    assert code == 0
    assert report["plan"]["session_s"] == 60.0
    assert report["figures"]["churn"]["stopped"] > 10
    assert report["figures"]["deliveries"]["wrong"] == 0
    assert report["figures"]["upkeep per node and second"]["messages"] > 0


def test_faults_are_repaired(capsys: pytest.CaptureFixture[str]) -> None:
    code, report = run_json(capsys, "--kill", "0.2", "--partition", "0.5:60")
    assert code == 0
    assert report["figures"]["kill"]["nodes"] == 6
    assert report["figures"]["partition"]["nodes"] == 12
    assert 0 < report["figures"]["kill"]["repair_s"] <= 30
    assert report["series"]["kill_repair_s_misplaced"][-1] == 0
    assert all(check["met"] for check in report["checks"])


def test_what_is_not_repaired_in_time_fails(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PastrySimulation, "misplaced", lambda *_: [None])
    assert run([*SMALL, "--lookups", "0"]) == 1
    assert "FAILED  one ring after growth: never, at most 30 s" in capsys.readouterr().out


def test_wrong_and_lost_lookups_fail(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PastrySimulation, "lost", lambda _: [1])
    monkeypatch.setattr(PastrySimulation, "true_root", lambda *_: MagicMock(index=-1))
    code, report = run_json(capsys)
    assert code == 1
    unmet = {check["name"] for check in report["checks"] if not check["met"]}
    assert unmet == {"wrong deliveries", "lost lookups, as a part of all"}


def test_a_cluster_and_a_topic(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--layer", "groups", "--members", "60", "--subscribers", "40", "--requesters", "10", "--kill", "0.1")
    code, report = run_json(capsys, *options)
    assert code == 0
    figures = report["figures"]
    assert figures["cast: cluster"]["reached"] == 60
    assert figures["cast: topic"]["reached"] == 40
    assert 1 <= figures["cast: cluster"]["depth"] <= 3
    assert figures["requests"]["requests"] == 60 * 400
    assert figures["cast: cluster after the kill"]["receivers"] < 60


class Broken:
    """A run in which a promise is broken."""

    def __init__(self, *_: object) -> None:
        self.simulation = MagicMock(now=3.0)
        self.report = MagicMock(faults={"crash": 2})

    def run(self) -> None:
        raise AssertionError("a view is wrong")


def test_whole_overlays(monkeypatch: pytest.MonkeyPatch) -> None:
    report = run_quietly(SimulationPlan(layer="full", nodes=3, minutes=0.2, seed=5))
    assert (report.value("time", "virtual_s") or 0) > 10
    monkeypatch.setattr(simulation, "PacedRun", Broken)
    report = run_quietly(SimulationPlan(layer="full", nodes=3))
    assert not report.is_good
    assert [check.found for check in report.checks] == ["a view is wrong"]
    assert report.value("faults", "crash") == 2


@pytest.mark.parametrize(("nodes", "killed", "cut_off"), first_cases(1, [(20, 4, 8), (40, 8, 16)]))
def test_whole_overlays_survive_a_kill_and_a_cut(nodes: int, killed: int, cut_off: int) -> None:
    report = run_quietly(SimulationPlan(layer="full", nodes=nodes, kill=0.2, partition=Partition(0.5, 15.0), loss=0.01, seed=5))
    assert report.is_good, report.checks
    assert report.value("kill", "nodes") == killed
    assert report.value("partition", "nodes") == cut_off
    assert 0 < (report.value("kill", "reachable_s") or 0) <= (report.value("kill", "repaired_s") or 0)
    assert (report.value("partition", "repair_s") or 0) > 0


@pytest.mark.parametrize("layer", ["ring", "groups", "full"])
def test_an_interrupt_leaves_what_was_measured(layer: str) -> None:
    steps = iter(range(10_000))
    plan = SimulationPlan(layer=layer, nodes=30, members=30, subscribers=0, requesters=1)
    report = run_plan(plan, SimulationPace(lambda *_: None, lambda: next(steps) >= 3))
    assert report.is_interrupted
    print_report(report)


def test_the_first_interrupt_is_heard_and_the_second_ends() -> None:
    with Interrupts() as interrupts:
        wanted = [interrupts.is_wanted]
        signal.raise_signal(signal.SIGINT)
        wanted.append(interrupts.is_wanted)
        assert wanted == [False, True]
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_an_interrupted_command_reports_and_says_so() -> None:
    command = [sys.executable, "-m", "iris_py.cli", "simulate", "--nodes", "200", "--minutes", "600", "--churn", "1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    while "growing: 200 of 200" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=60)
    assert process.returncode == 130, error
    assert "Interrupted" in out
    assert "Traceback" not in error


def test_a_suite_runs_in_processes(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plans = (SimulationPlan(nodes=10, lookups=50), SimulationPlan(nodes=5, lookups=50, seed=2))
    monkeypatch.setitem(suite.SUITES, "tiny", plans)
    assert run(["simulate", "--suite", "tiny", "--workers", "2", "--json", "--output", str(tmp_path / "reports")]) == 0
    *reports, summary = map(json.loads, (tmp_path / "reports").read_text().splitlines())
    assert summary == {"kind": "summary", "simulations": 2, "good": 2, "interrupted": False}
    assert [report["plan"]["nodes"] for report in reports] == [10, 5]
    assert reports == [json.loads(msgspec.json.encode(document(run_quietly(plan)))) for plan in plans]
    assert "All simulations" in capsys.readouterr().out


def test_an_interrupted_suite_begins_no_more() -> None:
    plans = [SimulationPlan(nodes=10, lookups=50)] * 3
    with Display(io.StringIO(), has_names=True) as display:
        reports = suite.run_plans(plans, display, lambda: True, 1)
    assert len(reports) < 3
    assert all(report.is_interrupted for report in reports)


def test_percentiles_and_numbers() -> None:
    assert math.isnan(percentile([], 50))
    assert [percentile([1.0, 2.0, 3.0, 4.0], percent) for percent in (0, 25, 50, 99, 100)] == [1, 1, 2, 4, 4]
    assert [show(value) for value in (0.0, 12.0, 1234567.0, 0.12345, 1234.5, math.inf, math.nan)] == [
        "0",
        "12",
        "1,234,567",
        "0.123",
        "1,234",
        "never",
        "-",
    ]


def test_reports(capsys: pytest.CaptureFixture[str]) -> None:
    report = SimulationReport(SimulationPlan(nodes=7))
    report.add("a", "first", "the first", 1.0)
    report.add("b", "second", "the second", math.inf)
    report.demand("small", 3, 3, " s")
    goods = [report.is_good]
    report.demand("smaller", 3, 2)
    assert [*goods, report.is_good] == [True, False]
    assert report.value("a", "first") == 1.0
    assert report.value("a", "second") is None
    found = msgspec.to_builtins(document(report))
    assert found["figures"] == {"a": {"first": 1.0}, "b": {"second": None}}
    assert found["checks"] == [
        {"name": "small", "met": True, "found": "3 s, at most 3 s"},
        {"name": "smaller", "met": False, "found": "3, at most 2"},
    ]
    print_report(report)
    print_summary([report, report])
    printed = capsys.readouterr().out
    assert "FAILED  smaller: 3, at most 2" in printed
    assert "1 of 2 hold" in printed


def test_progress_in_lines() -> None:
    stream = io.StringIO()
    with Display(stream, has_names=True) as display:
        for done in range(101):
            display.show("one", "running", done, 100)
        display.show("two", "running", 100, 100)
    assert stream.getvalue().splitlines() == [
        "one: running: 25 of 100",
        "one: running: 50 of 100",
        "one: running: 75 of 100",
        "one: running: 100 of 100",
        "two: running: 100 of 100",
    ]


def test_plots_need_matplotlib_before_anything_is_simulated(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(report, "find_spec", lambda _: None)
    assert run([*SMALL, "--plots", str(tmp_path)]) == 2
    assert capsys.readouterr().err == "iris: --plots needs matplotlib: " + install_command("plots") + "\n"
    monkeypatch.setattr(report, "find_spec", lambda _: True)
    (tmp_path / "file").touch()
    assert run([*SMALL, "--plots", str(tmp_path / "file")]) == 2
    assert "--plots" in capsys.readouterr().err


def test_plots_show_what_was_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pyplot = MagicMock()
    figure = pyplot.figure.return_value
    axes = figure.subplots.return_value
    axes.get_legend_handles_labels.return_value = (["a"], ["a"])
    monkeypatch.setitem(sys.modules, "matplotlib", MagicMock(pyplot=pyplot))
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", pyplot)
    quiet = [run_quietly(SimulationPlan(nodes=count, lookups=50)) for count in (5, 10)]
    churned = [run_quietly(SimulationPlan(nodes=5, lookups=50, session_s=60.0, minutes=0.2, seed=seed)) for seed in (1, 2)]
    hurt = run_quietly(SimulationPlan(nodes=10, lookups=50, kill=0.2))
    groups = run_quietly(SimulationPlan(layer="groups", members=5, subscribers=0, requesters=2))
    paths = list(report.plot([*quiet, *churned, hurt, groups], tmp_path))
    assert [path.name for path in paths] == [
        "hops.svg",
        "growth.svg",
        "stretch.svg",
        "churn.svg",
        "repair.svg",
        "requests.svg",
    ]
    assert figure.savefig.call_count == 6
    assert "10 nodes" in {call.kwargs.get("label") for call in axes.plot.call_args_list}
    assert list(report.plot([SimulationReport(SimulationPlan())], tmp_path)) == []


def test_help_and_bars(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(["simulate", "--help"]) == 0
    assert "Usage: iris simulate" in capsys.readouterr().out
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    with Display(terminal, has_names=False) as display:
        display.show("", "growing", 1, 2)
        display.show("", "lookups", 2, 2)
    assert "lookups" in terminal.getvalue()
    assert "100%" in terminal.getvalue()
