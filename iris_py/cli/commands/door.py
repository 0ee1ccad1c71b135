"""`iris door`: its commands and their options."""

from pathlib import Path
from typing import Annotated

import typer

from iris_py.cli.options import AskTimeout, Http, Json, Limit, make_group
from iris_py.cli.outcome import end_of_help, execute
from iris_py.cli.settings import Settings, with_settings
from iris_py.defaults import ASK_TIMEOUT_S

app = make_group("door", "Let programs that are not nodes use the network: by HTTP, or with any client of NATS.")

DoorFile = Annotated[
    Path | None,
    typer.Argument(metavar="[FILE]", help="Settings of the door: roles, origins, limits, address.", show_default=False),
]
At = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Listen for clients here instead of the address in FILE.", show_default=False),
]
Check = Annotated[bool, typer.Option("--check", metavar="", help="Only read FILE, and print each right of each role.")]


@app.command("web", epilog=end_of_help("iris door web"))
@with_settings
def door_web(
    settings: Settings,
    file: DoorFile = None,
    at: At = None,
    check: Check = False,
    http: Http = None,
    json: Json = False,
) -> int:
    """Serve HTTP for clients: requests, broadcasts, surveys and publications. Clients show a token (`iris token new`).

    Without FILE the door listens on this machine alone, at 127.0.0.1:7480, and clients have the rights in their tokens.

    The door runs until a signal stops the command. On SIGHUP, a service reads FILE again, and after a mistake in FILE keeps the
    old settings.
    """
    from iris_py.cli import door as command
    from iris_py.cli.door_service import DoorCommand

    if check:
        return execute(lambda: command.check(file, as_json=json), verbosity=settings.verbose, options=settings.options)
    run = DoorCommand(settings, file, at, http, json)
    return execute(lambda: command.serve_web(run), verbosity=settings.verbose, options=settings.options)


@app.command("password", epilog=end_of_help("iris door password", "iris door password --token"))
@with_settings
def door_password(
    settings: Settings,
    token: Annotated[
        bool, typer.Option("--token", metavar="", help="Draw a token instead, which a client shows without a name.")
    ] = False,
    json: Json = False,
) -> int:
    """Read a password of a NATS user, and print its hash for the file of a door. The file never has the password.

    At a terminal the password is typed twice, and not shown. Otherwise it is the line on standard input.
    """
    from iris_py.cli import nats_credentials as command

    make = command.make_token if token else command.make_password
    return execute(lambda: make(as_json=json), verbosity=settings.verbose)


@app.command("nkey", epilog=end_of_help("iris door nkey"))
@with_settings
def door_nkey(settings: Settings, json: Json = False) -> int:
    """Make an nkey, the key pair of a NATS user: the client signs with the seed, and the door knows the public half alone."""
    from iris_py.cli import nats_credentials as command

    return execute(lambda: command.make_nkey(as_json=json), verbosity=settings.verbose)


@app.command("nats", epilog=end_of_help("iris door nats"))
@with_settings
def door_nats(
    settings: Settings,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="Settings of the door: users, limits, address.", show_default=False),
    ] = None,
    at: At = None,
    check: Annotated[
        bool, typer.Option("--check", metavar="", help="Only read FILE, and print each right of each user.")
    ] = False,
    http: Http = None,
    json: Json = False,
) -> int:
    """Serve clients of NATS, in any language: subjects are topics, and queue groups are groups of subscriptions.

    Without FILE the door listens on this machine alone, at 127.0.0.1:4222, for programs of the same user.

    The door runs until a signal stops the command. On SIGHUP, a service reads FILE again, and after a mistake in FILE keeps the
    old settings.
    """
    from iris_py.cli import nats_door as command
    from iris_py.cli.door_service import DoorCommand

    if check:
        return execute(lambda: command.check(file, as_json=json), verbosity=settings.verbose, options=settings.options)
    run = DoorCommand(settings, file, at, http, json)
    return execute(lambda: command.serve_nats(run), verbosity=settings.verbose, options=settings.options)


@app.command("clients", epilog=end_of_help("iris door clients", "iris door clients --door nats --json"))
@with_settings
def door_clients(
    settings: Settings,
    door: Annotated[
        str | None,
        typer.Option(
            metavar="DOOR",
            help="Only doors of this kind (nats or web), with this address, or with these first digits of their node id.",
            show_default=False,
        ),
    ] = None,
    limit: Limit = 200,
    timeout: AskTimeout = ASK_TIMEOUT_S,
    json: Json = False,
) -> int:
    """List the clients that are connected at doors: name, user, language, address, subscriptions, messages, waiting bytes.

    The doors answer programs with the secret of the network alone, never a client. Clients of a web door are its open event
    streams.
    """
    from iris_py.cli import door_clients as command

    return execute(
        lambda: command.clients(settings, door=door, timeout_s=timeout, limit=limit, as_json=json),
        verbosity=settings.verbose,
        options=settings.options,
        is_short=True,
    )
