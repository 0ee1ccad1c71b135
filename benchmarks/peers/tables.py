"""Figures for people, on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from benchmarks.peers.figures import OURS, iris_to
from benchmarks.peers.system import Kind
from benchmarks.peers.systems import find_system

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.peers.figures import Cell, Figures, Row


def tables(figures: Figures, workloads: Sequence[tuple[str, str]]) -> Iterator[Table]:
    """Return a table for each workload, and one of Iris beside the best peer."""
    for name, caption in workloads:
        rows = figures.rows(name)
        if rows or any(workload == name for workload, *_rest in figures.all_reasons()):
            yield _workload_table(figures, name, caption, rows)
    yield summary_table(figures, [name for name, _caption in workloads])


def _workload_table(figures: Figures, name: str, caption: str, rows: Sequence[Row]) -> Table:
    reasons = [f"! {system}, {case}: {reason}" for workload, case, system, reason in figures.all_reasons() if workload == name]
    table = Table(title=name, caption="\n".join([caption, *reasons]), title_justify="left", caption_justify="left")
    for heading in ("case", "metric", "system"):
        table.add_column(heading)
    for heading in ("median", "min to max", f"/ {OURS}"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        best = row.best_of(Kind.PEER)
        for number, cell in enumerate(row.cells.values()):
            first = number == 0
            table.add_row(
                row.case if first else "", row.metric if first else "", *_cell(row, cell, is_best=cell.system == best)
            )
        table.add_section()
    return table


def _cell(row: Row, cell: Cell, *, is_best: bool) -> list[Text]:
    style = {Kind.IRIS: "bold", Kind.LIMIT: "dim", Kind.PEER: "green" if is_best else ""}[find_system(cell.system).about.kind]
    ratio = row.ratio(cell.system)
    notes = f" ! {cell.notes[0]}" if cell.notes else ""
    texts = [
        cell.system + (" *" if is_best else "") + notes,
        f"{number(cell.median)} {row.unit}",
        f"{number(min(cell.runs))} to {number(max(cell.runs))}",
        "" if ratio is None else f"{ratio:.2f}",
    ]
    return [Text(text, style=style) for text in texts]


def summary_table(figures: Figures, workloads: Sequence[str]) -> Table:
    """Return one row for each metric: Iris, the best peer that lost nothing, and their ratio."""
    table = Table(
        title="Iris beside the best peer",
        caption="Ratios of medians. Of rates more is better, of times, costs and memory less.",
        title_justify="left",
        caption_justify="left",
    )
    for heading in ("workload", "case", "metric"):
        table.add_column(heading)
    for heading in ("iris", "best peer", "iris / best peer", "iris / limit"):
        table.add_column(heading, justify="right", no_wrap=True)
    for workload in workloads:
        for row in figures.rows(workload):
            if (cells := summary(row)) is not None:
                table.add_row(row.workload, row.case, row.metric, *cells)
        table.add_section()
    return table


def summary(row: Row) -> list[str] | None:
    """Return Iris, the best peer, and the ratios to it and to the limit; None where Iris has no value."""
    ours = row.cells.get(OURS)
    if ours is None:
        return None
    best, limit = row.best_of(Kind.PEER), row.best_of(Kind.LIMIT)
    to_best, to_limit = (None if system is None else iris_to(row, system) for system in (best, limit))
    return [
        f"{number(ours.median)} {row.unit}",
        "" if best is None else f"{number(row.cells[best].median)} {row.unit} ({best})",
        "" if to_best is None else f"{to_best:.2f}",
        "" if to_limit is None else f"{to_limit:.2f}",
    ]


def number(value: float) -> str:
    """Return a number with as many digits as mean something."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
