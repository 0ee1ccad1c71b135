"""`iris federation`: its commands and their options."""

from typing import Annotated

import typer

from iris_py.cli.options import Json, make_group
from iris_py.cli.outcome import end_of_help, execute
from iris_py.cli.settings import Settings, with_settings

app = make_group("federation", "Look at the gateways of this cloud, and at the clouds they join it to.")


@app.command(epilog=end_of_help("iris federation status"))
@with_settings
def status(settings: Settings, json: Json = False) -> int:
    """Show the gateways of this cloud, the clouds that each reaches, and what passes."""
    from iris_py.cli import federation as command

    return execute(
        lambda: command.status(settings, as_json=json), verbosity=settings.verbose, options=settings.options, is_short=True
    )


@app.command(epilog=end_of_help("iris federation explain databases@eu"))
@with_settings
def explain(
    settings: Settings,
    target: Annotated[
        str, typer.Argument(metavar="NAME@CLOUD", help="A cluster or topic of another cloud.", show_default=False)
    ],
    json: Json = False,
) -> int:
    """Say what would become of a request to another cloud: which rules, gateways and lines it takes, or why it cannot go.

    Nothing is sent to the other cloud. The exit code is 0 if a gateway would send a request now, and 3 otherwise.
    """
    from iris_py.cli import federation as command

    return execute(
        lambda: command.explain(settings, target, as_json=json),
        verbosity=settings.verbose,
        options=settings.options,
        is_short=True,
    )
