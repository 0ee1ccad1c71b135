"""`iris request`: its options."""

from typing import Annotated, Literal

import typer

from iris_py.cli.options import Cluster, Count, Header, Json, LinesOption, OutputFile, SealFile, SealName, TextOrLines
from iris_py.cli.outcome import end_of_help, execute
from iris_py.cli.settings import Settings, with_settings

app = typer.Typer()


@app.command(
    epilog=end_of_help(
        "iris request upper hello",
        "iris request thumbnails - --timeout 30 < photo.jpg",
        "iris request upper --lines < names.txt",
    )
)
@with_settings
def request(
    settings: Settings,
    cluster: Cluster,
    text: TextOrLines = None,
    timeout: Annotated[float, typer.Option(min=0.001, metavar="SECONDS", help="How long to wait for the reply.")] = 5.0,
    idempotent: Annotated[
        bool,
        typer.Option(
            "--idempotent",
            metavar="",
            help="Executing it twice is harmless: try other members, wait for one.",
        ),
    ] = False,
    key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="With --idempotent: a member replies again to a key that it has executed."),
    ] = None,
    prefer: Annotated[
        str | None, typer.Option(metavar="ZONE", help="Ask members near this zone first; near the own one by default.")
    ] = None,
    require: Annotated[str | None, typer.Option(metavar="ZONE", help="Ask nobody outside this zone.")] = None,
    retry_failed: Annotated[
        bool,
        typer.Option("--retry-failed", metavar="", help="With --idempotent: try again when a handler fails."),
    ] = False,
    wait_for_members: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            metavar="SECONDS",
            help="How long to wait while nobody serves the cluster: by default 0, or with --idempotent all of --timeout.",
        ),
    ] = None,
    on_full: Annotated[
        Literal["wait", "raise"],
        typer.Option(
            metavar="wait|raise", help="When all members are full: wait for a place within the timeout, or fail at once."
        ),
    ] = "wait",
    header: Header = None,
    lines: LinesOption = False,
    count: Count = None,
    concurrency: Annotated[
        int, typer.Option(min=1, max=1024, metavar="N", help="With --lines or --count: requests that are under way at once.")
    ] = 16,
    output: OutputFile = None,
    seal_file: SealFile = None,
    seal_name: SealName = None,
    json: Json = False,
) -> int:
    """Ask one member of a cluster, and print its reply.

    With --lines or --count there are several requests, some at once. Each reply is a line, in the order of the requests. A
    request without a reply is named on standard error, and the exit code is that of the first of these.
    """
    from iris_py.cli import request

    return execute(
        lambda: request.request(
            settings,
            cluster,
            text,
            timeout_s=timeout,
            is_idempotent=idempotent,
            key=key,
            prefer=prefer,
            require=require,
            retry_failed=retry_failed,
            wait_for_members=wait_for_members,
            on_full=on_full,
            header=header,
            has_lines=lines,
            count=count,
            concurrency=concurrency,
            path=output,
            seal_file=seal_file,
            seal_name=seal_name,
            as_json=json,
        ),
        verbosity=settings.verbose,
        options=settings.options,
        is_short=True,
    )
