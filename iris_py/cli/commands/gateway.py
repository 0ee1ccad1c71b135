"""`iris gateway`: its options."""

from pathlib import Path
from typing import Annotated

import typer

from iris_py.cli.options import Http, Json
from iris_py.cli.outcome import end_of_help, execute
from iris_py.cli.settings import Settings, with_settings

app = typer.Typer()


@app.command(epilog=end_of_help("iris gateway federation.toml --check"))
@with_settings
def gateway(
    settings: Settings,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Settings of the gateway: federation.toml.", show_default=False)],
    check: Annotated[
        bool,
        typer.Option("--check", metavar="", help="Only read the file, and print its rules for the traffic between clouds."),
    ] = False,
    http: Http = None,
    json: Json = False,
) -> int:
    """Connect this cloud to other clouds. FILE lists the clusters and topics that each cloud may use.

    The gateway runs until it is stopped. Its log on standard error reports each cloud reached or lost, with the reason. On
    SIGHUP, a gateway that runs as a service reads FILE again: all of it, or none of it if it has a mistake.
    """
    from iris_py.cli import gateway as command

    if check:
        return execute(
            lambda: command.check(settings, file, as_json=json), verbosity=settings.verbose, options=settings.options
        )
    return execute(
        lambda: command.serve(settings, file, http=http, as_json=json),
        verbosity=settings.verbose,
        options=settings.options,
        is_gateway=True,
    )
