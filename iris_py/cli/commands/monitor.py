"""`iris monitor`: its options."""

from typing import Annotated

import typer

from iris_py.cli.options import Every, Json, Sample
from iris_py.cli.outcome import end_of_help, execute
from iris_py.cli.settings import Settings, with_settings
from iris_py.defaults import NODES_SAMPLED

app = typer.Typer()


def _complete_kind(incomplete: str) -> list[str]:
    from iris_py.cli.completion import complete_kind

    return complete_kind(incomplete)


@app.command(epilog=end_of_help("iris monitor", "iris monitor --kind died,dropped --since 10m --json"))
@with_settings
def monitor(
    settings: Settings,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND",
            help="Only events of these kinds or prefixes, as died,link; repeatable.",
            show_default=False,
            autocompletion=_complete_kind,
        ),
    ] = None,
    node: Annotated[
        str | None,
        typer.Option(
            metavar="TARGET", help="Only one node, by id or address, or the members of a cluster.", show_default=False
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Begin with past events, as 90s, 10m, 2h; 0 for all that nodes keep. "
            "With --node: after the event with this number.",
            show_default=False,
        ),
    ] = None,
    count: Annotated[int | None, typer.Option(min=1, metavar="N", help="Stop after N events.", show_default=False)] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            metavar="SECONDS",
            help="Stop after this time; exit code 4 with fewer than --count events.",
            show_default=False,
        ),
    ] = None,
    interval: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="Interval of queries to each node.")] = 1.0,
    raw: Annotated[
        bool, typer.Option("--raw", metavar="", help="Print every event of a death instead of one line for each death.")
    ] = False,
    every: Every = False,
    sample: Sample = NODES_SAMPLED,
    json: Json = False,
) -> int:
    """Print the events of all nodes in the order of time, until stopped.

    A death is one line: the node's name, address and zone, the number of nodes that report it, and its clusters. `--raw` prints
    every report instead. Other lines have the time, the reporting node, the kind, the node concerned, the count, the cluster or
    topic, and the reason. New nodes are included. A line `gap` gives the number of events a node overwrote before they were
    read. In a network of more than 256 nodes a sample is watched.
    """
    from iris_py.cli import monitor

    return execute(
        lambda: monitor.monitor(
            settings,
            monitor.MonitorOptions(
                kinds=kind or (),
                target=node,
                since=since,
                count=count,
                timeout_s=timeout,
                interval_s=interval,
                is_every=every,
                sample=sample,
                is_raw=raw,
            ),
            as_json=json,
        ),
        verbosity=settings.verbose,
        options=settings.options,
    )
