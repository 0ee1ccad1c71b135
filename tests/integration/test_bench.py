"""`iris bench` on real processes: what it measures adds up, and it leaves nothing behind, however it ends."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import pytest

import iris_py
from iris_py.cli.app import run
from iris_py.cli.bench import command
from iris_py.cli.outcome import ExitCode
from iris_py.cli.settings import Settings
from tests import warm
from tests.cli_reference import find_lines

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

Result = TypeVar("Result")

WAIT_S = 60.0
SHORT: dict[str, Any] = {"seconds": 0.4, "warm_up_s": 0.1, "processes": 1, "rate": None, "as_json": True}
NOTHING: dict[str, Any] = {"against": None, "size": None}


def read(path: Path, kind: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the lines of ``--json``, each of which is one that the schema knows: the seconds, and the summary."""
    kinds = {each.__struct_config__.tag: each for each in find_lines()[f"bench {kind}"]}
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        msgspec.convert(line, kinds[line["kind"]])
    *seconds, summary = lines
    assert {line["kind"] for line in seconds} == {"interval"}
    assert summary["kind"] == "summary"
    assert summary["is_complete"] is True
    assert summary["errors"] == {}
    assert summary["begun"] > 0
    assert len(summary["sides"]) == 2
    assert all(side["cpu_s"] > 0 for side in summary["sides"])
    assert summary["machine"]["processors"] >= 1
    return seconds, summary


def expect_order(found: dict[str, Any]) -> None:
    assert found["count"] > 0
    in_order = [found[f"{name}_s"] for name in ("min", "p50", "p90", "p99", "p999", "max")]
    assert in_order == sorted(in_order)
    assert found["min_s"] > 0


