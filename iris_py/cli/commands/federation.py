"""`iris federation`: its commands and their options."""

from typing import Annotated

import typer

from iris_py.cli.options import Json, make_group
from iris_py.cli.outcome import end_of_help, execute
from iris_py.cli.settings import Settings, with_settings

app = make_group("federation", "Show the gateways of this cloud and the clouds they connect to.")


@app.command(epilog=end_of_help("iris federation status"))
@with_settings
def status(settings: Settings, json: Json = False) -> int:
    """Show the gateways of this cloud, the clouds each of them reaches, and the traffic."""
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
    """Explain the route of a request to another cloud: rules, gateways and cloud links, or the reason why it cannot be sent.

    Nothing is sent to the other cloud. The exit code is 0 if a gateway would send a request now, and 3 otherwise.
    """
    from iris_py.cli import federation as command

    return execute(
        lambda: command.explain(settings, target, as_json=json),
        verbosity=settings.verbose,
        options=settings.options,
        is_short=True,
    )
