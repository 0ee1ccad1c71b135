"""`iris monitor`: its options."""

from typing import Annotated

import typer

from iris_py.cli.options import Every, Json, Sample
from iris_py.cli.outcome import end_of_help, execute
from iris_py.cli.settings import Settings, with_settings
from iris_py.defaults import NODES_SAMPLED

app = typer.Typer()


def _complete_kind(incomplete: str) -> list[str]:
    from iris_py.cli.completion import complete_kind

    return complete_kind(incomplete)


@app.command(epilog=end_of_help("iris monitor", "iris monitor --kind died,dropped --since 10m --json"))
@with_settings
def monitor(
    settings: Settings,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND",
            help="Only events of these kinds, as died,link; repeatable, by how they begin.",
            show_default=False,
            autocompletion=_complete_kind,
        ),
    ] = None,
    node: Annotated[
        str | None,
        typer.Option(
            metavar="TARGET", help="Only a node, by its id or address, or the members of a cluster.", show_default=False
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Begin with what has happened since, as 90s, 10m, 2h; 0 is all that nodes keep. "
            "With --node: after the event of a number.",
            show_default=False,
        ),
    ] = None,
    count: Annotated[int | None, typer.Option(min=1, metavar="N", help="End after so many events.", show_default=False)] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            metavar="SECONDS",
            help="End after so long; with exit code 4 if fewer than --count came.",
            show_default=False,
        ),
    ] = None,
    interval: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="How often each node is asked.")] = 1.0,
    raw: Annotated[
        bool, typer.Option("--raw", metavar="", help="Print every event of a death, in place of one line for each death.")
    ] = False,
    every: Every = False,
    sample: Sample = NODES_SAMPLED,
    json: Json = False,
) -> int:
    """Print the events of all nodes as they are read, in the order of time, until it is told to stop.

    A death is one line: the node with its name, address and zone, how many nodes say so, and what went with it. `--raw` prints
    what each of them has noted. Any other line has the time, the node that noted the event, its kind, the node that it is
    about, how often it happened, the cluster or topic, and the reason. Nodes that come are followed, too. A line `gap` says how
    many events a node had overwritten before they were read. Up to 256 nodes are all watched, of more a sample.
    """
    from iris_py.cli import monitor

    return execute(
        lambda: monitor.monitor(
            settings,
            kinds=kind or (),
            target=node,
            since=since,
            count=count,
            timeout_s=timeout,
            interval_s=interval,
            is_every=every,
            sample=sample,
            is_raw=raw,
            as_json=json,
        ),
        verbosity=settings.verbose,
        options=settings.options,
    )
