"""`iris nodes`: its options."""

from typing import Annotated

import typer

from iris_py.cli.options import AskTimeout, Every, Json, Limit, Sample
from iris_py.cli.outcome import end_of_help, execute
from iris_py.cli.settings import Settings, with_settings
from iris_py.defaults import ASK_TIMEOUT_S, NODES_SAMPLED

app = typer.Typer()


@app.command(epilog=end_of_help("iris nodes", "iris nodes --in eu --json", "iris nodes --gone --since 2h"))
@with_settings
def nodes(
    settings: Settings,
    inside: Annotated[
        str | None, typer.Option("--in", metavar="ZONE", help="Only nodes in this zone.", show_default=False)
    ] = None,
    gone: Annotated[
        bool, typer.Option("--gone", metavar="", help="List the nodes that have left or died instead of the present nodes.")
    ] = False,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="With --gone: how far back to look, as 90s, 10m, 2h; 24h by default.", show_default=False
        ),
    ] = None,
    every: Every = False,
    sample: Sample = NODES_SAMPLED,
    limit: Limit = 200,
    timeout: AskTimeout = ASK_TIMEOUT_S,
    json: Json = False,
) -> int:
    """List the nodes of the network with their version, age, links, secret and round trip.

    The secret is shown as the public id of the generation used to encrypt, and the number of further accepted generations.

    With `--gone`, list the nodes that have left or died, with time, reason, and the number of nodes that report it. Each node
    keeps the last 256 departures since its start.

    In a network of more than 256 nodes a random sample is queried. Standard error names the nodes that did not answer.
    """
    from iris_py.cli.network import QueryOptions

    query = QueryOptions(is_every=every, sample=sample, timeout_s=timeout)
    if gone:
        from iris_py.cli import departed

        return execute(
            lambda: departed.departed(settings, zone=inside, since=since, query=query, limit=limit, as_json=json),
            verbosity=settings.verbose,
            options=settings.options,
            is_short=True,
        )
    if since is not None:
        raise typer.BadParameter("it needs --gone", param_hint="'--since'")
    from iris_py.cli import lists

    return execute(
        lambda: lists.nodes(settings, zone=inside, query=query, limit=limit, as_json=json),
        verbosity=settings.verbose,
        options=settings.options,
        is_short=True,
    )
