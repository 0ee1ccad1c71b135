"""`iris broadcast`: its options."""

import typer

from iris_py.cli.options import Cluster, Count, Header, Json, LinesOption, TextOrLines
from iris_py.cli.outcome import end_of_help, execute
from iris_py.cli.settings import Settings, with_settings

app = typer.Typer()


@app.command(epilog=end_of_help('iris broadcast caches "clear prices"', "iris broadcast caches --lines < stale-keys.txt"))
@with_settings
def broadcast(
    settings: Settings,
    cluster: Cluster,
    text: TextOrLines = None,
    header: Header = None,
    lines: LinesOption = False,
    count: Count = None,
    json: Json = False,
) -> int:
    """Send a message to every member of a cluster.

    With --lines or --count, send several messages, one after the other. Messages without a receiver are named on standard
    error, and the first of them determines the exit code.
    """
    from iris_py.cli import broadcast
    from iris_py.cli.payload_options import PayloadSource

    return execute(
        lambda: broadcast.broadcast(settings, cluster, PayloadSource(text, lines, count), header=header, as_json=json),
        verbosity=settings.verbose,
        options=settings.options,
        is_short=True,
    )
