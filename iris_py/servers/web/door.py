"""A web door: a node, the application for clients, and the listener."""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import TYPE_CHECKING, Final

from iris_py.api.awaitable_context import AsyncClosable, Opening
from iris_py.api.runtime import runtime_of
from iris_py.doors.grant_uses import GrantUseTable
from iris_py.doors.revocations import RevocationTable
from iris_py.doors.rights import Rights
from iris_py.errors import ConfigurationError
from iris_py.servers.door_cluster import DoorCluster
from iris_py.servers.door_reporter import WebReporter
from iris_py.servers.metrics import DoorCollector
from iris_py.servers.revocations_file import RevocationsFile
from iris_py.servers.settings_file import check_exposure
from iris_py.servers.tokens import LIFETIME_S_MAX, TOKEN_ID_BYTES, TokenVerifier, make_token
from iris_py.servers.web.app import WebApp
from iris_py.servers.web.listener import WebListener
from iris_py.servers.web.topic_streams import TopicStreams

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from iris_py.api.node import Node
    from iris_py.doors.counts import DoorStatistics
    from iris_py.doors.door_messages import DoorAnnouncement
    from iris_py.doors.rights import Grant
    from iris_py.doors.settings import DoorSettings
    from iris_py.servers.accepted import ConnectionFigures

__all__ = ["MountedDoor", "WebDoor", "mount_door", "open_door"]

#: Time that requests under way have at the end of a door (seconds). Too small: requests fail that members execute; too large:
#: a service manager ends the process first.
DRAIN_S: Final = 20.0
#: Time over which a closing door ends its event streams (seconds). Too small: all clients come to the next door at once; too
#: large: a restart takes long.
SPREAD_S: Final = 10.0
#: The subject and the rights of browsers that have signed in to the dashboard with a one-time code.
DASHBOARD: Final = "dashboard"
OBSERVER: Final = Rights(observe=True)
#: The lifetime of a token for a user of a web application (seconds). Too small: pages fetch tokens often; too large: a user
#: whom the application has locked out stays in.
LIFETIME_S_DEFAULT: Final = 900.0
_FIXED: Final = ("listen", "behind_proxy", "certificate_file", "key_file")


class MountedDoor(AsyncClosable):
    """The application of a door inside another web server.

    Args:
        node: The node. It stays open when the door closes.
        settings: The settings; address, certificate and connections are the other server's.

    Attributes:
        node: As passed.
    """

    def __init__(self, node: Node, settings: DoorSettings) -> None:
        self.node = node
        self._settings = settings
        revocations = RevocationTable()
        self._verifier = TokenVerifier(lambda: runtime_of(node).keyring, settings.roles, revocations)
        self._uses = GrantUseTable(lambda grant: self._verifier.renew(grant, time.time()))
        file = None
        if not runtime_of(node).is_simulated:
            file = RevocationsFile(runtime_of(node).config.state_directory, lambda: runtime_of(node).keyring)
        self._streams = TopicStreams(node, settings, runtime_of(node).keyring.primary.door_key, uses=self._uses)
        self._cluster = DoorCluster(
            node,
            "web",
            settings.web.public_url,
            revocations,
            lambda: self._uses.end_revoked(revocations.includes),
            file,
            WebReporter(self._streams, lambda: self.statistics),
        )
        self._app = WebApp(
            node, settings, self._streams, self._verify, self._connection_figures, self._uses, lambda: self._cluster.counts
        )

    @property
    def app(self) -> ASGIApp:
        """The ASGI application, to mount below a path."""
        return self._app

    @property
    def settings(self) -> DoorSettings:
        """The settings."""
        return self._settings

    @property
    def statistics(self) -> DoorStatistics:
        """The counts of the door."""
        return self._app.statistics

    @property
    def collector(self) -> DoorCollector:
        """The metrics of the door, for a registry of `prometheus_client`; those of the node have a collector of their own."""
        return DoorCollector(lambda: self.statistics)

    def reasons(self) -> list[str]:
        """Return why the door is not ready for clients, as sentences without full stop; empty if it is."""
        return [] if self._streams.is_open else ["the door opens no event stream: it starts, ends, or has lost a history"]

    def check_change(self, settings: DoorSettings) -> None:
        """Check new settings against the running door.

        Raises:
            ConfigurationError: The change takes a restart.
        """
        self._streams.check_change(settings)

    def apply(self, settings: DoorSettings) -> None:
        """Use other settings from now on: roles, origins, limits and bounds of histories.

        Event streams and operations under way end if their role or right is gone.

        Raises:
            ConfigurationError: The change takes a restart; the old settings stay.
        """
        self._streams.apply(settings)
        self._settings = settings
        self._verifier.replace_roles(settings.roles)
        self._app.apply(settings)
        self._uses.review()

    @property
    def others(self) -> tuple[DoorAnnouncement, ...]:
        """The other doors of the network for clients over HTTP, without closing doors."""
        return self._cluster.doors.of_kind("web")

    async def begin(self) -> None:
        """Start the event streams, and the node of the histories if there are any; then find the other doors.

        Raises:
            ConfigurationError: The node of the histories cannot start.
        """
        await self._streams.__aenter__()
        await self._cluster.join()

    async def reload_keys(self) -> None:
        """Read the secrets of the node again, as :meth:`iris_py.Node.reload_keys` does.

        Raises:
            ConfigurationError: The secrets are wrong; the old ones stay.
        """
        await self.node.reload_keys()
        if (history_node := self._streams.history_node) is not None:
            await history_node.reload_keys()
        self._uses.review()

    def make_code(self, subject: str = DASHBOARD, rights: Rights = OBSERVER) -> str:
        """Return a one-time code, by which a browser signs in within 10 minutes.

        Args:
            subject: The name of the client.
            rights: The rights of the client; those of the dashboard by default.

        Raises:
            ConfigurationError: The subject or a rule is invalid.
        """
        token = self.make_token(subject, rights=rights, lifetime_s=LIFETIME_S_MAX)
        return self._app.sessions.codes.make(token, asyncio.get_running_loop().time())

    def make_token(
        self, subject: str, *, role: str = "", rights: Rights | None = None, lifetime_s: float = LIFETIME_S_DEFAULT
    ) -> str:
        """Return a token for a client, as a web application does for its users after their login.

        Args:
            subject: The name of the client, which stands for ``{sub}`` in rules.
            role: A role of the settings; empty for none.
            rights: Rules, as a role has them; None for none. With a role too, both have to allow an operation.
            lifetime_s: The time until the end of the token, in seconds; at most a day.

        Raises:
            ConfigurationError: An argument is invalid, or there is neither a role nor a rule.
        """
        return make_token(
            runtime_of(self.node).keyring.primary,
            subject=subject,
            lifetime_s=lifetime_s,
            role=role,
            rights=rights,
            now=time.time(),
            token_id=secrets.token_hex(TOKEN_ID_BYTES),
        )

    def _connection_figures(self) -> ConnectionFigures | None:
        """Return the figures of the connections; None because another server has them."""
        return None

    def _verify(self, token: str) -> Grant:
        return self._verifier.verify(token, time.time())

    async def close(self, *, timeout: float = DRAIN_S) -> None:
        """Refuse further operations, and end the event streams one after the other. Harmless if repeated.

        Args:
            timeout: Seconds until the last event stream has ended; half of them spread the reconnects of clients.
        """
        self._app.drain()
        try:
            await self._cluster.announce(is_draining=True)
            await self._streams.drain(min(SPREAD_S, timeout / 2))
        finally:
            await self._streams.close()
            await self._cluster.leave()

    _end = close


