"""The benchmarks run, and every contender gets a number. Nothing here says how large it has to be."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

#: A hundred processes start one after the other: on a slow machine that takes its time.
TIMEOUT_S = 280
# What needs all of the machine does not meet others of the kind.
pytestmark = [pytest.mark.long, pytest.mark.xdist_group("machine"), pytest.mark.timeout(300)]

CONTENDERS = {
    "latency": {"iris, async handler", "iris, inline handler", "pyzmq", "pyzmq asyncio", "tcp echo"},
    "throughput": {
        "iris broadcast",
        "iris link",
        "iris publish",
        "iris publish, batches",
        "iris publish, callback",
        "pyzmq",
        "pyzmq asyncio",
        "tcp, a write per message",
        "tcp, writes of 32 KiB",
    },
    "small": {"iris publish", "iris publish, batches", "iris publish, callback", "pyzmq", "pyzmq asyncio"},
    "join": {"lone node, first ever", "lone node", "zero configuration", "secret, beacons only", "visitors"},
}

#: Iris says what was dropped, and a busy machine may make it.
_MAY_DROP = {"iris broadcast", "iris publish", "iris publish, batches", "iris publish, callback"}


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    done = subprocess.run(
        (sys.executable, "-m", "benchmarks", "all", "--quick", "--runs", "1", "--json"),
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert isinstance(result, dict)
    return result


def test_every_contender_is_measured(report: dict[str, Any]) -> None:
    found = {section["name"]: {row["contender"] for row in section["rows"]} for section in report["sections"]}
    assert found == CONTENDERS


def test_every_number_is_positive(report: dict[str, Any]) -> None:
    for section in report["sections"]:
        for row in section["rows"]:
            assert len(row["runs"]) == report["runs"] == 1
            assert 0 < row["min"] <= row["median"] <= row["max"], row
            assert all(ratio > 0 for ratio in row["ratios"].values()), row


def test_a_reference_has_the_ratio_one_to_itself(report: dict[str, Any]) -> None:
    for section in report["sections"]:
        for row in section["rows"]:
            if row["contender"] in row["ratios"]:
                assert row["ratios"][row["contender"]] == 1.0
    ratios = {(row["contender"], *row["ratios"]) for section in report["sections"] for row in section["rows"] if row["ratios"]}
    assert ("iris broadcast", "pyzmq", "pyzmq asyncio") in ratios
    assert ("iris, async handler", "pyzmq", "pyzmq asyncio") in ratios


def test_the_link_and_the_peers_lose_nothing(report: dict[str, Any]) -> None:
    (throughput,) = (section for section in report["sections"] if section["name"] == "throughput")
    lossless = {contender for contender in CONTENDERS["throughput"] if contender not in _MAY_DROP}
    rows = [row for row in throughput["rows"] if row["contender"] in lossless]
    assert {row["contender"] for row in rows} == lossless
    assert [row["notes"] for row in rows] == [[]] * len(rows)


def test_tunnels_are_measured() -> None:
    done = subprocess.run(
        (sys.executable, "-m", "benchmarks", "tunnels", "--quick", "--runs", "1", "--json"),
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (section,) = json.loads(done.stdout)["sections"]
    found = {row["contender"] for row in section["rows"]}
    assert found == {"large message", "slow reader", "100 tunnels", "requests beside a tunnel"}
    assert all(row["median"] > 0 for row in section["rows"])


def test_the_web_door_is_measured(tmp_path: Path) -> None:
    done = subprocess.run(
        (sys.executable, "-m", "benchmarks.web", "--quick", "--runs", "1", "--json", str(tmp_path / "web.json")),
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    sections = json.loads((tmp_path / "web.json").read_text())["sections"]
    found = {section["name"]: {row["contender"] for row in section["rows"]} for section in sections}
    assert found.pop("web fan-out") >= {"iris door", "bare starlette"}
    assert found.pop("web streams, resumed") >= {"iris, two doors", "iris, all to all"}
    assert found == {
        "web requests": {"iris door", "bare starlette"},
        "web streams, held": {"iris door", "bare starlette"},
        "web streams, slow clients": {"all read", "some do not read"},
        "web viewers": {"nobody looks", "one viewer", "3 viewers"},
    }
    values = {(row["contender"], row["metric"]): row["median"] for section in sections for row in section["rows"]}
    for contender in ("iris, two doors", "iris, all to all"):
        assert values[contender, "missing"] == 0, "each number came once, or a gap was told"
        assert values[contender, "with two ids"] == 0
        assert values[contender, "published"] > 0
        assert values[contender, "came back"] > 0
    assert values["3 viewers", "pages written"] > values["one viewer", "pages written"] > 0
    assert values["nobody looks", "questions to a node"] == 0
    assert 0 < values["3 viewers", "questions to a node"] < 2 * values["one viewer", "questions to a node"]
    assert values["iris door", "lost"] == 0
    assert values["iris door", "one by one"] > 0


@pytest.mark.parametrize(
    ("what", "contenders"),
    [
        ("match", {"100 patterns", "3 shapes"}),
        ("fanout", {"4 subscribers", "8 subscribers", "12 subscribers"}),
    ],
)
def test_the_costs_of_topics_are_measured(what: str, contenders: set[str]) -> None:
    done = subprocess.run(
        (sys.executable, "-m", "benchmarks.topics", what, "--quick", "--runs", "1", "--json"),
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (section,) = json.loads(done.stdout)["sections"]
    assert {row["contender"] for row in section["rows"]} == contenders
    assert all(row["median"] > 0 for row in section["rows"])
