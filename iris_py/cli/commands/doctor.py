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
        typer.Argument(metavar="[CLUSTER]", help="A cluster to look at, too; with @CLOUD the way to it.", show_default=False),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="CHECKS", help="Make these checks alone: udp,mtu; repeatable.", show_default=False),
    ] = None,
    skip: Annotated[
        list[str] | None, typer.Option(metavar="CHECKS", help="Leave these checks out; repeatable.", show_default=False)
    ] = None,
    fix_hints: Annotated[
        bool, typer.Option("--fix-hints", metavar="", help="Print commands that show more, or that mend it.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", metavar="", help="Let warnings count as faults.")] = False,
    bundle: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write all that a report of a defect needs into FILE (tar.gz), without secrets.",
            show_default=False,
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", metavar="", help="Let --bundle replace a file that exists.")] = False,
    anonymous: Annotated[
        bool, typer.Option("--anonymous", metavar="", help="Put pseudonyms in place of names and addresses in the bundle.")
    ] = False,
    json: Json = False,
) -> int:
    """Look for faults: in the settings, on this machine, in the network and, if one is named, in a cluster.

    It starts a node with the settings of this command line, asks other nodes, and changes nothing. Each line says what was
    looked at, what is wrong and what to do. It needs no root, and takes some seconds. The exit code is 8 if a fault was found.
    """
    from iris_py.cli.doctor import command

    if (force or anonymous) and bundle is None:
        raise typer.BadParameter("it is of no use without --bundle", param_hint="--force" if force else "--anonymous")
    wanted = None if bundle is None else command.Wanted(bundle, may_replace=force, is_anonymous=anonymous)
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
