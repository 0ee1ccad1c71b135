"""`iris config`: its commands and their options."""

from pathlib import Path
from typing import Annotated

import typer

from iris_py.cli.options import Json, make_group
from iris_py.cli.outcome import end_of_help, execute
from iris_py.cli.settings import Settings, with_settings

app = make_group("config", "Show the settings of a node on this machine, and check configuration files.")


@app.command(epilog=end_of_help("iris config show --zone eu", "iris config show --context staging --json"))
@with_settings
def show(settings: Settings, json: Json = False) -> int:
    """Show the settings and their sources for a node started with these options.

    A source is an option, a variable, a line of a file, or the default. Secrets are shown as `set`.
    """
    from iris_py.cli import config

    return execute(lambda: config.show(settings, as_json=json), verbosity=settings.verbose)


@app.command(epilog=end_of_help("iris config check iris.toml"))
@with_settings
def check(
    settings: Settings,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="The file; by default that of a node on this machine.", show_default=False),
    ] = None,
    json: Json = False,
) -> int:
    """Print each mistake in a configuration file, with its line and the correction. Exit code 2 if the file has a mistake."""
    from iris_py.cli import config

    return execute(lambda: config.check(settings, file, as_json=json), verbosity=settings.verbose)


@app.command(epilog=end_of_help("iris config schema > iris.schema.json"))
def schema(json: Json = False) -> None:
    """Print the JSON Schema of configuration files, for completion and checks in editors."""
    from iris_py.cli import config

    raise typer.Exit(execute(lambda: config.schema(as_json=json)))
