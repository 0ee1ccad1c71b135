"""The memory of a process of tests goes back to the system."""

from __future__ import annotations

import sys

import pytest

from iris_py.net.process import LoopLateness, read_process
from tests.memory import give_memory_back

MIB = 1024 * 1024


def resident_bytes() -> int:
    return read_process(LoopLateness(), 0.0).resident_bytes


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell how much memory a process has")
def test_what_was_freed_goes_back_to_the_system() -> None:
    give_memory_back()
    blocks = [b"x" * (64 * 1024 + number) for number in range(2048)]
    kept = blocks[1::64]  # blocks between which the free ones lie
    filled = resident_bytes()
    del blocks
    give_memory_back()
    assert filled - resident_bytes() > 64 * MIB
    assert len(kept) == 32


def test_bytecode_is_written() -> None:
    assert not sys.dont_write_bytecode
