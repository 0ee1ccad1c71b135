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

These benchmarks compare two clouds joined by gateways with one cloud without gateways, and with two NATS servers joined once as
a leafnode and once as gateways. `make bench-federation DOCS=1` writes this part.

* **Iris encrypts and authenticates everywhere**: from the caller to its gateway, between the gateways, and to the member. NATS
  has TLS between its servers here, and no encryption between them and their clients.
* All contenders take turns within each round. A value is the median of the rounds, with the minimum and the maximum; "ratio" is
  the median of the ratios within the rounds. Payloads are random, because NATS compresses leafnode traffic on long connections.
* An Iris gateway is one Python process, a NATS server one Go process. **Between clouds NATS is faster** at lone requests and at
  bulk without delay, and with a leafnode at requests per second, at half the processor time for each. Iris is faster at
  publications per second, and at requests per second than servers joined as gateways; with delay, bulk is as fast. Within one
  cloud Iris has no server in between, and is faster.
* The other tables show the return for this cost. **Small requests pass beside bulk**: on a slow connection full of bulk they
  take half a round trip more, because bulk keeps hardly more under way than the connection needs; with NATS they wait for two
  seconds of bulk. **`subscribe()` returns when the subscription is active**: its first message arrives. **A dying gateway costs
  milliseconds**, no idempotent request, and at most the other requests under way. **No message arrived twice**, and no request
  was executed twice. NATS delivers every message twice where a leafnode has two connections for redundancy, and executes some
  repeated requests twice.
* When the NATS server with the leafnode is killed, callers are refused at once until a path exists again, and retry after 10 ms
  here: most of its failures are these.
* The processes share two processors; a request between clouds passes three other processes each way. Round trips and rates
  therefore mostly measure the wait for a processor. The requests for each second of a gateway's processor show the capacity of
  a gateway itself.
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
