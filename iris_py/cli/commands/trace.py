"""`iris trace`: its options."""

from typing import Annotated

import typer

from iris_py.cli.options import Cluster, Json
from iris_py.cli.outcome import end_of_help, execute
from iris_py.cli.settings import Settings, with_settings

app = typer.Typer()


@app.command(epilog=end_of_help("iris trace upper", "iris trace upper --execute hello --json"))
@with_settings
def trace(
    settings: Settings,
    cluster: Cluster,
    execute_: Annotated[
        str | None,
        typer.Option(
            "--execute", metavar="TEXT", help="Make a request with this, too; - reads standard input.", show_default=False
        ),
    ] = None,
    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="With --execute: as of iris request.", show_default=False)
    ] = None,
    prefer: Annotated[str | None, typer.Option(metavar="ZONE", help="As of iris request.", show_default=False)] = None,
    require: Annotated[str | None, typer.Option(metavar="ZONE", help="As of iris request.", show_default=False)] = None,
    timeout: Annotated[float, typer.Option(min=0.001, metavar="SECONDS", help="How long each step may take.")] = 5.0,
    json: Json = False,
) -> int:
    """Show the way of a request to a cluster: through the ring to its root, to which member and why, and how that is reached.

    No handler notices, unless --execute makes a real request at the end, and shows how long it waited for a handler and how
    long that ran. Exit code 8 if the way does not end at a member.
    """
    from iris_py.cli import trace

    return execute(
        lambda: trace.trace(
            settings, cluster, text=execute_, key=key, prefer=prefer, require=require, timeout_s=timeout, as_json=json
        ),
        verbosity=settings.verbose,
        options=settings.options,
        is_short=True,
    )
