"""Rules: the names of clusters and topics that cross between two clouds, and their local and exported forms.

A rule has two patterns: *outside*, as used between the gateways, and *local*, as used in the local cloud. Both patterns have
the same wildcards in the same order, so every name has exactly one counterpart. The most specific rule for a name applies
(docs/design.md 15.11, 15.12).

A gateway sends its exports to a neighbour as a catalogue (`make_catalogue`), and searches the neighbour's catalogues for names
(`ReceivedCatalogue`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, Generic, Literal, TypeAlias, TypeVar

from iris_py.federation.messages import CLUSTER, TOPIC, Catalogue, CatalogueEntry, LineError
from iris_py.patterns.topic.names import ANY_REST, ANY_TOKEN, Tokens, TopicTrie, parse_pattern, parse_topic

if TYPE_CHECKING:
    from collections.abc import Iterable

Kind: TypeAlias = Literal["cluster", "topic"]
#: When a stand-in serves: when no local member exists, or also when all local members are full.
When: TypeAlias = Literal["absent", "full"]
#: The detail of the audit: totals by the minute, or also every request.
Audit: TypeAlias = Literal["totals", "all"]

#: The uses of names, with their bits in a catalogue.
USES: Final = ("request", "survey", "broadcast", "tunnel", "subscribe", "publish")
#: The uses of each kind of rule; the first use is the default.
USES_OF: Final[dict[Kind, tuple[str, ...]]] = {"cluster": USES[:4], "topic": USES[4:]}

#: Neighbours of a gateway. Too small: a full mesh of regions does not fit; too large: each costs links and 256 MiB of queues.
CLOUDS_MAX: Final = 64
#: Names with a cached rule in a table; a full cache is emptied. Too small: uses of many names search the trie each time (some
#: microseconds); too large: a neighbour with ever new names fills memory, some 300 bytes for each.
LOOKUPS_MAX: Final = 1024

#: Concurrent requests of a rule. Too small: a long cloud link idles; too large: one neighbour floods the members.
IN_FLIGHT_DEFAULT: Final = 1024
#: Open tunnels of a rule. Too small: bulk jobs wait; too large: each tunnel may hold a window of bytes.
TUNNELS_DEFAULT: Final = 64
#: Concurrent subscription patterns of a neighbour under a rule. Too small: its nodes are refused; too large: each is matched.
SUBSCRIPTIONS_DEFAULT: Final = 256


@dataclass(frozen=True, slots=True)
class Rule:
    """The common part of export and import rules: two patterns with the same wildcards."""

    number: int
    """The position among the exports, or imports, of the file, from 0. Neighbours refer to exports by number."""
    kind: Kind
    """Whether the names are of clusters or of topics."""
    outside: str
    """The pattern of the exported names."""
    local: str
    """The pattern of the names in the local cloud; empty for an import without a local name."""
    clouds: tuple[str, ...]
    """The aliases of the neighbours concerned, in the order of the file."""
    line: int = field(default=1, compare=False)
    """The first line of the rule in the file."""
    _outside: Tokens = field(init=False, repr=False, compare=False)
    _local: Tokens = field(init=False, repr=False, compare=False)
    _has_wildcards: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_outside", parse_pattern(self.outside))
        object.__setattr__(self, "_has_wildcards", bool(wildcards(self._outside)))
        object.__setattr__(self, "_local", parse_pattern(self.local) if self.local else ())

    @property
    def outside_tokens(self) -> Tokens:
        """The tokens of `outside`."""
        return self._outside

    def to_local(self, name: str) -> str | None:
        """Return the local name of an exported name; None if the rule does not match."""
        if name == self.outside and not self._has_wildcards:
            return self.local or None
        return _rename(name, self._outside, self._local)

    def to_outside(self, name: str) -> str | None:
        """Return the exported name of a local name; None if the rule does not match."""
        return _rename(name, self._local, self._outside)


@dataclass(frozen=True, slots=True)
class ExportRule(Rule):
    """Names of the local cloud that neighbours may use, with limits."""

    allow: frozenset[str] = frozenset()
    """The allowed uses, a subset of `USES_OF` the kind."""
    requests_per_s: int | None = None
    """Requests, broadcasts and surveys per second and neighbour; None for no limit."""
    in_flight: int = IN_FLIGHT_DEFAULT
    """Concurrent requests, per neighbour."""
    bytes_per_s: int | None = None
    """Bytes of payload per second, neighbour and direction; None for no limit."""
    tunnels: int = TUNNELS_DEFAULT
    """Open tunnels, per neighbour."""
    subscriptions: int = SUBSCRIPTIONS_DEFAULT
    """Concurrent subscription patterns, per neighbour."""
    block: bool = False
    """Whether a neighbour's slow subscriber may block publishers of the local cloud."""
    trace: bool = False
    """Whether tracing headers pass."""
    audit: Audit = "totals"
    """The detail of the audit of the rule."""

    @property
    def allow_bits(self) -> int:
        """`allow` as a bit mask for the catalogue: one bit for each place in `USES`."""
        return sum(1 << bit for bit, use in enumerate(USES) if use in self.allow)


@dataclass(frozen=True, slots=True)
class ImportRule(Rule):
    """Names of neighbours that local nodes may use: as ``name@cloud``, and under the local name if present."""

    when: When = "absent"
    """For a cluster with a local name: serve when no local member exists, or also when all local members are full."""


