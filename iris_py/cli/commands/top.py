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
        typer.Option(metavar="FIELD", help="Sort clusters by this field, largest first."),
    ] = "requests_per_s",
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Begin with the members of a cluster; with --once, print only its line.",
            show_default=False,
            autocompletion=complete_cluster,
        ),
    ] = None,
    node: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Begin with a node, by address or prefix of the id; with --once, query only this node.",
            show_default=False,
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", metavar="", help="Print once instead of the full screen.")] = False,
    interval: Interval = 1.0,
    every: Every = False,
    sample: Sample = NODES_SAMPLED,
    limit: Limit = 40,
    timeout: AskTimeout = ASK_TIMEOUT_S,
    json: Json = False,
) -> int:
    """Show the network's present activity: totals over all nodes, and clusters, nodes, topics, links and events.

    On a terminal this is a full screen, refreshed periodically (extra `tui`); ? shows the keys. With --once or --json, or if
    input, output or errors are redirected, it prints the totals and the busiest clusters once.

    Nodes are queried twice, and rates refer to the time between. In a network of more than 256 nodes a sample is queried, and
    the totals have error bounds.
    """
    from iris_py.cli.network import QueryOptions
    from iris_py.cli.top import command

    return execute(
        lambda: command.top(
            settings,
            sort=sort,
            cluster=cluster,
            node=node,
            is_once=once,
            query=QueryOptions(is_every=every, sample=sample, interval_s=interval, timeout_s=timeout),
            limit=limit,
            as_json=json,
        ),
        verbosity=settings.verbose,
        options=settings.options,
        is_short=True,
    )
