"""The index of other nodes' interest: from a topic to the nodes that want it.

A publisher learns the entries of each node (:mod:`iris_py.patterns.topic.shapes`) from the tables that it watches.
:class:`InterestIndex` finds the nodes for a topic in a time that depends on the shapes in use, and neither on the number of
entries nor on the number of topics:

1. The stem of the first token selects a *plan*, the shapes in use under this first token. The shapes that begin with a wildcard
   belong to every plan.
2. For each shape of the plan that fits the topic's number of tokens, the index hashes the literal tokens, and looks up the tag.
3. The nodes under all tags found are the targets. Equal sets of targets have the same *route* object.

The index never misses a node. It finds a node too much only if two tags collide, or if the node is *widened*: beyond
:data:`SHAPES_MAX` shapes under one first token, the nodes with most shapes receive all topics with this first token.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from iris_py.patterns.topic.shapes import ENTRY, WILD_STEM, can_match, is_entry, is_exact, literal_bits, literal_positions

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence
    from hashlib import blake2b

    from iris_py.patterns.topic.shapes import EntryHasher

Target = TypeVar("Target", bound="Hashable")
Route = TypeVar("Route")

#: Shapes that a publisher tries under one first token, and the same number of shapes that begin with a wildcard. Too small:
#: nodes with patterns of many forms receive unwanted messages. Too large: each shape costs a publication to a new topic 1 us.
SHAPES_MAX = 32
#: First tokens with a cached stem. Too small: another hash for each new topic, 1 us. Too large: memory, 150 bytes for each.
STEMS_MAX = 4096
#: Shared routes, by their nodes in order, and in the order in which the index finds them. Too small: the index makes the routes
#: of a publisher's topics again and again. Too large: memory, for a publisher to ever new sets of nodes.
ROUTES_MAX = 16_384
#: Nodes of all shared routes. Too small: as above, for topics with hundreds of targets. Too large: memory, 24 bytes for each
#: node of each route.
ROUTE_NODES_MAX = 262_144
#: Average rows of a bucket. Too small: memory for the arrays themselves, 200 bytes for each bucket. Too large: each insertion
#: moves half of a bucket.
BUCKET_ROWS = 512
#: In the tags of a result: some target is widened, so it is unknown which of its entries match.
WIDE_TAG = 0

_TAG_BITS = 64
_SHAPE_BITS = 25
_STEM_AND_SHAPE = itemgetter(0, 1)


class _TagTable:
    """The entries of one shape: a sorted multimap from tags to numbers of nodes, with 12 bytes for each entry.

    The rows lie in buckets, selected by the high bits of the tag, with two parallel arrays for each. Tags are hashes, so the
    buckets have equal sizes. If a node claims other tags, its bucket becomes long, which makes insertions slower and no lookup.

    Attributes:
        tags: The sorted tags of each bucket.
        nodes: The numbers of the nodes, in the order of ``tags``.
        shift: The bits of a tag below those that select the bucket.
        size: Number of rows.
        copy: Returns a copy of the hash of the shape.
        select: Selects the literal tokens of a topic; None if all tokens are literal.
        tag: The only tag of a shape without literal tokens; otherwise None.
    """

    __slots__ = ("copy", "nodes", "select", "shift", "size", "tag", "tags")

    def __init__(self, shape: int, shape_hash: blake2b) -> None:
        self.tags = [array("Q")]
        self.nodes = [array("I")]
        self.shift = _TAG_BITS
        self.size = 0
        positions = literal_positions(shape)
        self.copy = shape_hash.copy
        self.tag = None if positions else int.from_bytes(shape_hash.digest(), "big")
        self.select: Callable[[list[str]], Sequence[str]] | None = None
        if not is_exact(shape) and positions:
            first, last = positions[0], positions[-1]
            is_range = len(positions) == last - first + 1
            self.select = itemgetter(slice(first, last + 1)) if is_range else itemgetter(*positions)

    def add(self, tag: int, node: int) -> None:
        """Add a row; equal rows may repeat."""
        bucket = tag >> self.shift
        tags = self.tags[bucket]
        at = bisect_right(tags, tag)
        tags.insert(at, tag)
        self.nodes[bucket].insert(at, node)
        self.size += 1
        if self.size > BUCKET_ROWS * len(self.tags):
            self._split()

    def remove(self, tag: int, node: int) -> bool:
        """Remove one row; return whether it was present."""
        bucket = tag >> self.shift
        tags, nodes = self.tags[bucket], self.nodes[bucket]
        begin = bisect_left(tags, tag)
        try:
            at = nodes.index(node, begin, bisect_right(tags, tag, begin))
        except ValueError:
            return False
        del tags[at], nodes[at]
        self.size -= 1
        return True

    def _split(self) -> None:
        """Make two buckets of each."""
        self.shift -= 1
        all_tags: list[array[int]] = []
        all_nodes: list[array[int]] = []
        for bucket, (tags, nodes) in enumerate(zip(self.tags, self.nodes, strict=True)):
            middle = bisect_left(tags, (2 * bucket + 1) << self.shift)
            all_tags += (tags[:middle], tags[middle:])
            all_nodes += (nodes[:middle], nodes[middle:])
        self.tags, self.nodes = all_tags, all_nodes


#: The lookup of one shape: tag, copy, select and the rows themselves, as in :class:`_TagTable`.
_Probe: TypeAlias = "tuple[int | None, Callable[[], blake2b], Callable[[list[str]], Sequence[str]] | None, _TagTable]"


class _LookupPlan:
    """A set of shapes, shared by the stems under which exactly these shapes are in use.

    Attributes:
        shapes: The shapes, without those that begin with a wildcard.
        probes: The lookups for a topic, with those that begin with a wildcard, by its number of tokens; made at first use.
        users: Number of stems.
    """

    __slots__ = ("probes", "shapes", "users")

    def __init__(self, shapes: frozenset[int]) -> None:
        self.shapes = shapes
        self.probes: dict[int, tuple[_Probe, ...]] = {}
        self.users = 0


class _PlanTable:
    """The plan of each stem, and the number of entries behind each of its shapes."""

    def __init__(self) -> None:
        self._by_stem: dict[int, _LookupPlan] = {}
        self._by_shapes: dict[frozenset[int], _LookupPlan] = {}
        self._empty = _LookupPlan(frozenset())
        # Number of entries of a stem and shape beyond the first. Most stems of programs with a first token for each entity have
        # a single entry, and so none here.
        self._repeated: dict[int, int] = {}

    def find(self, stem: int) -> _LookupPlan:
        """Return the plan of a stem."""
        return self._by_stem.get(stem, self._empty)

    def has_room(self, stem: int, shapes: set[int]) -> bool:
        """Tell whether a plan may get these shapes, too."""
        return len(self.find(stem).shapes | shapes) <= SHAPES_MAX

    def add(self, stem: int, shape: int, count: int) -> None:
        """Count new entries of a stem and a shape, at least one."""
        shapes = self.find(stem).shapes
        if shape not in shapes:
            self._change(stem, shapes | {shape})
            count -= 1
        if count:
            key = stem << _SHAPE_BITS | shape
            self._repeated[key] = self._repeated.get(key, 0) + count

    def remove(self, stem: int, shape: int, count: int) -> None:
        """Count removed entries, at least one."""
        key = stem << _SHAPE_BITS | shape
        left = self._repeated.pop(key, 0) - count
        if left > 0:
            self._repeated[key] = left
        elif left < 0:
            self._change(stem, self.find(stem).shapes - {shape})

    def _change(self, stem: int, shapes: frozenset[int]) -> None:
        old = self._by_stem.pop(stem, None)
        if old is not None:
            old.users -= 1
            if not old.users:
                del self._by_shapes[old.shapes]
        if shapes:
            plan = self._by_shapes.get(shapes)
            if plan is None:
                plan = self._by_shapes[shapes] = _LookupPlan(shapes)
            plan.users += 1
            self._by_stem[stem] = plan
        if stem == WILD_STEM:
            for plan in (*self._by_shapes.values(), self._empty):
                plan.probes.clear()


class InterestIndex(Generic[Target, Route]):
    """The entries of all known nodes, and the targets of a topic.

    A target's entries are a multiset: a target that moves an entry from one table to another has the entry twice for a moment.

    Args:
        hasher: The hash functions of the network.
        make_route: Makes the route of a set of targets: a tuple without duplicates, empty for topics that nobody wants.
    """

    def __init__(self, hasher: EntryHasher, make_route: Callable[[tuple[Target, ...]], Route]) -> None:
        self._hasher = hasher
        self._make_route = make_route
        self._numbers: dict[Target, int] = {}  # the oldest target first
        self._targets: dict[int, Target] = {}
        self._unused: list[int] = []  # numbers below the number of targets and these
        self._counts: dict[int, int] = {}  # of entries, by number
        self._rows: dict[int, _TagTable] = {}
        self._plans = _PlanTable()
        # Widened targets: by stem and number, their entries without rows, as shape and tag in one integer, with repetitions.
        self._wide: dict[int, dict[int, Counter[int]]] = {}
        self._crowded: set[int] = set()  # stems whose widened targets changed
        self._stems: dict[str, int] = {}
        self._routes: dict[tuple[int, ...], Route] = {}
        self._route_nodes = 0

    def __len__(self) -> int:
        """Return the number of entries."""
        return sum(self._counts.values())

    def __contains__(self, target: Target) -> bool:
        """Tell whether a target has an entry."""
        return target in self._numbers

    @property
    def is_crowded(self) -> bool:
        """Whether :meth:`settle` may find a better choice of widened targets."""
        return bool(self._crowded)

    def match(self, topic: str) -> tuple[Route, tuple[int, ...], int]:
        """Return the route of a topic, the tags of the entries that match, and the stem of the topic.

        The result holds until an entry with this stem, or with :data:`~iris_py.patterns.topic.shapes.WILD_STEM`, changes, or a
        target gets its first entry or loses its last one. :data:`WIDE_TAG` among the tags says that a target is widened.

        Args:
            topic: A valid name (:func:`~iris_py.patterns.topic.names.parse_topic`).
        """
        tokens = topic.split(".")
        stem = self._stems.get(tokens[0]) or self._stem(tokens[0])
        plan = self._plans.find(stem)
        probes = plan.probes.get(len(tokens))
        if probes is None:
            probes = self._make_probes(plan, len(tokens))
        tags: list[int] = []
        nodes: list[int] = []
        for tag, copy, select, rows in probes:
            if tag is None:
                digest = copy()
                digest.update((topic if select is None else ".".join(select(tokens))).encode())
                tag = int.from_bytes(digest.digest(), "big")
            bucket = tag >> rows.shift
            candidates = rows.tags[bucket]
            at = bisect_left(candidates, tag)
            if at < len(candidates) and candidates[at] == tag:
                tags.append(tag)
                if at + 1 < len(candidates) and candidates[at + 1] == tag:
                    nodes += rows.nodes[bucket][at : bisect_right(candidates, tag, at)]
                else:
                    nodes.append(rows.nodes[bucket][at])
        if self._wide:
            wide = self._wide.get(stem, {}) | self._wide.get(WILD_STEM, {})
            if wide:
                tags.append(WIDE_TAG)
                nodes += wide
        key = tuple(nodes)
        route = self._routes.get(key)
        return self._route_of(key) if route is None else route, tuple(tags), stem

    def literal_bits(self, stem: int, count: int) -> int:
        """Return the positions of the tokens read by :meth:`match`, as bits.

        A topic with the same first token, as many tokens, and the same tokens at the positions has the same match.

        Args:
            stem: The stem of the topic.
            count: The number of tokens.
        """
        return literal_bits(self._plans.find(stem).shapes | self._plans.find(WILD_STEM).shapes, count)

    def change(self, target: Target, added: bytes, removed: bytes = b"") -> int:
        """Change the entries of a target; return the number of invalid entries, which have no effect.

        Args:
            added: Packed entries (:data:`~iris_py.patterns.topic.shapes.ENTRY`), best sorted.
            removed: Likewise; the target has all of them.
        """
        number = self._numbers.get(target)
        if number is None:
            number = self._add_target(target)
        valid = 0
        for stem, shape, tags in _by_shape(removed):
            self._remove(number, stem, shape, tags)
            valid += len(tags)
        for stem, shape, tags in _by_shape(added):
            self._add(number, stem, shape, tags)
            valid += len(tags)
        if not self._counts[number]:
            self._remove_target(target)
        return (len(added) + len(removed)) // ENTRY.size - valid

    def settle(self, entries_of: Callable[[Target], bytes]) -> None:
        """Choose the widened targets anew, under each first token whose widened targets changed.

        A target stays exact if it has fewer shapes under the first token than others, or as many and is newer. So a target with
        very many shapes does not harm the others for longer than the time between two calls. A call reads the entries of all
        targets, so the owner limits the rate of calls.

        Args:
            entries_of: Returns all packed entries of a target, as changed so far.
        """
        crowded, self._crowded = self._crowded, set()
        found: dict[int, dict[int, list[tuple[int, list[int]]]]] = {}
        for target, number in self._numbers.items():
            for stem, shape, tags in _by_shape(entries_of(target)):
                if stem in crowded:
                    found.setdefault(stem, {}).setdefault(number, []).append((shape, tags))
        for stem, by_number in found.items():
            for number, entries in by_number.items():
                for shape, tags in entries:
                    self._remove(number, stem, shape, tags)
            newest_first = reversed(by_number.items())
            for number, entries in sorted(newest_first, key=lambda item: len({shape for shape, _ in item[1]})):
                if not self._plans.has_room(stem, {shape for shape, _ in entries}):
                    self._wide.setdefault(stem, {})[number] = Counter()
                for shape, tags in entries:
                    self._add(number, stem, shape, tags)
        self._crowded.clear()

    # -- entries

    def _add(self, number: int, stem: int, shape: int, tags: list[int]) -> None:
        self._counts[number] += len(tags)
        wide = self._wide.get(stem, {})
        if number in wide or not self._plans.has_room(stem, {shape}):
            entries = self._wide.setdefault(stem, wide).setdefault(number, Counter())
            entries.update(shape << _TAG_BITS | tag for tag in tags)
            self._crowded.add(stem)
            return
        self._plans.add(stem, shape, len(tags))
        rows = self._rows.get(shape)
        if rows is None:
            rows = self._rows[shape] = _TagTable(shape, self._hasher.tag_hash(shape))
        for tag in tags:
            rows.add(tag, number)

    def _remove(self, number: int, stem: int, shape: int, tags: list[int]) -> None:
        if number in self._wide.get(stem, ()):
            tags = self._remove_wide(number, stem, shape, tags)
        if shape not in self._plans.find(stem).shapes:
            return
        rows = self._rows[shape]
        removed = sum([rows.remove(tag, number) for tag in tags])
        if not removed:
            return
        self._counts[number] -= removed
        self._plans.remove(stem, shape, removed)
        if stem in self._wide and shape not in self._plans.find(stem).shapes:
            self._crowded.add(stem)  # there is room for another shape
        if not rows.size:
            del self._rows[shape]

    def _remove_wide(self, number: int, stem: int, shape: int, tags: list[int]) -> list[int]:
        """Remove entries of a widened target; return the tags of those that have rows."""
        entries = self._wide[stem][number]
        left = []
        for tag in tags:
            key = shape << _TAG_BITS | tag
            if key not in entries:
                left.append(tag)
            elif entries[key] == 1:
                del entries[key]
            else:
                entries[key] -= 1
        self._counts[number] -= len(tags) - len(left)
        self._crowded.add(stem)
        if not entries:
            del self._wide[stem][number]
            if not self._wide[stem]:
                del self._wide[stem]
        return left

    # -- targets

    def _add_target(self, target: Target) -> int:
        number = self._unused.pop() if self._unused else len(self._targets)
        self._numbers[target] = number
        self._targets[number] = target
        self._counts[number] = 0
        return number

    def _remove_target(self, target: Target) -> None:
        number = self._numbers.pop(target)
        del self._targets[number], self._counts[number]
        self._unused.append(number)
        self._forget_routes()  # another target may get the number

    # -- topics

    def _route_of(self, nodes: tuple[int, ...]) -> Route:
        """Return the route to nodes, which may repeat, and remember it for this order of the nodes."""
        key = tuple(sorted(set(nodes)))
        route = self._routes.get(key)
        if len(self._routes) + 2 > ROUTES_MAX or self._route_nodes + len(nodes) > ROUTE_NODES_MAX:
            self._forget_routes()
        if route is None:
            targets = self._targets
            route = self._make_route(tuple([targets[node] for node in key]))
        self._routes[key] = self._routes[nodes] = route
        self._route_nodes += len(nodes)
        return route

    def _forget_routes(self) -> None:
        self._routes.clear()
        self._route_nodes = 0

    def _stem(self, token: str) -> int:
        if len(self._stems) >= STEMS_MAX:
            self._stems.clear()
        stem = self._stems[token] = self._hasher.stem(token)
        return stem

    def _make_probes(self, plan: _LookupPlan, count: int) -> tuple[_Probe, ...]:
        shapes = plan.shapes | self._plans.find(WILD_STEM).shapes
        every = [self._rows[shape] for shape in sorted(shapes) if can_match(shape, count)]
        probes = plan.probes[count] = tuple([(rows.tag, rows.copy, rows.select, rows) for rows in every])
        return probes


def _by_shape(packed: bytes) -> Iterator[tuple[int, int, list[int]]]:
    """Yield the stem, the shape and the tags of valid entries."""
    for (stem, shape), entries in groupby(ENTRY.iter_unpack(packed), _STEM_AND_SHAPE):
        if is_entry(stem, shape):
            yield stem, shape, [tag for _, _, tag in entries]
