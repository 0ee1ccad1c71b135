"""`iris demo`: nothing is lost when a member is killed at work, and nothing is left behind, however it ends."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from iris_py.cli.app import run
from iris_py.cli.demo.lexer import TokenTotals
from iris_py.peers.hedging import HEDGES_AT_FIRST, HEDGES_SHARE
from tests import warm
from tests.leaks import find_secrets
from tests.standstills import read_line

if TYPE_CHECKING:
    from collections.abc import Iterator

WAIT_S = 60.0
FILES = 200
#: How many requests may be given to a second one, for the first is late.
HEDGES_MAX = HEDGES_AT_FIRST + HEDGES_SHARE * FILES
FILES_OF_A_CLOUD = ("secret", "identity", "toml")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    cleared = {name: value for name, value in os.environ.items() if not name.startswith(("IRIS_", "XDG_"))}
    # What would keep a node of the user from starting must not matter to the demo, which has a network of its own.
    return cleared | {"XDG_CONFIG_HOME": str(tmp_path / "config"), "HOME": str(tmp_path), "IRIS_LISTEN": "nonsense"}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    for number in range(FILES):
        (folder / f"module{number}.py").write_text(f"# number {number}\nvalue = '{number}'\n" * (number * 10))
    (folder / "binary").write_bytes(b"\0")
    return folder


@pytest.fixture
def driver(environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A demo with more than enough to do, in which all members are at work."""
    process = subprocess.Popen(
        [sys.executable, "-m", "iris_py.cli", "demo", "--no-kill"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        text=True,
    )
    assert process.stderr is not None
    assert "3 member processes" in read_line(process.stderr)
    yield process
    if process.poll() is None:
        process.kill()
    process.communicate()


def run_demo(environment: dict[str, str], *arguments: str) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-m", "iris_py.cli", "demo", "--json", *arguments]
    done = warm.run(command, env=environment, timeout=WAIT_S)
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return done.returncode, json.loads(done.stdout)


def children_of(process_id: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{process_id}/task/{process_id}/children").read_text().split()]


def wait_until_gone(process_ids: list[int]) -> None:
    for process_id in process_ids:
        try:
            descriptor = os.pidfd_open(process_id)
        except ProcessLookupError:
            continue
        try:
            ready, _, _ = select.select([descriptor], [], [], WAIT_S)
            assert ready, f"process {process_id} is still there"
        finally:
            os.close(descriptor)


def test_a_member_killed_at_work_costs_nothing(environment: dict[str, str], source: Path) -> None:
    code, report = run_demo(environment, "--input", str(source))
    assert code == 0
    assert report["equal"] is True
    assert report["failures"] == []
    assert report["totals"] == report["plain"]
    assert report["totals"]["files"] == FILES
    assert report["totals"]["comments"] == sum(number * 10 for number in range(FILES))
    assert report["skipped"] == {"binary": 1}
    states = [member["state"] for member in report["members"]]
    assert states == ["killed at work", "served", "served", "joined after the kill"]
    assert sum(member["requests"] for member in report["members"]) == FILES == report["requests"]
    assert report["retries"] >= 1, "the request that the killed member held"
    latency = report["latency_ms"]
    assert 0 < latency["p50"] <= latency["p90"] <= latency["p99"] <= latency["max"]
    wait_until_gone([member["process"] for member in report["members"]])


def test_without_a_kill(environment: dict[str, str], source: Path) -> None:
    code, report = run_demo(environment, "--input", str(source), "--no-kill", "--members", "2")
    assert (code, report["equal"], report["failures"]) == (0, True, [])
    # None was lost; what a busy machine makes late is given to the other one too, within the budget.
    assert report["retries"] <= HEDGES_MAX
    assert [member["state"] for member in report["members"]] == ["served", "served"]


def test_the_only_member_is_killed(environment: dict[str, str], source: Path) -> None:
    """Then every request waits for its successor."""
    code, report = run_demo(environment, "--input", str(source), "--members", "1")
    assert (code, report["equal"]) == (0, True)
    assert [member["state"] for member in report["members"]] == ["killed at work", "joined after the kill"]


def test_a_single_file(environment: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    (folder / "one.py").write_text("x = 1\n")
    code, report = run_demo(environment, "--input", str(folder))
    assert (code, report["equal"], report["totals"]["files"]) == (0, True, 1)


def test_report_for_people(environment: dict[str, str], source: Path) -> None:
    command = [sys.executable, "-m", "iris_py.cli", "demo", "--input", str(source)]
    done = warm.run(command, env=environment, timeout=WAIT_S, text=True)
    assert done.returncode == 0
    assert "The totals are equal." in done.stdout
    assert "killed at work" in done.stdout
    assert f"{FILES} of {FILES} files counted by the cluster" in done.stderr


def test_no_process_shows_the_secret_of_the_demo(driver: subprocess.Popen[str]) -> None:
    """The members got it on their standard input: it is on no command line, in no environment, and in no file that is open."""
    members = children_of(driver.pid)
    assert len(members) == 3
    texts = []
    for process in (driver.pid, *members):
        texts += [Path(f"/proc/{process}/{name}").read_bytes().decode(errors="replace") for name in ("cmdline", "environ")]
        texts += read_open_files(process)
    assert find_secrets(texts) == []


def read_open_files(process_id: int) -> list[str]:
    """Return the beginnings of the files that a process at work has open, but for those that it closes meanwhile."""
    texts = []
    for path in list(Path(f"/proc/{process_id}/fd").iterdir()):
        try:
            if path.is_file():
                with path.open("rb") as file:
                    texts.append(file.read(100_000).decode(errors="replace"))
        except FileNotFoundError:
            continue  # the driver opens and closes what is counted all the time
    return texts


def test_interrupt_leaves_no_process_behind(driver: subprocess.Popen[str]) -> None:
    members = children_of(driver.pid)
    assert len(members) == 3
    driver.send_signal(signal.SIGINT)
    out, error = driver.communicate(timeout=WAIT_S)
    assert (driver.returncode, out) == (130, "")
    assert "Traceback" not in error
    wait_until_gone(members)


def test_killed_driver_leaves_no_process_behind(driver: subprocess.Popen[str]) -> None:
    members = children_of(driver.pid)
    assert len(members) == 3
    driver.kill()
    wait_until_gone(members)


# -- with --federation


class Clouds:
    """A demo with two clouds that has more than enough to do, when all of it runs.

    Attributes:
        process: The driver.
        children: Its gateways and members.
        directory: What the demo has written.
    """

    def __init__(self, environment: dict[str, str], temporary: Path) -> None:
        temporary.mkdir()
        self._temporary = temporary
        command = [sys.executable, "-m", "iris_py.cli", "demo", "--federation", "--no-kill"]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment | {"TMPDIR": str(temporary)},
            text=True,
        )

    def wait_until_at_work(self) -> None:
        assert self.process.stderr is not None
        lines = [read_line(self.process.stderr) for _ in range(4)]
        assert "files counted by the cluster" in lines[3], lines
        self.children = children_of(self.process.pid)
        assert len(self.children) == 4 + 3
        (self.directory,) = self._temporary.iterdir()

    def expect_nothing_left(self) -> None:
        wait_until_gone(self.children)
        assert list(self._temporary.iterdir()) == []

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


@pytest.fixture
def clouds(environment: dict[str, str], tmp_path: Path) -> Iterator[Clouds]:
    made = Clouds(environment, tmp_path / "temporary")
    try:
        made.wait_until_at_work()
        yield made
    finally:
        made.end()


def test_gateways_and_a_member_killed_at_work_cost_nothing(environment: dict[str, str], source: Path, tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    code, report = run_demo(environment | {"TMPDIR": str(temporary)}, "--federation", "--input", str(source))
    assert (code, report["equal"], report["closed"], report["failures"]) == (0, True, True, [])
    assert report["totals"] == report["plain"]
    assert report["totals"]["files"] == FILES
    gateways = {cloud: [one for one in report["gateways"] if one["cloud"] == cloud] for cloud in ("us", "eu")}
    assert [[one["state"] for one in its] for its in gateways.values()] == [["served", "killed"]] * 2
    assert [member["state"] for member in report["members"]] == ["killed at work", "served", "served", "joined after the kill"]
    assert sum(member["requests"] for member in report["members"]) == FILES == report["requests"]
    assert sum(one["requests"] for one in gateways["eu"]) == FILES, "each reply says by which gateway it came"
    assert all(one["requests"] for its in gateways.values() for one in its), "all of them were used"
    wait_until_gone([one["process"] for one in report["members"] + report["gateways"]])
    assert list(temporary.iterdir()) == []


@pytest.mark.long
def test_two_clouds_without_a_kill(environment: dict[str, str], source: Path) -> None:
    code, report = run_demo(environment, "--federation", "--input", str(source), "--no-kill", "--members", "1")
    assert (code, report["equal"], report["failures"]) == (0, True, [])
    assert {one["state"] for one in report["members"] + report["gateways"]} == {"served"}
    passed = sum(one["requests"] for one in report["gateways"] if one["cloud"] == "us")
    assert FILES <= passed <= FILES + HEDGES_MAX + report["retries"], "what is late is given to the other gateway, too"


def test_report_of_two_clouds_for_people(environment: dict[str, str], tmp_path: Path) -> None:
    """With a single file everything is killed when it is done."""
    folder = tmp_path / "small"
    folder.mkdir()
    (folder / "one.py").write_text("x = 1\n")
    command = [sys.executable, "-m", "iris_py.cli", "demo", "--federation", "--input", str(folder)]
    done = warm.run(command, env=environment, timeout=WAIT_S, text=True)
    assert done.returncode == 0, done.stderr
    assert "The totals are equal." in done.stdout
    assert "'token-counters' of 'eu' is refused, because it is not exported under that name" in done.stderr
    killed = [line.split(" of ")[1].split(" ")[0] for line in done.stderr.splitlines() if line.startswith("gateway")]
    assert sorted(killed) == ["'eu'", "'us'"]


def test_what_another_cloud_counts_wrongly_is_seen(
    environment: dict[str, str], source: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in list(os.environ):
        if name.startswith(("IRIS_", "XDG_")):
            monkeypatch.delenv(name)
    monkeypatch.setattr("iris_py.cli.demo.federation.count_plainly", lambda *_arguments: TokenTotals(files=1))
    assert run(["demo", "--federation", "--input", str(source), "--no-kill"]) == 1
    captured = capsys.readouterr()
    assert "THE TOTALS DIFFER." in captured.out
    assert "iris: the totals of the other cloud differ from the plain count\n" in captured.err


def test_nothing_shows_the_secrets_of_two_clouds(clouds: Clouds) -> None:
    """They are in private files alone."""
    texts = []
    for process in (clouds.process.pid, *clouds.children):
        texts += [Path(f"/proc/{process}/{name}").read_bytes().decode(errors="replace") for name in ("cmdline", "environ")]
    assert find_secrets(texts) == []
    assert clouds.directory.stat().st_mode & 0o777 == 0o700
    files = [path for path in clouds.directory.iterdir() if path.is_file()]
    assert {path.name for path in files} == {f"{cloud}.{what}" for cloud in ("us", "eu") for what in FILES_OF_A_CLOUD}
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}


@pytest.mark.long
def test_interrupt_leaves_nothing_of_two_clouds(clouds: Clouds) -> None:
    clouds.process.send_signal(signal.SIGINT)
    out, error = clouds.process.communicate(timeout=WAIT_S)
    assert (clouds.process.returncode, out) == (130, "")
    assert "Traceback" not in error
    clouds.expect_nothing_left()


def test_killed_driver_leaves_nothing_of_two_clouds(clouds: Clouds) -> None:
    clouds.process.kill()
    clouds.expect_nothing_left()


def test_one_demo_at_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "--federation", "--spark"]) == 2
    assert "these demos exclude each other" in capsys.readouterr().err
