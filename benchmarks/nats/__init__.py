"""NATS doors beside nats-server, in the same run: the processor time of the servers for each message, and the rate.

Servers are processes of their own, and so are the clients. Clients are raw sockets with bytes made before, the same for all
servers. A client sends no more than another one has room for. All run on this machine and take turns.

Not measured: TLS, and other machines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.nats import calls, idle, messages, new_subjects, new_topics

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from benchmarks.harness import Section

__all__ = ["SECTIONS"]

#: The workloads, by name. Each is measured at a scale: 1 for figures, less to show that all works.
SECTIONS: Mapping[str, Callable[[float], Section]] = {
    "small": lambda scale: messages.section("small", 64, 1, int(400_000 * scale)),
    "large": lambda scale: messages.section("large", 1024, 1, int(100_000 * scale)),
    "subjects": lambda scale: messages.section("subjects", 64, 100, int(100_000 * scale)),
    "lone": lambda scale: calls.section("lone", int(3000 * scale), 1),
    "requests": lambda scale: calls.section("requests", int(20_000 * scale), 32),
    "idle": lambda scale: idle.section("idle", int(10_000 * scale)),
    "new-subjects": lambda scale: new_subjects.section("new-subjects", int(5000 * scale)),
    "new-topics": lambda scale: new_topics.section("new-topics", int(10_000 * scale)),
}
