"""Revoked tokens, which a door remembers until the tokens have ended by themselves (docs/design.md 17.51).

All doors of a network have the same revocations: adding is commutative and idempotent, for any order of arrival.
"""

from __future__ import annotations

import hashlib
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias

import msgspec

from iris_py.doors.rights import CLOCK_SKEW_S_MAX, LIFETIME_S_MAX, SUBJECT_BYTES_MAX

if TYPE_CHECKING:
    from iris_py.doors.rights import Grant

__all__ = [
    "DIGEST_BYTES",
    "PAGE_REVOCATIONS",
    "REVOCATIONS_MAX",
    "TOKEN_KEPT_S",
    "Revocation",
    "RevocationOutcome",
    "RevocationTable",
    "SubjectRevocation",
    "TokenRevocation",
    "TotalRevocation",
]

#: Revocations that a door remembers. Too small: an operator cannot revoke the tokens of an application one by one; too large:
#: memory, some 300 bytes for each.
REVOCATIONS_MAX: Final = 100_000
#: Time for which a token of unknown end stays revoked (seconds): no token lives longer, also if two clocks differ.
TOKEN_KEPT_S: Final = LIFETIME_S_MAX + 2 * CLOCK_SKEW_S_MAX
#: The difference between the clocks of a door and of another host, up to which a revocation is accepted (seconds). Too small:
#: revocations of a host with a fast clock are refused; too large: a wrong clock revokes tokens that are made later.
_AHEAD_S_MAX: Final = 2 * CLOCK_SKEW_S_MAX
#: Revocations in one message. Too small: many messages for a door that starts; too large: a message stops the event loop.
PAGE_REVOCATIONS: Final = 2000
#: Bytes of the digest of a table. Two different tables have the same one by chance once in 2^64 cases.
DIGEST_BYTES: Final = 8

#: The result of adding a revocation: remembered now, remembered before, of no use because the tokens have ended, refused
#: because the table is full, or refused because the revocation is of a clock that is ahead of the clock of the door.
RevocationOutcome: TypeAlias = Literal["added", "known", "ended", "full", "ahead"]

_Time = Annotated[float, msgspec.Meta(ge=0, le=1e12)]


class TokenRevocation(msgspec.Struct, frozen=True, tag="token"):
    """The revocation of a token."""

    id: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
    """The id of the token."""
    until: _Time
    """The end of the token, in seconds since 1970."""

    @property
    def name(self) -> str:
        """The place in the table."""
        return f"token {self.id}"

    @property
    def newest_s(self) -> float:
        """A time before the door's clock if both clocks are right, in seconds since 1970."""
        return self.until - TOKEN_KEPT_S


class SubjectRevocation(msgspec.Struct, frozen=True, tag="subject"):
    """The revocation of all tokens of a subject made up to a time."""

    subject: Annotated[str, msgspec.Meta(min_length=1, max_length=SUBJECT_BYTES_MAX)]
    """The subject."""
    made_until: _Time
    """The time, in seconds since 1970."""

    @property
    def name(self) -> str:
        """The place in the table."""
        return f"subject {self.subject}"

    @property
    def until(self) -> float:
        """The time at which the last of the tokens has ended, in seconds since 1970."""
        return self.made_until + LIFETIME_S_MAX + CLOCK_SKEW_S_MAX

    @property
    def newest_s(self) -> float:
        """A time before the door's clock if both clocks are right, in seconds since 1970."""
        return self.made_until


class TotalRevocation(msgspec.Struct, frozen=True, tag="total"):
    """The revocation of all tokens made up to a time."""

    made_until: _Time
    """The time, in seconds since 1970."""

    @property
    def name(self) -> str:
        """The place in the table."""
        return "all"

    @property
    def until(self) -> float:
        """The time at which the last of the tokens has ended, in seconds since 1970."""
        return self.made_until + LIFETIME_S_MAX + CLOCK_SKEW_S_MAX

    @property
    def newest_s(self) -> float:
        """A time before the door's clock if both clocks are right, in seconds since 1970."""
        return self.made_until


Revocation: TypeAlias = TokenRevocation | SubjectRevocation | TotalRevocation


class RevocationTable:
    """The revocations of a door.

    Args:
        places: The largest number of revocations. A revocation of all tokens always has a place.
    """

    def __init__(self, places: int = REVOCATIONS_MAX) -> None:
        self._places = places
        self._by_name: dict[str, Revocation] = {}
        self._all_made_until = -1.0
        self._sum = 0  # of the entries, in any order

    def __len__(self) -> int:
        return len(self._by_name)

    @property
    def digest(self) -> bytes:
        """A digest of the content; equal tables have equal digests."""
        return self._sum.to_bytes(DIGEST_BYTES)

    def includes(self, grant: Grant) -> bool:
        """Tell whether the token of a client is revoked."""
        if not self._by_name:
            return False
        if grant.made_at <= self._all_made_until or f"token {grant.token_id}" in self._by_name:
            return True
        found = self._by_name.get(f"subject {grant.subject}")
        return isinstance(found, SubjectRevocation) and grant.made_at <= found.made_until

    def add(self, revocation: Revocation, now: float) -> RevocationOutcome:
        """Remember a revocation.

        Args:
            revocation: The revocation. Of two revocations for the same tokens the later counts.
            now: The time, in seconds since 1970.
        """
        if revocation.until <= now:
            return "ended"
        if revocation.newest_s > now + _AHEAD_S_MAX:
            return "ahead"
        older = self._by_name.get(revocation.name)
        if older is not None:
            if revocation.until <= older.until:
                return "known"
            self._sum ^= _digest_of(older)
        elif not isinstance(revocation, TotalRevocation) and self._is_full(now):
            return "full"
        self._by_name[revocation.name] = revocation
        self._sum ^= _digest_of(revocation)
        if isinstance(revocation, TotalRevocation):
            self._all_made_until = revocation.made_until
        return "added"

    def expire(self, now: float) -> None:
        """Forget the revocations of ended tokens."""
        for revocation in [each for each in self._by_name.values() if each.until <= now]:
            del self._by_name[revocation.name]
            self._sum ^= _digest_of(revocation)
            if isinstance(revocation, TotalRevocation):
                self._all_made_until = -1.0

    def all(self) -> tuple[Revocation, ...]:
        """Return all revocations."""
        return tuple(self._by_name.values())

    def page(self, start: int, count: int = PAGE_REVOCATIONS) -> tuple[Revocation, ...]:
        """Return the revocations from a place on, at most ``count`` and `PAGE_REVOCATIONS`; empty at the end.

        If a revocation expires meanwhile, the places of later revocations change, and a reader misses some. The digests of the
        tables then differ.
        """
        return tuple(islice(self._by_name.values(), start, start + min(count, PAGE_REVOCATIONS)))

    def _is_full(self, now: float) -> bool:
        if len(self._by_name) >= self._places:
            self.expire(now)
        return len(self._by_name) >= self._places


def _digest_of(revocation: Revocation) -> int:
    content = f"{revocation.until!r} {revocation.name}".encode()
    return int.from_bytes(hashlib.blake2b(content, digest_size=DIGEST_BYTES).digest())
