"""`iris request`: its options."""

from typing import Annotated, Literal

import typer

from iris_py.cli.options import Cluster, Count, Header, Json, LinesOption, OutputFile, SealFile, SealName, TextOrLines
from iris_py.cli.outcome import end_of_help, execute
from iris_py.cli.settings import Settings, with_settings

Idempotent = Annotated[
    bool,
    typer.Option(
        "--idempotent",
        metavar="",
        help="Executing twice is harmless: retry at other members, and wait for a member.",
    ),
]
IdempotencyKey = Annotated[
    str | None,
    typer.Option(metavar="KEY", help="With --idempotent: a member answers a repeated key without executing it again."),
]
PreferredZone = Annotated[
    str | None, typer.Option(metavar="ZONE", help="Prefer members near this zone; by default near this node's zone.")
]
RequiredZone = Annotated[str | None, typer.Option(metavar="ZONE", help="Use only members in this zone.")]
RetryFailed = Annotated[
    bool,
    typer.Option("--retry-failed", metavar="", help="With --idempotent: retry after a handler fails."),
]
WaitForMembers = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        metavar="SECONDS",
        help="Time to wait for a member if the cluster has none: by default 0, or with --idempotent all of --timeout.",
    ),
]
OnFull = Annotated[
    Literal["wait", "raise"],
    typer.Option(metavar="wait|raise", help="When all members are full: wait for room within the timeout, or fail at once."),
]
Concurrency = Annotated[int, typer.Option(min=1, max=1024, metavar="N", help="With --lines or --count: requests in flight.")]

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
    idempotent: Idempotent = False,
    key: IdempotencyKey = None,
    prefer: PreferredZone = None,
    require: RequiredZone = None,
    retry_failed: RetryFailed = False,
    wait_for_members: WaitForMembers = None,
    on_full: OnFull = "wait",
    header: Header = None,
    lines: LinesOption = False,
    count: Count = None,
    concurrency: Concurrency = 16,
    output: OutputFile = None,
    seal_file: SealFile = None,
    seal_name: SealName = None,
    json: Json = False,
) -> int:
    """Send a request to one member of a cluster, and print the reply.

    With --lines or --count, send several requests, some concurrently. Each reply is a line, in the order of the requests.
    Requests without a reply are named on standard error, and the first of them determines the exit code.
    """
    from iris_py.api.options import RequestOptions
    from iris_py.cli import request
    from iris_py.cli.payload_options import PayloadSource, read_headers, read_seal

    return execute(
        lambda: request.request(
            settings,
            cluster,
            PayloadSource(text, lines, count),
            RequestOptions(
                timeout=timeout,
                idempotent=idempotent,
                key=key,
                prefer=prefer,
                require=require,
                headers=read_headers(header),
                on_full=on_full,
                retry_failed=retry_failed,
                wait_for_members=wait_for_members,
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
