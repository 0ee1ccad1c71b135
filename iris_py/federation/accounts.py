"""Accounts: what has passed between this cloud and one neighbour, by rule and direction (docs/design.md 15.15)."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from iris_py.federation.calling import Status

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
