"""`iris tunnel`: its options."""

from typing import Annotated

import typer

from iris_py.cli.options import Cluster, Header
from iris_py.cli.outcome import end_of_help, execute
from iris_py.cli.settings import Settings, with_settings

app = typer.Typer()


@app.command(epilog=end_of_help("iris tunnel gzip < big.log > big.log.gz"))
@with_settings
def tunnel(
    settings: Settings,
    cluster: Cluster,
    timeout: Annotated[float, typer.Option(min=0.001, metavar="SECONDS", help="Timeout for opening the tunnel.")] = 5.0,
    header: Header = None,
    json: Annotated[
        bool, typer.Option("--json", metavar="", help="Report the transferred bytes as JSON on standard error.")
    ] = False,
) -> int:
    """Pipe standard input, of any size, through one member, and print the output as it arrives.

    A member started with `iris join --exec` runs its command on the data.
    """
    from iris_py.cli import tunnel

    return execute(
        lambda: tunnel.tunnel(settings, cluster, timeout_s=timeout, header=header, as_json=json),
        verbosity=settings.verbose,
        options=settings.options,
        is_short=True,
    )
