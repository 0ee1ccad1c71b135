"""The clients of one NATS door: their sessions, and the bounds of all sessions together."""

from __future__ import annotations

from collections import Counter
from operator import attrgetter
from typing import TYPE_CHECKING

import msgspec

from iris_py.doors.nats.routes import Routes
from iris_py.doors.nats.session import NatsSession, SessionEnd

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_py.doors.nats.encoder import ServerInfo
    from iris_py.doors.nats.settings import NatsLimits
    from iris_py.doors.nats.users import NatsUser, UserDirectory

__all__ = ["NatsClients"]


class NatsClients:
    """The clients of one door.

    Args:
        info: The object of ``INFO``, without the parts of one client.
        users: The users.
        limits: The limits.

    Attributes:
        limits: As passed.
        routes: The subscriptions of all clients.
        sessions: The open sessions.
        users: As passed.
        waiting_bytes: Bytes that clients have not taken.
    """

    def __init__(self, info: ServerInfo, users: UserDirectory, limits: NatsLimits) -> None:
        self.users = users
        self.limits = limits
        self.routes = Routes(limits.subscriptions, limits.patterns)
        self.sessions: dict[NatsSession, None] = {}
        self.waiting_bytes = 0
        self._info = info
        self._last_id = 0
        self._by_user: Counter[str] = Counter()

    def open(self, address: str, nonce: str, now: float, wake: Callable[[], None]) -> NatsSession:
        """Return the session of a new client.

        Args:
            address: The address of the client.
            nonce: Random text that clients with nkeys sign.
            now: The time (seconds).
            wake: Called when the session has output, or has ended.
        """
        self._last_id += 1
        info = msgspec.structs.replace(
            self._info,
            client_id=self._last_id,
            client_ip=address,
            nonce=nonce,  # an nkey may be added later, and clients without one ignore it
            auth_required=not self.users.is_open,
        )
        session = NatsSession(self, info, now, wake)
        self.sessions[session] = None
        return session

    def close(self, session: NatsSession) -> None:
        """Forget a session after its connection has ended. Harmless if repeated."""
        if session not in self.sessions:
            return
        del self.sessions[session]
        session.finish(SessionEnd.GONE)
        if session.user is not None:
            self._release(session.user)

    def announce(self, connect_urls: tuple[str, ...], *, is_closing: bool = False) -> None:
        """Tell all clients, and later ones, about the doors.

        Args:
            connect_urls: The addresses of all doors.
            is_closing: Whether this door is closing.
        """
        self._info = msgspec.structs.replace(self._info, connect_urls=connect_urls, ldm=is_closing)
        for session in list(self.sessions):
            session.announce(connect_urls, is_closing=is_closing)

    def change_address(self, host: str, port: int) -> None:
        """Tell later clients another address of the door."""
        self._info = msgspec.structs.replace(self._info, host=host, port=port)

    def change_limits(self, limits: NatsLimits) -> None:
        """Use other limits from now on. The size of messages changes for later clients."""
        self.limits = limits
        self.routes.change_limits(limits.subscriptions, limits.patterns)
        self._info = msgspec.structs.replace(self._info, max_payload=limits.payload_bytes)

    def change_users(self, users: UserDirectory) -> None:
        """Use other users. Clients of removed users end, and subscriptions without a right end."""
        self.users = users
        for session in list(self.sessions):
            if session.user is not None:
                session.change_user(users.renew(session.user))

    def review_grants(self) -> None:
        """End the clients with ended or revoked tokens, and give other tokens their present rights."""
        for session in list(self.sessions):
            user = session.user
            if user is not None and user.grant is not None and (renewed := self.users.renew(user)) is not user:
                session.change_user(renewed)

    # -- for sessions

    def admit(self, user: NatsUser, earlier: NatsUser | None) -> bool:
        """Count a connection of a user in place of the earlier user; False beyond the limit."""
        if self._by_user[user.name] >= self.limits.connections_per_user:
            return False
        if earlier is not None:
            self._release(earlier)
        self._by_user[user.name] += 1
        return True

    def note_waiting(self, count: int) -> None:
        """Note that more or fewer bytes wait for sessions. Beyond the limit, the session with most waiting bytes ends."""
        self.waiting_bytes += count
        if count > 0 and self.sessions and self.waiting_bytes > self.limits.waiting_bytes_total:
            max(self.sessions, key=attrgetter("waiting_bytes")).finish(SessionEnd.SLOW)

    # --

    def _release(self, user: NatsUser) -> None:
        self._by_user[user.name] -= 1
        if not self._by_user[user.name]:
            del self._by_user[user.name]
