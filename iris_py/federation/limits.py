"""Limits and accounts of a neighbour's traffic, by rule and for the whole cloud link (docs/design.md 15.14, 15.15).

The exporter's limits decide. The importer learns some limits from the catalogue and applies them as well, so that most excess
requests are never sent. Accounts count the traffic with a neighbour by rule and direction.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from iris_py.federation.calls import Status
from iris_py.federation.rules import IN_FLIGHT_DEFAULT, SUBSCRIPTIONS_DEFAULT, TUNNELS_DEFAULT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from iris_py.federation.rules import ExportRule, Kind

#: The owner of the rule: "export" for a neighbour's use of our names, "import" for our use of the neighbour's names.
Direction: TypeAlias = Literal["export", "import"]

#: Accounts of one neighbour; further rules share an account without a pattern. Reloads leave old accounts behind. Too small:
#: frequently changed rules are not told apart; too large: a neighbour with ever new catalogues fills memory.
ACCOUNTS_MAX: Final = 2048
#: Drop reasons counted separately in an account; further reasons count as "other". All reasons are names in the code.
REASONS_MAX: Final = 32
#: Upper bounds of the time buckets, in seconds; a last bucket is unbounded. The bounds double, so a reading is wrong by half at
#: most.
BUCKETS_S: Final = tuple(0.001 * 2**power for power in range(17))
#: The weight of a message beside its payload: link bytes are split among rules by payload and this weight.
MESSAGE_WEIGHT_BYTES: Final = 64
#: The unit of prices, in bytes.
GIGABYTE: Final = 10**9


class Account:
    """The counted traffic of one neighbour (other cloud) under one rule.

    Args:
        direction: The owner of the rule.
        kind: Whether the names are of clusters or topics; empty for the shared account.

    Attributes:
        direction: The owner of the rule.
        kind: Whether the names are of clusters or topics; empty for the shared account.
        pattern: The exported pattern.
        outcomes: The number of requests by `Status`.
        messages_sent: Requests, replies, publications and other messages sent to the neighbour.
        messages_received: Messages received from the neighbour.
        bytes_sent: Payload bytes sent.
        bytes_received: Payload bytes received.
        line_bytes_sent: The rule's share of the bytes sent on the link.
        line_bytes_received: The rule's share of the bytes received on the link.
        seconds: The total duration of all requests.
        buckets: The number of requests by duration, with the bounds `BUCKETS_S`.
        drops: The number of dropped messages by reason.
    """

    __slots__ = (
        "_split_received",
        "_split_sent",
        "buckets",
        "bytes_received",
        "bytes_sent",
        "direction",
        "drops",
        "kind",
        "line_bytes_received",
        "line_bytes_sent",
        "messages_received",
        "messages_sent",
        "outcomes",
        "pattern",
        "seconds",
    )

    def __init__(self, direction: Direction, kind: Kind | Literal[""], pattern: str) -> None:
        self.direction = direction
        self.kind = kind
        self.pattern = pattern
        self.outcomes = [0] * len(Status)
        self.messages_sent = self.messages_received = 0
        self.bytes_sent = self.bytes_received = 0
        self.line_bytes_sent = self.line_bytes_received = 0
        self.seconds = 0.0
        self.buckets = [0] * (len(BUCKETS_S) + 1)
        self.drops: dict[str, int] = {}
        self._split_sent = self._split_received = 0  # the weights at the last split of link bytes

    def ended(self, status: int, asked_bytes: int, answered_bytes: int, seconds: float) -> None:
        """Count a finished request, sent or served.

        Args:
            seconds: The duration, from sending or arrival.
        """
        self.outcomes[status] += 1
        self.seconds += seconds
        self.buckets[bisect_left(BUCKETS_S, seconds)] += 1
        self.messages_sent += 1
        self.messages_received += 1
        if self.direction == "import":
            self.bytes_sent += asked_bytes
            self.bytes_received += answered_bytes
        else:
            self.bytes_sent += answered_bytes
            self.bytes_received += asked_bytes

    def refused(self, status: int) -> None:
        """Count a request that the local gateway refused without sending or serving the request."""
        self.outcomes[status] += 1

    def sent(self, count: int, size: int) -> None:
        """Count messages sent to the neighbour, and their total payload bytes."""
        self.messages_sent += count
        self.bytes_sent += size

    def received(self, count: int, size: int) -> None:
        """Count messages received from the neighbour, and their total payload bytes."""
        self.messages_received += count
        self.bytes_received += size

    def dropped(self, reason: str, count: int = 1) -> None:
        """Count dropped messages.

        Args:
            reason: A name from the code, never foreign text.
        """
        if reason not in self.drops and len(self.drops) >= REASONS_MAX - 1:
            reason = "other"
        self.drops[reason] = self.drops.get(reason, 0) + count

    @property
    def is_used(self) -> bool:
        """Whether any traffic was ever counted in the account."""
        return bool(self.messages_sent or self.messages_received or self.drops or any(self.outcomes))

    def snapshot(self, price_per_gb: float | None = None) -> dict[str, object]:
        """Return all counters for status and metrics.

        Args:
            price_per_gb: The price of 10^9 sent bytes; None if unknown.
        """
        snapshot: dict[str, object] = {
            "direction": self.direction,
            "kind": self.kind,
            "pattern": self.pattern,
            "requests": {Status(status).name.lower(): count for status, count in enumerate(self.outcomes) if count},
            "messages_sent": self.messages_sent,
            "messages_received": self.messages_received,
            "payload_bytes_sent": self.bytes_sent,
            "payload_bytes_received": self.bytes_received,
            "line_bytes_sent": self.line_bytes_sent,
            "line_bytes_received": self.line_bytes_received,
            "dropped": dict(self.drops),
            "seconds_sum": self.seconds,
            "seconds_buckets": list(self.buckets),
        }
        if price_per_gb is not None:
            snapshot["money"] = self.line_bytes_sent * price_per_gb / GIGABYTE
        return snapshot

    def take_weights(self) -> tuple[int, int]:
        """Return the weights (sent, received) of the rule's traffic since the last call, by which link bytes are split."""
        sent = self.bytes_sent + self.messages_sent * MESSAGE_WEIGHT_BYTES
        received = self.bytes_received + self.messages_received * MESSAGE_WEIGHT_BYTES
        weights = sent - self._split_sent, received - self._split_received
        self._split_sent, self._split_received = sent, received
        return weights


