"""`iris survey`: its options."""

from typing import Annotated

import typer

from iris_py.cli.options import Cluster, Count, Header, Json, LinesOption, OutputFile, SealFile, SealName, TextOrLines
from iris_py.cli.outcome import end_of_help, execute
from iris_py.cli.settings import Settings, with_settings

app = typer.Typer()


@app.command(epilog=end_of_help("iris survey databases status --timeout 2 --json", "iris survey caches --lines < keys.txt"))
@with_settings
def survey(
    settings: Settings,
    cluster: Cluster,
    text: TextOrLines = None,
    timeout: Annotated[float, typer.Option(min=0.001, metavar="SECONDS", help="How long to wait for replies.")] = 1.0,
    stop_after: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Stop after N replies; by default wait for all.", show_default=False)
    ] = None,
    header: Header = None,
    lines: LinesOption = False,
    count: Count = None,
    concurrency: Annotated[
        int, typer.Option(min=1, max=64, metavar="N", help="With --lines or --count: concurrent surveys.")
    ] = 1,
    seal_file: SealFile = None,
    seal_name: SealName = None,
    output: OutputFile = None,
    json: Json = False,
) -> int:
    """Send a request to every member of a cluster, and print the replies as they arrive.

    Standard error names the members that did not answer. Exit code 4 if no member answered in time, or fewer than --stop-after.

    With --lines or --count, send several surveys. Their replies begin with the survey's number and are printed at its end, in
    the order of the surveys. The first survey with an exit code determines that of the command.
    """
    from iris_py.api.options import SurveyOptions
    from iris_py.cli import survey
    from iris_py.cli.payload_options import PayloadSource, read_headers, read_seal

    return execute(
        lambda: survey.survey(
            settings,
            cluster,
            PayloadSource(text, lines, count),
            SurveyOptions(
                timeout=timeout,
                stop_after=stop_after,
                headers=read_headers(header),
                seal=read_seal(seal_file, seal_name),
            ),
            concurrency=concurrency,
            path=output,
            as_json=json,
        ),
        verbosity=settings.verbose,
        options=settings.options,
        is_short=True,
    )
