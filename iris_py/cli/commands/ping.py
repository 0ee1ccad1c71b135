"""`iris ping`: its options."""

from typing import Annotated

import typer

from iris_py.cli.options import Json
from iris_py.cli.outcome import end_of_help, execute
from iris_py.cli.settings import Settings, with_settings

app = typer.Typer()


@app.command(epilog=end_of_help("iris ping upper -c 3", "iris ping upper --udp --json"))
@with_settings
def ping(
    settings: Settings,
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="A cluster, or the id or address of a node.", show_default=False)
    ],
    count: Annotated[int, typer.Option("--count", "-c", min=1, metavar="N", help="Number of pings.")] = 4,
    interval: Annotated[
        float, typer.Option("--interval", "-i", min=0.0, metavar="SECONDS", help="Time between two pings.")
    ] = 1.0,
    timeout: Annotated[float, typer.Option(min=0.001, metavar="SECONDS", help="How long to wait for each answer.")] = 1.0,
    udp: Annotated[
        bool, typer.Option("--udp", metavar="", help="Also ping by datagram and through the ring, and show all times.")
    ] = False,
    json: Json = False,
) -> int:
    """Ping nodes and show the round-trip times. The node itself answers, without involving a handler.

    The members of a cluster are pinged in turn. A ping uses the link to the node if one is open, otherwise the ring. With --udp
    it uses every route. Exit code 8 if an answer is missing.
    """
    from iris_py.cli import ping

    return execute(
        lambda: ping.ping(settings, target, count=count, interval_s=interval, timeout_s=timeout, has_udp=udp, as_json=json),
        verbosity=settings.verbose,
        options=settings.options,
        is_short=True,
    )
