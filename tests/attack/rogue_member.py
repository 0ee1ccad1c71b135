"""A node with the network's secret and real links, whose side of groups is hostile."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from iris_overlay.groups import entries
from iris_py.patterns.topic.shapes import EntryHasher
from iris_py.patterns.topic.share_entries import group_tag, share_entries
from iris_py.peers.decrypted_message import PeerMessage
from iris_py.wire import packets
from iris_py.wire.flows import COUNT_MASK
from iris_py.wire.shares import SharedNumber, TakenCounts, decode_numbers

if TYPE_CHECKING:
    from collections.abc import Iterable

    import iris_py as iris
    from iris_py.patterns.topic.names import Tokens
    from iris_py.peers.group import Group
    from iris_py.peers.peer import Peer


class Given(NamedTuple):
    """The count of messages from a publisher to the rogue in a group, after the last SHARED."""

    peer: Peer
    name: int
    end: int


class Rogue:
    """A real node that is a member of groups without subscriptions, and handles SHARED in its own way.

    Args:
        node: The node, which has no subscription with a group.

    Attributes:
        payloads: The messages for each group, by its tag.
        given: The counts of the last SHARED, by the tag of the group.
        lie: The answer to each SHARED: (window, queue, service_us, whether all messages are taken); None for no answer.
    """

    def __init__(self, node: iris.Node) -> None:
        self.node = node
        self.payloads: defaultdict[int, list[bytes]] = defaultdict(list)
        self.given: dict[int, Given] = {}
        self.lie: tuple[int, int, int, bool] | None = None
        self._claimed = b""
        self._group_names: dict[int, str] = {}
        node._core.pubsub.shares.receive = self._receive  # type: ignore[method-assign]

    @property
    def realm(self) -> Group:
        """The group of all topics."""
        (realm,) = self.node._core.groups.realms()
        return realm

    def tag(self, group: str) -> int:
        """Return the tag of a group."""
        tag = group_tag(self.realm.keys.interest_key(), group)
        self._group_names[tag] = group
        return tag

    def claim(self, shares: Iterable[tuple[Tokens, int, float, bool]]) -> None:
        """Claim shares: patterns, tags of groups, weights, and whether publishers wait."""
        self.claim_rows(share_entries(EntryHasher(self.realm.keys.interest_key()), shares))

    def claim_rows(self, rows: bytes) -> None:
        """Claim packed rows in place of those claimed before."""
        core, now = self.node._core, asyncio.get_running_loop().time()
        added, removed = entries.diff(self._claimed, rows)
        core.overlay.claim(self.realm.id, self.realm.keys.proof(core.info.id), added, removed, now)
        self._claimed = rows
        self._wake()

    def tell(self, tag: int, taken: TakenCounts) -> None:
        """Send a TAKEN to the publisher that gave the last message for a group."""
        peer = self.given[tag].peer
        argument = taken.taken & COUNT_MASK
        self._send(PeerMessage(self.realm, peer, packets.TAKEN, tag, argument, taken.encode()))

    def counts(self, tag: int, *, taken: int, **changes: int | str) -> TakenCounts:
        """Return what an honest member would tell, with changes."""
        given = self.given[tag]
        honest = TakenCounts(given.name, given.end, 0, taken, 1 << 20, 0, 1, self._group_names[tag])
        fields = {name: changes.get(name, getattr(honest, name)) for name in honest.__struct_fields__}
        return TakenCounts(**fields)

    def peer(self, node: iris.Node) -> Peer:
        """Return a linked node."""
        return next(
            peer for peer in self.node._core.peers.peer_by_link.values() if peer is not None and peer.id.hex() == node.id
        )

    def send_body(self, peer: Peer, body: bytes) -> None:
        """Send a body as it stands."""
        self.node._core._outbound.send_body(self.realm, peer, [body], len(body), asyncio.get_running_loop().time())
        self._wake()

    def _send(self, message: PeerMessage) -> None:
        self.node._core._outbound.gather(message, asyncio.get_running_loop().time())
        self._wake()

    def _wake(self) -> None:
        self.node._core._outbound.has_events = True
        self.node._runtime.wake()

    def _receive(
        self, group: Group, peer: Peer, flags: int, number: int, head: bytes, payloads: list[bytes], now: float
    ) -> None:
        decoded = decode_numbers(head)
        assert decoded is not None
        for row in decoded[0]:
            self.payloads[row.group] += payloads
            count = row.before + len(payloads)
            self.given[row.group] = Given(peer, row.name, count)
            if self.lie is not None and row.group in self._group_names:
                window, queue, service_us, is_taken = self.lie
                taken = count if is_taken else 0
                told = TakenCounts(row.name, count, 0, taken, window, queue, service_us, self._group_names[row.group])
                self.tell(row.group, told)


def encode_shared(
    numbers: list[SharedNumber], number: int, topic: str, payload: bytes, *, flags: int = 0, before_topic: bytes = b""
) -> bytes:
    """Return a SHARED whose head need not be valid."""
    rows = b"".join(
        [row.group.to_bytes(8, "big") + row.name.to_bytes(8, "big") + row.before.to_bytes(4, "big") for row in numbers]
    )
    head = bytes((len(numbers) % 256,)) + rows + before_topic + topic.encode()
    return packets.MESSAGE.pack(packets.SHARED, flags, len(head), len(payload), number, 0) + head + payload
