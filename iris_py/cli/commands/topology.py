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
        Literal["zone", "cluster"], typer.Option(metavar="GROUP", help="Groups and colours: zone or cluster.")
    ] = "zone",
    svg: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw the ring and its links into a file, as SVG.", show_default=False),
    ] = None,
    nodes_max: Annotated[
        int, typer.Option("--max", min=2, max=2000, metavar="N", help="Nodes to show one by one; of more, their groups.")
    ] = 500,
    every: Every = False,
    sample: Sample = NODES_SAMPLED,
    timeout: AskTimeout = ASK_TIMEOUT_S,
    json: Json = False,
) -> int:
    """Show who has links to whom: nodes by their zones or clusters, as a tree, or with --svg as a picture of the ring.

    A network of up to --max nodes is asked as a whole, of a larger one a sample. What others say of nodes that do not answer is
    shown, too; standard error and the picture say what is missing.
    """
    from iris_py.cli import topology as command

    return execute(
        lambda: command.topology(
            settings,
            by=by,
            svg=svg,
            nodes_max=nodes_max,
            is_every=every,
            sample=sample,
            timeout_s=timeout,
            as_json=json,
        ),
        verbosity=settings.verbose,
        options=settings.options,
        is_short=True,
    )
