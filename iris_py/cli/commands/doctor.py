"""`iris doctor`: its options."""

from pathlib import Path
from typing import Annotated

import typer

from iris_py.cli.options import Json
from iris_py.cli.outcome import end_of_help, execute
from iris_py.cli.settings import Settings, with_settings

app = typer.Typer()


@app.command(
    epilog=end_of_help(
        "iris doctor databases --fix-hints", "iris doctor --only config,secret,port", "iris doctor --bundle iris.tar.gz"
    )
)
@with_settings
def doctor(
    settings: Settings,
    cluster: Annotated[
        str | None,
        typer.Argument(
            metavar="[CLUSTER]", help="A cluster to check as well; with @CLOUD, the route to it.", show_default=False
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="CHECKS", help="Run only these checks: udp,mtu; repeatable.", show_default=False),
    ] = None,
    skip: Annotated[
        list[str] | None, typer.Option(metavar="CHECKS", help="Skip these checks; repeatable.", show_default=False)
    ] = None,
    fix_hints: Annotated[
        bool, typer.Option("--fix-hints", metavar="", help="Print commands that show details or fix a fault.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", metavar="", help="Treat warnings as faults.")] = False,
    bundle: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the data for a bug report into FILE (tar.gz), without secrets.",
            show_default=False,
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", metavar="", help="Let --bundle replace an existing file.")] = False,
    anonymous: Annotated[
        bool, typer.Option("--anonymous", metavar="", help="Replace names and addresses in the bundle by pseudonyms.")
    ] = False,
    json: Json = False,
) -> int:
    """Check for faults in the settings, on this machine, in the network and optionally in a cluster.

    The command starts a node with the given settings, queries other nodes, and changes nothing. Each line gives the check, the
    fault and the remedy. It needs no root and takes some seconds. The exit code is 8 if a fault was found.
    """
    from iris_py.cli.doctor import command

    if (force or anonymous) and bundle is None:
        raise typer.BadParameter("it needs --bundle", param_hint="--force" if force else "--anonymous")
    wanted = None if bundle is None else command.BundleOptions(bundle, may_replace=force, is_anonymous=anonymous)
    return execute(
        lambda: command.doctor(
            settings,
            cluster,
            only=only or (),
            skip=skip or (),
            fix_hints=fix_hints,
            strict=strict,
            as_json=json,
            bundle=wanted,
        ),
        verbosity=settings.verbose,
        options=settings.options,
        is_short=True,
    )