class Accounts:
    """The accounts of one neighbour.

    Attributes:
        line_bytes_sent: All bytes sent on the neighbour's links, with traffic outside of rules.
        line_bytes_received: All bytes received on the neighbour's links, with traffic outside of rules.
    """

    def __init__(self) -> None:
        self.line_bytes_sent = self.line_bytes_received = 0
        self._accounts: dict[tuple[Direction, str, str], Account] = {}

    def __iter__(self) -> Iterator[Account]:
        return iter(self._accounts.values())

    def of_export(self, rule: ExportRule) -> Account:
        """Return the account of a local export, created at first use."""
        return self._of("export", rule.kind, rule.outside)

    def of_import(self, kind: Kind, pattern: str) -> Account:
        """Return the account of an entry in the neighbour's catalogue, created at first use."""
        return self._of("import", kind, pattern)

    def add_line_bytes(self, sent: int, received: int) -> None:
        """Add the links' traffic since the last call, and split the bytes among the rules by their own traffic.

        Bytes sent while no rule was in use (control messages, keep-alives) belong to no rule.

        Args:
            sent: Bytes of records sent, with their lengths.
            received: Bytes of records received, with their lengths.
        """
        self.line_bytes_sent += sent
        self.line_bytes_received += received
        weights = [(account, *account.take_weights()) for account in self]
        sent_weight = sum(weight for _account, weight, _other in weights)
        received_weight = sum(weight for _account, _other, weight in weights)
        for account, its_sent, its_received in weights:
            if its_sent:
                account.line_bytes_sent += sent * its_sent // sent_weight
            if its_received:
                account.line_bytes_received += received * its_received // received_weight

    def snapshot(self, price_per_gb: float | None = None) -> dict[str, object]:
        """Return all counters for status and metrics.

        Args:
            price_per_gb: The price of 10^9 sent bytes; None if unknown.
        """
        snapshot: dict[str, object] = {
            "line_bytes_sent": self.line_bytes_sent,
            "line_bytes_received": self.line_bytes_received,
            "rules": [account.snapshot(price_per_gb) for account in self if account.is_used],
        }
        if price_per_gb is not None:
            snapshot["money"] = self.line_bytes_sent * price_per_gb / GIGABYTE
        return snapshot

    def _of(self, direction: Direction, kind: Kind, pattern: str) -> Account:
        key: tuple[Direction, str, str] = (direction, kind, pattern)
        account = self._accounts.get(key)
        if account is not None:
            return account
        if len(self._accounts) >= ACCOUNTS_MAX - 2:  # one shared account in each direction
            key = (direction, "", "")
            account = self._accounts.get(key)
            if account is not None:
                return account
        account = self._accounts[key] = Account(direction, kind if key[1] else "", key[2])
        return account


