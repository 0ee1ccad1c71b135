"""A door for NATS clients: a node, the clients, and the listener."""

from __future__ import annotations

import asyncio
import os
import secrets
from base64 import b32encode
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from iris_py.api.awaitable_context import AsyncClosable, Opening
from iris_py.api.lifecycle import parts_of
from iris_py.api.runtime import runtime_of
from iris_py.doors.counts import DoorStatistics
from iris_py.doors.limits import ConnectionCounts
from iris_py.doors.nats.clients import NatsClients
from iris_py.doors.nats.encoder import PROTOCOL, VERSION, ServerInfo
from iris_py.doors.nats.session import SessionEnd
from iris_py.doors.nats.users import UserDirectory
from iris_py.doors.revocations import RevocationTable
from iris_py.errors import ConfigurationError
from iris_py.logs import EventLogger
from iris_py.net.acceptor import Acceptor
from iris_py.net.peer_user import peer_user
from iris_py.servers.accepted import AcceptedConnections, descriptors_for, listen_at
from iris_py.servers.door_cluster import DoorCluster
from iris_py.servers.door_reporter import NatsReporter
from iris_py.servers.metrics import DoorCollector
from iris_py.servers.nats.client_clusters import ClientClusters
from iris_py.servers.nats.client_tokens import ClientTokens
from iris_py.servers.nats.command_execution import CommandExecution
from iris_py.servers.nats.connection import END_REASONS, DoorParts, NatsConnection
from iris_py.servers.nats.inbox_cluster import InboxCluster
from iris_py.servers.nats.input_turns import InputTurns
from iris_py.servers.nats.native_requests import NativeRequests
from iris_py.servers.nats.node_patterns import NodePatterns
from iris_py.servers.revocations_file import RevocationsFile
from iris_py.servers.settings_file import check_nats_exposure
from iris_py.servers.tls import Certificate
from iris_py.wire.addresses import parse_address

if TYPE_CHECKING:
    from iris_py.api.node import Node
    from iris_py.doors.nats.settings import NatsLimits
    from iris_py.doors.settings import DoorSettings
    from iris_py.net.acceptor import AcceptedSocket

__all__ = ["NatsDoor", "open_nats_door"]

logger = EventLogger("iris_py.servers")

#: Time over which a closing door ends its clients (seconds). Too small: all clients come to the next door at once; too large:
#: a restart takes long.
DRAIN_S: Final = 10.0
#: The longest time between two ends of clients (seconds). Too small: some clients come at once to the next door; too large: a
#: door with few clients takes long to end.
INTERVAL_S: Final = 0.1
#: Part of this time in which clients learn of the other doors before the first one ends.
NOTICE_SHARE: Final = 1 / 10
#: The longest wait of a starting door for the subscriptions of the network (seconds). Too small: the first request waits; too
#: large: a door starts late in a network without a root.
KNOWN_S: Final = 2.0
#: Time between two looks at the other doors (seconds). Too small: work of idle doors; too large: clients learn late of a door.
LOOK_S: Final = 1.0
#: Share of the connections for clients before valid credentials; `connections_per_address` of them in any case. Too small: of a
#: crowd that comes back together some have to try again; too large: strangers from many addresses take the places of clients.
STRANGERS_SHARE: Final = 1 / 4
#: The reason for which a connection of another user of the machine is refused.
FOREIGN_USER: Final = "user"
_SERVER_ID_BYTES: Final = 34
_FIXED: Final = (
    "listen",
    "behind_proxy",
    "certificate_file",
    "key_file",
    "client_ca_file",
    "tls_first",
    "server_name",
    "tokens",
)


