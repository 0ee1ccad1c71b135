"""All numbers of one node for `iris top`: the leaves of its tree of statistics by path, and their rates of change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from iris_py.observe.histogram import HistogramStatistics
from iris_py.observe.statistics import SubscriptionStatistics
from iris_py.overview.units import format_bytes, format_count, format_seconds

if TYPE_CHECKING:
    from iris_py.overview.pair import Pair

__all__ = ["NodeFigure", "figures_of"]


@dataclass(frozen=True, slots=True)
class NodeFigure:
    """A number of a node, or the text for a histogram, with the path in the tree of statistics."""

    name: str
    """The path, as in ``links.open``."""
    text: str
    """The number as text."""
    value: float | None
    """The number; None for a text."""
    per_s: float | None
    """The change per second between two answers; None without a change, or for a text."""

    @property
    def change(self) -> str:
        """The growth per second as text; empty if unknown or zero."""
        return "" if self.per_s is None else f"{'-' if self.per_s < 0 else '+'}{_text(self.name, abs(self.per_s))}"


def figures_of(pair: Pair) -> list[NodeFigure]:
    """Return the description of a node, and the statistics with values other than their defaults.

    The order is that of the tree of statistics (:class:`~iris_py.observe.statistics.Statistics`).
    """
    about = pair.last.about
    node = pair.last.node
    head = {"id": node.id, "name": node.name, "address": node.address, "zone": node.zone, "version": about.version}
    figures = [NodeFigure(name, text, None, None) for name, text in head.items() if text]
    figures.append(NodeFigure("round_trip_s", format_seconds(pair.last.round_trip_s), pair.last.round_trip_s, None))
    before = dict(_leaves("", pair.first.statistics))
    elapsed_s = about.uptime_s - pair.first.about.uptime_s
    for name, value in _leaves("", pair.last.statistics):
        if isinstance(value, HistogramStatistics):
            figures.append(NodeFigure(name, _shape(value), float(value.count), None))
        elif isinstance(value, str | bool):
            figures.append(NodeFigure(name, str(value), None, None))
        else:
            first = before.get(name)
            changed = value - first if isinstance(first, int | float) and elapsed_s > 0.0 else 0
            figures.append(NodeFigure(name, _text(name, value), value, changed / elapsed_s if changed else None))
    return figures


def _leaves(path: str, value: object) -> Iterator[tuple[str, str | float | HistogramStatistics]]:
    """Yield the leaves of a tree of statistics with their paths, without leaves with their default value."""
    if isinstance(value, HistogramStatistics):
        if value.count:
            yield path, value
    elif isinstance(value, msgspec.Struct):
        for field in msgspec.structs.fields(type(value)):
            found = getattr(value, field.name)
            if found != field.default and not (path == "links" and field.name == "each"):  # links have a table of their own
                yield from _leaves(_join(path, field.name), found)
    elif isinstance(value, Mapping):
        for name, each in value.items():
            yield from _leaves(_join(path, str(name)), each)
    elif isinstance(value, tuple):
        for number, each in enumerate(value):
            pattern = f" {each.pattern}" if isinstance(each, SubscriptionStatistics) else ""
            yield from _leaves(f"{path}[{number}]{pattern}", each)
    elif isinstance(value, str | int | float):
        yield path, value


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _text(name: str, value: float) -> str:
    if name.endswith("_s"):
        return format_seconds(value)
    return format_bytes(value) if name.endswith("_bytes") else format_count(value)


def _shape(histogram: HistogramStatistics) -> str:
    half, most = (format_seconds(histogram.quantile_s(share)) for share in (0.5, 0.99))
    return f"p50 {half}, p99 {most}"
