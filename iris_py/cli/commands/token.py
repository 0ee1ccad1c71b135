"""`iris token`: its commands and their options."""

from typing import Annotated

import typer

from iris_py.cli.options import Json, make_group
from iris_py.cli.outcome import end_of_help, execute
from iris_py.cli.settings import Settings, with_settings

app = make_group("token", "Make, show and revoke tokens, with which programs that are no nodes use a door of the network.")


@app.command(
    "new",
    epilog=end_of_help(
        "iris token new --request quotes", "iris token new --sub ann --publish 'notes.{sub}' --subscribe 'news.>' --for 8h"
    ),
)
@with_settings
def token_new(
    settings: Settings,
    sub: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The subject: the name of the client; by default yours.", show_default=False),
    ] = None,
    role: Annotated[
        str, typer.Option(metavar="NAME", help="A role in the file of the door. With rules too, both must allow.")
    ] = "",
    for_: Annotated[str, typer.Option("--for", metavar="TIME", help="The lifetime, as 90s, 10m or 8h; 24h at most.")] = "1h",
    request: Annotated[
        list[str] | None,
        typer.Option(metavar="CLUSTER", help="Allow requests to a cluster, as quotes or db-*; repeatable.", show_default=False),
    ] = None,
    survey: Annotated[
        list[str] | None,
        typer.Option(metavar="CLUSTER", help="Allow surveys of a cluster; repeatable.", show_default=False),
    ] = None,
    broadcast: Annotated[
        list[str] | None,
        typer.Option(metavar="CLUSTER", help="Allow broadcasts to a cluster; repeatable.", show_default=False),
    ] = None,
    publish: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN", help="Allow publications to topics, as notes.{sub} or news.>; repeatable.", show_default=False
        ),
    ] = None,
    subscribe: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN", help="Allow subscriptions to a pattern and to narrower ones; repeatable.", show_default=False
        ),
    ] = None,
    observe: Annotated[bool, typer.Option("--observe", metavar="", help="Allow to look at the state of the network.")] = False,
    remote_errors: Annotated[
        bool, typer.Option("--remote-errors", metavar="", help="Tell the client the type and text of errors of handlers.")
    ] = False,
    json: Json = False,
) -> int:
    """Make a token, signed with the network's secret. No door and no node has to run.

    The rules of the options are the only rights. In a rule {sub} stands for the subject. Standard output has the token alone:
    TOKEN=$(iris token new --request quotes).
    """
    from iris_py.cli import token as command

    rules = {"request": request, "survey": survey, "broadcast": broadcast, "publish": publish, "subscribe": subscribe}
    return execute(
        lambda: command.new(
            settings,
            subject=sub,
            role=role,
            lifetime=for_,
            rights=command.rights_of(rules, observe=observe, remote_errors=remote_errors),
            as_json=json,
        ),
        verbosity=settings.verbose,
    )


@app.command("show", epilog=end_of_help("iris token show -"))
@with_settings
def token_show(
    settings: Settings,
    token: Annotated[str, typer.Argument(metavar="TOKEN", help="The token; - reads standard input.", show_default=False)],
    json: Json = False,
) -> int:
    """Print the subject, the rights and the end of a token, and whether the secret of this network signed the token."""
    from iris_py.cli import token as command

    return execute(lambda: command.show(settings, token, as_json=json), verbosity=settings.verbose)


@app.command("revoke", epilog=end_of_help("iris token revoke -", "iris token revoke --subject ann"))
@with_settings
def token_revoke(
    settings: Settings,
    token: Annotated[
        str | None,
        typer.Argument(
            metavar="[TOKEN|ID]", help="The token, or its id (`iris token show`); - reads standard input.", show_default=False
        ),
    ] = None,
    subject: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Revoke all tokens of a subject that were made up to now.", show_default=False),
    ] = None,
    all_before: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Revoke all tokens that were made up to a time: now, or as 2026-05-01T12:00.",
            show_default=False,
        ),
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.001, metavar="SECONDS", help="How long to wait for the doors.")] = 5.0,
    json: Json = False,
) -> int:
    """Revoke tokens before their end, at all doors of the network; print each door that has confirmed.

    Event streams, sessions and operations of a revoked token end at once. Doors remember a revocation until the tokens would
    have ended, at most a day, also after a restart on the same host, and tell doors that start later.

    Exit code 3 if no door runs, 4 if a door did not confirm in time, 1 if a door has no place for the revocation.
    """
    from iris_py.cli import token_revocation as command

    return execute(
        lambda: command.revoke(settings, given=token, subject=subject, all_before=all_before, timeout_s=timeout, as_json=json),
        verbosity=settings.verbose,
        is_short=True,
    )
