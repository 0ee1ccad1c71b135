"""The roles of the processes of a federation: gateways, a member of a cluster in one cloud, and a caller in another one.

A caller and a member do what they are told by cues, so one set of processes serves several measurements. The systems differ in
how a program asks, publishes and sends bulk, and in nothing else. Payloads are random: NATS compresses what goes to leafnodes
over long lines.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import struct
import time
from collections import Counter
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

from benchmarks.tally import Tally
from benchmarks.worker import hear, tell

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from benchmarks.worker import Parameters

SERVICE: Final = "service"
TOPIC: Final = "measured.messages"
_BULK: Final = "measured.bulk"
#: Requests before any is counted.
_WARM_UP: Final = 300
#: A way between two clouds is there within a second; a busy machine may need much longer.
READY_TIMEOUT_S: Final = 25.0
_LOOK_S: Final = 0.02
_TIMEOUT_S: Final = 20.0
#: In front of a payload: the number of the request.
_NUMBER: Final = struct.Struct(">Q")
BULK_BYTES: Final = 1_000_000
#: With NATS, the program has to bound what waits in front of a slow line.
_BLOCKS_UNDER_WAY: Final = 4
#: A program that was refused does not ask again at once.
_PAUSE_S: Final = 0.01


async def _cue() -> Parameters:
    return await asyncio.to_thread(hear)


# -- gateways


def serve_gateway(parameters: Parameters) -> None:
    """Be a gateway; tell the state when asked."""
    import iris_py
    from iris_py.federation.settings import parse_settings
    from iris_py.gateway.startup import start_gateway
    from iris_py.wire.packets import MESSAGE_BYTES_LIMIT
    from iris_security import CloudKey

    async def main() -> None:
        key = CloudKey.parse(parameters["identity"])
        settings = parse_settings(parameters["settings"], "federation.toml")
        async with (
            iris_py.connect(
                secret=parameters["secret"],
                listen=f"{parameters['host']}:0",
                seeds=parameters["seeds"],
                discovery=False,
                max_message_bytes=MESSAGE_BYTES_LIMIT,
            ) as node,
            start_gateway(node, settings, key) as gateway,
        ):
            tell(address=node.address, line=gateway.address)
            while True:
                await _cue()
                lines = gateway.core.lines
                links = [
                    link for each in lines.neighbours.values() for bundle in each.bundles.values() for link in bundle.links
                ]
                tell(line_bytes=sum(link.sent_bytes + link.received_bytes for link in links if link is not None))

    iris_py.run(main())


# -- members


def serve(parameters: Parameters) -> None:
    """Reply with what is asked, take bulk, and count publications when told to."""
    _run(parameters, _serve(parameters))


async def _serve(parameters: Parameters) -> None:
    member = _MEMBERS[parameters["system"]]()
    async with AsyncExitStack() as stack:
        tell(address=await member.open(stack, parameters))
        while True:
            cue = await _cue()
            if cue["do"] == "count":
                member.tally = Tally(cue["count"])
                refusal = await _refusal_of(member.subscribe(stack, parameters))
                tell(refusal=refusal)
                if not refusal:
                    await member.tally.wait()
                    member.tally.tell()
            elif cue["do"] == "watch":
                tell(refusal=await _refusal_of(member.watch(stack, parameters, cue["topic"])))
            elif cue["do"] == "watched":
                tell(watched=member.watched)
            else:
                tell(doubles=sum(count - 1 for count in member.seen.values()), executed=len(member.seen))


async def _refusal_of(subscribing: Awaitable[None]) -> str:
    """Return why a subscription cannot be; empty if it is."""
    try:
        await subscribing
    except Exception as exc:  # of any system
        return str(exc)
    return ""


class _Member:
    """A member in any system: its counts."""

    def __init__(self) -> None:
        self.tally = Tally(0)
        self.seen: Counter[bytes] = Counter()
        self.watched = 0
        self.is_subscribed = False

    def note(self, payload: bytes) -> bytes:
        """Count an execution, and return the reply."""
        if payload[: _NUMBER.size] != bytes(_NUMBER.size):
            self.seen[payload[: _NUMBER.size]] += 1
        return payload

    def note_watched(self) -> None:
        self.watched += 1

    async def open(self, stack: AsyncExitStack, parameters: Parameters) -> str:
        raise NotImplementedError

    async def subscribe(self, stack: AsyncExitStack, parameters: Parameters) -> None:
        raise NotImplementedError

    async def watch(self, stack: AsyncExitStack, parameters: Parameters, topic: str) -> None:
        raise NotImplementedError


class _IrisMember(_Member):
    async def open(self, stack: AsyncExitStack, parameters: Parameters) -> str:
        import iris_py

        member = self

        class Service(iris_py.Handler):
            async def on_request(self, request: iris_py.Request) -> bytes:
                return member.note(request.payload)

            async def on_tunnel(self, tunnel: iris_py.Tunnel) -> None:
                taken = 0
                async for message in tunnel:
                    taken += len(message)
                await tunnel.send(str(taken).encode())

        self._node = await stack.enter_async_context(
            iris_py.connect(
                secret=parameters["secret"], listen=f"{parameters['host']}:0", seeds=parameters["seeds"], discovery=False
            )
        )
        await stack.enter_async_context(self._node.join(SERVICE, Service(), concurrency=1024))
        return self._node.address

    async def subscribe(self, stack: AsyncExitStack, parameters: Parameters) -> None:
        if self.is_subscribed:
            return
        subscription = await stack.enter_async_context(self._node.subscribe(TOPIC + parameters["back"], policy="block"))

        async def take() -> None:
            async for _message in subscription:
                self.tally.add()

        self._task = asyncio.create_task(take())
        self.is_subscribed = True

    async def watch(self, stack: AsyncExitStack, parameters: Parameters, topic: str) -> None:
        await stack.enter_async_context(self._node.subscribe(topic + parameters["back"], lambda _message: self.note_watched()))


class _NatsMember(_Member):
    async def open(self, stack: AsyncExitStack, parameters: Parameters) -> str:
        self._client = await _connect_nats(stack, parameters)
        taken = 0

        async def reply(message: Any) -> None:  # noqa: ANN401 - of a package without types
            await message.respond(self.note(message.data))

        async def take(message: Any) -> None:  # noqa: ANN401
            nonlocal taken
            taken += len(message.data)
            if message.reply:
                await message.respond(str(taken).encode())
                taken = 0

        await self._client.subscribe(SERVICE, cb=reply)
        await self._client.subscribe(_BULK, cb=take, pending_bytes_limit=1 << 30)
        await self._client.flush()
        return ""

    async def subscribe(self, stack: AsyncExitStack, parameters: Parameters) -> None:
        if not self.is_subscribed:

            async def take(_message: Any) -> None:  # noqa: ANN401
                self.tally.add()

            await self._client.subscribe(TOPIC, cb=take, pending_msgs_limit=1 << 22, pending_bytes_limit=1 << 32)
            await self._client.flush()
            self.is_subscribed = True

    async def watch(self, stack: AsyncExitStack, parameters: Parameters, topic: str) -> None:
        async def take(_message: Any) -> None:  # noqa: ANN401
            self.note_watched()

        await self._client.subscribe(topic, cb=take)
        await self._client.flush()


# -- callers


class _Caller:
    """A caller in any system."""

    async def open(self, stack: AsyncExitStack, parameters: Parameters) -> None:
        raise NotImplementedError

    async def ask(self, payload: bytes, *, is_idempotent: bool = False) -> bytes:
        raise NotImplementedError

    async def publish(self, payload: bytes, topic: str = TOPIC) -> None:
        raise NotImplementedError

    async def settle(self) -> None:
        """Wait until what was published has left."""

    async def send_bulk(self, count: int) -> int:
        """Send so many blocks; returns how many bytes were taken."""
        raise NotImplementedError

    async def send_politely(self) -> None:
        """Send blocks for ever, with no more of them under way than a program that shares the line would have."""
        while True:
            await self.send_bulk(32)


class _IrisCaller(_Caller):
    async def open(self, stack: AsyncExitStack, parameters: Parameters) -> None:
        import iris_py

        self._service = SERVICE + parameters["there"]
        self._node = await stack.enter_async_context(
            iris_py.connect(
                secret=parameters["secret"], listen=f"{parameters['host']}:0", seeds=parameters["seeds"], discovery=False
            )
        )

    async def ask(self, payload: bytes, *, is_idempotent: bool = False) -> bytes:
        return await self._node.request(self._service, payload, idempotent=is_idempotent, timeout=_TIMEOUT_S)

    async def publish(self, payload: bytes, topic: str = TOPIC) -> None:
        await self._node.publish(topic, payload)

    async def send_bulk(self, count: int) -> int:
        async with self._node.tunnel(self._service) as tunnel:
            block = os.urandom(BULK_BYTES)
            for _ in range(count):
                await tunnel.send(block)
            await tunnel.end()
            return int(await tunnel.receive())


class _NatsCaller(_Caller):
    async def open(self, stack: AsyncExitStack, parameters: Parameters) -> None:
        self._client = await _connect_nats(stack, parameters)

    async def ask(self, payload: bytes, *, is_idempotent: bool = False) -> bytes:
        timeout = 1.0 if is_idempotent else _TIMEOUT_S  # it does not hear of what is lost: who retries has to wait
        reply: bytes = (await self._client.request(SERVICE, payload, timeout=timeout)).data
        return reply

    async def publish(self, payload: bytes, topic: str = TOPIC) -> None:
        await self._client.publish(topic, payload)

    async def settle(self) -> None:
        await self._client.flush(_TIMEOUT_S)

    async def send_bulk(self, count: int) -> int:
        block = os.urandom(BULK_BYTES)
        for _ in range(count - 1):
            await self._client.publish(_BULK, block)
        return int((await self._client.request(_BULK, block, timeout=_TIMEOUT_S)).data)

    async def send_politely(self) -> None:
        block = os.urandom(BULK_BYTES)

        async def send() -> None:
            while True:
                await self._client.request(_BULK, block, timeout=60)

        await asyncio.gather(*(send() for _ in range(_BLOCKS_UNDER_WAY)))


async def _connect_nats(stack: AsyncExitStack, parameters: Parameters) -> Any:  # noqa: ANN401
    import nats

    async def ignore(_error: Exception) -> None: ...

    client = await nats.connect(f"nats://{parameters['host']}:{parameters['port']}", error_cb=ignore, pending_size=1 << 23)
    stack.push_async_callback(client.close)
    return client


def call(parameters: Parameters) -> None:
    """Do what the cues say."""
    _run(parameters, _call(parameters))


async def _call(parameters: Parameters) -> None:
    caller = _CALLERS[parameters["system"]]()
    async with AsyncExitStack() as stack:
        await caller.open(stack, parameters)
        await _until_there(caller)
        for _ in range(_WARM_UP if parameters["is_warm"] else 1):
            await caller.ask(bytes(1024))
        tell(ready=True)
        while True:
            cue = await _cue()
            doing = cue.pop("do")
            await _TASKS[doing](caller, **cue)


async def _until_there(caller: _Caller) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while True:
        try:
            await asyncio.wait_for(caller.ask(bytes(8)), 1.0)
        except Exception:  # of any system: there is no way yet
            if time.monotonic() >= deadline:
                raise
            await asyncio.sleep(_LOOK_S)
        else:
            return


async def _requests(caller: _Caller, under_way: int, seconds: float, size: int = 1024) -> None:
    payload, times, ends = os.urandom(size), [], time.perf_counter() + seconds

    async def ask() -> None:
        now = time.perf_counter()
        while now < ends:
            await caller.ask(payload)
            before, now = now, time.perf_counter()
            times.append(now - before)

    began = time.perf_counter()
    await asyncio.gather(*(ask() for _ in range(under_way)))
    took = time.perf_counter() - began
    tell(**_figures(times), rate=len(times) / took, count=len(times))


async def _publish(caller: _Caller, count: int, size: int = 1024) -> None:
    payload, began = os.urandom(size), time.perf_counter()
    for _ in range(count):
        await caller.publish(payload)
    await caller.settle()
    tell(rate=count / (time.perf_counter() - began))


async def _publish_one(caller: _Caller, topic: str) -> None:
    await caller.publish(b"first", topic)
    await caller.settle()
    tell(published=True)


async def _bulk(caller: _Caller, count: int) -> None:
    began = time.perf_counter()
    taken = await caller.send_bulk(count)
    tell(rate=taken / (time.perf_counter() - began), taken=taken)


async def _beside_bulk(caller: _Caller, seconds: float) -> None:
    """Ask small things while bulk fills the line."""
    sending = asyncio.create_task(caller.send_politely())
    await asyncio.sleep(min(1.0, seconds / 2))
    times, ends = [], time.perf_counter() + seconds
    while (began := time.perf_counter()) < ends:
        await caller.ask(bytes(128))
        times.append(time.perf_counter() - began)
    sending.cancel()
    with contextlib.suppress(asyncio.CancelledError, Exception):
        await sending
    tell(**_figures(times), count=len(times))


async def _kill(caller: _Caller, pid: int, under_way: int, seconds: float, is_idempotent: bool) -> None:
    """Ask all the time, and kill a process in the middle."""
    numbers, failures, after, ends = itertools.count(1), Counter[str](), [], time.perf_counter() + seconds
    killed_at, done = float("inf"), 0

    async def ask() -> None:
        nonlocal done
        while (began := time.perf_counter()) < ends:
            payload = _NUMBER.pack(next(numbers)) + os.urandom(1024 - _NUMBER.size)
            try:
                await _retried(caller, payload, is_idempotent=is_idempotent)
            except Exception as exc:  # of any system
                failures[type(exc).__name__] += 1
                await asyncio.sleep(_PAUSE_S)
            else:
                done += 1
                if began >= killed_at:
                    after.append(time.perf_counter() - killed_at)

    asking = asyncio.gather(*(ask() for _ in range(under_way)))
    await asyncio.sleep(seconds / 3)
    os.kill(pid, signal.SIGKILL)
    killed_at = time.perf_counter()
    await asking
    tell(failures=dict(failures), failed=sum(failures.values()), next_ms=min(after, default=ends - killed_at) * 1000, done=done)


async def _retried(caller: _Caller, payload: bytes, *, is_idempotent: bool) -> bytes:
    """Ask; what a system does not repeat by itself, the program repeats, as it has to."""
    if not is_idempotent or isinstance(caller, _IrisCaller):
        return await caller.ask(payload, is_idempotent=is_idempotent)
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        try:
            return await caller.ask(payload, is_idempotent=True)
        except Exception:
            if time.monotonic() >= deadline:
                raise
            await asyncio.sleep(_LOOK_S)


def _figures(times: list[float]) -> dict[str, float]:
    ordered = sorted(times)
    return {"p50_ms": ordered[len(ordered) // 2] * 1000, "p99_ms": ordered[len(ordered) * 99 // 100] * 1000}


def _run(parameters: Parameters, main: Any) -> None:  # noqa: ANN401 - a coroutine
    if parameters["system"] == "iris":
        import iris_py

        iris_py.run(main)
    else:
        import uvloop

        uvloop.run(main)


_MEMBERS: Final[dict[str, type[_Member]]] = {"iris": _IrisMember, "nats": _NatsMember}
_CALLERS: Final[dict[str, type[_Caller]]] = {"iris": _IrisCaller, "nats": _NatsCaller}
_TASKS: Final[dict[str, Callable[..., Awaitable[None]]]] = {
    "requests": _requests,
    "publish": _publish,
    "publish one": _publish_one,
    "bulk": _bulk,
    "beside bulk": _beside_bulk,
    "kill": _kill,
}
