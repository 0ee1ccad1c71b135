"""Plots of figures, as small SVG files. Needs matplotlib: the extra ``plots``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from benchmarks.peers.figures import OURS
from benchmarks.peers.system import Kind
from benchmarks.peers.systems import find_system
from iris_py.cli.simulate.report import prepare, save_svg

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from benchmarks.peers.figures import Figures, Row

__all__ = ["plot", "prepare"]

#: Of the three parts in the comparison.
_COLORS: Final = {Kind.IRIS: "tab:blue", Kind.PEER: "tab:gray", Kind.LIMIT: "tab:olive"}
#: Of lines: more than there are by default, so that no two systems share one.
_LINE_COLORS: Final = (
    *("tab:blue", "tab:orange", "tab:green", "tab:red", "tab:purple", "tab:brown", "tab:pink", "tab:gray", "tab:olive"),
    *("tab:cyan", "black", "gold", "lime", "navy"),
)
#: What is drawn as bars: the file, the workload, the metric, the title. One picture for all cases of the workload.
_BARS: Final = (
    ("queue", "queue", "received", "1 KiB messages, one to one"),
    ("stream", "stream", "received", "Messages, one to one"),
    ("stream-cost", "stream", "processor time", "What a message costs, both sides and the server"),
    ("fan-out", "fan-out", "delivered", "Deliveries to several subscribers, 1 KiB"),
    ("requests", "request", "replies", "Requests of 1 KiB by several callers"),
    ("lone-request", "request", "p50", "A lone request of 1 KiB"),
    ("bulk", "bulk", "beside bulk p99", "A small request beside bulk, p99"),
    ("survey", "survey", "p50", "A survey"),
    ("tunnel", "tunnel", "bytes", "A tunnel"),
    ("start-up", "start-up", "first reply after", "From the start of a process to its first reply"),
    ("memory", "memory", "a process that serves, with its server", "Memory of the service, and its server"),
)


def plot(figures: Figures, folder: Path) -> Iterator[Path]:
    """Draw all that there are figures for; return the files one by one."""
    for name, workload, metric, title in _BARS:
        rows = [row for row in figures.rows(workload) if row.metric == metric]
        if rows:
            yield save_svg(folder / f"peers-{name}.svg", partial(_draw_bars, rows=rows, title=title))
    means = [row for row in figures.rows("queue-latency") if row.metric.startswith("mean of ")]
    if means:
        yield save_svg(folder / "peers-queue-latency.svg", lambda figure: _draw_latencies(figure, means))


def _draw_bars(figure: Any, rows: Sequence[Row], title: str) -> None:  # noqa: ANN401 - matplotlib is not known when types are checked
    """Draw a panel for each case: a bar for each system, as long as its median, with a line from the least to the most."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    figure.set_size_inches(3.2 + 3.2 * len(rows), 0.9 + 0.28 * max(len(row.cells) for row in rows))
    for axes, row in zip(figure.subplots(1, len(rows), squeeze=False)[0], rows, strict=True):
        cells = sorted(row.cells.values(), key=lambda cell: cell.median, reverse=not row.is_more_better)
        medians = [cell.median for cell in cells]
        spread = [
            [cell.median - min(cell.runs) for cell in cells],
            [max(cell.runs) - cell.median for cell in cells],
        ]
        kinds = [find_system(cell.system).about.kind for cell in cells]
        axes.barh(
            [cell.system + (" (lossy)" if cell.is_lossy else "") for cell in cells],
            medians,
            xerr=spread,
            color=[_COLORS[kind] for kind in kinds],
            error_kw={"elinewidth": 0.8, "ecolor": "black"},
        )
        if min(medians) > 0 and max(medians) / min(medians) > 50:
            axes.set_xscale("log")
        else:
            axes.xaxis.set_major_locator(MaxNLocator(5))
            axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.tick_params(labelsize="small")
        axes.grid(alpha=0.3, axis="x")
        axes.set_xlabel(f"{row.case}, {row.unit}", fontsize="small")
    figure.suptitle(f"{title} ({'more' if rows[0].is_more_better else 'less'} is better)", fontsize="medium")


def _draw_latencies(figure: Any, rows: Sequence[Row]) -> None:  # noqa: ANN401
    axes = figure.subplots()
    axes.set_prop_cycle(color=_LINE_COLORS)
    counts = {row.metric: int(row.metric.removeprefix("mean of ").replace(",", "")) for row in rows}
    for system in dict.fromkeys(name for row in rows for name in row.cells):
        kind = find_system(system).about.kind
        points = [(counts[row.metric], row.cells[system].median) for row in rows if system in row.cells]
        axes.plot(
            *zip(*points, strict=True),
            marker="o",
            label=system,
            linewidth=2.5 if system == OURS else 1.2,
            linestyle={Kind.IRIS: "-", Kind.PEER: "--", Kind.LIMIT: ":"}[kind],
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="x-small", ncols=2)
    axes.set(xlabel="messages", ylabel="mean time under way, ms", title="1 KiB messages, as fast as it goes (less is better)")
