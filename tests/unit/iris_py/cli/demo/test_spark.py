"""The parts of the demo with Spark that need neither Spark nor Java."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from dataclasses import asdict
from types import SimpleNamespace
from typing import TYPE_CHECKING

import msgspec
import pytest

from iris_py.cli.app import run
from iris_py.cli.demo import spark as job
from iris_py.cli.demo import spark_driver_process
from iris_py.cli.demo.crew import CrewMember
from iris_py.cli.demo.files import Inventory
from iris_py.cli.demo.lexer import TokenTotals
from iris_py.cli.demo.spark import document, print_report, read_result
from iris_py.cli.demo.spark_driver_process import SparkDriver, SparkFailed, end_all, environment_of, kill_process, processes_of
from iris_py.cli.demo.spark_terms import KILLED, ExecutorSeen, SparkJob, SparkOutcome
from iris_py.extras import install_command

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "one.py").write_text("x = 1\n")
    return folder


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process of a demo whose directory is ``tmp_path / "demo"``."""
    directory = tmp_path / "demo"
    directory.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"TMPDIR": str(directory)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"\n"
    yield process
    process.kill()
    process.communicate()


def outcome_of(root: Path, **facts: Any) -> SparkOutcome:
    outcome = SparkOutcome(Inventory(root), is_kill=True, **facts)
    outcome.executors = {"0": ExecutorSeen(latencies_s=[0.001]), "1": ExecutorSeen(state=KILLED)}
    return outcome


def member(state: str) -> CrewMember:
    child: Any = SimpleNamespace(pid=7)
    return CrewMember(child, id="m" * 32, state=state)


def test_a_job_survives_its_line_whatever_files_are_called() -> None:
    told = SparkJob("secret", "127.0.0.1:1", ["/a b", "/\udcff\n"], "/tmp/x", is_kill=True, timeout_s=1.5)
    assert SparkJob.decode(told.encode()) == told
    assert told.encode().count(b"\n") == 1
    assert "secret" not in repr(told)


def test_the_published_result_is_added_up() -> None:
    rows = [{"member": "a", **asdict(TokenTotals(files=2, names=3))}, {"member": "b", **asdict(TokenTotals(files=1, lines=9))}]
    totals, by_member = read_result(json.dumps(rows).encode())
    assert totals == TokenTotals(files=3, names=3, lines=9)
    assert by_member == {"a": 2, "b": 1}


def test_what_fails_is_said(tmp_path: Path) -> None:
    outcome = outcome_of(tmp_path, members=[member("killed at work")])
    assert outcome.failures == []
    outcome.totals = TokenTotals(files=1)
    outcome.members, outcome.executors = [member("served")], {"0": ExecutorSeen()}
    assert outcome.failures == [
        "the totals that Spark published differ from the plain count",
        "no member was killed",
        "no executor was killed at work",
    ]
    outcome.is_kill = False
    assert len(outcome.failures) == 1


def test_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outcome = outcome_of(tmp_path, members=[member("killed at work")], by_member={"m" * 32: 1234})
    report = json.loads(msgspec.json.encode(document(outcome)))
    assert report["equal"] is True
    assert report["members"][0] == {"id": "m" * 32, "process": 7, "state": "killed at work", "files": 1234}
    assert [each["asked"] for each in report["executors"]] == [1, 0]
    print_report(outcome)
    printed = capsys.readouterr().out
    assert "1,234" in printed
    assert "1.0 ms" in printed
    assert "The totals are equal." in printed


def test_without_spark_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(spark_driver_process, "find_spec", lambda name: None if name == "pyspark" else name)
    assert run(["demo", "--spark"]) == 2
    error = capsys.readouterr().err
    assert error == "iris: --spark needs Spark (pyspark not installed). Run: " + install_command("spark") + "\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--timeout", "0"], "'--timeout'"),
        (["--members", "0"], "'--members'"),
        (["--input", "/nowhere"], "/nowhere is not a directory"),
    ],
)
def test_wrong_arguments(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "--spark", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_wrong_totals_are_a_failure_and_the_log_is_named(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def miscount(outcome: SparkOutcome, *_: object) -> None:
        outcome.totals = TokenTotals(files=2)

    monkeypatch.setattr(job, "_with_spark", miscount)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code = asyncio.run(job.demo_spark(source, member_count=1, is_kill=False, as_json=False, timeout_s=60.0))
    printed = capsys.readouterr()
    assert code == 1
    assert "THE TOTALS DIFFER." in printed.out
    assert "iris: the totals that Spark published differ from the plain count" in printed.err
    (log,) = tmp_path.glob("iris-demo-*.log")
    assert f"the log of Spark is {log}" in printed.err


@pytest.mark.parametrize(
    ("error", "is_kept"),
    [
        (SparkFailed("no Java", is_clear=True), False),
        (SparkFailed("a task failed"), True),
        (asyncio.CancelledError(), False),
    ],
)
def test_the_log_stays_only_where_it_says_more(
    error: BaseException, is_kept: bool, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(job, "_with_spark", fail)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(type(error)):
        asyncio.run(job.demo_spark(source, member_count=1, is_kill=False, as_json=False, timeout_s=60.0))
    assert bool(list(tmp_path.glob("iris-demo-*.log"))) is is_kept


def test_a_program_that_ends_early_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_driver_process, "DRIVER_PROGRAM", "keyword")  # ends at once, and tells nothing
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    async def listen() -> None:
        with (tmp_path / "log").open("wb") as log:
            async with SparkDriver(log) as driver:
                await driver.start(SparkJob("", "", [], driver.directory, is_kill=False, timeout_s=1.0))
                async for _ in driver.events():
                    raise AssertionError

    with pytest.raises(SparkFailed, match="ended with status 0"):
        asyncio.run(listen())
    assert not list(tmp_path.glob("iris-demo-*"))


def test_processes_are_known_by_their_directory(sleeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    assert processes_of(str(tmp_path / "demo")) == [sleeper.pid]
    assert processes_of(str(tmp_path / "dem")) == []
    assert not kill_process(sleeper.pid, str(tmp_path / "dem"))
    assert sleeper.poll() is None
    assert kill_process(sleeper.pid, str(tmp_path / "demo"))
    assert sleeper.wait() == -9
    assert not kill_process(sleeper.pid, str(tmp_path / "demo"))


def test_everything_is_ended(sleeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    (tmp_path / "demo" / "rest").mkdir()
    (tmp_path / "demo" / "link").symlink_to(tmp_path)
    end_all(str(tmp_path / "demo"))
    assert sleeper.wait() == -9
    assert not (tmp_path / "demo").exists()
    assert tmp_path.exists()


def test_spark_gets_no_settings_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("IRIS_SECRET", "SPARK_HOME", "PYSPARK_SUBMIT_ARGS", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "KEPT"):
        monkeypatch.setenv(name, "user's")
    monkeypatch.setenv("PYTHONPATH", "there")
    monkeypatch.chdir(tmp_path)
    environment = environment_of("/tmp/demo")
    assert not {"IRIS_SECRET", "SPARK_HOME", "PYSPARK_SUBMIT_ARGS", "XDG_RUNTIME_DIR"} & set(environment)
    assert environment["KEPT"] == "user's"
    assert environment["TMPDIR"] == environment["XDG_CONFIG_HOME"] == "/tmp/demo"
    assert environment["PYTHONPATH"] == str(tmp_path / "there")
