"""`iris members`: its options."""

from typing import Annotated

import typer

from iris_py.cli.options import Json
from iris_py.cli.outcome import end_of_help, execute
from iris_py.cli.settings import Settings, with_settings

app = typer.Typer()


@app.command(epilog=end_of_help("iris members upper", "iris members --json"))
@with_settings
def members(
    settings: Settings,
    cluster: Annotated[str | None, typer.Argument(metavar="NAME", help="Name of the cluster.", show_default=False)] = None,
    stats: Annotated[
        bool, typer.Option("--stats", metavar="", help="With NAME: show the work and speed of each member.")
    ] = False,
    interval: Annotated[
        float | None,
        typer.Option(
            min=0.0, metavar="SECONDS", help="With --stats: time between the two queries; 1 by default.", show_default=False
        ),
    ] = None,
    json: Json = False,
) -> int:
    """List the members of a cluster, or without a name the nodes of the network.

    A node knows up to 256 members of a cluster, and a part of a large network. Standard error reports how many are missing.
    """
    if stats:
        if cluster is None:
            raise typer.BadParameter(
                "it is only for the members of a cluster: give the name of the cluster", param_hint="'--stats'"
            )
        from iris_py.cli import lists
        from iris_py.cli.network import QueryOptions

        query = QueryOptions(interval_s=1.0 if interval is None else interval)
        return execute(
            lambda: lists.member_stats(settings, cluster, query=query, as_json=json),
            verbosity=settings.verbose,
            options=settings.options,
            is_short=True,
        )
    if interval is not None:
        raise typer.BadParameter("it needs --stats", param_hint="'--interval'")
    from iris_py.cli import request

    return execute(
        lambda: request.members(settings, cluster, as_json=json),
        verbosity=settings.verbose,
        options=settings.options,
        is_short=True,
    )
