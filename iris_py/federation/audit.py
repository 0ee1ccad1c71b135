"""The audit of a gateway: a record for each event that an operator is asked about later (docs/design.md 15.16).

Records have names, addresses, numbers and sizes, never payloads, headers or keys. What a stranger or a neighbour can cause at
will is told once in a while, with how often it happened.
"""

from __future__ import annotations

import json
from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping

    from iris_py.federation.limits import Account

#: The same refusal is told once in this time (seconds). Too small: a scanner fills the disk; too large: counts come late.
PERIOD_S: Final = 10.0
#: A burst of what is over a limit ends with so many seconds without any. Too small: one burst is many lines; too large: two
#: bursts are one.
BURST_S: Final = 10.0
#: Different refusals that are told apart within a period; those beyond are counted together. Too small: an operator does not
#: see who; too large: strangers with many addresses, or a neighbour that tries many names, fill memory and disk.
SUBJECTS_MAX: Final = 256
#: Records that wait to be written; beyond them new ones are left out and counted. Too small: a slow disk loses some; too large:
#: they fill memory.
WAITING_MAX: Final = 8192
#: Characters of a text in a record. Too small: names are cut off; too large: lines get long.
TEXT_CHARACTERS_MAX: Final = 512

_OTHERS: Final = ""


class Once:
    """Lets the first event of a subject through, and counts the next ones.

    Each cloud has subjects of its own, so no neighbour and no stranger can hide what another one does.

    Args:
        quiet_s: How long after it the next one is let through (seconds).
        is_burst: Whether that time begins anew with each event.
    """

    def __init__(self, quiet_s: float, *, is_burst: bool = False) -> None:
        self._quiet_s = quiet_s
        self._is_burst = is_burst
        # By cloud and subject: until when it is quiet, and how many were counted.
        self._clouds: dict[str, dict[Hashable, tuple[float, int]]] = {}

    def admit(self, subject: Hashable, now: float, cloud: str = "") -> int | None:
        """Tell whether an event is to be told.

        Args:
            subject: Events with equal ones count together.
            now: The time.
            cloud: The alias of the neighbour that the event concerns; empty for strangers.

        Returns:
            How many were not told before; None if this one is not.
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
        """Forget clouds that may have been removed from the settings."""
        self._clouds = {cloud: subjects for cloud, subjects in self._clouds.items() if _without_quiet(subjects, now)}


def _without_quiet(subjects: Mapping[Hashable, tuple[float, int]], now: float) -> dict[Hashable, tuple[float, int]]:
    return {subject: entry for subject, entry in subjects.items() if entry[0] > now}


class Audit:
    """Makes records; the owner takes them and writes each as a line.

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
        self._told: dict[tuple[str, str, str, str], tuple[int, ...]] = {}  # totals of each account when told last

    @property
    def has_records(self) -> bool:
        """Whether there is something to take."""
        return bool(self._waiting)

    def take(self) -> list[str]:
        """Take what is to be written: lines of JSON, without their ends."""
        lines = [json.dumps(record) for record in self._waiting]
        self._waiting.clear()
        return lines

    def link_up(self, cloud: str, address: str, gateway: str) -> None:
        """Tell of a bundle with a neighbour.

        Args:
            cloud: The alias of the neighbour.
            address: ``host:port`` at the other end.
            gateway: The id of the process there, in hex.
        """
        self._add("link_up", cloud=cloud, address=address, gateway=gateway)

    def link_down(self, cloud: str, address: str, gateway: str, reason: str, seconds: float) -> None:
        """Tell of the end of a bundle; the arguments are as for `link_up`.

        Args:
            cloud: The alias of the neighbour.
            address: ``host:port`` at the other end.
            gateway: The id of the process there, in hex.
            reason: What ended it.
            seconds: How long it was up.
        """
        self._add("link_down", cloud=cloud, address=address, gateway=gateway, reason=reason, seconds=round(seconds, 3))

    def handshake_refused(self, host: str, reason: str, now: float) -> None:
        """Tell of a handshake that was turned away: once in ten seconds for each host.

        Args:
            host: The IP address at the other end, without a port: each attempt has another one.
            reason: What was wrong.
            now: The time.
        """
        self._add_once(self._refusals, "", (host, reason), now, "handshake_refused", host=host, reason=reason)

    def catalogue(self, cloud: str, gateway: str, version: int, rules: int) -> None:
        """Tell of a catalogue that came.

        Args:
            cloud: The alias of the neighbour.
            gateway: The id of the process that sent it, in hex.
            version: Its version.
            rules: How many entries it has.
        """
        self._add("catalogue", cloud=cloud, gateway=gateway, version=version, rules=rules)

    def use_refused(self, cloud: str, name: str, use: str, reason: str, now: float) -> None:
        """Tell of a use that no rule allows: once in ten seconds for each name.

        Args:
            cloud: The alias of the neighbour that wanted it.
            name: The name, as it is outside.
            use: The use: "request", ...
            reason: What was wrong.
            now: The time.
        """
        self._add_once(self._uses, cloud, (name, use), now, "use_refused", cloud=cloud, name=name, use=use, reason=reason)

    def limited(self, cloud: str, pattern: str, limit: str, now: float) -> None:
        """Tell of what is over a limit: once in a burst.

        Args:
            cloud: The alias of the neighbour.
            pattern: The rule, by its names outside.
            limit: The limit: "requests_per_s", ...
            now: The time.
        """
        self._add_once(self._limits, cloud, (pattern, limit), now, "limited", cloud=cloud, rule=pattern, limit=limit)

    def reload(self, changes: Mapping[str, object], error: str = "") -> None:
        """Tell that the file was loaded anew, or why it was not.

        Args:
            changes: What has changed, as JSON has it.
            error: What was wrong; empty if nothing was.
        """
        self._add("reload", is_applied=not error, error=error, changes=dict(changes))

    def request(self, cloud: str, pattern: str, name: str, use: str, size: int, outcome: str, number: str) -> None:
        """Tell of one request, where the rule says ``audit = "all"``.

        Args:
            cloud: The alias of the neighbour.
            pattern: The rule, by its names outside.
            name: The name that was asked for, as it is outside.
            use: The use: "request", ...
            size: Bytes of its payload.
            outcome: What came of it.
            number: What tells it from others in the logs of both sides.
        """
        self._add("request", cloud=cloud, rule=pattern, name=name, use=use, bytes=size, outcome=outcome, id=number)

    def totals(self, cloud: str, accounts: Iterable[Account]) -> None:
        """Tell what has passed under each rule since the last time; nothing of rules under which nothing has. Once a minute.

        Args:
            cloud: The alias of the neighbour.
            accounts: Its accounts.
        """
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
        """Forget the totals of a neighbour that is none any more, or whose accounts begin anew."""
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
