"""Gateways of several clouds joined without sockets, under a clock that is moved by hand."""

from __future__ import annotations

import json
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any

from iris_overlay.events import DialRequested
from iris_py.federation.calls import Call
from iris_py.federation.core import FederationCore
from iris_py.federation.events import IncomingCancelled, RequestsReceived
from iris_py.federation.settings import parse_settings
from iris_py.link.link import LinkState
from iris_security import CloudKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from iris_py.federation.bundle import Bundle, Incoming, Outgoing
    from iris_py.federation.neighbour import Neighbour
    from iris_py.federation.settings import FederationSettings
    from iris_py.link.link import Link

#: One way.
LATENCY_S = 0.02
KEYS = {name: CloudKey(bytes((number,)) * 32) for number, name in enumerate(("us", "eu", "asia", "stranger"), 11)}
#: Of two clouds, the one whose bundles stay if both dial.
FIRST, SECOND = sorted(("us", "eu"), key=lambda name: KEYS[name].public)


def settings_of(
    name: str,
    clouds: Mapping[str, Mapping[str, Any]],
    exports: Iterable[Mapping[str, Any]] = (),
    imports: Iterable[Mapping[str, Any]] = (),
    **gateway: Any,
) -> FederationSettings:
    """Return settings: the tables of neighbours get the keys of those names, unless they have some."""
    tables: list[tuple[str, Mapping[str, Any]]] = [
        ("[gateway]", {"name": name, "identity_file": "x", "listen": "0.0.0.0:1"} | gateway)
    ]
    for alias, table in clouds.items():
        keys = [] if "keys" in table else [KEYS[alias].public_text]
        tables.append((f"[cloud.{alias}]", ({"keys": keys} if keys else {}) | dict(table)))
    tables += [("[[export]]", {"to": list(clouds)} | dict(rule)) for rule in exports]
    tables += [("[[import]]", {"from": list(clouds)} | dict(rule)) for rule in imports]
    lines = [line for head, table in tables for line in (head, *(f"{k} = {json.dumps(v)}" for k, v in table.items()))]
    return parse_settings("\n".join(lines), "test.toml")


class Pipe:
    """One connection: two links, and what is under way between them."""

    def __init__(self, hall: Hall, ends: tuple[tuple[Gateway, Link], tuple[Gateway, Link]]) -> None:
        self.hall = hall
        self.ends = ends
        self.is_swallowing = False
        self.held: list[tuple[Link, bytes | None]] | None = None

    def far(self, link: Link) -> tuple[Gateway, Link]:
        return self.ends[1] if self.ends[0][1] is link else self.ends[0]

    def send(self, link: Link, data: bytes | None) -> None:
        """Send bytes, or the end."""
        if self.is_swallowing:
            return
        if self.held is not None:
            self.held.append((link, data))
            return
        gateway, target = self.far(link)
        self.hall.later(LATENCY_S, lambda: gateway.arrive(target, data))


