"""`iris serve`: its options."""

from pathlib import Path
from typing import Annotated

import typer

from iris_py.cli.options import Http, Json, SealFile, SealName
from iris_py.cli.outcome import end_of_help, execute
from iris_py.cli.settings import Settings, with_settings

Target = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:NAME",
        help="A function that takes a request, an iris_py.Handler, or an iris_py.service.Service.",
        show_default=False,
    ),
]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Name of the cluster; by default that of the handler. A service names its own clusters.",
        show_default=False,
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=256,
        metavar="N",
        help="Number of worker processes, restarted if they end. By default this process serves itself.",
        show_default=False,
    ),
]
Reload = Annotated[
    bool,
    typer.Option("--reload", metavar="", help="Replace the workers when an imported file changes, if it still works."),
]
Directory = Annotated[Path, typer.Option(metavar="DIR", help="First directory to search for the module.")]
Concurrency = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=65536,
        metavar="N",
        help="Concurrent requests in each worker; by default 128, or 32 for a plain function or method.",
        show_default=False,
    ),
]
Weight = Annotated[
    float,
    typer.Option(min=0.01, max=100.0, metavar="W", help="Share of the load of each worker, relative to other members."),
]

app = typer.Typer()


@app.command(
    epilog=end_of_help("iris serve prices:quote --cluster quotes", "iris serve shop:service --workers 4 --reload --http 9464")
)
@with_settings
def serve(
    settings: Settings,
    target: Target,
    cluster: ClusterOption = None,
    workers: Workers = None,
    reload: Reload = False,
    directory: Directory = Path("."),
    concurrency: Concurrency = None,
    weight: Weight = 1.0,
    seal_file: SealFile = None,
    seal_name: SealName = None,
    http: Http = None,
    json: Json = False,
) -> int:
    """Serve clusters with a handler or a service of a Python module, without a program around it.

    A function's annotations determine its argument and result: an iris_py.Request or bytes, or any other type as JSON. A plain
    function runs in a thread. A service has several handlers, consumers of topics, and hooks before it joins and after it has
    left.

    On SIGTERM and Ctrl-C, running requests finish. A worker that ends unexpectedly is reported and restarted, with doubling
    delays.

    With --reload, new workers replace the old ones only once they serve: if the changed files do not work, the error is shown
    and the old workers continue. With --workers, the address of --http represents all workers: it is ready while one serves.
    """
    from iris_py.cli.serve import supervisor, worker

    options = worker.ServeOptions(
        target=target,
        cluster=cluster,
        directory=str(directory.absolute()),
        concurrency=concurrency,
        weight=weight,
        seal_file=None if seal_file is None else str(seal_file),
        seal_name=seal_name,
        as_json=json,
    )
    if workers is None and not reload:
        return execute(lambda: worker.serve(settings, options, http=http), verbosity=settings.verbose, options=settings.options)
    command = ["serve", *options.as_options(), *settings.as_options(), "--", target]
    return execute(
        lambda: supervisor.supervise(settings, command, workers=workers or 1, is_reloading=reload, http=http),
        verbosity=settings.verbose,
        options=settings.options,
    )
