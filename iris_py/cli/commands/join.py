"""`iris join`: its options."""

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
        typer.Option("--exec", metavar="COMMAND", help="Run for each request: its input is the request, its output the reply."),
    ],
    shell: Annotated[bool, typer.Option("--shell", metavar="", help="Give the command to the shell.")] = False,
    concurrency: Annotated[
        int | None, typer.Option(min=1, max=1024, metavar="N", help="Commands at a time; the number of processors by default.")
    ] = None,
    weight: Annotated[
        float, typer.Option(min=0.01, max=100.0, metavar="W", help="How much of the load to get beside other members.")
    ] = 1.0,
    seal_file: SealFile = None,
    seal_name: SealName = None,
    http: Http = None,
    json: Json = False,
) -> int:
    """Take part in a cluster: answer its requests with a command.

    A failing command fails the request; the caller sees its exit status and the end of its standard error.

    Broadcasts run the command too, and what it prints appears here. With --seal-file neither broadcasts nor tunnels are served.
    """
    from iris_py.cli import join

    return execute(
        lambda: join.join(
            settings,
            cluster,
            exec_,
            use_shell=shell,
            concurrency=concurrency,
            weight=weight,
            seal_file=seal_file,
            seal_name=seal_name,
            http=http,
            as_json=json,
        ),
        verbosity=settings.verbose,
        options=settings.options,
    )
