"""The index of other nodes' shares: from a topic to the nodes of each group (docs/design.md 8.14).

A publisher learns the rows of each node (:mod:`iris_py.patterns.topic.share_entries`) from the table of interest. A topic whose
first token no group listens to costs one look-up. For another topic the index hashes the literal tokens under each shape of a
pattern row. It is exact: a node is found for a topic if, and only if, a pattern of the group at this node matches.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from iris_py.patterns.topic.shapes import can_match, is_exact, literal_bits, literal_positions
from iris_py.patterns.topic.share_entries import PatternRow, ShareRow, StemRow
from iris_py.peers.member import WEIGHT_MAX

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable
    from hashlib import blake2b

    from iris_py.patterns.topic.names import Tokens
    from iris_py.patterns.topic.shapes import EntryHasher
    from iris_py.patterns.topic.share_entries import Row

Node = TypeVar("Node", bound="Hashable")

#: Shapes of patterns that a publisher tries. Nodes with few shapes come first. Too small: groups with rare forms of patterns
#: get nothing. Too large: each shape costs a publication to a new topic under a first token of a group 1 us.
SHAPES_MAX: Final = 32
#: Shares of one node; further ones are ignored. Too small: a program with many groups reaches it. Too large: memory of each
#: publisher, some 300 bytes for each, that one node can take.
NODE_SHARES_MAX: Final = 1024
#: Groups of one topic. Too small: further groups get nothing. Too large: each costs a choice for each slice.
TOPIC_GROUPS_MAX: Final = 64

#: The first token is literal.
_LITERAL_FIRST: Final = 1


class Share(NamedTuple):
    """The part of a node in a group."""

    weight: float
    blocks: bool
    """Whether publishers wait for the node when all members of the group are full."""


class _NodeShares:
    """The rows of a node.

    Attributes:
        stems: The first tokens.
        patterns: The patterns.
        shares: The shares, by the high half of the pattern's tag, and by group.
        count: Number of shares.
    """

    __slots__ = ("count", "patterns", "shares", "stems")

    def __init__(self) -> None:
        self.stems: set[int] = set()
        self.patterns: set[PatternRow] = set()
        self.shares: dict[int, dict[int, dict[ShareRow, None]]] = {}
        self.count = 0


class ShareIndex(Generic[Node]):
    """The shares of all known nodes.

    Args:
        hasher: The hash functions of the network.

    Attributes:
        shapes_many: Whether more than ``SHAPES_MAX`` shapes are in use: some groups may get no messages.
    """

    def __init__(self, hasher: EntryHasher) -> None:
        self._hasher = hasher
        self._nodes: dict[Node, _NodeShares] = {}
        self._stems: Counter[int] = Counter()
        self._shapes: Counter[int] = Counter()
        self._patterns: dict[tuple[int, int], dict[Node, None]] = {}
        self._wild_shapes = 0  # shapes without a literal first token
        self._probes: list[tuple[int, blake2b, list[int]]] | None = None
        self.shapes_many = False

    def __bool__(self) -> bool:
        """Tell whether any node has a share."""
        return bool(self._nodes)

    def nodes(self) -> list[Node]:
        """Return the nodes with rows."""
        return list(self._nodes)

    def groups_of(self, node: Node) -> dict[int, Share]:
        """Return the groups of a node, with the shares: the sum of the weights over all patterns, at most ``WEIGHT_MAX``."""
        own = self._nodes.get(node)
        groups: dict[int, Share] = {}
        for by_group in () if own is None else own.shares.values():
            for group, rows in by_group.items():
                for row in rows:
                    before = groups.get(group, Share(0.0, blocks=False))
                    groups[group] = Share(min(WEIGHT_MAX, before.weight + row.weight), before.blocks or row.blocks)
        return groups

    def change(self, node: Node, added: Iterable[Row], removed: Iterable[Row]) -> int:
        """Change the rows of a node; return the number of refused shares."""
        own = self._nodes.get(node)
        if own is None:
            own = self._nodes[node] = _NodeShares()
        for row in removed:
            self._remove(node, own, row)
        ignored = sum([not self._add(node, own, row) for row in added])
        if not (own.stems or own.patterns or own.count):
            del self._nodes[node]
        self._probes = None
        return ignored

    def remove(self, node: Node) -> None:
        """Remove all rows of a node."""
        own = self._nodes.get(node)
        if own is None:
            return
        shares = [row for by_group in own.shares.values() for rows in by_group.values() for row in rows]
        self.change(node, (), [*map(StemRow, own.stems), *own.patterns, *shares])

    def match(self, topic: str, stem: int) -> dict[int, dict[Node, None]]:
        """Return the nodes with a matching pattern, by the tag of the group; ``TOPIC_GROUPS_MAX`` groups of a node at most.

        Args:
            topic: A valid name.
            stem: The hash of its first token.
        """
        found: dict[int, dict[Node, None]] = {}
        if stem not in self._stems and not self._wild_shapes:
            return found
        found_of: Counter[Node] = Counter()
        tokens = topic.split(".")
        for shape, digest, positions in self._find_probes():
            if not can_match(shape, len(tokens)):
                continue
            digest = digest.copy()
            digest.update((topic if is_exact(shape) else ".".join([tokens[at] for at in positions])).encode())
            tag = int.from_bytes(digest.digest(), "big")
            for node in self._patterns.get((shape, tag), ()):
                for group in self._nodes[node].shares.get(tag >> 32, ()):
                    nodes = found.get(group, {})
                    if node in nodes:
                        continue
                    if found_of[node] >= TOPIC_GROUPS_MAX:
                        break
                    found_of[node] += 1
                    nodes[node] = None
                    found[group] = nodes
        return found

    def has_pattern(self, pattern: Tokens) -> bool:
        """Tell whether a group of any node has exactly this pattern."""
        _stem, shape, tag = self._hasher.entry(pattern)
        return (shape, tag) in self._patterns

    def literal_bits(self, stem: int, count: int) -> int:
        """Return the positions of the tokens read by :meth:`match`, as bits.

        Args:
            stem: The hash of the first token of the topic.
            count: The number of tokens.
        """
        if stem not in self._stems and not self._wild_shapes:
            return 0
        return literal_bits([shape for shape, _digest, _positions in self._find_probes()], count)

    # --

    def _find_probes(self) -> list[tuple[int, blake2b, list[int]]]:
        """Return the shapes to try: those of nodes with few shapes first, so that no node crowds out the others."""
        if self._probes is None:
            shapes: list[int] = list(self._shapes)
            self.shapes_many = len(shapes) > SHAPES_MAX
            if self.shapes_many:
                fewest: dict[int, int] = {}
                for own in self._nodes.values():
                    of_node = {row.shape for row in own.patterns}
                    for shape in of_node:
                        fewest[shape] = min(len(of_node), fewest.get(shape, len(of_node)))
                shapes.sort(key=lambda shape: (fewest[shape], shape))
            probes = [(shape, self._hasher.tag_hash(shape), literal_positions(shape)) for shape in shapes[:SHAPES_MAX]]
            self._probes = probes
        return self._probes

    def _add(self, node: Node, own: _NodeShares, row: Row) -> bool:
        """Add a missing row; return False if the node has too many shares."""
        if isinstance(row, ShareRow):
            if own.count >= NODE_SHARES_MAX:
                return False
            rows = own.shares.setdefault(row.pattern, {}).setdefault(row.group, {})
            own.count += row not in rows
            rows[row] = None
        elif isinstance(row, StemRow):
            if row.stem not in own.stems and len(own.stems) < NODE_SHARES_MAX:
                own.stems.add(row.stem)
                self._stems[row.stem] += 1
        elif row not in own.patterns and len(own.patterns) < NODE_SHARES_MAX:
            own.patterns.add(row)
            self._patterns.setdefault((row.shape, row.tag), {})[node] = None
            self._count_shape(row.shape, 1)
        return True

    def _remove(self, node: Node, own: _NodeShares, row: Row) -> None:
        """Remove a known row."""
        if isinstance(row, ShareRow):
            by_group = own.shares.get(row.pattern, {})
            rows = by_group.get(row.group, {})
            if row in rows:
                del rows[row]
                own.count -= 1
                if not rows:
                    del by_group[row.group]
                if not by_group:
                    del own.shares[row.pattern]
        elif isinstance(row, StemRow):
            if row.stem in own.stems:
                own.stems.discard(row.stem)
                self._stems[row.stem] -= 1
                if not self._stems[row.stem]:
                    del self._stems[row.stem]
        elif row in own.patterns:
            own.patterns.discard(row)
            nodes = self._patterns[row.shape, row.tag]
            del nodes[node]
            if not nodes:
                del self._patterns[row.shape, row.tag]
            self._count_shape(row.shape, -1)

    def _count_shape(self, shape: int, change: int) -> None:
        is_new = shape not in self._shapes
        self._shapes[shape] += change
        is_last = not self._shapes[shape]
        if is_last:
            del self._shapes[shape]
        if not shape & _LITERAL_FIRST:
            self._wild_shapes += is_new - is_last
