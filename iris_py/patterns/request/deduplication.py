"""Deduplication of idempotent requests at the member: a request that was executed is answered again from memory.

All copies of a request carry the same identity. A member remembers an identity from the arrival until ``WINDOW_S`` after the
reply. A node that sends the request again meanwhile becomes a further *caller*: it gets the existing reply, or waits for the
running execution. An execution is cancelled only when all callers are gone.

The guarantee: **one member** executes an identity once within the window, while the member lives and has room to remember, and
if the handler returns. If the handler raises, the identity is forgotten with the failure, and the next caller's request is
executed again. **Other members** do not share this memory: a request retried at another member is executed there.

The memory for replies is shared between the *origins* of requests: this cloud, and each other cloud. Half is reserved for this
cloud; among the other clouds, the largest user is evicted first. Thus a busy neighbour cannot cause a second execution of the
own cloud's requests (docs/security.md). Unused memory is available to all origins.

All times are by the member's clock; callers' statements order nothing.
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

#: Time for which a reply is remembered (seconds). Longer than any retry: callers give up after seconds, and a task that is
#: restarted elsewhere begins within minutes. Too small: late retries are executed again; too large: memory.
WINDOW_S = 300.0
#: Largest number of remembered replies: those of 200 requests/s during the window. The oldest is forgotten first, and counted.
REMEMBERED_MAX = 65_536
#: Largest size of remembered replies, including ``ENTRY_BYTES`` each: four of the largest messages (by default).
REMEMBERED_BYTES_MAX = 64 * 1024 * 1024
#: Clouds with an account of their own; further clouds share one. Too small: neighbours evict each other's replies; too large:
#: an insider who invents clouds makes the search for the largest account slow.
CLOUDS_MAX = 64
#: Memory of an empty reply: key, entry and table slot.
ENTRY_BYTES = 256
#: Callers that wait for one execution; further callers are rejected as if the member were full. Honest callers are a handful:
#: retries of one caller, and programs that chose the same key.
CALLERS_MAX = 256

#: The account of the clouds beyond ``CLOUDS_MAX``; no cloud's alias contains a star.
_FURTHER_CLOUDS = "*"

#: (calling node, its id of the request)
Caller: TypeAlias = "tuple[Peer, int]"
Work = TypeVar("Work")


def identity_of_key(cluster: str, key: str | bytes) -> bytes:
    """Return the identity of a request with an application's key: a hash of the cluster's name and the key.

    A text is the same key as its UTF-8 bytes.

    Raises:
        ValueError: The key is empty, or cannot be encoded as UTF-8.
        TypeError: The key is neither text nor bytes.
    """
    if not isinstance(key, str | bytes):
        raise TypeError(f"a key is text or bytes, not {type(key).__qualname__}")
    if not key:
        raise ValueError("key= is empty. Give each logical request a key of its own, or leave it out.")
    hashed = hash_of_keys(cluster)
    hashed.update(key.encode() if isinstance(key, str) else key)
    return hashed.digest()


def identities_of_keys(cluster: str, keys: Sequence[str | bytes]) -> list[bytes]:
    """Return the identities of many keys; see :func:`identity_of_key`. The common prefix is hashed once."""
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
    """Return the hash of a cluster's name; updated with a key, its digest is the identity. Copy it for many keys.

    BLAKE2b takes half the time of SHA-256 for a short key, and a third when copied.
    """
    name = cluster.encode()
    prefix = len(name).to_bytes(2, "big") + name
    return hashlib.blake2b(prefix, digest_size=packets.IDENTITY_BYTES, person=b"iris key")


def identity_of_request(node: bytes, number: int) -> bytes:
    """Return the identity of a request without a key: unique, because node ids are random and numbers increase."""
    content = node + number.to_bytes(8, "big")
    return hashlib.blake2b(content, digest_size=packets.IDENTITY_BYTES, person=b"iris request").digest()


class _OriginReplies:
    """The remembered replies to requests of one origin (this cloud, or one other cloud)."""

    __slots__ = ("ages", "bytes")

    def __init__(self) -> None:
        # (expiry, identity) of each reply, oldest first. Not taken from the order of the dict of replies: a dict that loses its
        # oldest entry for each new one keeps the empty slots, and would scan thousands to find its first.
        self.ages: deque[tuple[float, bytes]] = deque()
        self.bytes = 0


class Deduplicator(Generic[Work]):
    """The identities of a member's executed and running requests.

    Attributes:
        repeated: Repeated requests that were not executed again.
        forgotten: Replies forgotten early, for lack of room.
        bytes: Size of the remembered replies. Invariant: at most ``REMEMBERED_BYTES_MAX``.
    """

    def __init__(self) -> None:
        self.repeated = 0
        self.forgotten = 0
        self.bytes = 0
        # By identity: the execution, its first caller, and that caller's origin.
        self._underway: dict[bytes, tuple[Work, Caller, str]] = {}
        # By identity, unless the first caller alone waits: all waiting callers.
        self._callers: dict[bytes, dict[Caller, None]] = {}
        self._waiting: dict[Caller, bytes] = {}
        self._replies: dict[bytes, bytes] = {}
        self._own = _OriginReplies()
        self._clouds: dict[str, _OriginReplies] = {}  # accounts of clouds with replies, by alias
        self._expires_at = math.inf  # the earliest expiry, or earlier

    def __len__(self) -> int:
        return len(self._replies)

    def reply_to(self, key: bytes, now: float) -> bytes | None:
        """Return the remembered reply to an identity, or None."""
        if now >= self._expires_at:
            self.expire(now)
        reply = self._replies.get(key)
        if reply is not None:
            self.repeated += 1
        return reply

    def begin(self, key: bytes, work: Work, caller: Caller, origin: str = "") -> bool:
        """Record the start of an execution and return True; if the identity is known, change nothing and return False.

        Args:
            key: The identity.
            work: The execution.
            caller: The first caller.
            origin: The alias of the originating cloud; empty for this cloud.
        """
        if key in self._underway or key in self._replies:
            return False
        self._underway[key] = work, caller, origin
        self._waiting[caller] = key
        return True

    def underway(self, key: bytes) -> Work | None:
        """Return the execution of an identity, or None. An execution without callers is about to end."""
        underway = self._underway.get(key)
        return None if underway is None else underway[0]

    def attach(self, key: bytes, caller: Caller) -> bool:
        """Add a caller to a running execution; return False if the execution has too many callers."""
        callers = self._callers_of(key)
        if caller not in callers:
            if len(callers) >= CALLERS_MAX:
                return False
            callers[caller] = None
            self._waiting[caller] = key
        self.repeated += 1
        return True

    def waiting(self) -> list[tuple[Caller, Work]]:
        """Return all waiting callers with their executions."""
        return [(caller, self._underway[key][0]) for caller, key in self._waiting.items()]

    def is_waiting(self, caller: Caller) -> bool:
        """Tell whether a caller waits for an execution."""
        return caller in self._waiting

    def has_only(self, caller: Caller) -> bool:
        """Tell whether a caller is the only one that waits for its execution."""
        key = self._waiting.get(caller)
        return key is not None and (key not in self._callers or len(self._callers[key]) == 1)

    def detach(self, caller: Caller) -> Work | None:
        """Remove a waiting caller; return the execution, still running, if no caller is left, else None."""
        key = self._waiting.pop(caller)
        callers = self._callers_of(key)
        del callers[caller]
        return None if callers else self._underway[key][0]

    def detach_peer(self, peer: Peer) -> list[Work]:
        """Remove all callers of a lost peer; return the executions without callers."""
        callers = [caller for caller in self._waiting if caller[0] is peer]
        return [work for work in map(self.detach, callers) if work is not None]

    def owes(self, peer: Peer) -> bool:
        """Tell whether a peer waits for an execution."""
        return any(caller[0] is peer for caller in self._waiting)

    def finish(self, key: bytes, reply: bytes | None, now: float) -> list[Caller]:
        """End an execution and remember its reply, if any; return its callers."""
        _work, first, origin = self._underway.pop(key)
        callers = [first] if key not in self._callers else list(self._callers.pop(key))
        for caller in callers:
            self._waiting.pop(caller, None)  # a caller that used one id for two requests waits once
        if reply is not None:
            self._remember([(key, reply)], now, origin)
        return callers

    def finish_many(
        self, answered: Sequence[tuple[bytes, bytes]], now: float, *, remembers: bool = True
    ) -> list[tuple[Caller, bytes]]:
        """End several executions with a reply each, like :meth:`finish`; return their callers with the replies."""
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
        """Forget the expired replies."""
        self._expires_at = math.inf
        for account in (self._own, *self._clouds.values()):
            while account.ages and account.ages[0][0] <= now:
                self._forget_oldest(account)
            if account.ages:
                self._expires_at = min(self._expires_at, account.ages[0][0])
        self._clouds = {origin: account for origin, account in self._clouds.items() if account.ages}

    def _callers_of(self, key: bytes) -> dict[Caller, None]:
        """Return the mutable set of callers of a running execution."""
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

    def _account_of(self, origin: str) -> _OriginReplies:
        clouds = self._clouds
        if origin not in clouds and len(clouds) >= CLOUDS_MAX:
            origin = _FURTHER_CLOUDS
        return clouds.setdefault(origin, _OriginReplies())

    def _largest_account(self) -> _OriginReplies:
        """Return the account to evict from, by the exceeded bound: number or bytes."""
        if not self._clouds:
            return self._own
        if len(self._replies) > REMEMBERED_MAX:
            return self._own if 2 * len(self._own.ages) > REMEMBERED_MAX else max(self._clouds.values(), key=_count_of)
        return self._own if 2 * self._own.bytes > REMEMBERED_BYTES_MAX else max(self._clouds.values(), key=_bytes_of)

    def _forget_oldest(self, account: _OriginReplies) -> None:
        _until, key = account.ages.popleft()
        size = ENTRY_BYTES + len(self._replies.pop(key))
        account.bytes -= size
        self.bytes -= size


def _count_of(account: _OriginReplies) -> int:
    return len(account.ages)


def _bytes_of(account: _OriginReplies) -> int:
    return account.bytes