#: The capacity of a bucket, in seconds of its rate. Too small: bursts are refused despite a low average; too large: the members
#: get a burst of as many seconds at once.
BURST_S: Final = 1.0
#: The longest reported wait (seconds), also for a rate of zero.
WAIT_S_MAX: Final = 3600.0
#: The reported wait (seconds) while all places are taken, whose end is unknown. Too small: refused callers return in vain; too
#: large: places stay empty.
PLACE_WAIT_S: Final = 0.05
#: The fraction of a full bucket that rounding may take: without a tolerance, a caller that waits as told would come too early.
_TOLERANCE: Final = 1e-9


class TokenBucket:
    """Tokens that flow in at a steady rate and are taken in lots; the bucket begins full.

    A lot larger than the bucket is granted when the bucket is full, and the next lot waits until the debt is paid. So any lot
    passes, and the rate holds in the long run.

    Args:
        rate: Tokens per second; 0: no lot is ever granted.
    """

    __slots__ = ("_at", "_capacity", "_rate", "_tokens")

    def __init__(self, rate: float, now: float = 0.0) -> None:
        self._rate = rate
        self._capacity = max(1.0, rate * BURST_S) if rate else 0.0
        self._tokens = self._capacity
        self._at = now

    def set_rate(self, rate: float, now: float) -> None:
        """Change the rate; the number of missing tokens stays."""
        self._flow(now)
        missing = self._capacity - self._tokens
        self._rate = rate
        self._capacity = max(1.0, rate * BURST_S) if rate else 0.0
        self._tokens = self._capacity - missing

    def wait_s(self, count: float, now: float) -> float:
        """Return the seconds until :meth:`take` would grant a lot of tokens; 0: at once. Takes nothing."""
        if not self._rate:
            return WAIT_S_MAX
        self._flow(now)
        missing = min(count, self._capacity) - self._tokens
        return 0.0 if missing <= self._capacity * _TOLERANCE else min(WAIT_S_MAX, missing / self._rate)

    def take(self, count: float, now: float) -> float:
        """Take a lot of tokens, if available at once.

        Returns:
            0 if taken; otherwise the wait in seconds, with nothing taken.
        """
        wait_s = self.wait_s(count, now)
        if not wait_s:
            self._tokens -= count
        return wait_s

    def charge(self, count: float, now: float) -> None:
        """Take a lot of tokens even without cover; later lots wait until the debt is paid."""
        if self._rate:
            self._flow(now)
            self._tokens -= count

    def _flow(self, now: float) -> None:
        if now > self._at:
            self._tokens = min(self._capacity, self._tokens + (now - self._at) * self._rate)
            self._at = now