class WebDoor(MountedDoor):
    """A door with a listener of its own."""

    def __init__(self, node: Node, settings: DoorSettings) -> None:
        super().__init__(node, settings)
        self._listener = WebListener(self._app, settings.web)

    def _connection_figures(self) -> ConnectionFigures | None:
        return self._listener.figures

    @property
    def address(self) -> str:
        """The listening address, ``host:port``."""
        return self._listener.address

    @property
    def url(self) -> str:
        """The address for clients."""
        web = self._settings.web
        return web.public_url or f"{'https' if web.certificate_file else 'http'}://{self.address}"

    async def listen(self) -> None:
        """Listen at the address of the settings.

        Raises:
            ConfigurationError: The address or the certificate cannot be used.
        """
        await self._listener.listen()
        self._cluster.change_address(self.url)
        await self._cluster.announce()

    def check_change(self, settings: DoorSettings) -> None:
        """Check new settings against the running door.

        Raises:
            ConfigurationError: The change takes a restart, or would open the door to strangers.
        """
        old, new = self._settings.web, settings.web
        for name in _FIXED:
            if getattr(new, name) != getattr(old, name):
                raise ConfigurationError(
                    f"{name} changes only with a restart of the door. Restart it, or take the change back."
                )
        check_exposure(settings)
        super().check_change(settings)

    def apply(self, settings: DoorSettings) -> None:
        """Use other settings from now on.

        Raises:
            ConfigurationError: The change takes a restart, or the certificate is wrong; the old settings stay.
        """
        self.check_change(settings)
        self._listener.reload_certificate()
        super().apply(settings)
        self._listener.apply(settings.web.limits)
        self._cluster.change_address(self.url)

    async def close(self, *, timeout: float = DRAIN_S) -> None:
        """Stop listening, and end when the requests under way have ended. Harmless if repeated.

        Args:
            timeout: Seconds after which requests under way are aborted.
        """
        try:
            await super().close(timeout=timeout)
        finally:
            await self._listener.close(timeout)

    _end = close


def open_door(node: Node, settings: DoorSettings) -> Opening[WebDoor]:
    """Open a door over a node, with a listener. Use with ``await`` or ``async with``.

    Args:
        node: The node. It stays open when the door closes.
        settings: The settings.

    Raises:
        ConfigurationError: The door cannot listen, or would be open to strangers.
    """
    check_exposure(settings)
    return Opening(_open(WebDoor(node, settings)))


async def _open(door: WebDoor) -> WebDoor:
    try:
        await door.begin()
        await door.listen()
    except BaseException:
        await door.close(timeout=0.0)
        raise
    return door


def mount_door(node: Node, settings: DoorSettings) -> Opening[MountedDoor]:
    """Open a door over a node, inside another web server. Use with ``await`` or ``async with``."""

    return Opening(_mount(MountedDoor(node, settings)))


async def _mount(door: MountedDoor) -> MountedDoor:
    try:
        await door.begin()
    except BaseException:
        await door.close(timeout=0.0)
        raise
    return door
