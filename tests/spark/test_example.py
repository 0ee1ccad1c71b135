"""The examples with Spark run, and print what they say they print."""

from __future__ import annotations

import os
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


def test_executors(example: Callable[[str], list[str]]) -> None:
    assert example("spark_executors.py") == [
        "total 60.00",
        "total 60.00, as every executor remembers the rates",
        "forgotten by every executor",
        "total 44.00",
        "stopped",
    ]
