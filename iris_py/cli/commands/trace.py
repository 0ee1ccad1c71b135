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
            "--execute",
            metavar="TEXT",
            help="Also send a request with this payload; - reads standard input.",
            show_default=False,
        ),
    ] = None,
    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="With --execute: as for iris request.", show_default=False)
    ] = None,
    prefer: Annotated[str | None, typer.Option(metavar="ZONE", help="As of iris request.", show_default=False)] = None,
    require: Annotated[str | None, typer.Option(metavar="ZONE", help="As of iris request.", show_default=False)] = None,
    timeout: Annotated[float, typer.Option(min=0.001, metavar="SECONDS", help="Timeout of each step.")] = 5.0,
    json: Json = False,
) -> int:
    """Show the route of a request to a cluster: through the ring to the root, the choice of a member, and the way to it.

    No handler runs, unless --execute sends a real request at the end and shows its waiting and execution times. Exit code 8 if
    the route does not end at a member.
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
