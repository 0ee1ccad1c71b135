"""Catalogues: the names that a gateway lets another cloud use, made of rules here and searched for names there."""

from __future__ import annotations

import math
from hashlib import blake2b
from typing import TYPE_CHECKING

from iris_py.federation.frames import CLUSTER, TOPIC, Catalogue, Entry, LineError
from iris_py.federation.rules import Rule, RuleTable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iris_py.federation.rules import ExportRule, Kind

KINDS: dict[int, Kind] = {CLUSTER: "cluster", TOPIC: "topic"}
NUMBERS = {name: number for number, name in KINDS.items()}


class Offer:
    """A catalogue that was received.

    Args:
        catalogue: As it came.

    Raises:
        LineError: It has a pattern that is none, a rate that is none, or a rule twice.

    Attributes:
        version: Its version.
        entries: Its entries, by the number of the rule.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self.version = catalogue.version
        self.entries: dict[int, Entry] = {entry.rule: entry for entry in catalogue.entries}
        if len(self.entries) != len(catalogue.entries):
            raise LineError("a catalogue with a rule twice")
        if not all(math.isfinite(entry.requests_per_s) and entry.requests_per_s >= 0 for entry in catalogue.entries):
            raise LineError("a catalogue with a rate that is none")
        rules: dict[str, list[Rule]] = {kind: [] for kind in NUMBERS}
        try:
            for entry in catalogue.entries:
                if entry.kind in KINDS:  # others are of newer versions
                    rules[KINDS[entry.kind]].append(Rule(entry.rule, KINDS[entry.kind], entry.pattern, "", ()))
        except ValueError as exc:
            raise LineError("a catalogue with a pattern that is none") from exc
        self._tables = {kind: RuleTable(its) for kind, its in rules.items()}

    def find(self, kind: int, name: str, allow: int = 0) -> Entry | None:
        """Return the entry for a name; None if there is none, or if it does not allow any of these uses."""
        rule = self._tables[KINDS[kind]].find(name)
        entry = None if rule is None else self.entries[rule.number]
        return entry if entry is not None and (not allow or entry.allow & allow) else None

    def has_any(self, kind: Kind, pattern: str) -> bool:
        """Tell whether there is an entry for at least one name that a pattern matches."""
        return bool(self._tables[kind].find_overlapping(pattern))

    @property
    def digest(self) -> str:
        """The same text for all catalogues that let this cloud do the same, whatever the order and numbers of their rules."""
        entries = sorted(
            (each.kind, each.pattern, each.allow, each.requests_per_s, each.in_flight) for each in self.entries.values()
        )
        return blake2b(repr(entries).encode(), digest_size=4).hexdigest()

    def overlapping(self, pattern: str) -> list[Entry]:
        """Return the entries for topics that have a topic in common with a pattern."""
        return [self.entries[rule.number] for rule in self._tables["topic"].find_overlapping(pattern)]


def make_catalogue(version: int, rules: Iterable[ExportRule], block_bit: int) -> Catalogue:
    """Return what one neighbour may use.

    Args:
        version: Larger than that of the last one.
        rules: The rules that are for it.
        block_bit: What says that a slow subscriber may stop publishers.
    """
    entries = tuple(
        Entry(
            rule.number,
            NUMBERS[rule.kind],
            rule.outside,
            rule.allow_bits | (block_bit if rule.block else 0),
            float(rule.requests_per_s or 0),
            rule.in_flight,
        )
        for rule in rules
    )
    return Catalogue(version, entries)
