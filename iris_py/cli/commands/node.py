"""`iris node`: its options."""

import typer

from iris_py.cli.options import Http, Json
from iris_py.cli.outcome import end_of_help, execute
from iris_py.cli.settings import Settings, with_settings

app = typer.Typer()


@app.command(epilog=end_of_help("iris node --listen 0.0.0.0:7400 --secret-file network.secret"))
@with_settings
def node(settings: Settings, http: Http = None, json: Json = False) -> int:
    """Run a node until stopped, as a seed through which other nodes find the network."""
    from iris_py.cli import join

    return execute(lambda: join.node(settings, http=http, as_json=json), verbosity=settings.verbose, options=settings.options)
