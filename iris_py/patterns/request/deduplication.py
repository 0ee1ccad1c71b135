"""Idempotent requests at the member: one that was executed is answered again, and not executed again.

Such a request carries an identity, the same each time that it is given to a member. A member knows an identity from its arrival
until ``WINDOW_S`` after its reply. Meanwhile whoever sends it again is a further *caller*: it gets the reply that there is, or
waits for the one that is being made. Work is cancelled only when all its callers are gone.

What this promises, and what not: **one member** executes an identity once within the window, as long as it lives, has room to
remember, and the handler returns. A handler that raises has not done it: the identity is forgotten with the failure, and the
next caller has it executed again. **Other members** know nothing of it: a request that is retried elsewhere is executed there.

The room for replies is shared between the *origins* of requests: this cloud, and each other cloud that asks here. This cloud
has half of it, whatever others ask; of the others the one that takes most forgets first. So a neighbour that asks much cannot
make a request of this cloud run twice (docs/security.md). Room that an origin does not use is there for all.

The time is that of the member's clock; nothing here is ordered by what callers say.
"""

from __future__ import annotations

import hashlib
import math
from collections import deque
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from iris_py.wire import packets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py.peers.peer import Peer

#: How long a reply is remembered (seconds). Longer than any retry of ours: callers give up after seconds, and a task that is
#: started again elsewhere begins within minutes. Too small: late retries are executed again; too large: memory.
WINDOW_S = 300.0
#: Replies that are remembered at most: those of 200 requests/s during the window. What is older is forgotten first, counted.
REMEMBERED_MAX = 65_536
#: Their bytes at most, with ``ENTRY_BYTES`` for each: four of the largest messages (by default).
REMEMBERED_BYTES_MAX = 64 * 1024 * 1024
#: Clouds whose replies are counted apart; further ones share one account. Too small: neighbours push each other out; too large:
#: an insider that makes up names of clouds makes the search for the largest account slow.
CLOUDS_MAX = 64
#: What remembering an empty reply costs: key, entry and their place in the table.
ENTRY_BYTES = 256
#: Callers that wait for one execution; a further one is told that this member is full. Honest ones are a handful: retries of
#: one caller, and programs that chose the same key.
CALLERS_MAX = 256

#: The account of the clouds beyond ``CLOUDS_MAX``; no alias of a cloud has a star.
_FURTHER_CLOUDS = "*"

#: (who asks, the id of the request there)
Caller: TypeAlias = "tuple[Peer, int]"
Work = TypeVar("Work")


def identity_of_key(cluster: str, key: str | bytes) -> bytes:
    """Return the identity of a request whose key was chosen by the application: a hash of the cluster's name and the key.

    A text is the same key as its UTF-8 bytes.

    Raises:
        ValueError: The key is empty, or not to be said in UTF-8.
        TypeError: It is neither text nor bytes.
    """
    if not isinstance(key, str | bytes):
        raise TypeError(f"a key is text or bytes, not {type(key).__qualname__}")
    if not key:
        raise ValueError("key= is empty. Give each logical request a key of its own, or leave it out.")
    hashed = hash_of_keys(cluster)
    hashed.update(key.encode() if isinstance(key, str) else key)
    return hashed.digest()


def identities_of_keys(cluster: str, keys: Sequence[str | bytes]) -> list[bytes]:
    """Return the identities of many keys; see :func:`identity_of_key`. What is the same for all is hashed once."""
    beginning = hash_of_keys(cluster)
    identities = []
    for key in keys:
        if type(key) is str and key:
            hashed = beginning.copy()
            hashed.update(key.encode())
            identities.append(hashed.digest())
        else:
            identities.append(identity_of_key(cluster, key))
    return identities


def hash_of_keys(cluster: str) -> hashlib.blake2b:
    """Return the hash whose digest is an identity as soon as it is updated with a key: copy it, where there are many.

    BLAKE2b, for of a short key it takes half as long as SHA-256, and a third where it is copied.
    """
    name = cluster.encode()
    prefix = len(name).to_bytes(2, "big") + name
    return hashlib.blake2b(prefix, digest_size=packets.IDENTITY_BYTES, person=b"iris key")


