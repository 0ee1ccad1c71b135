"""The example with Spark runs, and prints what it says it prints."""

from __future__ import annotations

import os
import runpy
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = pytest.mark.xdist_group("spark")


def test_scoring(
    spark: SparkSession, spark_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It gets the session that there is, for another one would take as long as all tests here; that must outlive it."""
    for name in list(os.environ):
        if name.startswith("IRIS_"):
            monkeypatch.delenv(name)
    # The network of one user on one machine, without any settings: that of Spark's workers.
    monkeypatch.setenv("XDG_CONFIG_HOME", str(spark_home / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(spark_home / "state"))
    monkeypatch.setenv("JAVA_HOME", os.environ.get("JAVA_HOME", ""))  # so that what is set now is undone
    monkeypatch.setattr(type(spark), "stop", lambda _session: print("stopped"))

    runpy.run_path(str(EXAMPLES / "spark_scoring.py"), run_name="__main__")

    assert capsys.readouterr().out.splitlines() == [
        "order 4: 100 from fr, risk 0.200",
        "order 6: 150 from fr, risk 0.250",
        "order 7: 175 from de, risk 0.175",
        "order 8: 200 from fr, risk 0.300",
        "stopped",
    ]
