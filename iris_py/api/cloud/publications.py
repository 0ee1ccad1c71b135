"""Publications and broadcasts of a node to other clouds: ``publish("orders@eu", ...)`` (docs/design.md 15.75).

All publications and broadcasts to a cloud go through a tunnel to a gateway of the own cloud, in order and numbered by the node.
The first use of a topic asks the other cloud to accept the topic. Later publications get no answer, unless the other cloud
stops accepting the topic: then the next publication asks again. Broadcasts are answered; several may be in flight.
"""

from __future__ import annotations

import asyncio
import contextlib
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

from iris_py.api.cloud.duplex import DuplexRequest, open_duplex, read_outcome
from iris_py.api.cloud.succession import RETRY_MIN_S
from iris_py.errors import IrisError, MemberLost, NodeClosed, Overloaded, RequestTimeout, TunnelBroken, TunnelClosed
from iris_py.federation import items
from iris_py.federation.items import Item, ItemError
from iris_py.federation.names import split
from iris_py.patterns.topic.names import parse_topic
from iris_py.wire import packets
from iris_py.wire.names import refusals

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from iris_py.api.cloud.duplex import GatewayTunnel
    from iris_py.api.runtime import Runtime
    from iris_py.wire.headers import Headers

#: The operation of a publisher's tunnel at the gateway; and the header of a tunnel that replaces a broken one.
PUBLISH_OP: Final = "publish"
RESUMES_HEADER: Final = "iris-resumes"
#: An idle tunnel is closed after this time (seconds). Too small: a publisher with one message a minute opens a tunnel for each;
#: too large: gateways keep unused tunnels.
REST_S: Final = 60.0
#: How many gateways a publication tries, one after the loss of the other. More gateways do not die at once.
ATTEMPTS: Final = 8
#: Timeout of the other cloud's answer at the first use of a topic (seconds).
ASK_TIMEOUT_S: Final = 30.0
#: Remembered topics that a cloud accepts. A full table is cleared; the next publication to each topic asks the cloud again.
NAMES_MAX: Final = 4096


