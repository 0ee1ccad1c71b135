"""Requests with keys, many at once: what is the same for all of them is worked out once (docs/design.md section 6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_py.patterns.request.pending import Pending, Ticket, Together
from iris_py.patterns.request.repetitions import hash_of_keys, identity_of_key
from iris_py.patterns.request.requester import TIMEOUT_S_MAX, Requester
from iris_py.peers.keyed import slot_of
from iris_py.peers.message import PeerMessage
from iris_py.wire import packets
from iris_py.wire.headers import NO_HEADERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py.peers.group import Group
    from iris_py.peers.peer import Peer


class ManyRequester(Requester):
    """The requests of one node, with a way to begin many of them. A keyed request costs half as much here as one by one."""

    def request_many(
        self, group: Group, asked: Sequence[tuple[object, str | bytes, bytes]], timeout_s: float, now: float
    ) -> range:
        """Start idempotent requests, as :meth:`request` does with identities of keys that also choose the member.

        Args:
            group: Whom to ask.
            asked: The token, the key and the payload of each.
            timeout_s: How long to wait for each answer.
            now: The time.

        Returns:
            Their ids, for :meth:`cancel`.

        Raises:
            ValueError: A key is empty or cannot be said in UTF-8. Then none is started.
            TypeError: A key is neither text nor bytes. Then none is started.
        """
        if not asked:
            return range(0)
        name, beginning = group.name, hash_of_keys(group.name)
        identities = []
        for _token, key, _payload in asked:
            if type(key) is str and key:
                hashed = beginning.copy()
                hashed.update(key.encode())
                identities.append(hashed.digest())
            else:
                identities.append(identity_of_key(name, key))
        deadline = now + min(timeout_s, TIMEOUT_S_MAX)
        if deadline < self._earliest:
            self.has_new_deadline = True
        time_left = packets.encode_time_left(deadline - now)
        ids = range(self._last_id + 1, self._last_id + 1 + len(asked))
        self._last_id += len(ids)
        self.sent += len(ids)
        together = Together(ids, len(ids))
        self._deadlines.set(together, deadline)
        kind, pending_by_id, out, who_has = packets.REQUEST_ONCE, self._pending, self.out, group.keyed.usual
        is_sent = False
        is_full = bool(self._rooms) and (group, None, False) in self._rooms
        for request_id, identity, (token, _key, payload) in zip(ids, identities, asked, strict=True):
            content = identity + payload
            pending = Pending(token, group, kind, content, timeout_s, deadline, True, None, NO_HEADERS, identity, together)
            pending.waits = True
            pending_by_id[request_id] = pending
            if is_full:
                self._enter_room(request_id, pending, now)  # behind those that came before
                continue
            member = who_has.get(slot_of(identity))  # after the first request of a slot
            if member is None or (peer := member.peer).is_full or peer.link is None or peer.link.congested:
                self._dispatch(request_id, pending, now)
                continue
            is_sent = True
            pending.attempts = 1
            pending.member = member
            pending.sent_at = now
            member.in_flight += 1
            peer.awaited += 1
            out.append(PeerMessage(group, peer, kind, request_id, time_left, content))
        if is_sent and len(group.members or ()) > 1:
            self._hedge_at(now + group.hedging.delay_s(timeout_s), ids.start, ids.stop)
        return ids

    def receive_replies(self, peer: Peer, replies: Sequence[tuple[int, bytes]], now: float) -> None:
        """A member answered several, as :meth:`receive_reply`: (id, payload) of each."""
        pending_by_id, outcomes, forget_deadline = self._pending, self.outcomes, self._forget_deadline
        for request_id, payload in replies:
            pending = pending_by_id.get(request_id)
            member = None if pending is None else pending.member
            if pending is None or member is None or member.peer is not peer or pending.is_routed or pending.also:
                self.receive_reply(peer, request_id, payload, now)
                continue
            del pending_by_id[request_id]
            forget_deadline(request_id, pending.together)
            member.in_flight -= 1
            peer.awaited -= 1
            duration_s = now - pending.sent_at
            member.observe(duration_s)
            pending.group.hedging.observe(duration_s)
            self.replied += 1
            if type(pending.token) is Ticket:
                pending.token.member = peer.id
            outcomes.append((pending.token, payload))
            if self._rooms:
                self._place_freed(pending.group, member, now)
