"""Requests, as :mod:`benchmarks.peers` and as ``iris bench requests`` measure them: both should find the same.

Measured: 64 callers in one process and a member in another, requests of 1 KiB, for the same time, in turns. Each contender has
processes, a loop of callers and clocks of its own; nothing is shared but Iris.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.harness import MEASURE_TIMEOUT_S, START_TIMEOUT_S, BenchmarkFailed, Home, Sample, Section, Trial
from benchmarks.peers.measure import measure_requests

if TYPE_CHECKING:
    from collections.abc import Sequence

CALLERS: Final = 64
SIZE: Final = 1024
#: The names of both contenders.
REPOSITORY, COMMAND = "benchmarks.peers", "iris bench"


def section(*, quick: bool) -> Section:
    """Return both ways to measure."""
    seconds = 0.1 if quick else 3.0
    return Section(
        "agreement",
        f"Requests of 1 KiB with {CALLERS} callers, {seconds:g} s a run, measured by the repository and by the command.",
        [
            Trial(REPOSITORY, partial(measure_requests, "iris", callers=CALLERS, size=SIZE, seconds=seconds)),
            Trial(COMMAND, partial(_measure_command, seconds)),
        ],
        (REPOSITORY,),
    )


def _measure_command(seconds: float) -> Sequence[Sample]:
    with tempfile.TemporaryDirectory() as directory:
        done = subprocess.run(
            (
                *(sys.executable, "-m", "iris_py.cli", "bench", "requests", "--json"),
                *("--size", str(SIZE), "--concurrency", str(CALLERS), "--seconds", str(seconds)),
            ),
            env=Home(Path(directory)).environment(),
            capture_output=True,
            timeout=START_TIMEOUT_S + MEASURE_TIMEOUT_S,
            check=False,
        )
    if done.returncode:
        raise BenchmarkFailed(f"iris bench ended with {done.returncode}: {done.stderr.decode(errors='replace')[-2000:]}")
    found = json.loads(done.stdout.splitlines()[-1])
    return [
        Sample("replies", found["messages_per_s"], "/s"),
        Sample("p99", found["round_trip"]["p99_s"] * 1e3, "ms"),
        Sample("processor time", sum(side["cpu_us_per_message"] for side in found["sides"]), "us/request"),
    ]