def identity_of_request(node: bytes, number: int) -> bytes:
    """Return the identity of a request without a key: nobody else's, for node ids are random and numbers count up."""
    content = node + number.to_bytes(8, "big")
    return hashlib.blake2b(content, digest_size=packets.IDENTITY_BYTES, person=b"iris request").digest()


class _Account:
    """The remembered replies to requests of one origin."""

    __slots__ = ("ages", "bytes")

    def __init__(self) -> None:
        # (until when, identity) of each reply, the oldest first. Not the order of the dict of replies: a dict that loses its
        # oldest for each new one keeps the places of those that are gone, and passes over thousands to find its first.
        self.ages: deque[tuple[float, bytes]] = deque()
        self.bytes = 0


class Deduplicator(Generic[Work]):
    """The identities of requests that one member has executed.

    Attributes:
        repeated: Requests that were not executed because they had been, or are being.
        forgotten: Replies that were forgotten before their time, for want of room.
        bytes: What remembered replies take. Invariant: at most ``REMEMBERED_BYTES_MAX``.
    """

    def __init__(self) -> None:
        self.repeated = 0
        self.forgotten = 0
        self.bytes = 0
        # By identity: the work, who asked for it first, and the origin of that caller.
        self._underway: dict[bytes, tuple[Work, Caller, str]] = {}
        # By identity, where it is not that one alone who waits: all who do.
        self._callers: dict[bytes, dict[Caller, None]] = {}
        self._waiting: dict[Caller, bytes] = {}
        self._replies: dict[bytes, bytes] = {}
        self._own = _Account()
        self._clouds: dict[str, _Account] = {}  # those with replies, by alias
        self._expires_at = math.inf  # no reply before

    def __len__(self) -> int:
        return len(self._replies)

    def reply_to(self, key: bytes, now: float) -> bytes | None:
        """Return the reply that was given to an identity, if it is remembered."""
        if now >= self._expires_at:
            self.expire(now)
        reply = self._replies.get(key)
        if reply is not None:
            self.repeated += 1
        return reply

    def begin(self, key: bytes, work: Work, caller: Caller, origin: str = "") -> bool:
        """Note that an identity is worked on, for a first caller; returns False, and does nothing, if it is known.

        Args:
            key: The identity.
            work: The work on it.
            caller: The first caller.
            origin: The alias of the cloud that the request came from; empty for this one.
        """
        if key in self._underway or key in self._replies:
            return False
        self._underway[key] = work, caller, origin
        self._waiting[caller] = key
        return True

    def underway(self, key: bytes) -> Work | None:
        """Return the work on an identity, if there is some; it may have lost its callers, and be about to end."""
        underway = self._underway.get(key)
        return None if underway is None else underway[0]

    def attach(self, key: bytes, caller: Caller) -> bool:
        """Let a further caller wait for the work on an identity; returns whether there was room for it."""
        callers = self._callers_of(key)
        if caller not in callers:
            if len(callers) >= CALLERS_MAX:
                return False
            callers[caller] = None
            self._waiting[caller] = key
        self.repeated += 1
        return True

    def waiting(self) -> list[tuple[Caller, Work]]:
        """Return every caller that waits, and the work that it waits for."""
        return [(caller, self._underway[key][0]) for caller, key in self._waiting.items()]

    def is_waiting(self, caller: Caller) -> bool:
        """Tell whether a caller waits for some work."""
        return caller in self._waiting

    def detach(self, caller: Caller) -> Work | None:
        """A caller that waits gave up; returns the work if nobody waits for it any more. It stays known until it ends."""
        key = self._waiting.pop(caller)
        callers = self._callers_of(key)
        del callers[caller]
        return None if callers else self._underway[key][0]

    def detach_peer(self, peer: Peer) -> list[Work]:
        """All callers of a peer are gone; returns the work that nobody waits for any more."""
        callers = [caller for caller in self._waiting if caller[0] is peer]
        return [work for work in map(self.detach, callers) if work is not None]

    def owes(self, peer: Peer) -> bool:
        """Tell whether a peer waits for some work."""
        return any(caller[0] is peer for caller in self._waiting)

    def finish(self, key: bytes, reply: bytes | None, now: float) -> list[Caller]:
        """The work on an identity ended: remember its reply, if there is one; returns who waits for it."""
        _work, first, origin = self._underway.pop(key)
        callers = [first] if key not in self._callers else list(self._callers.pop(key))
        for caller in callers:
            self._waiting.pop(caller, None)  # one that has given an id to two requests waits once
        if reply is not None:
            self._remember([(key, reply)], now, origin)
        return callers

    def finish_many(
        self, answered: Sequence[tuple[bytes, bytes]], now: float, *, remembers: bool = True
    ) -> list[tuple[Caller, bytes]]:
        """The work on several identities ended with a reply each, as in :meth:`finish`; returns who waits, and for what."""
        underway, waiting, others = self._underway, self._waiting, self._callers
        replies, of_clouds = [], []
        for key, reply in answered:
            _work, first, origin = underway.pop(key)
            if origin:
                of_clouds.append((origin, key, reply))
            if key in others:
                callers = others.pop(key)
                replies += [(caller, reply) for caller in callers]
                for caller in callers:
                    waiting.pop(caller, None)
            else:
                waiting.pop(first, None)
                replies.append((first, reply))
        if remembers:
            if of_clouds:
                keys = {key for _origin, key, _reply in of_clouds}
                answered = [each for each in answered if each[0] not in keys]
                for origin, key, reply in of_clouds:
                    self._remember([(key, reply)], now, origin)
            self._remember(answered, now)
        return replies

    def expire(self, now: float) -> None:
        """Forget the replies whose time is over."""
        self._expires_at = math.inf
        for account in (self._own, *self._clouds.values()):
            while account.ages and account.ages[0][0] <= now:
                self._forget_oldest(account)
            if account.ages:
                self._expires_at = min(self._expires_at, account.ages[0][0])
        self._clouds = {origin: account for origin, account in self._clouds.items() if account.ages}

    def _callers_of(self, key: bytes) -> dict[Caller, None]:
        """Return all who wait for the work on an identity, to be changed."""
        callers = self._callers.get(key)
        if callers is None:
            callers = self._callers[key] = {self._underway[key][1]: None}
        return callers

    def _remember(self, answered: Sequence[tuple[bytes, bytes]], now: float, origin: str = "") -> None:
        account = self._account_of(origin) if origin else self._own
        until, replies, ages, size = now + WINDOW_S, self._replies, account.ages, 0
        for key, reply in answered:
            replies[key] = reply
            ages.append((until, key))
            size += ENTRY_BYTES + len(reply)
        if until < self._expires_at:
            self._expires_at = until
        account.bytes += size
        self.bytes += size
        while len(replies) > REMEMBERED_MAX or self.bytes > REMEMBERED_BYTES_MAX:
            self.forgotten += 1
            self._forget_oldest(self._largest_account())

    def _account_of(self, origin: str) -> _Account:
        clouds = self._clouds
        if origin not in clouds and len(clouds) >= CLOUDS_MAX:
            origin = _FURTHER_CLOUDS
        return clouds.setdefault(origin, _Account())

    def _largest_account(self) -> _Account:
        """Return the account that forgets first, by whichever bound is exceeded: number or bytes."""
        if not self._clouds:
            return self._own
        if len(self._replies) > REMEMBERED_MAX:
            return self._own if 2 * len(self._own.ages) > REMEMBERED_MAX else max(self._clouds.values(), key=_count_of)
        return self._own if 2 * self._own.bytes > REMEMBERED_BYTES_MAX else max(self._clouds.values(), key=_bytes_of)

    def _forget_oldest(self, account: _Account) -> None:
        _until, key = account.ages.popleft()
        size = ENTRY_BYTES + len(self._replies.pop(key))
        account.bytes -= size
        self.bytes -= size


def _count_of(account: _Account) -> int:
    return len(account.ages)


def _bytes_of(account: _Account) -> int:
    return account.bytes