class NatsDoor(AsyncClosable):
    """A door for NATS clients, with a listener of its own.

    Args:
        node: The node. It stays open when the door closes.
        settings: The settings.

    Raises:
        ConfigurationError: A file of the certificate is missing or wrong, or the package for tokens is missing.

    Attributes:
        node: As passed.
    """

    def __init__(self, node: Node, settings: DoorSettings) -> None:
        self.node = node
        self._settings = settings
        nats = settings.nats
        limits = nats.limits
        host, port = parse_address(nats.listen)
        info = ServerInfo(
            server_id="N" + b32encode(secrets.token_bytes(_SERVER_ID_BYTES)).decode().rstrip("="),
            server_name=nats.server_name,
            version=VERSION,
            proto=PROTOCOL,
            go="",
            host=host,
            port=port,
            headers=True,
            tls_required=bool(nats.certificate_file),
            tls_verify=bool(nats.client_ca_file),
            max_payload=limits.payload_bytes,
            client_id=0,
            client_ip="",
        )
        certificate = None
        if nats.certificate_file:
            certificate = Certificate(
                nats.certificate_file, nats.key_file, protocol_names=(), client_ca_file=nats.client_ca_file
            )
        self._descriptors = descriptors_for(limits.connections)
        counts = ConnectionCounts(0, 0, nats.behind_proxy)
        self._limit_connections(counts, limits)
        revocations = RevocationTable()
        self._tokens = ClientTokens(node, settings.roles, revocations) if nats.tokens else None
        self._clients = NatsClients(info, UserDirectory(settings.users, nats.no_user, self._tokens), limits)
        self._inboxes = InboxCluster(node, self._clients.routes)
        turns = InputTurns()
        self._patterns = NodePatterns(node, self._clients.routes, ClientClusters(node, self._clients.routes), turns)
        self._requests = NativeRequests(node, self._clients.routes)
        self._execution = CommandExecution(node, self._patterns, self._inboxes, self._requests)
        self._connections = AcceptedConnections(counts, (FOREIGN_USER, *END_REASONS))
        self._parts = DoorParts(
            self._clients,
            self._patterns,
            self._execution,
            turns,
            self._requests,
            self._connections,
            certificate,
            nats.tls_first,
        )
        self._acceptor = Acceptor(self._accept)
        reporter = NatsReporter(self._clients, lambda: self.statistics, END_REASONS)
        file = None
        if self._tokens is not None and not runtime_of(node).is_simulated:
            file = RevocationsFile(runtime_of(node).config.state_directory, lambda: runtime_of(node).keyring)
        self._cluster = DoorCluster(node, "nats", nats.advertise, revocations, self._review_tokens, file, reporter)
        self._told: tuple[str, ...] = ()
        self._task: asyncio.Task[None] | None = None

    @property
    def settings(self) -> DoorSettings:
        """The settings."""
        return self._settings

    @property
    def address(self) -> str:
        """The listening address, ``host:port``."""
        return self._acceptor.address

    @property
    def url(self) -> str:
        """The address for clients."""
        nats = self._settings.nats
        return f"{'tls' if nats.certificate_file else 'nats'}://{nats.advertise or self.address}"

    @property
    def statistics(self) -> DoorStatistics:
        """The counts of the door."""
        figures, routes = self._connections.figures, self._clients.routes
        losses = {
            "missed": self._patterns.missed,
            "unspeakable": self._patterns.unspeakable,
            "reply": self._inboxes.replies["lost"],
        }
        return DoorStatistics(
            kind="nats",
            connections=figures.open,
            connections_refused=figures.refused,
            patterns=routes.patterns,
            subscriptions=self._patterns.count,
            received_messages=self._patterns.received,
            client_messages={"in": routes.messages_in, "out": routes.messages_out},
            client_bytes={"in": routes.bytes_in, "out": routes.bytes_out},
            client_subscriptions=routes.count,
            waiting_bytes=self._clients.waiting_bytes,
            dropped_messages=sum(losses.values()),
            losses=losses,
            native_requests=dict(self._requests.outcomes),
            replies=dict(self._inboxes.replies),
        )

    @property
    def collector(self) -> DoorCollector:
        """The metrics of the door, for a registry of `prometheus_client`; those of the node have a collector of their own."""
        return DoorCollector(lambda: self.statistics)

    def reasons(self) -> list[str]:
        """Return why the door is not ready for clients, as sentences without full stop; empty if it is."""
        return [] if self.address and self._task is not None else ["the door does not listen: it starts, or ends"]

    async def begin(self) -> None:
        """Find the other doors, and listen.

        Raises:
            ConfigurationError: The door cannot listen.
        """
        await self._cluster.join()
        await self._inboxes.join()
        with suppress(TimeoutError):
            async with asyncio.timeout(KNOWN_S):
                await parts_of(self.node).topics.wait_until_known()
        await listen_at(self._acceptor, self._settings.nats.listen)
        host, port = parse_address(self.address)
        self._clients.change_address(host, port)
        self._cluster.change_address(self._settings.nats.advertise or self.address)
        self._tell_doors()
        await self._cluster.announce()
        self._task = asyncio.get_running_loop().create_task(self._look_on())

    def check_change(self, settings: DoorSettings) -> None:
        """Check new settings against the running door.

        Raises:
            ConfigurationError: The change takes a restart, or would open the door to strangers.
        """
        old, new = self._settings.nats, settings.nats
        for name in _FIXED:
            if getattr(new, name) != getattr(old, name):
                raise ConfigurationError(
                    f"{name} changes only with a restart of the door. Restart it, or take the change back."
                )
        check_nats_exposure(settings)

    def apply(self, settings: DoorSettings) -> None:
        """Use other users, rights and limits from now on. Clients without a user, and subscriptions without a right, end.

        Raises:
            ConfigurationError: The change takes a restart, or the certificate is wrong; the old settings stay.
        """
        self.check_change(settings)
        if self._parts.certificate is not None:
            self._parts.certificate.reload()
        self._settings = settings
        limits = settings.nats.limits
        self._limit_connections(self._connections.counts, limits)
        self._clients.change_limits(limits)
        if self._tokens is not None:
            self._tokens.replace_roles(settings.roles)
        self._clients.change_users(UserDirectory(settings.users, settings.nats.no_user, self._tokens))
        self._patterns.follow()

    async def reload_keys(self) -> None:
        """Read the secrets of the node again, as :meth:`iris_py.Node.reload_keys` does.

        Raises:
            ConfigurationError: The secrets are wrong; the old ones stay.
        """
        await self.node.reload_keys()

    async def close(self, *, timeout: float = DRAIN_S) -> None:
        """Send the clients to other doors, one after the other, and end. Harmless if repeated.

        Args:
            timeout: Seconds until the last client has ended.
        """
        self._acceptor.close()
        if self._task is not None:
            self._task.cancel()
            self._task = None
        try:
            await self._cluster.announce(is_draining=True)
            self._clients.announce(self._others(), is_closing=True)
            await self._end_clients(timeout)
        finally:
            for session in list(self._clients.sessions):
                session.finish(SessionEnd.CLOSING)
            self._connections.cancel_handshakes()
            self._execution.close()
            await self._patterns.close()
            await self._inboxes.leave()
            await self._cluster.leave()

    _end = close

    # --

    def _limit_connections(self, counts: ConnectionCounts, limits: NatsLimits) -> None:
        count, per_address = min(limits.connections, self._descriptors), limits.connections_per_address
        counts.connections_max, counts.per_address_max = count, per_address
        counts.strangers_max = max(int(count * STRANGERS_SHARE), min(count, per_address))

    def _accept(self, accepted: AcceptedSocket, address: str) -> None:
        if self._clients.users.is_open and peer_user(accepted) != os.getuid():
            self._connections.count_refusal(FOREIGN_USER)
            accepted.close()
            return
        loop = asyncio.get_running_loop()
        self._connections.accept(
            accepted,
            address,
            lambda place: loop.connect_accepted_socket(lambda: NatsConnection(self._parts, place, address), accepted),
        )

    def _others(self) -> tuple[str, ...]:
        return self._cluster.doors.addresses("nats")

    def _tell_doors(self) -> None:
        """Tell clients the addresses of all doors, the own one first, if these have changed."""
        others = self._others()
        addresses = (self._settings.nats.advertise or self.address, *others) if others else ()
        if addresses != self._told:
            self._told = addresses
            self._clients.announce(addresses)

    def _review_tokens(self) -> None:
        """End the clients with ended or revoked tokens."""
        if self._tokens is not None:
            self._clients.review_grants()
            self._patterns.follow()

    async def _look_on(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            self._tell_doors()
            self._review_tokens()

    async def _end_clients(self, timeout: float) -> None:
        loop = asyncio.get_running_loop()
        sessions = list(self._clients.sessions)
        if not sessions:
            return
        begin = loop.time() + timeout * NOTICE_SHARE
        interval = min(INTERVAL_S, timeout * (1 - 2 * NOTICE_SHARE) / len(sessions))
        ends: list[asyncio.Task[None]] = []
        for number, session in enumerate(sessions):
            await asyncio.sleep(max(0.0, begin + number * interval - loop.time()))
            ends.append(loop.create_task(self._patterns.end_client(session)))
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout * NOTICE_SHARE):
                await asyncio.gather(*ends)
                await self._connections.wait_until_empty()


def open_nats_door(node: Node, settings: DoorSettings) -> Opening[NatsDoor]:
    """Open a door over a node. Use with ``await`` or ``async with``.

    Args:
        node: The node. It stays open when the door closes.
        settings: The settings.

    Raises:
        ConfigurationError: The door cannot listen, or would be open to strangers.
    """
    check_nats_exposure(settings)
    return Opening(_open_nats(NatsDoor(node, settings)))


async def _open_nats(door: NatsDoor) -> NatsDoor:
    try:
        await door.begin()
    except BaseException:
        await door.close(timeout=0.0)
        raise
    return door
