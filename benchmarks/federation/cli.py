"""The command ``python -m benchmarks.federation``: all of it, as tables, as JSON, and as a part of the page of benchmarks."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path  # noqa: TC003 - typer looks at it
from statistics import median
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console

from benchmarks.cli import measure, terminate
from benchmarks.federation import sections
from benchmarks.harness import BenchmarkFailed
from benchmarks.peers.document import FEDERATION_BEGIN, FEDERATION_END, federation_part, join_parts
from benchmarks.report import as_json, as_table, number

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.harness import Section
    from benchmarks.report import Row

_WIDTH: Final = 128
_INTRODUCTION: Final = """\
## Federation

Two clouds joined by gateways, beside one cloud without any, and beside two NATS servers that are joined, once as a leafnode and
once as gateways. `make bench-federation DOCS=1` writes this part.

* **Iris encrypts and authenticates everywhere**: from the caller to its gateway, between the gateways, and to the member. NATS
  has TLS between its servers here, and nothing between them and their clients.
* All contenders take turns within each round. A value is the median of the rounds, with the least and the most;
  "ratio" is the median of the ratios within the rounds. Payloads are random, for NATS compresses what goes to
  leafnodes over long lines.
* A gateway is one process of Python, a server of NATS one of Go. **Between clouds NATS is faster** at lone requests and at
  bulk near by, and with a leafnode at requests per second, at half the processor time for each. Publications per second
  are more with Iris, and so are requests than between servers joined as gateways; over the long line bulk is as fast.
  Within one cloud Iris has no server between, and is ahead.
* Iris gives more for it, as the other tables show. **Small requests pass beside bulk**: on a slow line that bulk fills,
  they take half a round trip more, for bulk keeps hardly more under way than the line needs, and with NATS they wait for
  two seconds of it. **A subscription that has returned is true**: its first message comes. **A gateway that dies costs
  milliseconds** and no idempotent request, and of the others at most those that were under way. **Nothing came twice**,
  and no request was executed twice. NATS hands everything over twice where a leafnode has two connections for
  redundancy, and of the requests that a program repeats it executes some again.
* Where the server of NATS with the leafnode is killed, callers are refused at once until there is a way again, and
  ask again after 10 ms here: most of its failures are such.
* These processes share two processors with each other; a request between clouds passes three other processes each way.
  So round trips, and what passes in a second, are mostly waiting for a processor: the requests for each second of a
  gateway's processor are what a gateway itself can do.
"""


def main(
    runs: Annotated[int, typer.Option(min=1, max=100, help="How often each contender has its turn.")] = 7,
    quick: Annotated[bool, typer.Option(help="Measure next to nothing: shows that everything works.")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write all values to this file.")] = None,
    docs: Annotated[
        Path | None, typer.Option(help="Write the part of this page, docs/benchmarks.md, that is about it.")
    ] = None,
) -> None:
    """Measure two clouds that are joined, near each other, far from each other, and while gateways are killed."""
    signal.signal(signal.SIGTERM, terminate)  # so that workers, namespaces and directories are cleared away
    try:
        results = measure(sections(quick=quick), runs)
    except BenchmarkFailed as exc:
        print(f"benchmarks: {exc}", file=sys.stderr)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    console = Console() if sys.stdout.isatty() else Console(width=_WIDTH)
    for section, rows in results:
        console.print(as_table(section, rows))
        console.print()
    if json_file is not None:
        json_file.parent.mkdir(parents=True, exist_ok=True)
        json_file.write_text(json.dumps(as_json(results, runs), indent=2) + "\n")
    if docs is not None:
        page = docs.read_text()
        old = federation_part(page)
        part = FEDERATION_BEGIN + "\n".join(_part(results, runs)) + FEDERATION_END
        docs.write_text(join_parts(page.replace(f"{old}\n", "") if old else page, part))


def _part(results: Sequence[tuple[Section, Sequence[Row]]], runs: int) -> Iterator[str]:
    yield _INTRODUCTION
    yield f"Rounds: {runs}.\n"
    for section, rows in results:
        yield f"### {section.name}\n"
        yield f"{section.caption}\n"
        references = section.references
        ratios = "".join(f" ratio to {reference} |" for reference in references)
        yield f"| contender | metric | median | least to most |{ratios}"
        yield "|---|---|--:|--:|" + "--:|" * len(references)
        for row in rows:
            cells = [row.contender, row.metric, f"{number(median(row.values))} {row.unit}".strip()]
            cells.append(f"{number(min(row.values))} to {number(max(row.values))}")
            cells += [f"{row.ratios[name]:.2f}" if name in row.ratios else "" for name in references]
            notes = "".join(f" *{note}*" for note in row.notes)
            yield "| " + " | ".join(cells) + f"{notes} |"
        yield ""
