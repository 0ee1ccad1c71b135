"""The examples with Spark run, and print what they say they print."""

from __future__ import annotations

import os
import re
import runpy
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = pytest.mark.xdist_group("spark")


@pytest.fixture
def example(
    spark: SparkSession, spark_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], list[str]]:
    """Runs an example, and returns the lines that it prints.

    It gets the session that there is, for another one would take as long as all tests here; that must outlive it.
    """
    for name in list(os.environ):
        if name.startswith("IRIS_"):
            monkeypatch.delenv(name)
    # The network of one user on one machine, without any settings: that of Spark's workers.
    monkeypatch.setenv("XDG_CONFIG_HOME", str(spark_home / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(spark_home / "state"))
    monkeypatch.setenv("JAVA_HOME", os.environ.get("JAVA_HOME", ""))  # so that what is set now is undone
    monkeypatch.setattr(type(spark), "stop", lambda _session: print("stopped"))

    def run(name: str) -> list[str]:
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out.splitlines()

    return run


def test_scoring(example: Callable[[str], list[str]]) -> None:
    assert example("spark_scoring.py") == [
        "order 4: 100 from fr, risk 0.200",
        "order 6: 150 from fr, risk 0.250",
        "order 7: 175 from de, risk 0.175",
        "order 8: 200 from fr, risk 0.300",
        "stopped",
    ]


@pytest.mark.long  # two streaming queries
def test_scoring_between_two_topics(example: Callable[[str], list[str]]) -> None:
    assert example("spark_topics.py") == [
        "order 1: risk 0.025",
        "order 2: risk 0.150",
        "order 3: risk 0.075",
        "order 4: risk 0.200",
        "order 5: risk 0.125",
        "order 6: risk 0.250",
        "order 7: risk 0.175",
        "order 8: risk 0.300",
        "stopped",
    ]


def test_scoring_by_a_cluster_of_another_cloud(example: Callable[[str], list[str]]) -> None:
    assert example("spark_federation.py") == [
        "order 5: score 0.125",
        "order 6: score 0.150",
        "order 7: score 0.175",
        "order 8: score 0.200",
        "stopped",
    ]


def test_executors(example: Callable[[str], list[str]]) -> None:
    assert example("spark_executors.py") == [
        "total 60.00",
        "total 60.00, as every executor remembers the rates",
        "forgotten by every executor",
        "total 44.00",
        "stopped",
    ]


def test_looking_features_up(example: Callable[[str], list[str]]) -> None:
    assert example("spark_features.py") == [
        "order 1 of ada: 30, 1 of 12 orders returned",
        "order 2 of bob: 250, 3 of 3 orders returned",
        "order 3 of eve: 15, 0 of 7 orders returned",
        "order 4 of new: 80, nothing is known",
        "order 5 of bob: 20, 3 of 3 orders returned",
        "stopped",
    ]


def test_metrics_of_a_job_that_runs(example: Callable[[str], list[str]]) -> None:
    *reports, total, stopped = example("spark_metrics.py")
    assert [total, stopped] == ["total 20540", "stopped"]
    found = [re.fullmatch(r"(\d+) of 40 rows, executor driver: (\d+) MiB", line) for line in reports]
    counts = [int(each[1]) for each in found if each]
    assert len(counts) == len(reports) > 0
    assert counts == sorted(counts)
    assert 0 < counts[-1] <= 40
    assert all(int(each[2]) > 50 for each in found if each)