class Gateway:
    """A gateway: its core, and what came out of it.

    Attributes:
        events: All but requests for dials.
        outcomes: Those of requests, by token.
        requests: What neighbours have asked.
        sent: What was asked last; None if it was not sent.
        is_stopped: Whether the process stands still.
        is_blocked: Whether its transports take nothing.
        serves: Answers requests at once; None: nothing does.
    """

    def __init__(self, hall: Hall, address: str, cloud: str, settings: FederationSettings, seed: int) -> None:
        self.hall, self.address, self.cloud = hall, address, cloud
        rng = Random(f"{seed} {address}")
        self.core = FederationCore(
            settings,
            KEYS[cloud],
            gateway=rng.randbytes(16),
            zone="",
            rng=rng,
            entropy=rng.randbytes,
            now=hall.now,
        )
        self.events: list[Any] = []
        self.outcomes: dict[Any, bytes] = {}
        self.requests: list[Incoming] = []
        self.cancelled: list[Incoming] = []
        self.serves: Callable[[Incoming], bytes] | None = None
        self.dials: list[str] = []
        self.is_stopped = False
        self.is_blocked = False
        self.sent: Outgoing | None = None
        self.pipes: dict[Link, Pipe] = {}
        self._unread: dict[Link, bytearray] = {}
        self._waiting: list[tuple[Link, bytes | None]] = []

    # -- what it does

    def ask(self, alias: str, name: str, payload: bytes = b"x", *, token: Any = None, timeout: float = 5.0, **call: Any) -> Any:
        """Ask a cluster of a neighbour; returns the token of its outcome."""
        token = object() if token is None else token
        question = Call(name=name, payload=payload, **call)
        self.sent = self.core.request(alias, question, b"", token, self.hall.now + timeout, self.hall.now)
        self.transmit()
        return token

    def cancel(self) -> None:
        """Cancel what was asked last."""
        assert self.sent is not None
        self.core.cancel(self.sent, self.hall.now)
        self.transmit()

    def reply(self, incoming: Incoming, outcome: bytes) -> None:
        self.core.reply(incoming, outcome, self.hall.now)
        self.transmit()

    def reload(self, settings: FederationSettings) -> None:
        self.core.reconfigure(settings, self.hall.now)
        self.transmit()

    def neighbour(self, alias: str) -> Neighbour:
        return self.core.lines.neighbours[alias]

    def bundles(self, alias: str) -> list[Bundle]:
        return list(self.neighbour(alias).bundles.values())

    def bundle(self, alias: str) -> Bundle:
        (bundle,) = self.bundles(alias)
        return bundle

    def is_usable(self, alias: str) -> bool:
        return self.core.is_usable(alias, self.hall.now)

    # -- as a driver

    def transmit(self) -> None:
        core, now = self.core, self.hall.now
        if self.is_stopped:
            return
        for _round in range(64):
            if core.has_events():
                self.outcomes.update(core.outcomes_received())
                for event in core.events_received():
                    self._handle(event)
            if core.has_output():
                core.flush(now)
                for link in core.links_to_flush():
                    self.write(link)
                    if link.events:
                        core.link_received(link, now)
            elif not core.has_events():
                return
        raise AssertionError("it never comes to rest")

    def write(self, link: Link) -> None:
        pipe = self.pipes.get(link)
        if pipe is None or self.is_blocked:
            return
        while data := b"".join(link.data_to_send(1 << 20)):
            pipe.send(link, data)
        if link.state is LinkState.CLOSED:
            del self.pipes[link]
            pipe.send(link, None)

    def arrive(self, link: Link, data: bytes | None) -> None:
        if self.is_stopped:
            self._waiting.append((link, data))
            return
        if link.state is LinkState.CLOSED or link not in self.pipes:
            return
        if data is None:
            link.receive_eof(self.hall.now)
            self.core.link_received(link, self.hall.now)
        else:
            buffer = self._unread.setdefault(link, bytearray())
            buffer += data
            while True:
                used = link.receive_data(memoryview(bytes(buffer)), self.hall.now)
                del buffer[:used]
                self.core.link_received(link, self.hall.now)
                if not link.has_unread:
                    break
        self.transmit()

    def resume(self) -> None:
        """Go on after a standstill: the timer first, then what waits in the sockets."""
        self.is_stopped = False
        self.core.handle_resumption(self.hall.now)
        self.core.handle_timeout(self.hall.now)
        waiting, self._waiting = self._waiting, []
        for link, data in waiting:
            self.arrive(link, data)
        self.transmit()

    def _handle(self, event: Any) -> None:
        if isinstance(event, DialRequested):
            assert event.is_proven, "the operator gave the address"
            self.dials.append(event.address)
            self.hall.dial(self, event.address)
            return
        self.events.append(event)
        if isinstance(event, RequestsReceived):
            self.requests += event.requests
            for incoming in event.requests if self.serves is not None else ():
                assert self.serves is not None
                self.core.reply(incoming, self.serves(incoming), self.hall.now)
        elif isinstance(event, IncomingCancelled):
            self.cancelled.append(event.request)

    def events_of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