@pytest.fixture
def no_settings(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings that would keep a node of the user from starting do not matter to a private network."""
    del home
    monkeypatch.setenv("IRIS_LISTEN", "nonsense")


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for whatever is under way at the end, also where a machine that is full delivers nothing for a while."""
    monkeypatch.setattr("iris_py.cli.bench.measurement._SETTLED_S", WAIT_S)


async def measure_long_enough(measure: Callable[[float], Awaitable[Result]], capsys: pytest.CaptureFixture[str]) -> Result:
    """Measure for a second, or for longer: a busy machine may stand still for so long that nothing both begins and ends in it.

    Args:
        measure: Measures for so many seconds.
        capsys: What the measurement says.

    Returns:
        What the last measurement returned, whose output is left to read.
    """
    result, error = await measure(1.0), capsys.readouterr().err
    if "Measure longer, with --seconds." in error:
        result, error = await measure(5.0), capsys.readouterr().err
    sys.stderr.write(error)
    return result


@pytest.mark.usefixtures("no_settings", "patient")
def test_each_measurement_adds_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = {kind: tmp_path / f"{kind}.json" for kind in ("requests", "topics", "tunnels", "join")}
    settings = Settings()

    async def measure_all(seconds: float) -> tuple[int, ...]:
        # All at once, so that these take no longer than the nodes that join: a busy machine may need some of it to begin.
        longer = SHORT | {"seconds": seconds}
        return await asyncio.gather(
            command.bench_requests(
                settings,
                input_path=None,
                reply="10",
                concurrency=4,
                members=2,
                path=paths["requests"],
                timeout_s=WAIT_S,
                **NOTHING,
                **longer | {"rate": 300.0},
            ),
            command.bench_topics(
                settings, policy=None, subscribers=1, path=paths["topics"], timeout_s=WAIT_S, **NOTHING, **longer
            ),
            command.bench_tunnels(
                settings,
                input_path=None,
                tunnels=2,
                members=None,
                path=paths["tunnels"],
                timeout_s=WAIT_S,
                **NOTHING,
                **longer,
            ),
            command.bench_join(
                settings,
                concurrency=2,
                members=None,
                path=paths["join"],
                timeout_s=WAIT_S,
                **NOTHING,
                **SHORT | {"seconds": 1.2 * seconds, "warm_up_s": 0.0},
            ),
        )

    assert set(asyncio.run(measure_long_enough(measure_all, capsys))) == {ExitCode.OK}
    seconds, requests = read(paths["requests"], "requests")
    assert requests["replies"] == requests["begun"] == requests["round_trip"]["count"]
    assert requests["begun"] + requests["unbegun"] == 300 * round(requests["seconds"])
    assert sum(line["messages"] for line in seconds) <= requests["replies"]
    assert requests["reply_size"] == 10
    assert len(requests["receivers"]) == 2
    assert sum(each["share"] for each in requests["receivers"]) == pytest.approx(1.0, abs=0.001)
    expect_order(requests["round_trip"])
    expect_order(requests["lateness"])

    _, topics = read(paths["topics"], "topics")
    assert topics["published"] == topics["delivered"], "the subscriber lets the publisher wait"
    assert (topics["dropped"], topics["gaps"], topics["missing"], topics["without_lag"]) == (0, 0, 0, "")
    assert topics["lag"]["count"] == topics["delivered"]
    expect_order(topics["lag"])

    _, tunnels = read(paths["tunnels"], "tunnels")
    assert tunnels["blocks"] == tunnels["begun"]
    assert tunnels["bytes_per_s"] == pytest.approx(tunnels["messages_per_s"] * 64 * 1024, rel=1e-3)
    assert tunnels["waits"] >= 0
    expect_order(tunnels["sending"])

    _, joins = read(paths["join"], "join")
    assert joins["joins"] == joins["begun"] == joins["connecting"]["count"] == joins["asking"]["count"]
    assert joins["joining"]["min_s"] >= max(joins["connecting"]["min_s"], joins["asking"]["min_s"])
    expect_order(joins["joining"])


@pytest.mark.usefixtures("patient")
def test_subscribers_who_drop_say_so(tmp_path: Path) -> None:
    """Whatever was sent is taken or dropped."""
    path = tmp_path / "topics.json"
    options = ["--subscribers", "2", "--policy", "drop_oldest", "--seconds", "0.4", "--warm-up", "0", "--size", "64"]
    assert run(["bench", "topics", "--json", "--output", str(path), *options]) == 0
    _, topics = read(path, "topics")
    assert topics["delivered"] + topics["missing"] == 2 * topics["published"]
    assert topics["dropped"] == topics["missing"]
    assert [each["share"] > 0 for each in topics["receivers"]] == [True, True]


def test_against_a_network_that_runs(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def answer(request: iris_py.Request) -> bytes:
        return request.payload.upper()

    path, settings = tmp_path / "bench.json", Settings()
    document = tmp_path / "document"
    document.write_bytes(b"hello")

    async def measure(seconds: float) -> tuple[int, int, str]:
        longer = SHORT | {"seconds": seconds}  # both at once, so that it takes no longer
        async with iris_py.connect() as node, node.join("upper", answer), node.subscribe("news.>", lambda _: None):
            codes = await asyncio.gather(
                command.bench_requests(
                    settings,
                    against="upper",
                    size=None,
                    input_path=document,
                    reply=None,
                    concurrency=2,
                    members=None,
                    path=path,
                    timeout_s=WAIT_S,
                    **longer,
                ),
                command.bench_topics(
                    settings,
                    against="news.today",
                    size=None,
                    policy=None,
                    subscribers=None,
                    path=tmp_path / "topics.json",
                    timeout_s=WAIT_S,
                    **longer | {"rate": 100.0},
                ),
            )
            return *codes, node.id

    *codes, member = asyncio.run(measure_long_enough(measure, capsys))
    assert codes == [ExitCode.OK] * 2
    _, found = read(path, "requests")
    assert (found["against"], found["members"], found["size"], found["reply_size"]) == ("upper", 1, 5, 5)
    assert [each["id"] for each in found["receivers"]] == [member]
    _, topics = read(tmp_path / "topics.json", "topics")
    assert (topics["delivered"], topics["missing"], topics["lag"], topics["subscribers"]) == (None, None, None, 1)
    assert "this machine's clock" in topics["without_lag"]
    assert [each["id"] for each in topics["receivers"]] == [member]
    assert topics["receivers"][0]["messages"] > 0
    error = capsys.readouterr().err
    assert f"this loads the network 'default' for {round(found['seconds']) + SHORT['warm_up_s']} s" in error
    assert "requests of 5 B to 'upper', up to 2 at once. Ctrl-C ends it." in error


@pytest.mark.usefixtures("home")
def test_against_nobody_is_the_error_of_a_request(capsys: pytest.CaptureFixture[str]) -> None:
    expected = run(["request", "nobody", "hello"]), capsys.readouterr().err.partition(", or wait")[0]
    for kind in ("requests", "join"):
        code, error = run(["bench", kind, "--against", "nobody"]), capsys.readouterr().err
        error = error.partition(" Nodes with another secret were heard")[0]  # those of other tests, whose beacons may be heard
        assert (code, error.rstrip(".\n")) == (ExitCode.NO_MEMBERS, expected[1].rstrip(".\n"))
    assert run(["bench", "tunnels", "--against", "nobody"]) == ExitCode.NO_MEMBERS
    assert "nobody serves 'nobody'" in capsys.readouterr().err
    assert run(["bench", "topics", "--against", "nobody"]) == ExitCode.NO_MEMBERS
    assert "nobody subscribes to 'nobody'" in capsys.readouterr().err


# -- its end


@pytest.fixture
def running(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A measurement without an end that has measured something."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("IRIS_", "XDG_"))}
    process: subprocess.Popen[str] = warm.Process(
        [sys.executable, "-m", "iris_py.cli", "bench", "requests", "--seconds", "3600", "--warm-up", "0", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment | {"XDG_CONFIG_HOME": str(tmp_path / "config"), "HOME": str(tmp_path)},
        text=True,
    )
    assert process.stdout is not None
    first = json.loads(process.stdout.readline() or "{}")
    assert first.get("kind") == "interval"
    yield process
    if process.poll() is None:
        process.kill()
    process.communicate()


def children_of(process_id: int) -> list[int]:
    found = [int(child) for child in Path(f"/proc/{process_id}/task/{process_id}/children").read_text().split()]
    assert len(found) == 2, "a caller and a member"
    return found


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


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.long)])
def test_a_signal_shows_what_was_found_so_far(running: subprocess.Popen[str], number: signal.Signals, code: int) -> None:
    children = children_of(running.pid)
    running.send_signal(number)
    out, error = running.communicate(timeout=WAIT_S)
    assert running.returncode == code, error
    summary = json.loads(out.splitlines()[-1])
    assert (summary["kind"], summary["is_complete"]) == ("summary", False)
    assert summary["replies"] > 0
    assert "Traceback" not in error
    wait_until_gone(children)


def test_a_killed_parent_leaves_no_process_behind(running: subprocess.Popen[str]) -> None:
    children = children_of(running.pid)
    running.kill()
    wait_until_gone(children)


def test_a_process_that_dies_is_named(running: subprocess.Popen[str]) -> None:
    children = children_of(running.pid)
    os.kill(children[0], signal.SIGKILL)
    _, error = running.communicate(timeout=WAIT_S)
    assert running.returncode == ExitCode.FAILED
    assert f"process (pid {children[0]}) ended" in error
    wait_until_gone(children)
