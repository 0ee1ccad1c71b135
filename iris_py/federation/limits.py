"""Limits on what one neighbour may use, by rule and over its whole line (docs/design.md 15.14).

The exporter's limits count. The importer knows some of them from the catalogue and keeps them as well, so that most of what
would be refused is never sent.

Accounts: what has passed between this cloud and one neighbour, by rule and direction (docs/design.md 15.15).
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from iris_py.federation.calls import Status
from iris_py.federation.rules import IN_FLIGHT_DEFAULT, SUBSCRIPTIONS_DEFAULT, TUNNELS_DEFAULT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from iris_py.federation.rules import ExportRule, Kind

#: Whose rule it is: "export": the neighbour uses something of ours; "import": we use something of theirs.
Direction: TypeAlias = Literal["export", "import"]

#: Accounts of one neighbour; what is beyond is put together in one that has no pattern. Reloads leave old ones behind. Too
#: small: rules that changed often are not told apart; too large: a neighbour that changes its catalogue for ever fills memory.
ACCOUNTS_MAX: Final = 2048
#: Reasons of drops that one account tells apart; further ones are "other". They are names in the code.
REASONS_MAX: Final = 32
#: Upper bounds of the buckets of times, in seconds; there is one more above. They double: a figure is wrong by half at most.
BUCKETS_S: Final = tuple(0.001 * 2**power for power in range(17))
#: What a message has on the line beside its payload, as a weight: line bytes are split among rules by payload and this.
MESSAGE_WEIGHT_BYTES: Final = 64
#: Money is for so many bytes.
GIGABYTE: Final = 10**9


class Account:
    """Everything that has passed under one rule.

    Args:
        direction: Whose rule it is.
        kind: Whether its names are of clusters or topics; empty for the account of all that have none of their own.
        pattern: The names outside.

    Attributes:
        direction: Likewise.
        kind: Likewise.
        pattern: Likewise.
        outcomes: How many requests ended with each `Status`.
        messages_sent: Requests, replies, publications and others that went to the neighbour.
        messages_received: Those that came from it.
        bytes_sent: The payloads of those that went.
        bytes_received: And of those that came.
        line_bytes_sent: The share of the rule in what was sent on the line, in bytes.
        line_bytes_received: And in what was received.
        seconds: The time that all requests took together.
        buckets: How many requests took a time up to each of `BUCKETS_S`, and longer.
        drops: How many messages were dropped, by reason.
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
        self._split_sent = self._split_received = 0  # the weights when line bytes were split last

    def ended(self, status: int, asked_bytes: int, answered_bytes: int, seconds: float) -> None:
        """Count a request that was sent or served.

        Args:
            status: A `Status`.
            asked_bytes: The payload of the request.
            answered_bytes: The payload of the reply.
            seconds: How long it took, from when it was sent or came.
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
        """Count a request that was refused on this side, with nothing sent or served."""
        self.outcomes[status] += 1

    def sent(self, count: int, size: int) -> None:
        """Count messages that went to the neighbour, and the bytes of their payloads together."""
        self.messages_sent += count
        self.bytes_sent += size

    def received(self, count: int, size: int) -> None:
        """Count messages that came from the neighbour, and the bytes of their payloads together."""
        self.messages_received += count
        self.bytes_received += size

    def dropped(self, reason: str, count: int = 1) -> None:
        """Count messages that were dropped.

        Args:
            reason: A name of the code, never a text of somebody else.
            count: How many.
        """
        if reason not in self.drops and len(self.drops) >= REASONS_MAX - 1:
            reason = "other"
        self.drops[reason] = self.drops.get(reason, 0) + count

    @property
    def is_used(self) -> bool:
        """Whether anything was ever counted."""
        return bool(self.messages_sent or self.messages_received or self.drops or any(self.outcomes))

    def snapshot(self, price_per_gb: float | None = None) -> dict[str, object]:
        """Return everything for status and metrics.

        Args:
            price_per_gb: The price of 10^9 bytes that are sent; None if it is not known.
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

    def _take_weights(self) -> tuple[int, int]:
        """Return how much of what passed since the last time is of this rule, sent and received."""
        sent = self.bytes_sent + self.messages_sent * MESSAGE_WEIGHT_BYTES
        received = self.bytes_received + self.messages_received * MESSAGE_WEIGHT_BYTES
        weights = sent - self._split_sent, received - self._split_received
        self._split_sent, self._split_received = sent, received
        return weights


class Accounts:
    """The accounts of one neighbour.

    Attributes:
        line_bytes_sent: Everything that was sent on its links, with what belongs to no rule.
        line_bytes_received: And received.
    """

    def __init__(self) -> None:
        self.line_bytes_sent = self.line_bytes_received = 0
        self._accounts: dict[tuple[Direction, str, str], Account] = {}

    def __iter__(self) -> Iterator[Account]:
        return iter(self._accounts.values())

    def of_export(self, rule: ExportRule) -> Account:
        """Return the account of an export of ours, made at its first use."""
        return self._of("export", rule.kind, rule.outside)

    def of_import(self, kind: Kind, pattern: str) -> Account:
        """Return the account of an entry of the neighbour's catalogue, made at its first use.

        Args:
            kind: Of the entry.
            pattern: Its names, as they are outside.
        """
        return self._of("import", kind, pattern)

    def add_line_bytes(self, sent: int, received: int) -> None:
        """Count what has passed on the links since the last time, and split it among the rules by what passed under each.

        What passed while no rule was used (control messages, keep-alives) belongs to none.

        Args:
            sent: Bytes of records that were sent, with their lengths.
            received: And received.
        """
        self.line_bytes_sent += sent
        self.line_bytes_received += received
        weights = [(account, *account._take_weights()) for account in self]
        sent_weight = sum(weight for _account, weight, _other in weights)
        received_weight = sum(weight for _account, _other, weight in weights)
        for account, its_sent, its_received in weights:
            if its_sent:
                account.line_bytes_sent += sent * its_sent // sent_weight
            if its_received:
                account.line_bytes_received += received * its_received // received_weight

    def snapshot(self, price_per_gb: float | None = None) -> dict[str, object]:
        """Return everything that was counted, for status and metrics.

        Args:
            price_per_gb: The price of 10^9 bytes that are sent; None if it is not known.
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
        if len(self._accounts) >= ACCOUNTS_MAX - 2:  # one for what is beyond, in each direction
            key = (direction, "", "")
            account = self._accounts.get(key)
            if account is not None:
                return account
        account = self._accounts[key] = Account(direction, kind if key[1] else "", key[2])
        return account


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
