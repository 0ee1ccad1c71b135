"""`iris join`: its options."""

import os
from typing import Annotated

import typer

from iris_py.cli.options import Cluster, Http, Json, SealFile, SealName
from iris_py.cli.outcome import end_of_help, execute
from iris_py.cli.settings import Settings, with_settings

app = typer.Typer()


@app.command(epilog=end_of_help('iris join upper --exec "tr a-z A-Z"'))
@with_settings
def join(
    settings: Settings,
    cluster: Cluster,
    exec_: Annotated[
        str,
        typer.Option(
            "--exec", metavar="COMMAND", help="Run for each request, with the request as input and the reply as output."
        ),
    ],
    shell: Annotated[bool, typer.Option("--shell", metavar="", help="Run the command in the shell.")] = False,
    concurrency: Annotated[
        int | None,
        typer.Option(min=1, max=1024, metavar="N", help="Commands that run concurrently; by default the number of processors."),
    ] = None,
    weight: Annotated[
        float, typer.Option(min=0.01, max=100.0, metavar="W", help="Share of the load, relative to other members.")
    ] = 1.0,
    seal_file: SealFile = None,
    seal_name: SealName = None,
    http: Http = None,
    json: Json = False,
) -> int:
    """Join a cluster as a member that answers requests with a command.

    If the command fails, so does the request; the caller sees its exit status and the end of its standard error.

    Broadcasts run the command too, with its output printed here. With --seal-file the member serves neither broadcasts nor
    tunnels.
    """
    from iris_py.api.options import JoinOptions
    from iris_py.cli import join
    from iris_py.cli.exec import parse_command
    from iris_py.cli.payload_options import read_seal

    return execute(
        lambda: join.join(
            settings,
            cluster,
            parse_command(exec_, use_shell=shell),
            JoinOptions(concurrency=concurrency or os.cpu_count() or 1, weight=weight),
            seal=read_seal(seal_file, seal_name),
            http=http,
            as_json=json,
        ),
        verbosity=settings.verbose,
        options=settings.options,
    )
