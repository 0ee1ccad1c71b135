"""The cost of processes as the kernel counts it: cycles where its counters are readable, and processor time everywhere.

Cycles are those of the hardware counter, user and kernel, of all threads of a process. Virtual machines and containers often
have no such counter, or do not let anybody read it; then there is the processor time, which depends on the clock of the
processor and on what others do on the machine.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
import time
from dataclasses import dataclass
from typing import Final

#: perf_event_open(2) has no function in the C library, and its number depends on the processor.
_SYSCALLS: Final = {"x86_64": 298, "aarch64": 241, "riscv64": 241}
_ATTRIBUTE_BYTES: Final = 128
_HARDWARE, _CYCLES = 0, 0
#: Bits of the attribute: count in threads that are started later, too; not in the hypervisor.
_INHERIT, _EXCLUDE_HYPERVISOR = 1 << 1, 1 << 6
#: A process has one clock of processor time: what ``clock_getcpuclockid(3)`` computes on Linux.
_SCHEDULED: Final = 2


@dataclass(frozen=True, slots=True)
class Spent:
    """The processor time and cycles that processes have used so far."""

    cpu_s: float
    """Processor time, user and system."""
    cycles: int | None
    """Cycles; None where they cannot be counted."""

    def __add__(self, other: Spent) -> Spent:
        cycles = None if self.cycles is None or other.cycles is None else self.cycles + other.cycles
        return Spent(self.cpu_s + other.cpu_s, cycles)

    def __sub__(self, other: Spent) -> Spent:
        cycles = None if self.cycles is None or other.cycles is None else self.cycles - other.cycles
        return Spent(self.cpu_s - other.cpu_s, cycles)


class Meter:
    """Reads what one process has used. Made right after its start, so that its threads are still to come.

    Args:
        pid: The number of the process.
    """

    def __init__(self, pid: int) -> None:
        self._clock = (~pid << 3) | _SCHEDULED
        self._counter = open_counter(pid)

    def read(self) -> Spent:
        """Return what it has used so far."""
        cycles = None
        if self._counter is not None:
            (cycles,) = struct.unpack("Q", os.read(self._counter, 8))
        return Spent(time.clock_gettime(self._clock), cycles)

    def close(self) -> None:
        """Stop counting."""
        if self._counter is not None:
            os.close(self._counter)
            self._counter = None


def open_counter(pid: int) -> int | None:
    """Return a file that counts the cycles of a process, or None if there is no such counter for us."""
    number = _SYSCALLS.get(platform.machine())
    if sys.platform != "linux" or number is None:
        return None
    attribute = bytearray(_ATTRIBUTE_BYTES)
    struct.pack_into("IIQ", attribute, 0, _HARDWARE, _ATTRIBUTE_BYTES, _CYCLES)
    struct.pack_into("Q", attribute, 40, _INHERIT | _EXCLUDE_HYPERVISOR)
    library = ctypes.CDLL(None, use_errno=True)
    buffer = (ctypes.c_char * _ATTRIBUTE_BYTES).from_buffer(attribute)
    counter = library.syscall(number, ctypes.byref(buffer), pid, -1, -1, 0)
    return counter if counter >= 0 else None


def counts_cycles() -> bool:
    """Tell whether cycles can be counted here."""
    counter = open_counter(0)
    if counter is None:
        return False
    os.close(counter)
    return True


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
