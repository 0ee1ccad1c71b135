"""`iris top`: its options."""

from typing import Annotated, Literal

import typer

from iris_py.cli.options import AskTimeout, Every, Interval, Json, Limit, Sample, complete_cluster
from iris_py.cli.outcome import end_of_help, execute
from iris_py.cli.settings import Settings, with_settings
from iris_py.defaults import ASK_TIMEOUT_S, NODES_SAMPLED

app = typer.Typer()


@app.command(epilog=end_of_help("iris top", "iris top --cluster databases", "iris top --once --sort queued --json"))
@with_settings
def top(
    settings: Settings,
    sort: Annotated[
        Literal["name", "members", "requests_per_s", "failed_per_s", "errors_per_s", "running", "queued", "rejected"],
        typer.Option(metavar="FIELD", help="The order of clusters, the largest first."),
    ] = "requests_per_s",
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Begin with the members of a cluster; with --once, its line alone.",
            show_default=False,
            autocompletion=complete_cluster,
        ),
    ] = None,
    node: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Begin with a node, by its address or by the beginning of its id; with --once, ask it alone.",
            show_default=False,
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", metavar="", help="Print once, in place of the full screen.")] = False,
    interval: Interval = 1.0,
    every: Every = False,
    sample: Sample = NODES_SAMPLED,
    limit: Limit = 40,
    timeout: AskTimeout = ASK_TIMEOUT_S,
    json: Json = False,
) -> int:
    """Show what the network does now: sums over all nodes, and its clusters, nodes, topics, links and events.

    On a terminal that is the full screen (extra `tui`), again and again; ? shows the keys. With --once or --json, and where
    input, output or errors go elsewhere, it is printed once: sums, and the busiest clusters.

    Nodes are asked twice, and rates are of the time between. Up to 256 nodes are all asked, of more a sample: then sums say how
    far off they may be.
    """
    from iris_py.cli.top import command

    return execute(
        lambda: command.top(
            settings,
            sort=sort,
            cluster=cluster,
            node=node,
            is_once=once,
            is_every=every,
            sample=sample,
            limit=limit,
            interval_s=interval,
            timeout_s=timeout,
            as_json=json,
        ),
        verbosity=settings.verbose,
        options=settings.options,
        is_short=True,
    )