AnyRule = TypeVar("AnyRule", bound=Rule)


class RuleTable(Generic[AnyRule]):
    """The rules of one kind for one neighbour, with fast lookup by exported name.

    Args:
        rules: Rules of one kind, no two equally specific for any name (`find_clashes`).
    """

    def __init__(self, rules: Iterable[AnyRule] = ()) -> None:
        self._rules = tuple(sorted(rules, key=lambda rule: specificity(rule.outside_tokens)))
        self._trie: TopicTrie[AnyRule] = TopicTrie()
        for rule in self._rules:
            self._trie.add(rule.outside_tokens, rule)
        self._found: dict[str, AnyRule | None] = {}

    @property
    def rules(self) -> tuple[AnyRule, ...]:
        """All rules, the most specific first."""
        return self._rules

    def find(self, name: str) -> AnyRule | None:
        """Return the most specific rule for an exported name; None without a rule, or for a name that may never cross."""
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
        """Return the rules that share a name with a pattern, the most specific first.

        Raises:
            ValueError: The pattern is invalid; the text says how to correct the pattern.
        """
        tokens = parse_pattern(pattern)
        return [rule for rule in self._rules if overlaps(rule.outside_tokens, tokens)]

    def _look_up(self, name: str) -> AnyRule | None:
        tokens = _tokens_of(name)
        if tokens is None:
            return None
        return min(self._trie.match(tokens), key=lambda rule: specificity(rule.outside_tokens), default=None)


def specificity(pattern: Tokens) -> tuple[int, int, int]:
    """Return a sort key, the most specific pattern first: most literals; exact before ``*`` before ``>``; most ``*``.

    A pattern that matches a subset of another pattern's names sorts before the other: the subset has literals in place of
    wildcards, no ``>``, or more tokens before the ``>``.
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
    """Return the pairs of rules that clash: both match some name for the same neighbour, and neither is more specific.

    The name is of a cluster or a topic. A rule that clashes with several earlier rules is paired with the first of them only.
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
    """Return the wildcards of a pattern, in order."""
    return tuple(token for token in pattern if token in (ANY_TOKEN, ANY_REST))


def _tokens_of(name: str) -> Tokens | None:
    """Split a name into tokens; None for a name that must never cross between clouds."""
    # Names of Iris and of other clouds are refused, too: a neighbour must not use the cluster of the gateways, nor reach a
    # third cloud through us.
    try:
        return parse_topic(name)
    except ValueError:
        return None


def _rename(name: str, pattern: Tokens, renamed: Tokens) -> str | None:
    """Translate a name from one pattern to another; None if the name does not match, or either name may not cross."""
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
    """Return the text matched by each wildcard of a pattern; None if the name does not match."""
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


class ReceivedCatalogue:
    """A neighbour's received catalogue (the names that the local cloud may use), prepared for lookups.

    Raises:
        LineError: The catalogue has an invalid pattern, an invalid rate, or a rule twice.

    Attributes:
        version: The version of the catalogue.
        entries: The entries, by rule number.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self.version = catalogue.version
        self.entries: dict[int, CatalogueEntry] = {entry.rule: entry for entry in catalogue.entries}
        if len(self.entries) != len(catalogue.entries):
            raise LineError("a catalogue with a rule twice")
        if not all(math.isfinite(entry.requests_per_s) and entry.requests_per_s >= 0 for entry in catalogue.entries):
            raise LineError("a catalogue with an invalid rate")
        rules: dict[str, list[Rule]] = {kind: [] for kind in NUMBERS}
        try:
            for entry in catalogue.entries:
                if entry.kind in KINDS:  # other kinds are of newer versions
                    rules[KINDS[entry.kind]].append(Rule(entry.rule, KINDS[entry.kind], entry.pattern, "", ()))
        except ValueError as exc:
            raise LineError("a catalogue with an invalid pattern") from exc
        self._tables = {kind: RuleTable(its) for kind, its in rules.items()}

    def find(self, kind: int, name: str, allow: int = 0) -> CatalogueEntry | None:
        """Return the entry for a name; None without an entry, or if the entry allows none of the given uses."""
        rule = self._tables[KINDS[kind]].find(name)
        entry = None if rule is None else self.entries[rule.number]
        return entry if entry is not None and (not allow or entry.allow & allow) else None

    def has_any(self, kind: Kind, pattern: str) -> bool:
        """Tell whether any entry shares a name with a pattern."""
        return bool(self._tables[kind].find_overlapping(pattern))

    @property
    def digest(self) -> str:
        """A digest of the allowed uses: equal for equal catalogues, regardless of the order and numbers of rules."""
        entries = sorted(
            (each.kind, each.pattern, each.allow, each.requests_per_s, each.in_flight) for each in self.entries.values()
        )
        return blake2b(repr(entries).encode(), digest_size=4).hexdigest()

    def overlapping(self, pattern: str) -> list[CatalogueEntry]:
        """Return the entries for topics that share a topic with a pattern."""
        return [self.entries[rule.number] for rule in self._tables["topic"].find_overlapping(pattern)]


def make_catalogue(version: int, rules: Iterable[ExportRule], block_bit: int) -> Catalogue:
    """Return the catalogue for one neighbour.

    Args:
        version: A larger version than the last catalogue's.
        rules: The rules for the neighbour.
        block_bit: The bit set for rules under which slow subscribers may block publishers.
    """
    entries = tuple(
        CatalogueEntry(
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
