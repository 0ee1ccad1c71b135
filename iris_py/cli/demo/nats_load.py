"""The load of `iris demo --nats`: requests and messages of a native program and of clients of NATS, and their losses."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final, Self

from iris_py.cli.demo.nats_client import open_client
from iris_py.errors import IrisError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from types import TracebackType

    import iris_py
    from iris_py.cli.demo.nats_client import DemoClient

__all__ = ["CLUSTER", "NATIVE", "NatsLoad", "NumberedMessages", "Replies", "capitals"]

#: The name that services of both kinds share: a cluster, and a subject.
CLUSTER: Final = "upper"
QUEUE: Final = "workers"
#: The topic of the numbered messages.
TOPIC: Final = "ticks.demo"
#: The kinds of services, the first word of their replies.
NATIVE: Final = b"native"
NATS: Final = b"nats"
#: Times between two messages, and between two requests of a caller (seconds). Too small: the demo takes a whole processor; too
#: large: nothing is under way when a process is killed.
MESSAGE_S: Final = 0.01
REQUEST_S: Final = 0.02
#: Time for a native request (seconds): longer than the detection of a killed member.
NATIVE_TIMEOUT_S: Final = 10.0
#: Time for a request of a client of NATS (seconds), which nobody repeats.
CLIENT_TIMEOUT_S: Final = 2.0
#: Requests under way of a caller. Too small: a killed member stops the others; too large: memory, if all members are gone.
UNDER_WAY_MAX: Final = 200
#: Time for the last message to arrive (seconds), and looks within it.
SETTLE_S: Final = 5.0
SETTLE_LOOKS: Final = 100


def capitals(kind: bytes, text: bytes) -> bytes:
    """Return the reply of a service: its kind, and the text in capitals."""
    return kind + b" " + text.upper()


class Replies:
    """The requests of a caller.

    Attributes:
        sent: The number of requests.
        by_kind: The number of replies, by the kind of the service.
        lost: The number of requests without a reply.
    """

    def __init__(self) -> None:
        self.sent = 0
        self.by_kind: Counter[bytes] = Counter()
        self.lost = 0

    @property
    def answered(self) -> int:
        """The number of requests with a reply."""
        return self.by_kind.total()

    def note(self, reply: bytes | None) -> None:
        """Note the outcome of a request: None, or the empty reply of a door, for a lost one."""
        if not reply:
            self.lost += 1
        else:
            self.by_kind[reply.partition(b" ")[0]] += 1


class NumberedMessages:
    """The numbered messages of a publisher at a subscriber.

    Attributes:
        received: The number of different messages.
        repeated: The number of messages that came again.
        last: The highest number.
        missing: The numbers of lost messages below the highest one.
    """

    def __init__(self) -> None:
        self.received = 0
        self.repeated = 0
        self.last = 0
        self.missing: set[int] = set()

    def note(self, number: int) -> None:
        """Note a message. The first has the number 1."""
        if number > self.last:
            self.missing.update(range(self.last + 1, number))
            self.last = number
            self.received += 1
        elif number in self.missing:
            self.missing.remove(number)
            self.received += 1
        else:
            self.repeated += 1


class NatsLoad:
    """Programs of both kinds that use the network until the end of the ``async with``.

    Args:
        node: The node of the native program.
        urls: The addresses of the doors. Clients begin at the first door, or at the second one.

    Attributes:
        native_requests: The requests of the native program.
        client_requests: The requests of a client of NATS.
        published: The number of messages from a client of NATS.
        to_native: These messages at the native program.
        to_client: Likewise at another client.
    """

    def __init__(self, node: iris_py.Node, urls: Sequence[str]) -> None:
        self.native_requests = Replies()
        self.client_requests = Replies()
        self.published = 0
        self.to_native = NumberedMessages()
        self.to_client = NumberedMessages()
        self._node = node
        self._urls = urls
        self._clients: list[DemoClient] = []
        self._stack = AsyncExitStack()
        self._load: asyncio.Task[None] | None = None
        self._is_ending = asyncio.Event()

    @property
    def doors(self) -> list[str]:
        """The addresses of the clients' doors; empty texts for clients between two doors."""
        return [client.address for client in self._clients]

    async def __aenter__(self) -> Self:
        """Connect the clients, subscribe, and begin."""
        async with AsyncExitStack() as stack:
            caller = await self._connect(stack, "caller")
            service = await self._connect(stack, "service-1")
            other = await self._connect(stack, "service-2", is_reversed=True)
            listener = await self._connect(stack, "listener", is_reversed=True)
            for each in (service, other):
                await each.subscribe(CLUSTER, QUEUE, lambda text: capitals(NATS, text))
            await listener.subscribe(TOPIC, "", lambda payload: self.to_client.note(int(payload)))
            subscription = await stack.enter_async_context(self._node.subscribe(TOPIC))
            hearing = asyncio.create_task(self._hear(subscription))
            stack.callback(hearing.cancel)
            self._load = asyncio.create_task(self._run(caller))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the load, and close the clients."""
        if self._load is not None:
            self._load.cancel()
            await asyncio.wait((self._load,))
        await self._stack.aclose()

    async def settle(self) -> None:
        """End the load, and wait for the messages and replies under way."""
        self._is_ending.set()
        if self._load is not None:
            await self._load
        for _ in range(SETTLE_LOOKS):
            if min(self.to_native.last, self.to_client.last) >= self.published:
                break
            await asyncio.sleep(SETTLE_S / SETTLE_LOOKS)

    # --

    async def _connect(self, stack: AsyncExitStack, name: str, *, is_reversed: bool = False) -> DemoClient:
        client = await open_client(self._urls[::-1] if is_reversed else self._urls, name)
        self._clients.append(client)
        stack.push_async_callback(client.close)
        return client

    async def _hear(self, subscription: iris_py.Subscription) -> None:
        async for message in subscription:
            self.to_native.note(int(message.payload))

    async def _run(self, caller: DemoClient) -> None:
        async def ask_natively(text: bytes) -> bytes | None:
            try:
                return await self._node.request(CLUSTER, text, timeout=NATIVE_TIMEOUT_S, idempotent=True)
            except IrisError:
                return None

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._publish(caller))
            tasks.create_task(self._ask_many(self.native_requests, ask_natively))
            tasks.create_task(
                self._ask_many(self.client_requests, lambda text: caller.request(CLUSTER, text, CLIENT_TIMEOUT_S))
            )

    async def _publish(self, client: DemoClient) -> None:
        while not self._is_ending.is_set():
            self.published += 1
            await client.publish(TOPIC, b"%d" % self.published)
            await asyncio.sleep(MESSAGE_S)

    async def _ask_many(self, replies: Replies, ask: Callable[[bytes], Awaitable[bytes | None]]) -> None:
        under_way = asyncio.Semaphore(UNDER_WAY_MAX)

        async def ask_once() -> None:
            try:
                replies.note(await ask(b"hello"))
            finally:
                under_way.release()

        async with asyncio.TaskGroup() as tasks:
            while not self._is_ending.is_set():
                await under_way.acquire()
                replies.sent += 1
                tasks.create_task(ask_once())
                await asyncio.sleep(REQUEST_S)