class FarPublications:
    """Publishes and broadcasts to other clouds for one node.

    Args:
        runtime: The node.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._publishers: dict[str, CloudPublisher] = {}

    async def publish(self, topic: str, payloads: list[bytes], headers: Headers) -> int:
        """Pass publications to a gateway, in order; wait while the gateway has no room.

        Args:
            topic: The topic, with the alias of the cloud.
            payloads: The messages; at least one.
            headers: The headers of each message.

        Returns:
            1: the number of nodes that a publication was sent to, the gateway.

        Raises:
            MessageTooLarge: A payload is too large. The payloads before were sent.
            IrisError: The publications cannot be sent.
        """
        publisher, name = self._publisher_for(topic)
        tracing = self._runtime.tracing
        packets.check_size(payloads[0], self._runtime.core.max_message_bytes)
        await publisher.learn(name)
        if tracing is None:
            await publisher.publish(name, payloads, headers)
            return 1
        for payload in payloads:
            with tracing.send("publish", topic, headers, len(payload)) as sent:
                await publisher.publish(name, [payload], sent)
        return 1

    def try_publish(self, topic: str, payload: bytes, headers: Headers) -> int:
        """Pass one publication at once, or not at all.

        Raises:
            Overloaded: The call would have to wait, or the other cloud's answer on the topic is not known yet.
        """
        publisher, name = self._publisher_for(topic)
        packets.check_size(payload, self._runtime.core.max_message_bytes)
        if not publisher.try_publish(name, payload, headers):
            raise Overloaded(topic=topic)
        return 1

    async def broadcast(self, cluster: str, payload: bytes, headers: Headers) -> int:
        """Broadcast to a cluster; return the number of members that the broadcast was sent to."""
        with refusals:
            name, alias = split(cluster)
        packets.check_size(payload, self._runtime.core.max_message_bytes)
        publisher = self._publisher(alias)
        if self._runtime.tracing is None:
            return await publisher.broadcast(name, payload, headers)
        with self._runtime.tracing.send("broadcast", cluster, headers, len(payload)) as headers:
            return await publisher.broadcast(name, payload, headers)

    async def close(self, timeout: float) -> None:
        """Pass the pending messages to the gateways, at most for the timeout, before the node ends."""
        publishers, self._publishers = self._publishers, {}
        await asyncio.gather(*(publisher.close(timeout) for publisher in publishers.values()))

    def abort(self) -> None:
        """End at once."""
        for publisher in self._publishers.values():
            publisher.abort()

    # --

    def _publisher_for(self, topic: str) -> tuple[CloudPublisher, str]:
        with refusals:
            name, alias = split(topic)
            parse_topic(name)
        return self._publisher(alias), name

    def _publisher(self, alias: str) -> CloudPublisher:
        publisher = self._publishers.get(alias)
        if publisher is None:
            publisher = self._publishers[alias] = CloudPublisher(self._runtime, alias)
        return publisher


class PresentTunnel:
    """The present tunnel of a publisher, and the reading task.

    Args:
        read: Reads a tunnel until the end; must not raise an error.
        spawn: Runs a coroutine as a task.

    Attributes:
        tunnel: The present tunnel, or None.
    """

    def __init__(
        self,
        read: Callable[[GatewayTunnel], Coroutine[Any, Any, None]],
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self.tunnel: GatewayTunnel | None = None
        self._read = read
        self._spawn = spawn
        self._reader: asyncio.Task[None] | None = None

    def begin(self, tunnel: GatewayTunnel) -> None:
        """Begin to read an open tunnel."""
        self.tunnel = tunnel
        self._reader = self._spawn(self._read(tunnel))

    def forget(self, tunnel: GatewayTunnel) -> bool:
        """Forget a broken tunnel; return whether the tunnel was the present tunnel."""
        is_present = self.tunnel is tunnel
        if is_present:
            self.tunnel = self._reader = None
        return is_present

    async def close(self, timeout: float) -> None:
        """End the present tunnel after the other side has taken everything, and wait for the reader.

        Raises:
            TunnelBroken: The other side may not have taken everything.
        """
        tunnel, reader = self.tunnel, self._reader
        if tunnel is None or reader is None:
            return
        self.forget(tunnel)
        try:
            await tunnel.close(timeout=timeout)
        finally:
            await reader

    def abort(self) -> None:
        """Stop reading at once."""
        if self._reader is not None:
            self._reader.cancel()


class CloudPublisher:
    """Publishes and broadcasts to one cloud for a node, over one tunnel after the other.

    Args:
        runtime: The node.
        alias: The alias of the cloud.
    """

    def __init__(self, runtime: Runtime, alias: str) -> None:
        self._runtime = runtime
        self._alias = alias
        self._present = PresentTunnel(self._read, runtime.spawn)
        self._published: dict[str, None] = {}  # topics
        # Topics that may have lost messages in a broken tunnel and got no publication since then. While any exist, gateways are
        # told, and report the losses at the first publication under each export rule: this node does not know the rules.
        self._doubted: dict[str, None] = {}
        self._resumes = False  # the present tunnel continues a broken one
        self._is_going = False  # the gateway leaves
        self._number = 0
        self._taken: dict[str, None] = {}  # topics accepted by the other cloud
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._answers: dict[int, tuple[str, asyncio.Future[int]]] = {}
        self._lock = asyncio.Lock()
        self._used_at = 0.0
        self._resting: asyncio.TimerHandle | None = None
        self._closing: asyncio.Task[None] | None = None

    async def learn(self, topic: str) -> None:
        """Wait until the other cloud has accepted a topic; return at once for a topic accepted before.

        Raises:
            IrisError: The cloud refuses the topic, or cannot be reached.
        """
        if topic not in self._taken:
            await asyncio.shield(self._ask_once(topic))

    async def publish(self, topic: str, payloads: list[bytes], headers: Headers) -> None:
        """Send publications to a topic that the other cloud has accepted."""
        limit, encoded, begin = self._runtime.core.max_message_bytes, headers.encoded, 0
        small = list(takewhile(lambda payload: len(payload) <= limit, payloads))
        while begin < len(small):
            end = begin + max(1, items.count_fitting(small[begin : begin + items.PUBLICATIONS_MAX], encoded))
            await self._say(Item(topic, small[begin:end], 0, headers=encoded))
            begin = end
        if len(small) < len(payloads):
            packets.check_size(payloads[len(small)], limit)

    def try_publish(self, topic: str, payload: bytes, headers: Headers) -> bool:
        """Send a publication if that needs no wait; return whether it was sent."""
        if topic not in self._taken:
            if topic not in self._asking:
                self._ask_once(topic).add_done_callback(_take_exception)
            return False
        tunnel = self._present.tunnel
        if tunnel is None or self._lock.locked() or self._is_going:
            return False
        item = Item(topic, [payload], self._number + 1, headers=headers.encoded)
        if not tunnel.try_send(items.encode_items(items.SAY, (item,))):
            return False
        self._number += 1
        self._note_said(item)
        return True

    async def broadcast(self, cluster: str, payload: bytes, headers: Headers) -> int:
        """Send a broadcast; return the number of members that the broadcast was sent to."""
        item = Item(cluster, [payload], 0, headers=headers.encoded, flags=items.BROADCAST | items.ANSWERED)
        return await (await self._say_answered(item))

    async def close(self, timeout: float) -> None:
        """Wait until the gateway has taken all messages, at most for the timeout, and close the tunnel."""
        for task in self._asking.values():
            task.cancel()
        if self._resting is not None:
            self._resting.cancel()
        async with self._lock:
            await self._close_tunnel(max(timeout, 0.1))
        _fail(self._answers, NodeClosed())

    def abort(self) -> None:
        """End at once."""
        for task in self._asking.values():
            task.cancel()
        if self._resting is not None:
            self._resting.cancel()
        self._present.abort()
        _fail(self._answers, NodeClosed())

    # --

    def _ask_once(self, topic: str) -> asyncio.Task[None]:
        task = self._asking.get(topic)
        if task is None:
            task = self._asking[topic] = self._runtime.spawn(self._ask(topic))
            task.add_done_callback(lambda _task: self._asking.pop(topic, None))
        return task

    async def _ask(self, topic: str) -> None:
        """Ask the other cloud to accept a topic; ask again after the loss of a gateway."""
        name = f"{topic}@{self._alias}"
        try:
            async with asyncio.timeout(ASK_TIMEOUT_S):
                while True:
                    with contextlib.suppress(MemberLost):
                        await (await self._say_answered(Item(topic, [b""], 0, flags=items.ASKED | items.ANSWERED)))
                        break
                    await asyncio.sleep(RETRY_MIN_S)
        except TimeoutError:
            raise RequestTimeout(name, ASK_TIMEOUT_S, None, is_fixed=True) from None
        if len(self._taken) >= NAMES_MAX:
            self._taken.clear()
        self._taken[topic] = None

    async def _say_answered(self, item: Item) -> asyncio.Future[int]:
        """Send an item (a question or a broadcast) to the gateway; return a future of the answer."""
        answer: asyncio.Future[int] = self._runtime.loop.create_future()
        await self._say(item, answer)
        return answer

    async def _say(self, said: Item, answer: asyncio.Future[int] | None = None) -> None:
        """Send a message with an item to the gateway, over the present tunnel or a new one.

        Raises:
            IrisError: The cloud cannot be reached.
        """
        name = f"{said.topic}@{self._alias}"
        async with self._lock:
            for _attempt in range(ATTEMPTS):
                tunnel = await self._ready_tunnel(name)
                said.number = self._number + 1
                self._number += len(said.payloads)
                if answer is not None:
                    self._answers[said.number] = name, answer
                try:
                    await tunnel.send(items.encode_items(items.SAY, (said,)))
                except (TunnelBroken, TunnelClosed):
                    self._answers.pop(said.number, None)  # not sent whole, so not sent
                    self._drop_tunnel(tunnel)
                    continue
                self._note_said(said)
                return
        raise MemberLost(name, "")

    def _note_said(self, item: Item) -> None:
        self._used_at = self._runtime.loop.time()
        topic = item.topic
        if not item.flags:
            if topic not in self._published:
                if len(self._published) >= NAMES_MAX:
                    del self._published[next(iter(self._published))]
                self._published[topic] = None
            if self._resumes:
                self._doubted.pop(topic, None)

    async def _ready_tunnel(self, name: str) -> GatewayTunnel:
        """Return the present tunnel to a gateway, or open one."""
        self._runtime.check_open()
        if self._is_going:
            await self._close_tunnel(REST_S)
        tunnel = self._present.tunnel
        while tunnel is None:
            try:
                self._resumes = bool(self._doubted)
                further = {RESUMES_HEADER: True} if self._resumes else None
                tunnel = await open_duplex(self._runtime, DuplexRequest(op=PUBLISH_OP, name=name, further=further))
            except TunnelBroken:  # the gateway was lost: try another one
                await asyncio.sleep(RETRY_MIN_S)
                self._runtime.check_open()
                continue
            self._is_going, self._answers = False, {}
            self._present.begin(tunnel)
            self._schedule_rest()
        return tunnel

    async def _close_tunnel(self, timeout: float) -> None:
        """End the tunnel cleanly, which waits until the gateway has taken all messages."""
        try:
            await self._present.close(timeout)
        except TunnelBroken:
            self._doubted |= self._published

    def _drop_tunnel(self, tunnel: GatewayTunnel) -> None:
        """Forget a broken tunnel, and note the topics that may have lost messages in it."""
        if self._present.forget(tunnel):
            self._doubted |= self._published
            self._taken.clear()  # the next gateway may know different topics

    async def _read(self, tunnel: GatewayTunnel) -> None:
        answers = self._answers
        try:
            while True:
                message = await tunnel.receive(max_bytes=items.OUTCOME_BYTES_MAX + 64)
                if message[:1] == bytes((items.SAID,)):
                    _origin, _sequence, number, outcome = items.decode_said(message)
                    self._handle_said(answers.pop(number, None), outcome)
                elif message[:1] == bytes((items.GOING,)):
                    self._is_going = True
                    self._schedule_rest(now=True)
        except (TunnelBroken, TunnelClosed):
            pass
        except (ItemError, IrisError) as exc:
            self._runtime.core.count_drop("malformed")
            tunnel.break_by(exc)
        self._drop_tunnel(tunnel)
        _fail(answers, None)

    def _handle_said(self, asked: tuple[str, asyncio.Future[int]] | None, outcome: bytes) -> None:
        name, answer = ("", None) if asked is None else asked
        result = read_outcome(outcome, name)
        if answer is None:
            if isinstance(result, IrisError):  # about a publication without an answer: ask before the next one
                self._taken.clear()
        elif answer.done():
            pass
        elif isinstance(result, IrisError):
            answer.set_exception(result)
        else:
            answer.set_result(items.decode_count(result))

    # -- idle tunnels

    def _schedule_rest(self, *, now: bool = False) -> None:
        if self._resting is not None:
            self._resting.cancel()
        loop = self._runtime.loop
        self._rest_at(loop.time() if now else self._used_at + REST_S)

    def _rest_at(self, when: float) -> None:
        self._resting = self._runtime.driver.call_at(when, self._handle_rest)

    def _handle_rest(self) -> None:
        """Close the tunnel if it is idle, or if its gateway has asked the node to use another gateway."""
        loop = self._runtime.loop
        self._resting = None
        if self._present.tunnel is None or self._runtime.closing is not None:
            return
        is_resting = loop.time() >= self._used_at + REST_S and not self._answers
        if not (is_resting or self._is_going):
            self._rest_at(max(self._used_at, loop.time() - REST_S / 2) + REST_S)
        elif self._closing is None or self._closing.done():
            self._closing = self._runtime.spawn(self._rest())

    async def _rest(self) -> None:
        async with self._lock:
            if self._is_going or self._runtime.loop.time() >= self._used_at + REST_S:
                await self._close_tunnel(REST_S)


def _fail(answers: dict[int, tuple[str, asyncio.Future[int]]], error: IrisError | None) -> None:
    """Fail the calls that wait for an answer with an error; None stands for the loss of the gateway."""
    for name, answer in answers.values():
        if not answer.done():
            answer.set_exception(error or MemberLost(name, ""))
            answer.exception()  # the caller may be gone
    answers.clear()


def _take_exception(task: asyncio.Task[None]) -> None:
    """Mark a task's exception as retrieved, so that asyncio does not log it: the next waiter raises it."""
    if not task.cancelled():
        task.exception()
