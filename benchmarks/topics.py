"""``python -m benchmarks.topics``: the costs of topics.

``match`` measures a publisher's matching alone, without messages, sockets and other nodes. There, nodes have subscribed to
users by their names (``users.created.7``), and one node to all of them (``users.>``). So a topic with a subscriber has two
shapes and two targets. The sections of several processes are in :mod:`benchmarks.topic_rates` and
:mod:`benchmarks.group_rates`, and the simulated one is in :mod:`benchmarks.fanout_cost`.
"""

from __future__ import annotations

import enum
import time
import tracemalloc
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer

from benchmarks import fanout_cost, group_rates, topic_rates
from benchmarks.cli import report
from benchmarks.harness import Sample, Section, Trial
from iris_py.patterns.topic.interest import InterestIndex
from iris_py.patterns.topic.shapes import ENTRIES_MAX, EntryHasher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

SIZES, QUICK_SIZES = (100, 10_000, 1_000_000), (100,)
SHAPES, QUICK_SHAPES = (1, 3, 32), (3,)
#: Patterns where the number of shapes varies.
SHAPED_PATTERNS: Final = 10_000
#: Topics of a measurement.
TOPICS, QUICK_TOPICS = 40_000, 100
#: Changes of a measurement.
CHANGES: Final = 2_000
NODES_MAX: Final = 4_096
_HASHER: Final = EntryHasher(bytes(32))

_Index = InterestIndex[int, tuple[int, ...]]


class What(enum.Enum):
    """The sections to measure."""

    MATCH = "match"
    NEW = "new"
    MANY = "many"
    CHANGES = "changes"
    SHARED = "shared"
    FANOUT = "fanout"


def main(
    what: Annotated[What, typer.Argument(help="What to measure.")] = What.MATCH,
    runs: Annotated[int, typer.Option(min=1, max=100, help="How often each trial has its turn.")] = 5,
    as_json_: Annotated[bool, typer.Option("--json", help="Print JSON, with the values of every run.")] = False,
    quick: Annotated[bool, typer.Option(help="Measure next to nothing: shows that everything works.")] = False,
) -> None:
    """Measure the costs of topics."""
    report([_SECTIONS[what](quick=quick)], runs, as_json=as_json_)


def match_section(*, quick: bool) -> Section:
    """Return the index of interest, by its number of patterns and by its shapes."""
    topics = QUICK_TOPICS if quick else TOPICS
    sizes = [Trial(f"{size:,} patterns", partial(_measure_size, size, topics)) for size in (QUICK_SIZES if quick else SIZES)]
    shapes = [
        Trial(f"{shapes} shapes", partial(_measure_shapes, shapes, topics)) for shapes in (QUICK_SHAPES if quick else SHAPES)
    ]
    return Section(
        "match",
        f"The targets of {topics:,} topics, in processor time for one topic. A topic has two shapes and two "
        f"targets. By shapes: {SHAPED_PATTERNS:,} patterns, one target.",
        [*sizes, *shapes],
    )


def _measure_size(size: int, topics: int) -> Sequence[Sample]:
    nodes = max(1, min(NODES_MAX, size // 100))
    shares = [_packed(f"users.created.{number}" for number in range(node, size, nodes)) for node in range(nodes)]
    tracemalloc.start()
    index = _make_index(shares)
    bytes_each = tracemalloc.get_traced_memory()[0] / size
    tracemalloc.stop()
    index.change(nodes, _packed(["users.>"]))
    step = max(1, size // topics)
    wanted = [f"users.created.{number}" for number in range(0, size, step)][:topics]
    return [
        Sample("new topic", _cost(index, wanted, topics, targets=2), "us"),
        Sample("new topic, one target", _cost(index, [f"users.deleted.{each}" for each in range(topics)], topics, 1), "us"),
        Sample("new topic, nobody", _cost(index, [f"nobody.created.{each}" for each in range(topics)], topics, 0), "us"),
        Sample("new first token, nobody", _cost(index, [f"{each}.created" for each in range(topics)], topics, 0), "us"),
        Sample("add and remove an entry", _cost_of_change(index), "us"),
        Sample("load and removal of a node with all entries", _cost_of_load(index), "ms"),
        Sample("memory of an entry", bytes_each, "bytes"),
    ]


def _measure_shapes(shapes: int, topics: int) -> Sequence[Sample]:
    tail = ("created", "eu", "west", "a", "{}")
    masks = range((1 << len(tail)) - 1, 0, -1)[:shapes]
    forms = [".".join(("users", *(word if mask >> place & 1 else "*" for place, word in enumerate(tail)))) for mask in masks]
    forms += ["users.none.>"] * (shapes - len(masks))
    each = SHAPED_PATTERNS // shapes
    index = _make_index(
        [_packed({form.format(number if form == forms[0] else f"other{number}") for number in range(each)}) for form in forms]
    )
    wanted = [forms[0].format(number) for number in range(each)]
    return [Sample("new topic", _cost(index, wanted, topics), "us")]


def _make_index(shares: Iterable[bytes]) -> _Index:
    index: _Index = InterestIndex(_HASHER, tuple)
    for node, share in enumerate(shares):
        index.change(node, share)
    return index


def _packed(patterns: Iterable[str]) -> bytes:
    return b"".join(sorted(_HASHER.entry(tuple(each.split("."))).pack() for each in patterns))


def _cost(index: _Index, topics: Sequence[str], total: int, targets: int | None = None) -> float:
    """Return the microseconds for a topic."""
    match, spent, done = index.match, 0.0, 0
    while done < total:
        began = time.process_time()
        for topic in topics:
            match(topic)
        spent += time.process_time() - began
        done += len(topics)
        assert targets is None or len(match(topics[-1])[0]) == targets
    return spent / done * 1e6


def _cost_of_change(index: _Index) -> float:
    entries = [_packed([f"users.created.{number}"]) for number in range(CHANGES)]
    began = time.process_time()
    for entry in entries:
        index.change(0, entry)
    for entry in entries:
        index.change(0, b"", entry)
    return (time.process_time() - began) / CHANGES * 1e6


def _cost_of_load(index: _Index) -> float:
    """Return the milliseconds."""
    entries = _packed(f"users.updated.{number}" for number in range(ENTRIES_MAX))
    began = time.process_time()
    index.change(-1, entries)
    index.change(-1, b"", entries)
    return (time.process_time() - began) * 1e3


_SECTIONS: Final[dict[What, Callable[..., Section]]] = {
    What.MATCH: match_section,
    What.NEW: topic_rates.new_section,
    What.MANY: topic_rates.many_section,
    What.CHANGES: topic_rates.changes_section,
    What.SHARED: group_rates.shared_section,
    What.FANOUT: fanout_cost.fanout_section,
}

if __name__ == "__main__":
    typer.run(main)
