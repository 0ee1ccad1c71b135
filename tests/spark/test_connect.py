"""Dispatch and notify under Spark Connect, where the driver of the user's program is no driver of Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark import connecting, warm_daemon
from tests.spark.conftest import environment

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark-processes"), pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[2]


def test_tasks_use_iris_under_spark_connect(tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("IRIS_", "XDG_", "SPARK_"))}
    done = subprocess.run(
        (sys.executable, connecting.__file__, str(tmp_path)),
        cwd=tmp_path,
        env={**kept, **environment(tmp_path), **warm_daemon.ENVIRONMENT},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])

    assert found["session"].startswith("pyspark.sql.connect")
    assert found["replies"] == [f"row {number}"[::-1] for number in range(connecting.ROWS)]
    assert found["asked"] == connecting.ROWS, "each row once"
    assert found["same"] == found["told"] == list(range(connecting.ROWS))
    assert "to the cluster 'failing' has no result: the handler of 'failing'" in found["error"]
    assert "failed with LookupError: no entry" in found["error"]
    assert found["left"] == []
