"""`iris subscribe`: its options."""

from typing import Annotated

import typer

from iris_py.cli.options import Http, Json, OutputFile
from iris_py.cli.outcome import end_of_help, execute
from iris_py.cli.settings import Settings, with_settings

app = typer.Typer()


@app.command(epilog=end_of_help("iris subscribe 'news.>' --json", "iris subscribe jobs.done --count 1 --timeout 60"))
@with_settings
def subscribe(
    settings: Settings,
    pattern: Annotated[
        str,
        typer.Argument(metavar="PATTERN", help="A topic; * is any token, > at the end all further ones.", show_default=False),
    ],
    count: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="End after so many messages.", show_default=False)
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            metavar="SECONDS",
            help="End after so long; with exit code 4 if fewer than --count came.",
            show_default=False,
        ),
    ] = None,
    show_time: Annotated[
        bool, typer.Option("--show-time", metavar="", help="Begin each line with the time of arrival. JSON always has it.")
    ] = False,
    output: OutputFile = None,
    http: Http = None,
    json: Json = False,
) -> int:
    """Print what is published to a topic until it is told to stop, each message in a line.

    A line has the topic and the text, at most 2,000 characters of it.

    With --json nothing is shortened or made harmless.
    """
    from iris_py.cli import topics

    return execute(
        lambda: topics.subscribe(
            settings, pattern, count=count, timeout_s=timeout, has_time=show_time, path=output, http=http, as_json=json
        ),
        verbosity=settings.verbose,
        options=settings.options,
    )
