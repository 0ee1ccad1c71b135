"""Signs that something is wrong beside an exception: turns that take long, memory that grows."""

from __future__ import annotations

import gc
import sys
import time
import types
import zlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: Time of the processor for one message. Each of those that are made here takes a millisecond or less, under any load of the
#: machine, so what takes this long is no noise.
TURN_S_MAX: Final = 1.0
#: What a machine may keep for each byte that it was told: every field becomes an object of Python, in some tables each.
KEPT_BYTES_PER_BYTE: Final = 64
#: What a machine may keep besides: itself, and tables that are made when they are used.
KEPT_BYTES: Final = 1 << 20
#: One input of so many is weighed: it takes longer than to be told the input.
WEIGHED_EVERY: Final = 8

#: What belongs to the program, and not to the machine that refers to it.
_SHARED: Final = (type, types.ModuleType, types.CodeType, types.BuiltinFunctionType, types.FrameType)


class TooSlow(AssertionError):
    """One turn has taken the processor for longer than any honest one does."""


class TooLarge(AssertionError):
    """A machine keeps more than what it was told can explain."""


def is_weighed(data: bytes) -> bool:
    """Tell whether a machine is weighed after an input: always or never after the same one."""
    return zlib.crc32(data) % WEIGHED_EVERY == 0


class Turn:
    """Measures turns of a machine: ``with turn: machine.receive(...)``."""

    __slots__ = ("_began",)

    def __enter__(self) -> None:
        self._began = time.process_time()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        taken = time.process_time() - self._began
        if kind is None and taken > TURN_S_MAX:
            raise TooSlow(f"one turn has taken {taken:.1f} s")


class Memory:
    """Weighs a machine, and says when it has become too heavy.

    Args:
        root: The machine.
        shared: What does not count, with all that it refers to.
    """

    def __init__(self, root: object, shared: Iterable[object] = ()) -> None:
        self._root = root
        self._shared = {id(each) for each in shared}

    def weigh(self) -> int:
        """Return how many bytes the machine takes, with all that it refers to."""
        return sum(map(sys.getsizeof, self._walk()))

    def check(self, told: int) -> None:
        """Look whether it keeps more than it can have from what it was told.

        Args:
            told: How many bytes that was.

        Raises:
            TooLarge: It does.
        """
        found = self.weigh()
        if found > KEPT_BYTES + KEPT_BYTES_PER_BYTE * told:
            raise TooLarge(f"it keeps {found} bytes after {told} bytes")

    def _walk(self) -> Iterator[object]:
        seen = set(self._shared)
        waiting = [self._root]
        while waiting:
            each = waiting.pop()
            if id(each) in seen or isinstance(each, _SHARED):
                continue
            seen.add(id(each))
            yield each
            if isinstance(each, types.FunctionType):
                waiting += each.__closure__ or ()  # its globals are the program
            else:
                waiting += gc.get_referents(each)
