"""`iris simulate`: its options."""

from pathlib import Path
from typing import Annotated

import typer

from iris_py.cli.options import Json
from iris_py.cli.outcome import end_of_help

Nodes = Annotated[
    int | None,
    typer.Option(min=2, metavar="N", help="Number of nodes; by default 1000, or 50 for layer full.", show_default=False),
]
Layer = Annotated[
    str,
    typer.Option(metavar="LAYER", help="ring: routing alone; groups: groups on a perfect ring; full: whole overlays."),
]
Churn = Annotated[
    float | None,
    typer.Option(metavar="RATE", help="Fraction of the nodes replaced per hour.", show_default=False),
]
Session = Annotated[
    float | None,
    typer.Option(metavar="MEAN", help="Churn as the mean lifetime of a node.", show_default=False),
]
Partition = Annotated[
    str | None,
    typer.Option(
        metavar="PART:SECONDS", help="Disconnect a fraction of the nodes for some seconds: 0.5:600.", show_default=False
    ),
]
Kill = Annotated[float, typer.Option(metavar="PART", help="Kill a fraction at once, half of them silently.")]
Detectors = Annotated[
    bool | None,
    typer.Option(
        "--detectors/--no-detectors",
        metavar="",
        help="Run real failure detectors or model them; real up to 2,000 nodes.",
        show_default=False,
    ),
]
Suite = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="A suite of simulations in parallel: standard, million, huge.", show_default=False),
]
Workers = Annotated[int | None, typer.Option(min=1, max=256, metavar="N", help="Processes for a suite.", show_default=False)]
JsonFile = Annotated[
    Path | None,
    typer.Option(
        "--output", metavar="FILE", help="With --json: write the JSON to a file, and print the tables.", show_default=False
    ),
]
Plots = Annotated[Path | None, typer.Option(metavar="DIR", help="Write plots into this directory.", show_default=False)]

app = typer.Typer()


@app.command(
    epilog=end_of_help(
        "iris simulate --nodes 1000 --churn 0.5",
        "iris simulate --suite standard --json --output report.json",
        exit_codes="Exit codes: 0 all checks hold; 1 one failed; 2 wrong usage; 130 interrupted, with what was measured.",
    )
)
def simulate(
    nodes: Nodes = None,
    layer: Layer = "ring",
    churn: Churn = None,
    session_s: Session = None,
    minutes: Annotated[float, typer.Option(metavar="M", help="Duration of the churn, in virtual time.")] = 10.0,
    partition: Partition = None,
    kill: Kill = 0.0,
    lookups: Annotated[int, typer.Option(metavar="N", help="Messages to random keys.")] = 10_000,
    loss: Annotated[float, typer.Option(metavar="PART", help="Fraction of datagrams and TCP segments lost.")] = 0.0,
    zones: Annotated[int, typer.Option(metavar="N", help="Number of zones; 0 spreads the nodes evenly.")] = 0,
    detectors: Detectors = None,
    members: Annotated[int, typer.Option(metavar="N", help="Members of a cluster (groups).")] = 1000,
    subscribers: Annotated[int, typer.Option(metavar="N", help="Subscribers of a topic (groups).")] = 1000,
    requesters: Annotated[int, typer.Option(metavar="N", help="Requesters of the cluster (groups).")] = 100,
    seed: Annotated[int, typer.Option(metavar="S", help="Seed of all random numbers.")] = 1,
    suite: Suite = None,
    workers: Workers = None,
    output: JsonFile = None,
    json: Json = False,
    file: Annotated[str | None, typer.Argument(hidden=True)] = None,
    plots: Plots = None,
) -> None:
    """Simulate a network of many nodes under a virtual clock, with checks.

    The code is that of real nodes; only sockets and time are simulated.
    """
    if file is not None:
        advice = f"write --json --output {file}" if json and file != "-" else "leave it out"
        raise typer.BadParameter(f"there is no place for {file!r}: {advice}", param_hint="'--json'")
    from iris_py.cli.simulate import command as job

    raise typer.Exit(
        job.execute_simulation(
            lambda: job.make_plan(
                churn,
                partition,
                layer=layer,
                nodes=nodes,
                session_s=session_s,
                minutes=minutes,
                kill=kill,
                lookups=lookups,
                loss=loss,
                zones=zones,
                detectors=detectors,
                members=members,
                subscribers=subscribers,
                requesters=requesters,
                seed=seed,
            ),
            suite,
            as_json=json,
            output=output,
            plots=plots,
            workers=workers,
        )
    )
