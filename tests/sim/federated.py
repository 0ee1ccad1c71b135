"""Members, callers and checks for simulations of several clouds."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import iris_py as iris

if TYPE_CHECKING:
    from iris_py.api.node import Node
    from iris_py.testing.federation import VirtualFederation

#: A fault is over, and everything is as it should be so many seconds later.
HEALED_S = 6.0


class Work(iris.Handler):
    """A member that remembers what it was given.

    Attributes:
        executed: How often each payload was executed here.
        requests: All of them.
        seconds: How long each takes.
        held: Payloads that wait until the event is set.
        running: How many run.
        cancelled: How many were cancelled.
        fails: Payloads that fail.
    """

    def __init__(self, seconds: float = 0.0) -> None:
        self.executed: Counter[bytes] = Counter()
        self.requests: list[iris.Request] = []
        self.seconds = seconds
        self.held: dict[bytes, asyncio.Event] = {}
        self.fails: set[bytes] = set()
        self.running = self.cancelled = 0

    async def on_request(self, request: iris.Request) -> bytes:
        payload = bytes(request.payload)
        self.executed[payload] += 1
        self.requests.append(request)
        self.running += 1
        try:
            if payload in self.held:
                await self.held[payload].wait()
            if self.seconds:
                await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1
        if payload in self.fails:
            raise RuntimeError("the database is on fire")
        return payload.upper()

    def hold(self, payload: bytes) -> asyncio.Event:
        self.held[payload] = asyncio.Event()
        return self.held[payload]


async def outcome_of(asked: asyncio.Future[bytes]) -> bytes | iris.IrisError:
    """Return what became of a request."""
    try:
        return bytes(await asked)
    except iris.IrisError as exc:
        return exc


def ask(node: Node, cluster: str, payload: bytes = b"x", **how: Any) -> asyncio.Task[bytes | iris.IrisError]:
    """Begin a request; the task returns its outcome."""
    how.setdefault("timeout", 5.0)
    return asyncio.ensure_future(outcome_of(asyncio.ensure_future(node.request(cluster, payload, **how))))


def leftovers(federation: VirtualFederation, *clouds: str) -> list[str]:
    """Return what the gateways still hold of requests, where none are under way."""
    found = []
    for cloud in clouds:
        for number, gateway in enumerate(federation.gateways(cloud)):
            core, requests = gateway.core, gateway.requests
            tables: dict[str, Any] = {
                "_out": requests._out,
                "_in": requests._in,
                "_servers": requests._servers,
                "_answers": requests._answers,
                "deadlines": core._deadlines._live,
                "unsure": core._unsure,
                "tries": [bundle for bundle, _index in core.lines._tries if bundle.is_closed],
                "purposes": {a: p for a, p in core.lines._purposes.items() if len(p) > 4},
                "openings": core.openings._openings,
                "offers": core.openings._offers,
            }
            for alias, neighbour in core.lines.neighbours.items():
                tables[f"{alias} incoming"] = neighbour.incoming
                tables[f"{alias} export"] = sum(each.in_flight for each in neighbour.export_limits.values())
                tables[f"{alias} import"] = sum(each.in_flight for each in neighbour._import_limits.values())
                for bundle in neighbour.bundles.values():
                    tables[f"{alias} {bundle} calls"] = bundle.calls
                    tables[f"{alias} {bundle} incoming"] = bundle.incoming
            found += [f"{cloud} {number} {name}: {table}" for name, table in tables.items() if table]
    return found


def is_joined(federation: VirtualFederation, one: str, other: str) -> bool:
    """Tell whether each gateway of two clouds can reach the other cloud, and says so in its own."""
    for cloud, alias in ((one, other), (other, one)):
        for gateway in federation.gateways(cloud):
            usable = gateway.core.is_usable(alias, federation.now)
            if not usable or alias not in gateway._memberships:
                return False
    return True
