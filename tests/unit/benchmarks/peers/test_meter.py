"""Tests of the meter: what a process has used, as the kernel counts it."""

from __future__ import annotations

import os
import time

from benchmarks.peers.meter import Meter, Spent, counts_cycles, resident_bytes


def test_the_processor_time_of_a_process_is_its_own() -> None:
    meter = Meter(os.getpid())
    before = time.process_time()
    measured = meter.read()
    assert before <= measured.cpu_s <= time.process_time()
    meter.close()


def test_cycles_are_counted_exactly_where_they_can_be() -> None:
    meter = Meter(os.getpid())
    first = meter.read()
    assert (first.cycles is not None) == counts_cycles()
    if first.cycles is not None:
        assert (meter.read() - first).cycles
    meter.close()


def test_sums_have_cycles_only_if_all_parts_do() -> None:
    assert Spent(1.0, 5) + Spent(2.0, 6) == Spent(3.0, 11)
    assert Spent(1.0, 5) + Spent(2.0, None) == Spent(3.0, None)
    assert Spent(3.0, 9) - Spent(1.0, 4) == Spent(2.0, 5)


def test_a_process_has_memory() -> None:
    assert resident_bytes(os.getpid()) > 1 << 20
