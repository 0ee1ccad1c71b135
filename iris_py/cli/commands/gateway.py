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
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Its settings: federation.toml.", show_default=False)],
    check: Annotated[
        bool, typer.Option("--check", metavar="", help="Only read the file, and print what may cross between the clouds.")
    ] = False,
    http: Http = None,
    json: Json = False,
) -> int:
    """Join this cloud to others: what each may use of the other one is in a file.

    It runs until it is told to stop. Its log on standard error says when it reaches a cloud, when it does not, and why. SIGHUP
    makes one that runs as a service read its file again: all of it, or none if anything is wrong.
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
