"""`iris subscribe`: its options."""

from typing import Annotated

import typer

from iris_py.cli.options import Http, Json, OutputFile
from iris_py.cli.outcome import end_of_help, execute
from iris_py.cli.settings import Settings, with_settings

app = typer.Typer()


@app.command(
    epilog=end_of_help(
        "iris subscribe 'news.>' --json",
        "iris subscribe jobs.done --count 1 --timeout 60",
        "iris subscribe 'orders.>' --group billing",
    )
)
@with_settings
def subscribe(
    settings: Settings,
    pattern: Annotated[
        str,
        typer.Argument(
            metavar="PATTERN", help="A topic; * matches any token, > at the end all further tokens.", show_default=False
        ),
    ],
    group: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Share the messages with the other members of this group: each goes to one.",
            show_default=False,
        ),
    ] = "",
    weight: Annotated[float, typer.Option(metavar="N", help="The share of the group's messages, from 0.01 to 100.")] = 1.0,
    count: Annotated[int | None, typer.Option(min=1, metavar="N", help="Stop after N messages.", show_default=False)] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            metavar="SECONDS",
            help="Stop after this time; exit code 4 with fewer than --count messages.",
            show_default=False,
        ),
    ] = None,
    show_time: Annotated[
        bool, typer.Option("--show-time", metavar="", help="Begin each line with the time of arrival. JSON always includes it.")
    ] = False,
    output: OutputFile = None,
    http: Http = None,
    json: Json = False,
) -> int:
    """Print the messages of a topic until stopped, one per line.

    A line has the topic and the text, at most 2,000 characters of it.

    With --json, messages are complete and unescaped.
    """
    from iris_py.cli import topics

    return execute(
        lambda: topics.subscribe(
            settings,
            pattern,
            share=(group, weight),
            enough=(count, timeout),
            has_time=show_time,
            path=output,
            http=http,
            as_json=json,
        ),
        verbosity=settings.verbose,
        options=settings.options,
    )
