"""`iris demo`: its options."""

from functools import partial
from pathlib import Path
from typing import Annotated, TypedDict

import typer

from iris_py.cli.options import Json
from iris_py.cli.outcome import end_of_help, execute

app = typer.Typer()


Spark = Annotated[
    bool,
    typer.Option("--spark", metavar="", help="Dispatch the work from a Spark application, and kill an executor too."),
]
Federation = Annotated[
    bool,
    typer.Option(
        "--federation",
        metavar="",
        help="Let a cluster of another cloud do the work, and kill a gateway of each cloud, too.",
    ),
]
Web = Annotated[
    bool,
    typer.Option("--web", metavar="", help="Show a network in a browser: live prices, a chat, the dashboard. Ends by q."),
]
Nats = Annotated[
    bool,
    typer.Option("--nats", metavar="", help="Show clients of NATS beside native programs, at two doors. Ends by q."),
]
Check = Annotated[
    bool,
    typer.Option(
        "--check",
        metavar="",
        help="With --web: drive Chromium through the pages, and report. With --nats: kill a member and a door, and report.",
    ),
]


class _DemoArguments(TypedDict):
    """The arguments of every demo."""

    member_count: int
    as_json: bool


@app.command(
    epilog=end_of_help(
        "iris demo --members 5",
        "iris demo --web",
        "iris demo --nats --check",
        exit_codes="Exit code 0 only if the totals are equal, or with --check if all claims hold.",
    )
)
def demo(
    directory: Annotated[
        Path | None,
        typer.Option("--input", metavar="DIR", help="Count this directory instead of Python's own source.", show_default=False),
    ] = None,
    member_count: Annotated[int, typer.Option("--members", min=1, max=64, metavar="N", help="Number of member processes.")] = 3,
    no_kill: Annotated[bool, typer.Option("--no-kill", metavar="", help="Do not kill any process.")] = False,
    spark: Spark = False,
    federation: Federation = False,
    web: Web = False,
    nats: Nats = False,
    check: Check = False,
    timeout: Annotated[
        float | None,
        typer.Option(min=1.0, metavar="SECONDS", help="With --spark: timeout of the demo; 300 by default.", show_default=False),
    ] = None,
    json: Json = False,
    verbose: Annotated[int, typer.Option("--verbose", "-v", count=True, metavar="", show_default=False, help="Show more.")] = 0,
) -> None:
    """Count a source tree in a cluster of processes, kill one process half-way, and compare with a plain count.

    The demo runs in a private network.

    With --spark, Spark tasks read the files (local-cluster[2,1,1024]; takes 45 s on two processors).

    With --federation, the cluster is in another cloud than the files; two gateways on each side connect the clouds.

    With --web, nothing is counted: a page in a browser uses the network through a door, and the key k kills a member.

    With --nats, native members and clients of NATS serve one cluster: k kills a member, d a door, and the end tells the losses.
    """
    demos = {"--spark": spark, "--federation": federation, "--web": web, "--nats": nats}
    chosen = [name for name, is_chosen in demos.items() if is_chosen]
    if len(chosen) > 1:
        raise typer.BadParameter("these demos exclude each other", param_hint=" / ".join(f"'{name}'" for name in chosen))
    if check and not (web or nats):
        raise typer.BadParameter("it needs --web or --nats", param_hint="'--check'")
    if timeout is not None and not spark:
        raise typer.BadParameter("it needs --spark", param_hint="'--timeout'")
    arguments: _DemoArguments = {"member_count": member_count, "as_json": json}
    if web:
        from iris_py.cli.demo.web import demo_web

        run = partial(demo_web, is_check=check, **arguments)
    elif nats:
        from iris_py.cli.demo.nats import demo_nats

        run = partial(demo_nats, is_check=check, **arguments)
    elif spark:
        from iris_py.cli.demo.spark import demo_spark

        run = partial(demo_spark, directory, is_kill=not no_kill, timeout_s=timeout or 300.0, **arguments)
    elif federation:
        from iris_py.cli.demo.federation import demo_federation

        run = partial(demo_federation, directory, is_kill=not no_kill, **arguments)
    else:
        from iris_py.cli.demo.command import demo as demo_job

        run = partial(demo_job, directory, is_kill=not no_kill, **arguments)
    raise typer.Exit(execute(run, verbosity=verbose))
