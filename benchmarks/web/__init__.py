"""The web door beside a bare loop of Starlette and uvicorn, and beside python-socketio, in the same run.

A server is a process, and the clients of one measurement together are another one. Clients cost little, because they only
count the events in raw bytes. All run on this machine and take turns. The door has a token for each client and a window for
each stream; the bare loop has neither, and no bound. Clients of python-socketio speak WebSocket.

Not measured: TLS, and other machines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.web import calls, fanout, held, resume, slow, viewers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from benchmarks.harness import Section

__all__ = ["SECTIONS"]

#: What can be measured, by name.
SECTIONS: Mapping[str, Callable[..., Section]] = {
    "fanout": fanout.section,
    "requests": calls.section,
    "held": held.section,
    "slow": slow.section,
    "resume": resume.section,
    "viewers": viewers.section,
}
