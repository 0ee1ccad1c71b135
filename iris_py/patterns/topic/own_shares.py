"""The shares of the local node: subscriptions with groups, and the rows in the table (docs/design.md 8.14)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_overlay.groups.entries import diff
from iris_py.patterns.topic.incoming_shares import share_of
from iris_py.patterns.topic.shapes import EntryHasher, shape_of
from iris_py.patterns.topic.share_entries import group_tag, share_entries
from iris_py.patterns.topic.share_index import NODE_SHARES_MAX

if TYPE_CHECKING:
    from iris_py.patterns.topic.incoming_shares import IncomingShares, SharedQueue
    from iris_py.patterns.topic.names import Tokens
    from iris_py.peers.group import Group

#: Shapes of the patterns of one node's shares. Too small: a program with patterns of many forms cannot use groups. Too large:
#: two nodes exhaust the shapes that publishers try (:data:`~iris_py.patterns.topic.share_index.SHAPES_MAX`).
SHAPES_MAX: Final = 16


class OwnShares:
    """The subscriptions of the local node with groups.

    Args:
        incoming: Gets the tags of the groups.
    """

    def __init__(self, incoming: IncomingShares) -> None:
        self._incoming = incoming
        self._queues: dict[tuple[Tokens, str], dict[SharedQueue, None]] = {}
        self._claimed: dict[bytes, bytes] = {}  # rows, by the table of a generation
        self._wanted: dict[bytes, bytes] = {}  # likewise, while they are claimed

    def __bool__(self) -> bool:
        """Tell whether the node has a share."""
        return bool(self._queues)

    def add(self, queue: SharedQueue) -> None:
        """Add a subscription.

        Raises:
            ValueError: Too many shares, or too many shapes of patterns.
        """
        key = queue.pattern, queue.group
        if key not in self._queues:
            if len(self._queues) >= NODE_SHARES_MAX:
                raise ValueError(
                    f"a node subscribes with at most {NODE_SHARES_MAX} pairs of pattern and group. Use wider patterns, or more "
                    "nodes."
                )
            shapes = {shape_of(pattern) for pattern, _group in self._queues} | {shape_of(queue.pattern)}
            if len(shapes) > SHAPES_MAX:
                raise ValueError(
                    f"the patterns of a node's groups have at most {SHAPES_MAX} different forms: places of wildcards, and "
                    f"numbers of tokens. {queue.name!r} is one too many. Use a wider pattern, or another node."
                )
        self._queues.setdefault(key, {})[queue] = None

    def remove(self, queue: SharedQueue) -> bool:
        """Remove a subscription; return whether it existed."""
        key = queue.pattern, queue.group
        queues = self._queues.get(key, {})
        if queue not in queues:
            return False
        del queues[queue]
        if not queues:
            del self._queues[key]
        return True

    def changes(self, table: Group) -> tuple[bytes, bytes]:
        """Return the rows to add to, and to remove from, the table of a generation."""
        key = table.keys.interest_key()
        shares = []
        for (pattern, name), queues in self._queues.items():
            tag = group_tag(key, name)
            self._incoming.name_tag(table.id, tag, name)
            share = share_of(queues)
            shares.append((pattern, tag, share.weight, share.blocks))
        rows = share_entries(EntryHasher(key), shares)
        self._wanted[table.id] = rows
        return diff(self._claimed.get(table.id, b""), rows)

    def note_claimed(self, table: Group) -> None:
        """Note the claim of the changes returned last."""
        self._claimed[table.id] = self._wanted.pop(table.id)

    def forget_table(self, table: bytes) -> None:
        """Forget a generation."""
        self._claimed.pop(table, None)
        self._incoming.forget_table(table)
