"""The plan of a measurement: bounds, shares of processes, and what does not go together."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from iris_py.cli.app import run
from iris_py.cli.bench import plan as plans
from iris_py.cli.bench.plan import Payload, choose_concurrency, make_plan
from iris_py.cli.commands import bench
from iris_py.cli.settings import Settings
from iris_py.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS = Settings()


def make(**options: Any) -> plans.BenchPlan:
    return make_plan(SETTINGS, **{"against": None, "receivers": None, "receivers_option": "--members", **options})


def test_the_bounds_of_the_options_are_those_of_the_plan() -> None:
    for name in ("CONCURRENCY_MAX", "PROCESSES_MAX", "RATE_MAX", "SECONDS_MAX"):
        assert getattr(bench, name) == getattr(plans, name)


@pytest.mark.parametrize("processes", [1, 2, 3, 7])
def test_processes_share_what_is_to_be_done(processes: int) -> None:
    plan = make(concurrency=7, processes=processes, rate=1000.0)
    assert sum(plan.callers(number) for number in range(processes)) == 7
    begins = sorted(plan.offset_ns(number) + turn * plan.interval_ns for number in range(processes) for turn in range(3))
    gaps = {later - earlier for earlier, later in itertools.pairwise(begins)}
    assert max(gaps) - min(gaps) <= processes, "all begin in one rhythm, to the nanosecond"


def test_how_much_is_under_way() -> None:
    assert choose_concurrency(None, rate=None, processes=1) == plans.CONCURRENCY
    assert choose_concurrency(None, rate=10.0, processes=1) == plans.CONCURRENCY_IN_RHYTHM
    assert choose_concurrency(5, rate=10.0, processes=1) == 5
    with pytest.raises(ConfigurationError, match="--concurrency 1 is less than one for each of 2 processes"):
        make(concurrency=1, processes=2)


def test_payloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(Payload(size=None, default="1k").read(SETTINGS, None)) == 1024
    assert Payload(size="0", default="1k").read(SETTINGS, None) == b""
    path = tmp_path / "document"
    path.write_bytes(b"hello")
    assert Payload(size=None, default="1k", path=path).read(SETTINGS, None) == b"hello"
    with pytest.raises(ConfigurationError, match="--size and --input are both given"):
        Payload(size="1", default="1k", path=path).read(SETTINGS, None)
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        Payload(size=None, default="1k", path=tmp_path / "nothing").read(SETTINGS, None)
    with pytest.raises(ConfigurationError, match=r"--input .*document is more than 4 bytes"):
        Payload(size=None, default="1k", path=path, bytes_max=4).read(SETTINGS, None)
    with pytest.raises(ConfigurationError, match="is less than 8 bytes"):
        Payload(size="7", default="1k", bytes_min=8).read(SETTINGS, None)
    with pytest.raises(ConfigurationError, match=r"more than 67108864 bytes \(64 MiB\).*iris bench tunnels`\.$"):
        Payload(size="65m", default="1k", advice="Send blocks: `iris bench tunnels`").read(SETTINGS, None)
    monkeypatch.setenv("IRIS_MAX_MESSAGE_BYTES", "2048")
    assert len(Payload(size="4k", default="1k").read(SETTINGS, None)) == 4096, "a private network has limits of its own"
    with pytest.raises(ConfigurationError, match=r"more than 2048 bytes.*raise max_message_bytes with IRIS_MAX_MESSAGE_BYTES"):
        Payload(size="4k", default="1k").read(SETTINGS, "cluster")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["requests", "--size", "1x"], "is not a size"),
        (["requests", "--size", "17m", "--against", "a"], "more than 16777216 bytes (16 MiB)"),
        (["requests", "--reply", "65m"], "--reply 65m is more than"),
        (["requests", "--reply", "1k", "--against", "a"], "--reply is only for the members of a private network"),
        (["requests", "--members", "2", "--against", "a"], "--members starts processes of a private network"),
        (["requests", "--against", "a", "--listen", "127.0.0.1:4711"], "cannot all listen on 127.0.0.1:4711"),
        (["topics", "--policy", "block", "--against", "a"], "--policy is only for the subscribers of a private network"),
        (["topics", "--subscribers", "2", "--against", "a"], "--subscribers starts processes"),
        (["topics", "--size", "7"], "less than 8 bytes"),
        (["tunnels", "--size", "17m"], "more than 16777216 bytes"),
        (["join", "--seconds", "0"], "'--seconds'"),
        (["requests", "--rate", "0"], "'--rate'"),
        (["requests", "--output", "/nowhere/at/all"], "--output: /nowhere/at/all cannot be written"),
    ],
)
def test_mistakes_are_one_line_before_anything_starts(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert run(["bench", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert words in captured.err
    assert captured.err.count("\n") == 1
