"""`iris demo`: its options."""

from pathlib import Path
from typing import Annotated

import typer

from iris_py.cli.options import Json
from iris_py.cli.outcome import end_of_help, execute

app = typer.Typer()


@app.command(epilog=end_of_help("iris demo --members 5", exit_codes="Exit code 0 only if the totals are equal."))
def demo(
    directory: Annotated[
        Path | None,
        typer.Option("--input", metavar="DIR", help="Count this directory instead of Python's own source.", show_default=False),
    ] = None,
    member_count: Annotated[int, typer.Option("--members", min=1, max=64, metavar="N", help="Number of member processes.")] = 3,
    no_kill: Annotated[bool, typer.Option("--no-kill", metavar="", help="Do not kill any process.")] = False,
    spark: Annotated[
        bool,
        typer.Option("--spark", metavar="", help="Dispatch the work from a Spark application, and kill an executor too."),
    ] = False,
    federation: Annotated[
        bool,
        typer.Option(
            "--federation",
            metavar="",
            help="Let a cluster of another cloud do the work, and kill a gateway of each cloud, too.",
        ),
    ] = False,
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
    """
    if spark and federation:
        raise typer.BadParameter("the two demos exclude each other", param_hint="'--spark' / '--federation'")
    if spark:
        from iris_py.cli.demo.spark import demo_spark

        raise typer.Exit(
            execute(
                lambda: demo_spark(
                    directory, member_count=member_count, is_kill=not no_kill, as_json=json, timeout_s=timeout or 300.0
                ),
                verbosity=verbose,
            )
        )
    if timeout is not None:
        raise typer.BadParameter("it needs --spark", param_hint="'--timeout'")
    if federation:
        from iris_py.cli.demo.federation import demo_federation

        raise typer.Exit(
            execute(
                lambda: demo_federation(directory, member_count=member_count, is_kill=not no_kill, as_json=json),
                verbosity=verbose,
            )
        )
    from iris_py.cli.demo import command as job

    raise typer.Exit(
        execute(
            lambda: job.demo(directory, member_count=member_count, is_kill=not no_kill, as_json=json),
            verbosity=verbose,
        )
    )
