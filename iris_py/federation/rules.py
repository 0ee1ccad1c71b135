"""Rules: the names of clusters and topics that cross between two clouds, and what they are called on each side.

A rule has two patterns of names: *outside*, as both gateways say it on the line between them, and *local*, as the own cloud
says it. Both have the same wildcards in the same order, so each name on one side is one name on the other. Of several rules
for a name the most specific one counts (docs/design.md 15.11, 15.12).

Catalogues: the names that a gateway lets another cloud use, made of rules here and searched for names there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, Generic, Literal, TypeAlias, TypeVar

from iris_py.federation.frames import CLUSTER, TOPIC, Catalogue, Entry, LineError
from iris_py.patterns.topic.names import ANY_REST, ANY_TOKEN, Tokens, TopicTrie, parse_pattern, parse_topic

if TYPE_CHECKING:
    from collections.abc import Iterable

Kind: TypeAlias = Literal["cluster", "topic"]
#: How local members take part in what a stand-in serves: when none is there, or also when all are full.
When: TypeAlias = Literal["absent", "full"]
#: How much a line of the audit says: totals by the minute, or every request too.
Audit: TypeAlias = Literal["totals", "all"]

#: The uses of names, each with its bit in a catalogue.
USES: Final = ("request", "survey", "broadcast", "tunnel", "subscribe", "publish")
#: Those that fit each kind; the first one is the default.
USES_OF: Final[dict[Kind, tuple[str, ...]]] = {"cluster": USES[:4], "topic": USES[4:]}

#: Neighbours of a gateway. Too small: a full mesh of regions does not fit; too large: each costs links and 256 MiB of queues.
CLOUDS_MAX: Final = 64
#: Names whose rules a table remembers; all are forgotten when there are more. Too small: uses of many names look into the trie
#: each time (some microseconds); too large: a neighbour that asks for ever new names fills memory, some 300 bytes for each.
LOOKUPS_MAX: Final = 1024

#: Requests of a rule that are under way at once. Too small: a long line idles; too large: one neighbour floods the members.
IN_FLIGHT_DEFAULT: Final = 1024
#: Tunnels of a rule that are open at once. Too small: bulk jobs wait; too large: each may hold a window of bytes.
TUNNELS_DEFAULT: Final = 64
#: Patterns of a rule that a neighbour subscribes to at once. Too small: its nodes are refused; too large: each is matched.
SUBSCRIPTIONS_DEFAULT: Final = 256


@dataclass(frozen=True, slots=True)
class Rule:
    """The part that exports and imports have in common."""

    number: int
    """Its place among the exports, or the imports, of the file: from 0. The neighbour says exports by it."""
    kind: Kind
    """Whether the names are of clusters or of topics."""
    outside: str
    """The pattern of the names on the line."""
    local: str
    """The pattern of the names in the own cloud; empty for an import that has no local name."""
    clouds: tuple[str, ...]
    """The aliases of the neighbours that it is for, in the order of the file."""
    line: int = field(default=1, compare=False)
    """The line of the file that it begins in."""
    _outside: Tokens = field(init=False, repr=False, compare=False)
    _local: Tokens = field(init=False, repr=False, compare=False)
    _has_wildcards: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_outside", parse_pattern(self.outside))
        object.__setattr__(self, "_has_wildcards", bool(wildcards(self._outside)))
        object.__setattr__(self, "_local", parse_pattern(self.local) if self.local else ())

    @property
    def outside_tokens(self) -> Tokens:
        """`outside`, split."""
        return self._outside

    def to_local(self, name: str) -> str | None:
        """Return the local name of an outside one; None if the rule is not for it."""
        if name == self.outside and not self._has_wildcards:
            return self.local or None
        return _rename(name, self._outside, self._local)

    def to_outside(self, name: str) -> str | None:
        """Return the outside name of a local one; None if the rule is not for it."""
        return _rename(name, self._local, self._outside)


@dataclass(frozen=True, slots=True)
class ExportRule(Rule):
    """Names of the own cloud that neighbours may use, and how much."""

    allow: frozenset[str] = frozenset()
    """The uses, of `USES_OF` its kind."""
    requests_per_s: int | None = None
    """Requests, broadcasts and surveys per second and neighbour; None for no limit."""
    in_flight: int = IN_FLIGHT_DEFAULT
    """Requests under way at once, per neighbour."""
    bytes_per_s: int | None = None
    """Bytes of payload per second and neighbour, each direction; None for no limit."""
    tunnels: int = TUNNELS_DEFAULT
    """Tunnels open at once, per neighbour."""
    subscriptions: int = SUBSCRIPTIONS_DEFAULT
    """Patterns subscribed to at once, per neighbour."""
    block: bool = False
    """Whether a slow subscriber of a neighbour may stop publishers of the own cloud."""
    trace: bool = False
    """Whether headers of tracing pass."""
    audit: Audit = "totals"
    """Whether the audit has a line for each request."""

    @property
    def allow_bits(self) -> int:
        """`allow` as a catalogue has it: a bit for each place in `USES`."""
        return sum(1 << bit for bit, use in enumerate(USES) if use in self.allow)


@dataclass(frozen=True, slots=True)
class ImportRule(Rule):
    """Names of neighbours that nodes of the own cloud may use: as ``name@cloud``, and under a local name if there is one."""

    when: When = "absent"
    """For a cluster with a local name: whether the far one serves when no local member is there, or also when all are full."""


AnyRule = TypeVar("AnyRule", bound=Rule)


class RuleTable(Generic[AnyRule]):
    """The rules of one kind for one neighbour, and a quick way to the one that counts for an outside name.

    Args:
        rules: They are all of one kind, and no two of them are equally specific for any name (`find_clashes`).
    """

    def __init__(self, rules: Iterable[AnyRule] = ()) -> None:
        self._rules = tuple(sorted(rules, key=lambda rule: specificity(rule.outside_tokens)))
        self._trie: TopicTrie[AnyRule] = TopicTrie()
        for rule in self._rules:
            self._trie.add(rule.outside_tokens, rule)
        self._found: dict[str, AnyRule | None] = {}

    @property
    def rules(self) -> tuple[AnyRule, ...]:
        """All of them, the most specific first."""
        return self._rules

    def find(self, name: str) -> AnyRule | None:
        """Return the most specific rule for an outside name; None if there is none, or if no rule may ever match that name."""
        found = self._found
        try:
            return found[name]
        except KeyError:
            pass
        if len(found) >= LOOKUPS_MAX:
            found.clear()
        found[name] = rule = self._look_up(name)
        return rule

    def find_overlapping(self, pattern: str) -> list[AnyRule]:
        """Return the rules for at least one name that a pattern matches, the most specific first.

        Raises:
            ValueError: It is no pattern; the text says what to do.
        """
        tokens = parse_pattern(pattern)
        return [rule for rule in self._rules if overlaps(rule.outside_tokens, tokens)]

    def _look_up(self, name: str) -> AnyRule | None:
        tokens = _tokens_of(name)
        if tokens is None:
            return None
        return min(self._trie.match(tokens), key=lambda rule: specificity(rule.outside_tokens), default=None)


def specificity(pattern: Tokens) -> tuple[int, int, int]:
    """Return what orders patterns from the most specific to the least: literals; exact before ``*`` before ``>``; most ``*``.

    A pattern that matches a part of what another one does is before it: it has literals where the other one has wildcards, or
    has no ``>``, or more tokens before it.
    """
    any_count = pattern.count(ANY_TOKEN)
    has_rest = pattern[-1:] == (ANY_REST,)
    return -(len(pattern) - any_count - has_rest), 2 if has_rest else min(any_count, 1), -any_count


def overlaps(one: Tokens, other: Tokens) -> bool:
    """Return whether some name matches both patterns."""
    for left, right in zip(one, other, strict=False):
        if ANY_REST in (left, right):
            return True
        if left != right and ANY_TOKEN not in (left, right):
            return False
    return len(one) == len(other)


def find_clashes(rules: Iterable[AnyRule]) -> list[tuple[AnyRule, AnyRule]]:
    """Return the pairs of rules that are for the same name of the same neighbour and equally specific, so that neither counts.

    Each rule is named with the first one that it clashes with, in the order that they came.
    """
    clashes: list[tuple[AnyRule, AnyRule]] = []
    equals: dict[tuple[Kind, tuple[int, int, int]], list[tuple[AnyRule, frozenset[str]]]] = {}
    for rule in rules:
        tokens, clouds = rule.outside_tokens, frozenset(rule.clouds)
        others = equals.setdefault((rule.kind, specificity(tokens)), [])
        for other, its_clouds in others:
            if overlaps(other.outside_tokens, tokens) and clouds & its_clouds:
                clashes.append((other, rule))
                break
        others.append((rule, clouds))
    return clashes


def wildcards(pattern: Tokens) -> Tokens:
    """Return the wildcards of a pattern, in their order."""
    return tuple(token for token in pattern if token in (ANY_TOKEN, ANY_REST))


def _tokens_of(name: str) -> Tokens | None:
    """Split a name that may cross; None for one that never may."""
    # Names of Iris and of other clouds are refused, too: a neighbour must not use the cluster of the gateways, nor reach a
    # third cloud through us.
    try:
        return parse_topic(name)
    except ValueError:
        return None


def _rename(name: str, pattern: Tokens, renamed: Tokens) -> str | None:
    """Return what a name is called that matches a pattern; None if it does not, or if neither name may cross."""
    tokens = _tokens_of(name)
    taken = None if tokens is None else _take_wildcards(tokens, pattern)
    if taken is None or not renamed:
        return None
    if pattern == renamed:
        return name
    parts = iter(taken)
    result = ".".join(next(parts) if token in (ANY_TOKEN, ANY_REST) else token for token in renamed)
    return None if _tokens_of(result) is None else result


def _take_wildcards(tokens: Tokens, pattern: Tokens) -> list[str] | None:
    """Return what stands in a name for each wildcard of a pattern; None if the name does not match."""
    taken: list[str] = []
    for index, part in enumerate(pattern):
        if part == ANY_REST:
            rest = tokens[index:]
            return [*taken, ".".join(rest)] if rest else None
        if index == len(tokens):
            return None
        if part == ANY_TOKEN:
            taken.append(tokens[index])
        elif part != tokens[index]:
            return None
    return taken if len(pattern) == len(tokens) else None


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
