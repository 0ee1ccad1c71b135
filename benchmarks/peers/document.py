"""Figures as a page of documentation, with its plots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from benchmarks.peers.system import Kind
from benchmarks.peers.systems import find_system
from benchmarks.peers.tables import number, summary

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from benchmarks.peers.figures import Figures, Row

_INTRODUCTION: Final = """\
# Benchmarks

These benchmarks compare Iris, encrypted and through its public API, with other messaging systems and with raw TCP, in the same
run. `make bench DOCS=1` (`python -m benchmarks.peers --docs docs`) writes this page and its plots.

* **Only Iris encrypts and authenticates here**. Every other system runs with its ordinary Python client and its defaults, and
  encrypts only where TLS or CURVE is set up. A system that can either wait or lose messages is set to wait, as Iris is
  (`policy="block"`); the tables note messages that were lost nevertheless.
* **All systems take turns**: within each round of a case every system is measured once, alternately forwards and backwards.
  Each measurement has its own processes, and its own server if the system has one, on 127.0.0.1.
* A value is the **median** of the rounds, with the minimum and the maximum. Ratios are ratios of medians. The best peer is the
  best system without losses. Raw TCP does not count as a peer: it is the limit, not a messaging system.
* An empty cell: the system does not have this feature.
"""
_REPEAT: Final = """\
## Repeat it

```
make bench                 # all of it: half an hour
make bench QUICK=1         # some minutes, one round of everything, only to look
make bench ROUNDS=5 PEERS='iris pyzmq zenoh' WORKLOADS='stream request' MESSAGES=1000000 DOCS=1
```

The benchmarks need Linux, an otherwise idle machine, and more rounds where the spread is large. `build/bench/peers.json` has
every single value; `benchmarks/peers/cli.py` describes its fields.
"""


def write(
    figures: Figures, about: dict[str, Any], workloads: Sequence[tuple[str, str]], plots: Sequence[Path], file: Path
) -> None:
    """Write the page."""
    parts = [_INTRODUCTION, *_about(about), "## Iris beside the best peer\n", _summary(figures, workloads)]
    for name, caption in workloads:
        rows = figures.rows(name)
        if not rows:
            continue
        parts += [f"## {name}\n", f"{caption}\n"]
        parts += [f"![{path.stem}]({path.relative_to(file.parent).as_posix()})\n" for path in plots if _is_of(path, name)]
        parts += _workload(rows)
    reasons = figures.all_reasons()
    if reasons:
        parts.append("## Not measured\n")
        parts.append(
            "\n".join(f"* {system}, {workload}, {case}: {reason}" for workload, case, system, reason in reasons) + "\n"
        )
    parts.append(_REPEAT)
    before = file.read_text() if file.exists() else ""
    file.write_text(join_parts("\n".join(parts), federation_part(before)))


#: What stands around the part of the page that another command writes.
FEDERATION_BEGIN: Final = "<!-- federation -->\n"
FEDERATION_END: Final = "<!-- end of federation -->\n"


def federation_part(page: str) -> str:
    """Return the part of a page about federations, with its marks; empty if it has none."""
    begin, end = page.find(FEDERATION_BEGIN), page.find(FEDERATION_END)
    return page[begin : end + len(FEDERATION_END)] if 0 <= begin < end else ""


def join_parts(page: str, federation: str) -> str:
    """Return a page without a part about federations with such a part, before how to repeat it."""
    if not federation:
        return page
    return page.replace("## Repeat it\n", f"{federation}\n## Repeat it\n", 1)


#: The plots of each workload, by the begin of their names.
_PLOTS: Final = {"request": ("requests", "lone-request"), "stream": ("stream", "stream-cost")}


def _is_of(path: Path, workload: str) -> bool:
    return path.stem.removeprefix("peers-") in _PLOTS.get(workload, (workload,))


def _about(about: dict[str, Any]) -> Iterator[str]:
    machine = about["machine"]
    yield "## Machine, versions, settings\n"
    yield (
        f"{machine['processor']}, {machine['processors']} processors, {machine['memory_gib']:.0f} GiB; {machine['system']}; "
        f"Python {machine['python']}. {about['counters']} Measured on {about['date']} with {about['rounds']} rounds and "
        f"{about['scale']['seconds']:g} s for a measurement; the load of the machine before was {machine['load']:.1f}.\n"
    )
    lines = ["| system | encrypts | versions | how it is used |", "|---|---|---|---|"]
    for name, system in about["systems"].items():
        versions = ", ".join(f"{package} {version}" for package, version in system["versions"].items())
        lines.append(f"| {name} | {'**yes**' if system['is_encrypted'] else 'no'} | {versions} | {system['use']} |")
    yield "\n".join(lines) + "\n"


def _summary(figures: Figures, workloads: Sequence[tuple[str, str]]) -> str:
    lines = [
        "| workload | case | metric | iris | best peer | iris / best peer | iris / raw TCP |",
        "|---|---|---|--:|--:|--:|--:|",
    ]
    for name, _caption in workloads:
        lines += [
            "| " + " | ".join((row.workload, row.case, row.metric, *cells)) + " |"
            for row in figures.rows(name)
            if (cells := summary(row)) is not None
        ]
    return "\n".join(lines) + "\n"


def _workload(rows: Sequence[Row]) -> Iterator[str]:
    """Return a table for each case: a row for each system, a column for each metric, with the spread and the ratio to Iris."""
    for case in dict.fromkeys(row.case for row in rows):
        own = [row for row in rows if row.case == case]
        systems = dict.fromkeys(system for row in own for system in row.cells)
        lines = [
            "| " + " | ".join((case, *(f"{row.metric}, {row.unit}" if row.unit else row.metric for row in own))) + " |",
            "|---|" + "--:|" * len(own),
        ]
        for system in systems:
            name = f"**{system}**" if find_system(system).about.kind is Kind.IRIS else system
            lines.append("| " + " | ".join((name, *(_cell(row, system) for row in own))) + " |")
        yield "\n".join(lines) + "\n"


def _cell(row: Row, system: str) -> str:
    cell = row.cells.get(system)
    if cell is None:
        return ""
    ratio = row.ratio(system)
    text = f"{number(cell.median)} ({number(min(cell.runs))} to {number(max(cell.runs))})"
    return text + ("" if ratio is None else f" {ratio:.2f}x") + "".join(f" *{note}*" for note in cell.notes)
