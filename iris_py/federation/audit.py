"""The audit of a gateway: one record for each event that an operator may have to account for later (docs/design.md 15.16).

Records hold names, addresses, numbers and sizes, never payloads, headers or keys. Events that strangers or neighbours can
repeat at will are recorded once per period, with a count of the repetitions.
"""

from __future__ import annotations

import json
from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping

    from iris_py.federation.limits import Account

#: The period (seconds) for one record of a repeated refusal. Too small: a scanner fills the disk; too large: counts come late.
PERIOD_S: Final = 10.0
#: The quiet time (seconds) that ends a burst of events over a limit. Too small: one burst fills many lines; too large: two
#: bursts look like one.
BURST_S: Final = 10.0
#: Subjects of refusals counted separately within a period; further ones share one count. Too small: an operator cannot tell
#: the offenders apart; too large: strangers with many addresses, or a neighbour trying many names, fill memory and disk.
SUBJECTS_MAX: Final = 256
#: Records waiting for the disk; beyond this bound new records are dropped and counted. Too small: a slow disk loses records;
#: too large: waiting records fill memory.
WAITING_MAX: Final = 8192
#: Characters of a text in a record. Too small: names are cut off; too large: lines get long.
TEXT_CHARACTERS_MAX: Final = 512

_OTHERS: Final = ""


class Once:
    """Lets the first event of a subject pass to the audit, and counts the repetitions until a quiet time has passed.

    Each cloud has its own subjects, so no neighbour or stranger can hide the events of another.

    Args:
        quiet_s: The time (seconds) until the next event of a subject is let through.
        is_burst: Whether every event restarts the quiet time.
    """

    def __init__(self, quiet_s: float, *, is_burst: bool = False) -> None:
        self._quiet_s = quiet_s
        self._is_burst = is_burst
        # By cloud and subject: the end of the quiet time, and the number of repetitions.
        self._clouds: dict[str, dict[Hashable, tuple[float, int]]] = {}

    def admit(self, subject: Hashable, now: float, cloud: str = "") -> int | None:
        """Return the number of unrecorded repetitions if the event is to be recorded now, else None.

        Args:
            subject: The key of the event: events with equal subjects count together.
            cloud: The alias of the neighbour (other cloud) concerned; empty for unauthenticated peers.
        """
        subjects = self._clouds.get(cloud)
        if subjects is None:
            self._forget_quiet_clouds(now)
            subjects = self._clouds[cloud] = {}
        if subject not in subjects and len(subjects) >= SUBJECTS_MAX - 1:
            subjects = self._clouds[cloud] = _without_quiet(subjects, now)
            if len(subjects) >= SUBJECTS_MAX - 1:
                subject = _OTHERS
        until, count = subjects.get(subject, (0.0, 0))
        if now < until:
            subjects[subject] = (now + self._quiet_s if self._is_burst else until, count + 1)
            return None
        subjects[subject] = (now + self._quiet_s, 0)
        return count

    def _forget_quiet_clouds(self, now: float) -> None:
        """Forget clouds without a running quiet time, because the settings may no longer name them."""
        self._clouds = {cloud: subjects for cloud, subjects in self._clouds.items() if _without_quiet(subjects, now)}


def _without_quiet(subjects: Mapping[Hashable, tuple[float, int]], now: float) -> dict[Hashable, tuple[float, int]]:
    return {subject: entry for subject, entry in subjects.items() if entry[0] > now}