class Hall:
    """The gateways, the clock and the network.

    Attributes:
        now: The time.
        listening: The gateways behind each address: of several, each dial comes to the next one.
        refuses: Addresses where nobody answers.
    """

    def __init__(self, seed: int = 1) -> None:
        self.now = 1000.0
        self.gateways: list[Gateway] = []
        self.listening: dict[str, list[Gateway]] = {}
        self.refuses: set[str] = set()
        self.pipes: list[Pipe] = []
        self._seed = seed
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._turns = count()

    def add(self, address: str, cloud: str, settings: FederationSettings) -> Gateway:
        gateway = Gateway(self, address, cloud, settings, self._seed)
        self.gateways.append(gateway)
        self.listening[address] = [gateway]
        return gateway

    def later(self, seconds: float, do: Callable[[], None]) -> None:
        heappush(self._due, (self.now + seconds, next(self._numbers), do))

    def dial(self, gateway: Gateway, address: str) -> None:
        self.later(LATENCY_S, lambda: self._connect(gateway, address))

    def _connect(self, gateway: Gateway, address: str) -> None:
        behind = self.listening.get(address, [])
        if address in self.refuses or not behind:
            gateway.core.dial_failed(address, self.now, is_refused=True)
            gateway.transmit()
            return
        target = behind[next(self._turns) % len(behind)]
        link = gateway.core.dialled(address, self.now)
        if link is not None:
            other = target.core.accepted(gateway.address.partition(":")[0], self.now)
            if other is None:
                link.receive_eof(self.now)
                gateway.core.link_received(link, self.now)
            else:
                pipe = Pipe(self, ((gateway, link), (target, other)))
                gateway.pipes[link] = target.pipes[other] = pipe
                self.pipes.append(pipe)
                gateway.write(link)
                target.transmit()
        gateway.transmit()

    def advance(self, seconds: float) -> None:
        """Let time pass, and all happen that happens in it."""
        end = self.now + seconds
        turns = 0
        while True:
            times = [self._due[0][0]] if self._due else []
            deadlines = [(each.core.deadline(), each) for each in self.gateways if not each.is_stopped]
            times += [deadline for deadline, _each in deadlines if deadline is not None]
            if not times or min(times) > end:
                break
            turns = turns + 1 if min(times) <= self.now else 0
            assert turns < 10_000, "something is due for ever"
            self.now = max(self.now, min(times))
            while self._due and self._due[0][0] <= self.now:
                heappop(self._due)[2]()
            for deadline, gateway in deadlines:
                if deadline is not None and deadline <= self.now and not gateway.is_stopped:
                    gateway.core.handle_timeout(self.now)
                    gateway.transmit()
        self.now = end

    def until(self, condition: Callable[[], object], limit_s: float = 60.0) -> float:
        """Let time pass until something is the case; returns how long it took."""
        begin = self.now
        while not condition():
            assert self.now < begin + limit_s, "not the case in time"
            self.advance(0.005)
        return self.now - begin

    # -- faults

    def living(self) -> list[Pipe]:
        return [pipe for pipe in self.pipes if any(gateway.pipes.get(link) is pipe for gateway, link in pipe.ends)]

    def cut(self) -> None:
        """Let nothing pass over the connections that there are; dials find nobody."""
        self.refuses.update(self.listening)
        for pipe in self.living():
            pipe.held = pipe.held or []

    def heal(self) -> None:
        """Let what was held arrive."""
        self.refuses.clear()
        for pipe in self.living():
            held, pipe.held = pipe.held, None
            for link, data in held or ():
                pipe.send(link, data)

    def forget(self, pipes: Iterable[Pipe] | None = None) -> None:
        """Swallow what is sent over connections, as a NAT that forgot them does."""
        for pipe in self.living() if pipes is None else pipes:
            pipe.is_swallowing = True

    def pipe_of(self, link: Link | None) -> Pipe:
        (found,) = [pipe for pipe in self.pipes if any(its is link for _gateway, its in pipe.ends)]
        return found

    def kill(self, gateway: Gateway) -> None:
        """End a gateway as a crash does: its connections break."""
        gateway.is_stopped = True
        self.gateways.remove(gateway)
        self.listening = {
            address: [each for each in behind if each is not gateway] for address, behind in self.listening.items()
        }
        for link, pipe in list(gateway.pipes.items()):
            pipe.send(link, None)
        gateway.pipes.clear()


def two_clouds(
    *,
    us: int = 1,
    eu: int = 1,
    both_dial: bool = False,
    exports: Iterable[Mapping[str, Any]] = ({"cluster": "db"},),
    imports: Iterable[Mapping[str, Any]] = ({"cluster": ">"},),
    seed: int = 1,
    **gateway: Any,
) -> tuple[Hall, list[Gateway], list[Gateway]]:
    """Return two clouds that were joined just now, us dialling eu, which exports something."""
    hall = Hall(seed)
    addresses = {"us": [f"10.0.0.{n}:1" for n in range(1, us + 1)], "eu": [f"10.0.1.{n}:1" for n in range(1, eu + 1)]}
    near = settings_of("us", {"eu": {"dial": addresses["eu"]}}, (), imports, **gateway)
    far = settings_of("eu", {"us": {"dial": addresses["us"]} if both_dial else {}}, exports, **gateway)
    return (
        hall,
        [hall.add(address, "us", near) for address in addresses["us"]],
        [hall.add(address, "eu", far) for address in addresses["eu"]],
    )


def one_each(**how: Any) -> tuple[Hall, Gateway, Gateway]:
    """Return two clouds with a gateway each, and let them join."""
    hall, (us,), (eu,) = two_clouds(**how)
    hall.until(lambda: us.is_usable("eu") and eu.is_usable("us"))
    hall.advance(1.0)
    return hall, us, eu