class ByteLimits:
    """The bytes per second of a rule or a whole cloud link, in each direction.

    Args:
        bytes_per_s: The rate in each direction; None for no limit.
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
        """Return the seconds until a request may pass and the bytes of earlier replies, in the other direction, are paid off.

        Args:
            size: Bytes of the request.
            is_out: Whether the request leaves the local cloud.
        """
        if self._in is None or self._out is None:
            return 0.0
        asked, answered = (self._out, self._in) if is_out else (self._in, self._out)
        return max(asked.wait_s(size, now), answered.wait_s(0, now))

    def charge(self, size: int, now: float, *, is_out: bool) -> None:
        """Count bytes that were let through already; later bytes wait for the debt."""
        bucket = self._out if is_out else self._in
        if bucket is not None:
            bucket.charge(size, now)

    def take(self, size: int, now: float, *, is_out: bool) -> float:
        """Take bytes of a tunnel, survey or publication; return 0, or the wait in seconds."""
        bucket = self._out if is_out else self._in
        return 0.0 if bucket is None else bucket.take(size, now)


class RuleLimits:
    """The limits of one rule for one neighbour.

    Args:
        requests_per_s: Requests, surveys and broadcasts; None for no limit.
        bytes_per_s: Bytes of payload, in each direction; None for no limit.
        line: The byte limits of all rules of the neighbour; None for no limit.
        is_import: Whether the rule is the neighbour's: requests leave the local cloud, and replies come in.

    Attributes:
        in_flight: The number of requests under way.
        tunnels: The number of open tunnels.
        subscriptions: The number of subscription patterns.
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
        """Return the limits of an export for one neighbour.

        Args:
            line: The byte limits of the neighbour's cloud link.
        """
        return cls(rule.requests_per_s, rule.in_flight, rule.bytes_per_s, rule.tunnels, rule.subscriptions, line=line, now=now)

    def change(self, rule: ExportRule, now: float) -> None:
        """Switch to the limits of a reloaded export; counts of running uses stay."""
        if rule.requests_per_s is None or self._requests is None:
            self._requests = None if rule.requests_per_s is None else TokenBucket(rule.requests_per_s, now)
        else:
            self._requests.set_rate(rule.requests_per_s, now)
        self._bytes.set_rate(rule.bytes_per_s, now)
        self._in_flight_max = rule.in_flight
        self._tunnels_max = rule.tunnels
        self._subscriptions_max = rule.subscriptions

    def wait_s(self, size: int, now: float) -> float:
        """Return the seconds until a request may begin; 0: at once. Counts nothing."""
        if self.in_flight >= self._in_flight_max:
            return PLACE_WAIT_S
        is_out = self._is_import
        wait_s = max(self._bytes.wait_s(size, now, is_out=is_out), self._line.wait_s(size, now, is_out=is_out))
        return wait_s if self._requests is None else max(wait_s, self._requests.wait_s(1, now))

    def begin_request(self, size: int, now: float) -> float | None:
        """Count a request as under way, if the limits allow another.

        Returns:
            None if the request may begin; otherwise the wait in seconds, with nothing counted.
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
        """Count a request as finished.

        Args:
            reply_bytes: Bytes of the reply's payload.
            now: The time; needed with reply bytes.
        """
        self.in_flight -= 1
        if reply_bytes:
            self._bytes.charge(reply_bytes, now, is_out=not self._is_import)
            self._line.charge(reply_bytes, now, is_out=not self._is_import)

    def pass_bytes(self, size: int, now: float, *, is_out: bool) -> float:
        """Count bytes of a publication, tunnel or survey, if the limits allow them.

        Args:
            is_out: Whether the bytes leave the local cloud.

        Returns:
            0 if the bytes may pass; otherwise the wait in seconds, with nothing counted.
        """
        wait_s = self._bytes.take(size, now, is_out=is_out)
        if wait_s:
            return wait_s
        wait_s = self._line.take(size, now, is_out=is_out)
        if wait_s:
            self._bytes.charge(-size, now, is_out=is_out)
        return wait_s

    def begin_use(self, now: float) -> float | None:
        """Count a survey or broadcast against the requests per second; return None, or the wait in seconds."""
        wait_s = 0.0 if self._requests is None else self._requests.take(1, now)
        return wait_s or None

    def open_tunnel(self) -> bool:
        """Count a tunnel as open, if the limit allows another; return whether it does."""
        if self.tunnels >= self._tunnels_max:
            return False
        self.tunnels += 1
        return True

    def close_tunnel(self) -> None:
        """Count a tunnel as closed."""
        self.tunnels -= 1

    def add_subscriptions(self, count: int) -> bool:
        """Count subscription patterns, if the limit allows them; return whether it does."""
        if self.subscriptions + count > self._subscriptions_max:
            return False
        self.subscriptions += count
        return True

    def remove_subscriptions(self, count: int) -> None:
        """Subtract subscription patterns from the count."""
        self.subscriptions -= count
