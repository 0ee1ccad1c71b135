"""`iris publish`: its options."""

from typing import Annotated

import typer

from iris_py.cli.options import Count, Header, Json, LinesOption, TextOrLines
from iris_py.cli.outcome import end_of_help, execute
from iris_py.cli.settings import Settings, with_settings

app = typer.Typer()


@app.command(epilog=end_of_help("iris publish news.sport goal", "tail -F access.log | iris publish log.access --lines"))
@with_settings
def publish(
    settings: Settings,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Tokens separated by dots.", show_default=False)],
    text: TextOrLines = None,
    header: Header = None,
    lines: LinesOption = False,
    count: Count = None,
    json: Json = False,
) -> int:
    """Send a message to every subscriber of a topic."""
    from iris_py.cli import topics
    from iris_py.cli.payload_options import PayloadSource

    return execute(
        lambda: topics.publish(settings, topic, PayloadSource(text, lines, count), header=header, as_json=json),
        verbosity=settings.verbose,
        options=settings.options,
        is_short=True,
    )
