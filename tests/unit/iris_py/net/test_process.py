"""The numbers of the process, and the lateness of its event loop."""

from __future__ import annotations

import gc
import mmap
import sys
from pathlib import Path

import pytest

from iris_py.net.process import LATENESS_WINDOW_S, STALL_S, LoopLateness, read_process


def test_the_longest_lateness_is_that_of_the_last_half_minute_at_least_and_minute_at_most() -> None:
    lateness = LoopLateness()
    lateness.note(0.05, 100.0)
    lateness.note(0.01, 101.0)
    assert lateness.longest_s(101.0) == 0.05
    assert lateness.longest_s(100.0 + LATENESS_WINDOW_S) == 0.05
    lateness.note(0.02, 101.0 + LATENESS_WINDOW_S)
    assert lateness.longest_s(102.0 + LATENESS_WINDOW_S) == 0.05
    assert lateness.longest_s(101.0 + 2 * LATENESS_WINDOW_S) == 0.02
    assert lateness.longest_s(200.0 + 4 * LATENESS_WINDOW_S) == 0.0


def test_stalls_are_those_that_make_callers_wait() -> None:
    lateness = LoopLateness()
    for late_s in (0.0, STALL_S, STALL_S * 1.01, 5.0):
        lateness.note(late_s, 10.0)
    assert lateness.stalls == 2


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell all of it")
def test_the_system_tells_of_memory_and_descriptors() -> None:
    gc.collect()  # what others have left would be closed in between
    before = read_process(LoopLateness(), 0.0)
    kept = mmap.mmap(-1, 64 * 1024 * 1024)  # pages of its own: the allocator may have as much at hand
    kept[::4096] = b"x" * len(kept[::4096])
    with kept, Path("/dev/null").open("rb"), Path("/dev/null").open("rb"):
        after = read_process(LoopLateness(), 0.0)
    assert after.resident_bytes - before.resident_bytes > 32 * 1024 * 1024
    assert after.descriptors - before.descriptors == 2
    assert after.descriptors <= after.descriptors_max
    assert after.cpu_s >= before.cpu_s > 0
    assert after.threads >= 1


def test_systems_that_do_not_tell_are_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iris_py.net.process._MEMORY", Path("/nowhere/statm"))
    monkeypatch.setattr("iris_py.net.process._DESCRIPTORS", Path("/nowhere/fd"))
    shown = read_process(LoopLateness(), 0.0)
    assert (shown.resident_bytes, shown.descriptors) == (0, 0)
