"""One process of a benchmark: reads its parameters, plays its role, and ends with its parent.

The parent writes one line of JSON, the parameters, to the standard input and keeps it open: when it closes, for whatever
reason, the process ends. The role answers with lines of JSON on the standard output. More lines from the parent are cues, which
a role that waits for them takes with :func:`hear`.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeAlias, cast

if TYPE_CHECKING:
    from collections.abc import Callable

#: What a role is told, and what it says: anything that JSON can carry.
Parameters: TypeAlias = dict[str, Any]
Role: TypeAlias = "Callable[[Parameters], None]"

_cues: SimpleQueue[bytes] = SimpleQueue()


def tell(**values: object) -> None:
    """Send one line to the parent."""
    # One write, so that the lines of processes that share an output do not mix.
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


def hear() -> Parameters:
    """Wait for the next line of the parent, and return it. For roles that are played by :func:`main`."""
    heard = json.loads(_cues.get())
    assert isinstance(heard, dict)
    return heard


def name_of(role: Role) -> str:
    """Return what :func:`find_role` finds the role by."""
    return f"{role.__module__}:{role.__qualname__}"


def find_role(name: str) -> Role:
    """Return the function of a module of this package."""
    module, _, function = name.partition(":")
    return cast("Role", getattr(importlib.import_module(module), function))


def main() -> None:
    """Play the role that the command line names."""
    role = find_role(sys.argv[1])
    parameters = json.loads(_read_line())
    end_with_parent()
    role(parameters)


def end_with_parent() -> None:
    """See that this process ends when the parent closes the standard input, for whatever reason."""
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _read_line() -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(0, 65536)
        if not piece:
            os._exit(0)
        line += piece
    return line


def _end_with_parent() -> None:
    unread = b""
    while piece := os.read(0, 65536):
        *lines, unread = (unread + piece).split(b"\n")
        for line in lines:
            _cues.put(line)
    os._exit(0)


if __name__ == "__main__":
    # The module as roles import it, not this one: what hears the parent exists once.
    importlib.import_module("benchmarks.worker").main()
