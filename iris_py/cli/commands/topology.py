"""`iris topology`: its options."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from iris_py.cli.options import AskTimeout, Every, Json, Sample
from iris_py.cli.outcome import end_of_help, execute
from iris_py.cli.settings import Settings, with_settings
from iris_py.defaults import ASK_TIMEOUT_S, NODES_SAMPLED

app = typer.Typer()


@app.command(epilog=end_of_help("iris topology", "iris topology --svg network.svg --by cluster"))
@with_settings
def topology(
    settings: Settings,
    by: Annotated[
        Literal["zone", "cluster"], typer.Option(metavar="GROUP", help="Group and colour by zone or cluster.")
    ] = "zone",
    svg: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw the ring and the links into an SVG file.", show_default=False),
    ] = None,
    nodes_max: Annotated[
        int,
        typer.Option(
            "--max", min=2, max=2000, metavar="N", help="Maximum number of nodes shown individually; beyond, show groups."
        ),
    ] = 500,
    every: Every = False,
    sample: Sample = NODES_SAMPLED,
    timeout: AskTimeout = ASK_TIMEOUT_S,
    json: Json = False,
) -> int:
    """Show the links between nodes, grouped by zone or cluster, as a tree, or with --svg as a picture of the ring.

    In a network of more than --max nodes, a sample is queried. Nodes that do not answer are shown as others report them;
    standard error and the picture report the missing parts.
    """
    from iris_py.cli import topology as command
    from iris_py.cli.network import QueryOptions

    return execute(
        lambda: command.topology(
            settings,
            by=by,
            svg=svg,
            nodes_max=nodes_max,
            query=QueryOptions(is_every=every, sample=sample, timeout_s=timeout),
            as_json=json,
        ),
        verbosity=settings.verbose,
        options=settings.options,
        is_short=True,
    )
