"""One bad row costs itself: a batch whose handler failed is asked again in halves, until the bad rows are alone.

Keys of halves are made of that of the batch, so a task that runs again asks with the same ones. It is bounded: for each bad row
there are about two requests for each time that the batch can be halved, and never more than ``REQUESTS_MAX`` for a batch.

Where the first bad row fails the task, the halves are asked about for that row alone: so its error names it, and not its batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spark_connector.dataframes.arrow import decode_batch, encode_batch
from spark_connector.dataframes.question import Question, RowGroup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from spark_connector.dataframes.window import Window

__all__ = ["REQUESTS_MAX", "Bisector"]

#: How many requests are made about the parts of one batch that failed. Enough for a dozen bad rows among a thousand, which take
#: twenty each; a handler that fails for every row costs that much for one batch, and then for none (see :class:`Bisector`).
REQUESTS_MAX: Final = 256


class Bisector:
    """Splits the batches of a task whose handler failed.

    After a batch of which no part has a reply, others are not split until one has a reply again: that handler fails whatever it
    is given.

    Args:
        make_window: Makes what asks about the halves.
        is_strict: Whether the first bad row fails the task, so that no other has to be found.
    """

    def __init__(self, make_window: Callable[[], Window[pa.RecordBatch]], *, is_strict: bool) -> None:
        self._make_window = make_window
        self._is_strict = is_strict
        self._is_hopeless = False

    def pieces(self, group: RowGroup[pa.RecordBatch]) -> Iterator[RowGroup[pa.RecordBatch]]:
        """Yield a group, or the parts that it was split into, in the order of their rows; each has an outcome."""
        if isinstance(group.questions[0].outcome, bytes):
            self._is_hopeless = False
        if self._is_hopeless or not _can_split(group):
            yield group
            return
        pieces, asked = [group], 0
        while True:
            bad = [piece for piece in pieces if piece.questions[0].is_refused]
            bad = [piece for piece in (bad[:1] if self._is_strict else bad) if _can_split(piece)]
            if not bad or asked + 2 * len(bad) > REQUESTS_MAX:
                break
            asked += 2 * len(bad)
            halves = {id(piece): _halves(piece) for piece in bad}
            for _done in self._make_window().run(iter([half for pair in halves.values() for half in pair])):
                pass  # each has its outcome then
            pieces = [part for piece in pieces for part in halves.get(id(piece), (piece,))]
        self._is_hopeless = not any(isinstance(piece.questions[0].outcome, bytes) for piece in pieces)
        yield from pieces


def _can_split(group: RowGroup[pa.RecordBatch]) -> bool:
    """Tell whether the handler failed at several rows. A timeout, or a lost member, is the fault of none of them."""
    question = group.questions[0]
    if not question.is_refused or question.payload is None or group.rows.num_rows < 2:
        return False
    # A function of a batch is to return as many rows. One that does not cannot be split as the rows are.
    return decode_batch(question.payload).num_rows == group.rows.num_rows


def _halves(group: RowGroup[pa.RecordBatch]) -> tuple[RowGroup[pa.RecordBatch], RowGroup[pa.RecordBatch]]:
    question = group.questions[0]
    assert question.payload is not None
    asked, half = decode_batch(question.payload), group.rows.num_rows // 2
    return _part(group, asked, 0, half, f"{question.key}/0"), _part(group, asked, half, asked.num_rows, f"{question.key}/1")


def _part(group: RowGroup[pa.RecordBatch], asked: pa.RecordBatch, start: int, end: int, key: str) -> RowGroup[pa.RecordBatch]:
    count = end - start
    question = Question(key, encode_batch(asked.slice(start, count)), rows=count, is_part=True)
    return RowGroup(group.rows.slice(start, count), [question])
