"""Limits on what one neighbour may use, by rule and over its whole line (docs/design.md 15.14).

The exporter's limits count. The importer knows some of them from the catalogue and keeps them as well, so that most of what
would be refused is never sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_py.federation.rules import IN_FLIGHT_DEFAULT, SUBSCRIPTIONS_DEFAULT, TUNNELS_DEFAULT

if TYPE_CHECKING:
    from iris_py.federation.rules import ExportRule

#: A bucket holds what flows in so many seconds. Too small: what comes in bursts is refused though it is little on average; too
#: large: the members get a burst of so many seconds at once.
BURST_S: Final = 1.0
#: The longest wait that is told (seconds), also where nothing passes at all.
WAIT_S_MAX: Final = 3600.0
#: The wait that is told where all places are taken: when one gets free is not known. Too small: refused callers come back in
#: vain; too large: places stay empty.
PLACE_WAIT_S: Final = 0.05
#: Tokens are fractions; this share of a full bucket may be missing, or who waits as long as was told comes too early.
_TOLERANCE: Final = 1e-9


class TokenBucket:
    """Tokens that flow in at a steady rate, and are taken out in lots; it begins full.

    A lot that is larger than the bucket is given when the bucket is full, and the next one waits until that is paid off. So any
    lot passes, and the rate holds in the long run.

    Args:
        rate: Tokens per second; 0: none is ever given.
        now: The time.
    """

    __slots__ = ("_at", "_capacity", "_rate", "_tokens")

    def __init__(self, rate: float, now: float = 0.0) -> None:
        self._rate = rate
        self._capacity = max(1.0, rate * BURST_S) if rate else 0.0
        self._tokens = self._capacity
        self._at = now

    def set_rate(self, rate: float, now: float) -> None:
        """Change the rate; what is missing from a full bucket stays missing."""
        self._flow(now)
        missing = self._capacity - self._tokens
        self._rate = rate
        self._capacity = max(1.0, rate * BURST_S) if rate else 0.0
        self._tokens = self._capacity - missing

    def wait_s(self, count: float, now: float) -> float:
        """Return in how many seconds a lot would be given; 0: at once. Nothing is taken."""
        if not self._rate:
            return WAIT_S_MAX
        self._flow(now)
        missing = min(count, self._capacity) - self._tokens
        return 0.0 if missing <= self._capacity * _TOLERANCE else min(WAIT_S_MAX, missing / self._rate)

    def take(self, count: float, now: float) -> float:
        """Take a lot, if it is given at once.

        Args:
            count: How many tokens.
            now: The time.

        Returns:
            0 if it was taken; otherwise in how many seconds it may be, and nothing was taken.
        """
        wait_s = self.wait_s(count, now)
        if not wait_s:
            self._tokens -= count
        return wait_s

    def charge(self, count: float, now: float) -> None:
        """Take a lot that cannot be refused any more; the next ones wait for it."""
        if self._rate:
            self._flow(now)
            self._tokens -= count

    def _flow(self, now: float) -> None:
        if now > self._at:
            self._tokens = min(self._capacity, self._tokens + (now - self._at) * self._rate)
            self._at = now


class ByteLimits:
    """The bytes per second of a rule or of a whole line, in each direction.

    Args:
        bytes_per_s: In each direction; None for no limit.
        now: The time.
    """

    __slots__ = ("_in", "_out")

    def __init__(self, bytes_per_s: float | None, now: float = 0.0) -> None:
        self._in = None if bytes_per_s is None else TokenBucket(bytes_per_s, now)
        self._out = None if bytes_per_s is None else TokenBucket(bytes_per_s, now)

    def set_rate(self, bytes_per_s: float | None, now: float) -> None:
        """Change the rate, in each direction."""
        if bytes_per_s is None or self._in is None or self._out is None:
            self._in = None if bytes_per_s is None else TokenBucket(bytes_per_s, now)
            self._out = None if bytes_per_s is None else TokenBucket(bytes_per_s, now)
        else:
            self._in.set_rate(bytes_per_s, now)
            self._out.set_rate(bytes_per_s, now)

    def wait_s(self, size: int, now: float, *, is_out: bool) -> float:
        """Return in how many seconds a request of a size may pass, so that the answers so far are paid off, too.

        Args:
            size: Its bytes.
            now: The time.
            is_out: Whether it goes out of this cloud.
        """
        if self._in is None or self._out is None:
            return 0.0
        asked, answered = (self._out, self._in) if is_out else (self._in, self._out)
        return max(asked.wait_s(size, now), answered.wait_s(0, now))

    def charge(self, size: int, now: float, *, is_out: bool) -> None:
        """Count bytes that cannot be refused any more."""
        bucket = self._out if is_out else self._in
        if bucket is not None:
            bucket.charge(size, now)

    def take(self, size: int, now: float, *, is_out: bool) -> float:
        """Take bytes of a stream; returns 0, or in how many seconds they may pass."""
        bucket = self._out if is_out else self._in
        return 0.0 if bucket is None else bucket.take(size, now)


class RuleLimits:
    """The limits of one rule for one neighbour.

    Args:
        requests_per_s: Requests, surveys and broadcasts; None for no limit.
        in_flight: Requests under way at once.
        bytes_per_s: Bytes of payload, in each direction; None for no limit.
        tunnels: Tunnels open at once.
        subscriptions: Patterns subscribed to at once.
        line: The bytes of all rules of this neighbour; None for no limit.
        is_import: Whether the rule is the neighbour's: requests go out of this cloud, and answers come in.
        now: The time.

    Attributes:
        in_flight: How many requests are under way.
        tunnels: How many tunnels are open.
        subscriptions: How many patterns are subscribed to.
    """

    __slots__ = (
        "_bytes",
        "_in_flight_max",
        "_is_import",
        "_line",
        "_requests",
        "_subscriptions_max",
        "_tunnels_max",
        "in_flight",
        "subscriptions",
        "tunnels",
    )

    def __init__(
        self,
        requests_per_s: float | None = None,
        in_flight: int = IN_FLIGHT_DEFAULT,
        bytes_per_s: float | None = None,
        tunnels: int = TUNNELS_DEFAULT,
        subscriptions: int = SUBSCRIPTIONS_DEFAULT,
        *,
        line: ByteLimits | None = None,
        is_import: bool = False,
        now: float = 0.0,
    ) -> None:
        self._requests = None if requests_per_s is None else TokenBucket(requests_per_s, now)
        self._bytes = ByteLimits(bytes_per_s, now)
        self._line = ByteLimits(None) if line is None else line
        self._is_import = is_import
        self._in_flight_max = in_flight
        self._tunnels_max = tunnels
        self._subscriptions_max = subscriptions
        self.in_flight = self.tunnels = self.subscriptions = 0

    @classmethod
    def of_export(cls, rule: ExportRule, now: float, line: ByteLimits | None = None) -> RuleLimits:
        """Return the limits of an export, for one neighbour.

        Args:
            rule: The export.
            now: The time.
            line: Those of the neighbour's line.
        """
        return cls(rule.requests_per_s, rule.in_flight, rule.bytes_per_s, rule.tunnels, rule.subscriptions, line=line, now=now)

    def change(self, rule: ExportRule, now: float) -> None:
        """Take over the limits of an export that was loaded anew; what is under way stays counted."""
        if rule.requests_per_s is None or self._requests is None:
            self._requests = None if rule.requests_per_s is None else TokenBucket(rule.requests_per_s, now)
        else:
            self._requests.set_rate(rule.requests_per_s, now)
        self._bytes.set_rate(rule.bytes_per_s, now)
        self._in_flight_max = rule.in_flight
        self._tunnels_max = rule.tunnels
        self._subscriptions_max = rule.subscriptions

    def wait_s(self, size: int, now: float) -> float:
        """Return in how many seconds a request of a size may begin; 0: at once. Nothing is counted.

        Args:
            size: Bytes of its payload.
            now: The time.
        """
        if self.in_flight >= self._in_flight_max:
            return PLACE_WAIT_S
        is_out = self._is_import
        wait_s = max(self._bytes.wait_s(size, now, is_out=is_out), self._line.wait_s(size, now, is_out=is_out))
        return wait_s if self._requests is None else max(wait_s, self._requests.wait_s(1, now))

    def begin_request(self, size: int, now: float) -> float | None:
        """Count a request as under way, if the limits allow it.

        Args:
            size: Bytes of its payload.
            now: The time.

        Returns:
            None if it may begin; otherwise in how many seconds it may be tried again, and nothing was counted.
        """
        wait_s = self.wait_s(size, now)
        if wait_s:
            return wait_s
        is_out = self._is_import
        if self._requests is not None:
            self._requests.charge(1, now)
        self._bytes.charge(size, now, is_out=is_out)
        self._line.charge(size, now, is_out=is_out)
        self.in_flight += 1
        return None

    def end_request(self, reply_bytes: int = 0, now: float = 0.0) -> None:
        """Count a request as ended.

        Args:
            reply_bytes: Bytes of the payload of its reply.
            now: The time; needed where there are any.
        """
        self.in_flight -= 1
        if reply_bytes:
            self._bytes.charge(reply_bytes, now, is_out=not self._is_import)
            self._line.charge(reply_bytes, now, is_out=not self._is_import)

    def pass_stream(self, size: int, now: float, *, is_out: bool) -> float:
        """Count bytes of a publication, tunnel or survey, if the limits allow them.

        Args:
            size: How many.
            now: The time.
            is_out: Whether they go out of this cloud.

        Returns:
            0 if they may pass; otherwise in how many seconds they may, and nothing was counted.
        """
        wait_s = self._bytes.take(size, now, is_out=is_out)
        if wait_s:
            return wait_s
        wait_s = self._line.take(size, now, is_out=is_out)
        if wait_s:
            self._bytes.charge(-size, now, is_out=is_out)
        return wait_s

    def begin_stream(self, now: float) -> float | None:
        """Count a survey or broadcast against the requests per second; returns None, or in how many seconds it may begin."""
        wait_s = 0.0 if self._requests is None else self._requests.take(1, now)
        return wait_s or None

    def open_tunnel(self) -> bool:
        """Count a tunnel as open, if there is a place; returns whether there was."""
        if self.tunnels >= self._tunnels_max:
            return False
        self.tunnels += 1
        return True

    def close_tunnel(self) -> None:
        """Count a tunnel as closed."""
        self.tunnels -= 1

    def add_subscriptions(self, count: int) -> bool:
        """Count patterns as subscribed to, if there are so many places; returns whether there were."""
        if self.subscriptions + count > self._subscriptions_max:
            return False
        self.subscriptions += count
        return True

    def remove_subscriptions(self, count: int) -> None:
        """Count patterns as not subscribed to any more."""
        self.subscriptions -= count
