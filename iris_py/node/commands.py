"""The commands that an application gives a node: request, survey, broadcast, join, publish, subscribe."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from iris_py.errors import ConfigurationError
from iris_py.patterns.request.repetitions import identity_of_key, identity_of_request
from iris_py.peers.member import membership_attributes
from iris_py.wire import packets
from iris_py.wire.headers import NO_HEADERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_overlay.ids import GroupId
    from iris_overlay.messages import NodeInfo
    from iris_overlay.overlay import Overlay
    from iris_py.patterns.request.many import ManyRequester
    from iris_py.patterns.request.registration import Registration
    from iris_py.patterns.request.service import Service
    from iris_py.patterns.survey import Surveyor
    from iris_py.patterns.topic.pubsub import PubSub
    from iris_py.patterns.topic.queue import SubscriptionQueue
    from iris_py.patterns.tunnel.table import Tunnels
    from iris_py.peers.group import Group
    from iris_py.peers.groups import Groups
    from iris_py.peers.member import Placement
    from iris_py.peers.outbound import Outbound
    from iris_py.peers.peer import Peer
    from iris_py.wire.headers import Headers


class Commands(ABC):
    """The part of :class:`~iris_py.node.core.NodeCore` that takes commands; it has the parts that they need."""

    info: NodeInfo
    overlay: Overlay
    requester: ManyRequester
    surveyor: Surveyor
    service: Service
    pubsub: PubSub
    tunnels: Tunnels
    groups: Groups
    max_message_bytes: int
    _local: Peer
    _outbound: Outbound
    _rare_deadline_changed: bool

    def group(self, cluster: str, now: float) -> Group:
        """Return what is known of a cluster; its view is watched from now on.

        Raises:
            ValueError: The name is empty or too long.
            overlay.OverlayError: More groups are in use than the overlay watches.
        """
        group = self.groups.find(cluster)
        if group is None:
            if self.groups.is_full:
                self._forget_idle_group(now)
            group = self.groups.make(cluster)
            self.overlay.watch_group(group.id, now)
            self.groups.add(group)
            self._advance(now)
        group.last_used = now
        return group

    def request(
        self,
        cluster: str,
        payload: bytes,
        timeout_s: float,
        idempotent: bool,
        token: object,
        now: float,
        key: str | bytes | None = None,
        placement: Placement | None = None,
        headers: Headers = NO_HEADERS,
        *,
        waits: bool = True,
        retries_failed: bool = False,
    ) -> int:
        """Start a request; see :class:`~iris_py.patterns.request.requester.Requester`.

        Raises:
            MessageTooLarge: The payload is over ``max_message_bytes``.
            ValueError: The name is empty or too long, or the key empty.
            TypeError: The key is neither text nor bytes.
        """
        identity = b""
        if key is not None:
            identity = identity_of_key(cluster, key)
        elif idempotent:
            identity = identity_of_request(self.info.id, self.requester.sent)
        group = self._group_to_ask(cluster, payload, now)
        is_anchored = key is not None
        return self.requester.request(
            group,
            payload,
            timeout_s,
            idempotent,
            token,
            now,
            identity,
            placement,
            headers,
            is_anchored=is_anchored,
            waits=waits,
            retries_failed=retries_failed,
        )

    def request_many(
        self, cluster: str, asked: Sequence[tuple[object, str | bytes, bytes]], timeout_s: float, now: float
    ) -> range:
        """Start idempotent requests with keys; see :class:`~iris_py.patterns.request.many.ManyRequester`.

        Raises:
            MessageTooLarge: A payload is over ``max_message_bytes``. None is started then, as with the errors below.
            ValueError: The name is empty or too long, or a key empty.
            TypeError: A key is neither text nor bytes.
        """
        limit = self.max_message_bytes
        for _token, _key, payload in asked:
            if len(payload) > limit:
                packets.check_size(payload, limit)
        return self.requester.request_many(self._group_to_ask(cluster, b"", now), asked, timeout_s, now)

    def survey(
        self,
        cluster: str,
        payload: bytes,
        timeout_s: float,
        stop_after: int | None,
        token: object,
        now: float,
        headers: Headers = NO_HEADERS,
    ) -> int:
        """Start a survey; see :class:`~iris_py.patterns.survey.Surveyor`. Raises as :meth:`request` does."""
        self._rare_deadline_changed = True
        group = self._group_to_ask(cluster, payload, now)
        return self.surveyor.survey(group, payload, timeout_s, stop_after, token, now, headers)

    def open_tunnel(
        self,
        cluster: str,
        timeout_s: float,
        window_bytes: int,
        token: object,
        now: float,
        headers: Headers = NO_HEADERS,
        *,
        waits: bool = True,
    ) -> int:
        """Ask for a tunnel; ``TunnelOpened`` or an outcome with ``token`` follows. Returns its id, to cancel it by.

        Raises:
            ValueError: The name is empty or too long.
        """
        group = self._group_to_ask(cluster, b"", now)
        offer = self.tunnels.offer(group, window_bytes, headers)
        return self.requester.open_tunnel(group, offer, timeout_s, token, now, waits=waits)

    def _group_to_ask(self, cluster: str, payload: bytes, now: float) -> Group:
        packets.check_size(payload, self.max_message_bytes)
        group = self.group(cluster, now)
        if not group.is_watched:
            self.overlay.use_group(group.id, now)
            self._advance(now)
        return group

    def broadcast(self, cluster: str, payload: bytes, now: float, headers: Headers = NO_HEADERS) -> int | None:
        """Send a message to every member; returns how many that is. Sealed once, however many they are.

        A few members get it from this node, those of a large group down the tree of the group. Returns None, and sends
        nothing, while there is no room on the way to one of them or the view is not yet known: after :class:`RoomMade` or
        :class:`ViewKnown` it may go.

        Raises:
            MessageTooLarge: The payload is over ``max_message_bytes``.
            ValueError: The name is empty or too long.
        """
        packets.check_size(payload, self.max_message_bytes)
        group = self.group(cluster, now)
        members = group.members
        if members is None:
            return None
        is_cast = group.is_cast(now)
        if self._outbound.is_control_full() if is_cast else any(member.peer.is_congested for member in members):
            return None
        count = group.size if is_cast else len(members)
        if not count:
            return 0
        group.sequence += 1
        if self.service.serves(group):
            self.service.receive_broadcast(group, self._local, group.sequence, payload, headers)
        if count > 1 or not members or members[0].peer is not self._local:
            head = headers.encoded
            start = packets.MESSAGE.pack(packets.BROADCAST, 0, len(head), len(payload), group.sequence, 0) + head
            self._outbound.add_broadcast(group, start, payload, now)
        return count

    def join(self, registration: Registration, now: float) -> bool:
        """Take part in a cluster; returns whether ``GroupJoined`` will follow (not for a further registration of the same).

        Raises:
            overlay.OverlayError: Too many groups, or the node is leaving.
            ConfigurationError: The node takes part already, with another weight.
        """
        # Since the registration was made, its group may have been forgotten.
        registration.group = group = self.group(registration.group.name, now)
        weight = self.service.weight_of(group)
        if weight is None:
            self.overlay.join_group(group.id, membership_attributes(group.keys, self.info.id, registration.weight), now)
        elif weight != registration.weight:
            raise ConfigurationError(
                f"this node takes part in {group.name!r} with weight={weight:g} already, and has one weight in a cluster. "
                "Use the same for all its handlers."
            )
        is_first = self.service.register(registration)
        self._advance(now)
        return is_first

    def leave(self, registration: Registration, now: float) -> bool:
        """Begin to leave; returns whether ``GroupLeft`` will follow, before which requests are still served."""
        if not self.service.leave(registration):
            return False
        self.overlay.leave_group(registration.group.id, now)
        self._advance(now)
        return True

    def close_registration(self, registration: Registration, now: float) -> None:
        """Stop serving after :meth:`leave`; ``RegistrationDrained`` follows.

        What runs is finished. Requests that wait go back to their callers, who ask another member; if there is none, they are
        executed here, for a leave fails no request.
        """
        others = any(not member.peer.is_local for member in registration.group.members or ())
        self.service.close(registration, now, hands_back=others or self.service.is_member(registration.group))

    def publish(self, topic: str, payload: bytes, now: float, headers: Headers = NO_HEADERS) -> int | None:
        """Send to every subscriber of a topic; see :meth:`~iris_py.patterns.topic.publisher.Publisher.publish`."""
        count = self.pubsub.publisher.publish(topic, payload, now, headers)
        if count is None:
            self._advance(now)  # the views may have to be asked for
        return count

    def subscribe(self, queue: SubscriptionQueue, now: float) -> bool:
        """Begin a subscription; see :meth:`~iris_py.patterns.topic.pubsub.PubSub.subscribe`."""
        is_told_later = self.pubsub.subscribe(queue, now)
        self._advance(now)
        return is_told_later

    def unsubscribe(self, queue: SubscriptionQueue, now: float) -> list[GroupId]:
        """End a subscription; returns the groups for which ``GroupLeft`` will follow."""
        left = self.pubsub.unsubscribe(queue, now)
        self._advance(now)
        return left

    # --

    def _forget_idle_group(self, now: float) -> None:
        pending = self.requester.groups_pending() | self.surveyor.groups_pending()
        pending |= self.pubsub.groups_joined() | self.tunnels.groups()
        oldest = self.groups.oldest(lambda group: not self.service.serves(group) and group not in pending)
        if oldest is not None:
            self._outbound.seal_all_broadcasts(now)  # publications to others may have their numbers in it, too
            self.groups.forget(oldest)
            self.pubsub.forget(oldest)
            self.overlay.unwatch_group(oldest.id, now)

    @abstractmethod
    def _advance(self, now: float) -> None:
        """Carry what the overlay has to say."""
