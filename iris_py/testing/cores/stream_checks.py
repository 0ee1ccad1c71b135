"""The promises of replicated streams, checked while a simulation runs and at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from iris_py.streams.blocks import BlockKind
from iris_py.streams.raft.limits import RECENT_BYTES_MAX, UNCOMMITTED_BLOCKS_MAX

if TYPE_CHECKING:
    from iris_py.streams.blocks import BlockHeader
    from iris_py.streams.raft.context import ReplicaContext

__all__ = ["AckedRecord", "StreamChecks"]

_HOLE_RANGES_MAX: Final = 64


class AckedRecord(NamedTuple):
    """An acknowledged record of a writer."""

    producer: bytes
    number: int
    place: int
    """The index of its block."""
    chain: bytes


class StreamChecks:
    """Notes the acts of replicas, and raises at the first broken promise.

    Attributes:
        acked: The acknowledged records, by producer and number.
        leaders: The number of elected leaders.
    """

    def __init__(self) -> None:
        self.acked: dict[tuple[bytes, int], AckedRecord] = {}
        self.leaders = 0
        self._leaders: dict[int, bytes] = {}
        self._chains: dict[int, bytes] = {}  # of committed blocks
        self._end = 0  # the largest end that anybody was told

    @property
    def end(self) -> int:
        """The largest index that was acknowledged or confirmed."""
        return self._end

    def note_leader(self, store: bytes, term: int, context: ReplicaContext) -> None:
        """Check a new leader: alone in the term, and with every acknowledged block."""
        self.leaders += 1
        other = self._leaders.setdefault(term, store)
        assert other == store, f"{other.hex()[:4]} and {store.hex()[:4]} lead in the term {term}"
        entries = context.entries
        for index, chain in self._chains.items():
            if index > entries.base.index:
                assert entries.chain_at(index) == chain, (
                    f"the leader {store.hex()[:4]} of the term {term} lacks the committed block {index}"
                )

    def note_committed(self, store: bytes, index: int, chain: bytes | None) -> None:
        """Check a committed block: the chains of all committed prefixes are equal."""
        assert chain is not None, f"{store.hex()[:4]} lacks the block {index} that it calls committed"
        other = self._chains.setdefault(index, chain)
        assert other == chain, f"the block {index} at {store.hex()[:4]} is not the committed one"

    def note_acked(self, record: AckedRecord) -> None:
        """Note an acknowledgement to a writer."""
        assert self._chains.get(record.place) == record.chain, f"the block {record.place} was acknowledged for another one"
        self.acked[record.producer, record.number] = record
        self._end = max(self._end, record.place)

    def note_end(self, index: int, asked_at: int) -> None:
        """Check a confirmed end.

        Args:
            index: The end that a reader was told.
            asked_at: `end` at the time of the question.
        """
        assert index >= asked_at, f"the end {index} was told after {asked_at} had been"
        self._end = max(self._end, index)

    def check_bounds(self, context: ReplicaContext) -> None:
        """Check that the tables of a replica are within their bounds."""
        entries = context.entries
        if entries.last - context.commit > 2 * UNCOMMITTED_BLOCKS_MAX:
            raise AssertionError("too many uncommitted blocks")
        assert entries.size_behind(entries.base.index) <= RECENT_BYTES_MAX
        assert len(list(entries.holes)) <= _HOLE_RANGES_MAX

    def check_log(self, headers: list[BlockHeader], base: int) -> None:
        """Check the log of a replica at the end: every acknowledged record is there once, in the order of its producer.

        Args:
            headers: All committed blocks behind the base.
            base: The index before them.
        """
        places: dict[tuple[bytes, int], int] = {}
        newest: dict[bytes, int] = {}
        offset: int | None = None
        for header in headers:
            assert offset is None or header.offset == offset, f"the offset {header.offset} follows {offset}"
            offset = header.next_offset
            if header.kind in (BlockKind.RECORDS, BlockKind.CHANGE):
                key = (header.producer, header.sequence)
                assert key not in places, f"the record {header.sequence} is there twice"
                assert header.sequence > newest.get(header.producer, -1), f"the record {header.sequence} comes late"
                newest[header.producer] = header.sequence
                places[key] = header.index
        for key, record in self.acked.items():
            if record.place > base:
                assert places.get(key) == record.place, f"the acknowledged record {record.number} is not in its place"