class Audit:
    """Makes audit records; the owner takes the records and writes them as lines.

    Args:
        clock: Returns the time of day, in seconds since 1970.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._waiting: deque[dict[str, object]] = deque()
        self._lost = 0
        self._refusals = Once(PERIOD_S)
        self._uses = Once(PERIOD_S)
        self._limits = Once(BURST_S, is_burst=True)
        self._told: dict[tuple[str, str, str, str], tuple[int, ...]] = {}  # the totals in the last record of each account

    @property
    def has_records(self) -> bool:
        """Whether records wait to be taken."""
        return bool(self._waiting)

    def take(self) -> list[str]:
        """Take the waiting records, as lines of JSON without line ends."""
        lines = [json.dumps(record) for record in self._waiting]
        self._waiting.clear()
        return lines

    def link_up(self, cloud: str, address: str, gateway: str) -> None:
        """Record a new bundle (the connections between two gateways).

        Args:
            address: The peer's ``host:port``.
            gateway: The id of the peer's process, in hex.
        """
        self._add("link_up", cloud=cloud, address=address, gateway=gateway)

    def link_down(self, cloud: str, address: str, gateway: str, reason: str, seconds: float) -> None:
        """Record the end of a bundle.

        Args:
            address: The peer's ``host:port``.
            gateway: The id of the peer's process, in hex.
        """
        self._add("link_down", cloud=cloud, address=address, gateway=gateway, reason=reason, seconds=round(seconds, 3))

    def handshake_refused(self, host: str, reason: str, now: float) -> None:
        """Record a refused handshake: once in ten seconds for each host.

        Args:
            host: The peer's IP address, without the port, which differs with each attempt.
        """
        self._add_once(self._refusals, "", (host, reason), now, "handshake_refused", host=host, reason=reason)

    def catalogue(self, cloud: str, gateway: str, version: int, rules: int) -> None:
        """Record a received catalogue (the names that a neighbour exports).

        Args:
            gateway: The id of the sending process, in hex.
        """
        self._add("catalogue", cloud=cloud, gateway=gateway, version=version, rules=rules)

    def use_refused(self, cloud: str, name: str, use: str, reason: str, now: float) -> None:
        """Record a use refused for lack of a rule: once in ten seconds for each name.

        Args:
            use: The use: "request", ...
        """
        self._add_once(self._uses, cloud, (name, use), now, "use_refused", cloud=cloud, name=name, use=use, reason=reason)

    def limited(self, cloud: str, pattern: str, limit: str, now: float) -> None:
        """Record a use refused because of a limit: once in a burst.

        Args:
            pattern: The exported pattern of the rule.
            limit: The limit: "requests_per_s", ...
        """
        self._add_once(self._limits, cloud, (pattern, limit), now, "limited", cloud=cloud, rule=pattern, limit=limit)

    def reload(self, changes: Mapping[str, object], error: str = "") -> None:
        """Record a reload of the settings file, or its failure.

        Args:
            changes: The changes, as JSON values.
            error: The fault; empty after a success.
        """
        self._add("reload", is_applied=not error, error=error, changes=dict(changes))

    def request(self, cloud: str, pattern: str, name: str, use: str, size: int, outcome: str, number: str) -> None:
        """Record one request, for a rule with ``audit = "all"``.

        Args:
            pattern: The exported pattern of the rule.
            name: The exported name of the cluster.
            use: The use: "request", ...
            number: The id of the request in the logs of both gateways.
        """
        self._add("request", cloud=cloud, rule=pattern, name=name, use=use, bytes=size, outcome=outcome, id=number)

    def totals(self, cloud: str, accounts: Iterable[Account]) -> None:
        """Record the traffic of each rule since the last record, once a minute; idle rules get no record."""
        for account in accounts:
            numbers = (
                sum(account.outcomes),
                account.messages_sent,
                account.messages_received,
                account.bytes_sent,
                account.bytes_received,
                sum(account.drops.values()),
            )
            key = (cloud, account.direction, account.kind, account.pattern)
            before = self._told.get(key, (0,) * len(numbers))
            if numbers == before:
                continue
            self._told[key] = numbers
            requests, sent, received, bytes_sent, bytes_received, dropped = (
                number - told for number, told in zip(numbers, before, strict=True)
            )
            self._add(
                "totals",
                cloud=cloud,
                direction=account.direction,
                kind=account.kind,
                rule=account.pattern,
                requests=requests,
                messages_sent=sent,
                messages_received=received,
                bytes_sent=bytes_sent,
                bytes_received=bytes_received,
                dropped=dropped,
            )

    def forget(self, cloud: str) -> None:
        """Forget the totals of a neighbour that was removed, or whose accounts start again at zero."""
        self._told = {key: numbers for key, numbers in self._told.items() if key[0] != cloud}

    def _add_once(self, once: Once, owner: str, subject: Hashable, now: float, event: str, **values: object) -> None:
        untold = once.admit(subject, now, owner)
        if untold is not None:
            self._add(event, **values, untold=untold)

    def _add(self, event: str, **values: object) -> None:
        if len(self._waiting) >= WAITING_MAX:
            self._lost += 1
            return
        time = datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="milliseconds")
        record: dict[str, object] = {"time": time, "event": event}
        record |= {key: _shorten(value) if isinstance(value, str) else value for key, value in values.items()}
        if self._lost:
            record["records_lost"] = self._lost
            self._lost = 0
        self._waiting.append(record)


def _shorten(text: str) -> str:
    return text if len(text) <= TEXT_CHARACTERS_MAX else text[:TEXT_CHARACTERS_MAX] + "..."
