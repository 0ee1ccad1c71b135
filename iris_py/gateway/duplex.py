"""The duplexes of a gateway: tunnels of local nodes and channels of neighbours, and the meters of their bytes.

*Out*: a node opens a tunnel to the cluster of gateways; the header ``iris-op`` names the use: subscription, publishing, survey
or tunnel. The gateway's first message is an outcome (:mod:`iris_py.federation.calls`): an empty reply if the duplex continues,
or the final error. *In*: a neighbour offers a channel, and the gateway accepts, or refuses with an outcome.

A `Channel` is a duplex to a gateway of another cloud. A `Meter` counts and slows the bytes of one duplex under its rule
(docs/design.md 15.82).
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from iris_py.api.cloud.duplex import GatewayDuplex
from iris_py.api.handler_exceptions import is_cancelled
from iris_py.errors import CloudUnavailable, IrisError, NotExported, RequestTimeout, TunnelBroken, TunnelClosed
from iris_py.federation import messages
from iris_py.federation.calls import encode_outcome
from iris_py.federation.channels import FAR_SIDE, ChannelEnd
from iris_py.federation.events import ChannelOpened, ChannelRefused, ChannelWithdrawn
from iris_py.federation.names import OP_HEADER
from iris_py.federation.openings import ChannelRequest
from iris_py.logs import EventLogger
from iris_py.patterns.tunnel.duplex import Failure

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from iris_py.api.cloud.duplex import GatewayTunnel
    from iris_py.federation.bundle import Bundle
    from iris_py.federation.core import FederationCore
    from iris_py.federation.events import ChannelOffer
    from iris_py.federation.limits import Account, RuleLimits
    from iris_py.federation.messages import CatalogueEntry
    from iris_py.net.driver import Driver
    from iris_py.wire.headers import Headers


class Meter:
    """The meter of one duplex: counts its bytes under the limits and in the account of its rule."""

    def __init__(self, limits: RuleLimits, account: Account) -> None:
        self._limits = limits
        self._account = account
        self._loop = asyncio.get_running_loop()

    def send(self, size: int, *, is_last: bool) -> float:
        """Count bytes for the neighbour, if the limits allow them.

        Args:
            is_last: Whether the bytes end a message.

        Returns:
            0 if the bytes may pass; otherwise the wait in seconds, with nothing counted.
        """
        wait_s = self._limits.pass_bytes(size, self._loop.time(), is_out=True)
        if not wait_s:
            self._account.sent(is_last, size)
        return wait_s

    def receive(self, size: int, *, is_last: bool) -> float:
        """Count bytes from the neighbour, if the limits allow them, as :meth:`send`."""
        wait_s = self._limits.pass_bytes(size, self._loop.time(), is_out=False)
        if not wait_s:
            self._account.received(is_last, size)
        return wait_s

    async def wait_to_send(self, size: int) -> None:
        """Wait until the limits allow a message to the neighbour, and count the message."""
        await _sleep(partial(self.send, size, is_last=True))

    async def wait_to_receive(self, size: int) -> None:
        """Wait until the limits allow a message from the neighbour, and count the message."""
        await _sleep(partial(self.receive, size, is_last=True))


async def _sleep(wait_s: Callable[[], float]) -> None:
    """Sleep for the seconds that ``wait_s`` returns, again and again, until it returns 0."""
    left = wait_s()
    while left:
        await asyncio.sleep(left)
        left = wait_s()


async def wait_for_limits(limits: RuleLimits, size: int, *, is_out: bool) -> None:
    """Wait until the limits allow a number of bytes, and count them.

    Args:
        is_out: Whether the bytes leave the local cloud.
    """
    now = asyncio.get_running_loop().time
    await _sleep(lambda: limits.pass_bytes(size, now(), is_out=is_out))


class Channel(GatewayDuplex[ChannelEnd]):
    """A duplex to a gateway of another cloud, used like a tunnel: with the same ends and errors.

    Args:
        name: The name for errors, in the form of local users: ``databases@eu``.
        wake: Called when data is ready to send.
    """

    def __init__(self, end: ChannelEnd, name: str, cloud: str, wake: Callable[[], None]) -> None:
        super().__init__(end, wake)
        self._name = name
        self._cloud = cloud

    @property
    def cluster(self) -> str:
        """The name of the cluster or topic."""
        return self._name

    @property
    def cloud(self) -> str:
        """The alias of the other cloud."""
        return self._cloud

    @property
    def _other_side(self) -> str:
        return self._cloud

    def __repr__(self) -> str:
        side = "from" if self._core.id & FAR_SIDE else "to"
        return f"<Channel {self._core.id & ~FAR_SIDE} for {self._name!r} {side} {self._cloud}>"


logger = EventLogger("iris_py.federation")

#: The outcome in front of a duplex that continues.
READY = encode_outcome(b"")

Near: TypeAlias = "Callable[[GatewayTunnel, str], Awaitable[None]]"
Far: TypeAlias = "Callable[[ChannelOffer], Awaitable[None]]"


class Refusal(Exception):
    """A duplex (tunnel or channel) was refused.

    Args:
        outcome: The error, or an outcome of :mod:`iris_py.federation.calls`.
    """

    def __init__(self, outcome: bytes | IrisError) -> None:
        self.outcome = outcome if isinstance(outcome, bytes) else encode_outcome(outcome)
        super().__init__(outcome)


class Duplexes:
    """The duplexes of a gateway: local nodes' tunnels, and channels to and from neighbours (other clouds).

    Attributes:
        near: The functions that serve nodes' tunnels, by use.
        far: The functions that serve neighbours' channels, by kind.
    """

    def __init__(self, core: FederationCore, driver: Driver) -> None:
        self.near: dict[str, Near] = {}
        self.far: dict[int, Far] = {}
        self._core = core
        self._driver = driver
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[ChannelOffer, asyncio.Task[None]] = {}

    # -- out

    async def serve(self, tunnel: GatewayTunnel, alias: str) -> None:
        """Serve a node's tunnel."""
        op = tunnel.core.headers.get(OP_HEADER)
        near = self.near.get(op) if isinstance(op, str) and alias else None
        if near is None:
            await tunnel.send(encode_outcome(NotExported("")))
            return
        try:
            await near(tunnel, alias)
        except Refusal as refusal:
            await tunnel.send(refusal.outcome)
        except (TunnelBroken, TunnelClosed):
            pass  # both ends know

    async def open(
        self, alias: str, kind: int, name: str, headers: Headers, deadline: float, options: bytes = b"", allow: int = 0
    ) -> Channel:
        """Open a channel to a neighbour, for a cluster there.

        Args:
            kind: The kind of channel, of :mod:`iris_py.federation.messages`.
            name: The exported name of the cluster.
            deadline: The end of the wait.
            options: The pattern's details.
            allow: Bits of uses, of which the rule must allow at least one; by default the uses of the kind.

        Raises:
            Refusal: The channel cannot be opened.
        """
        bundle, entry = self.find_way(alias, kind, name, allow)
        return await self.open_at(bundle, ChannelRequest(entry.rule, kind, name, headers, options), deadline)

    def find_way(self, alias: str, kind: int, name: str, allow: int = 0) -> tuple[Bundle, CatalogueEntry]:
        """Choose the bundle, and its catalogue's entry, for a channel to a neighbour's cluster; errors as in :meth:`open`."""
        now = self._loop.time()
        neighbour = self._core.lines.neighbours.get(alias)
        if neighbour is None:
            raise Refusal(CloudUnavailable(name))
        if self._core.import_rule(alias, messages.CLUSTER, name) is None:
            raise Refusal(NotExported(name))
        way = neighbour.choose(messages.CLUSTER, name, allow or messages.NEEDED[kind], now)
        if way is None:
            raise Refusal(NotExported(name) if neighbour.is_usable(now) else CloudUnavailable(name))
        return way

    async def open_at(self, bundle: Bundle, request: ChannelRequest, deadline: float) -> Channel:
        """Open a channel over a given bundle; otherwise like :meth:`open`."""
        now = self._loop.time()
        if deadline <= now:
            raise Refusal(RequestTimeout(request.name, 0.0, None))
        answered: asyncio.Future[Channel] = self._loop.create_future()
        opening = self._core.openings.open(bundle, request, answered, deadline, now)
        self._driver.wake()
        try:
            return await answered
        except asyncio.CancelledError as exc:
            if answered.done() and not answered.cancelled() and answered.exception() is None:
                answered.result().break_by(exc)  # both happened in one turn
            if opening is not None:
                self._core.openings.withdraw(opening, self._loop.time())
                self._driver.wake()
            raise

    def handle_answer(self, event: ChannelOpened | ChannelRefused) -> None:
        """Handle a neighbour's answer to a channel request."""
        answered = event.token
        assert isinstance(answered, asyncio.Future)
        if isinstance(event, ChannelRefused):
            if not answered.done():
                answered.set_exception(Refusal(event.outcome))
        elif answered.done():
            event.end.fail(Failure("the caller gave up"), is_told=True, type="CancelledError", text="the caller gave up")
            self._driver.wake()
        else:
            answered.set_result(self._channel_of(event.end, "", event.bundle.alias))

    # -- in

    def handle_offer(self, offer: ChannelOffer) -> None:
        """Handle a neighbour's channel request."""
        task = self._tasks[offer] = self._loop.create_task(self._serve_offer(offer))
        task.add_done_callback(lambda _task: self._tasks.pop(offer, None))

    def handle_withdrawn(self, event: ChannelWithdrawn) -> None:
        """Handle a neighbour's withdrawal of a channel request."""
        task = self._tasks.get(event.offer)
        if task is not None:
            task.cancel()

    def accept(self, offer: ChannelOffer) -> Channel:
        """Open a channel requested by a neighbour.

        Raises:
            Refusal: The channel cannot be opened or was withdrawn; the neighbour knows.
        """
        end = self._core.openings.accept(offer, self._loop.time())
        self._driver.wake()
        if end is None:
            raise Refusal(CloudUnavailable(offer.name))
        return self._channel_of(end, offer.name, offer.bundle.alias)

    async def close(self) -> None:
        """Cancel all tasks that serve neighbours, and wait for their end."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def abort(self) -> None:
        """Cancel all tasks that serve neighbours, without waiting."""
        for task in self._tasks.values():
            task.cancel()

    async def _serve_offer(self, offer: ChannelOffer) -> None:
        far = self.far.get(offer.open.kind)
        try:
            if far is None:
                raise Refusal(NotExported(offer.name))
            await far(offer)
        except Refusal as refusal:
            self._refuse(offer, refusal.outcome)
        except (TunnelBroken, TunnelClosed):
            pass  # both ends know
        except IrisError as exc:
            self._refuse(offer, encode_outcome(exc))
        except BaseException as exc:
            self._refuse(offer, encode_outcome(CloudUnavailable(offer.name)))
            if is_cancelled(exc):
                raise
            logger.error(
                "gateway_failed",
                "serving %r for %r failed",
                offer.name,
                offer.bundle.alias,
                about=offer.bundle.alias,
                error=exc,
                cloud=offer.bundle.alias,
                name=offer.name,
            )

    def _refuse(self, offer: ChannelOffer, outcome: bytes) -> None:
        self._core.openings.refuse(offer, outcome, self._loop.time())
        self._driver.wake()

    def _channel_of(self, end: ChannelEnd, name: str, alias: str) -> Channel:
        return Channel(end, f"{name}@{alias}", alias, self._driver.wake)
