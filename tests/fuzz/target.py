"""Targets of a fuzzer: functions that take any bytes, and their kinds."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Kind(enum.Enum):
    """The kinds of targets, which differ in how fast they are: the value is the part of the executions that each gets."""

    DECODER = 100
    """Reads bytes of strangers, and does nothing else."""
    SIGNATURE = 10
    """Likewise, and checks signatures or agrees on keys."""
    MACHINE = 4
    """Is told a sequence of valid messages while time passes."""
    NODE = 1
    """Likewise, with handshakes and signatures."""
    PROPERTY = 2
    """Is a property of tests/property, of whose examples the fuzzer makes the bytes."""


@dataclass(frozen=True)
class Target:
    """Something that takes any bytes and raises nothing, unless a defect was found."""

    name: str
    """How it is called on the command line."""
    run: Callable[[bytes], None]
    """Takes an input."""
    kind: Kind
    """How much of it there can be."""
    seeds: tuple[bytes, ...] = ()
    """Inputs to begin with."""
    bytes_max: int = 4096
    """The longest input."""

    @property
    def module(self) -> str:
        """The module that has it, which a process of its own imports."""
        return self.run.__module__
