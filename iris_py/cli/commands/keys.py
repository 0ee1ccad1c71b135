"""`iris keys`: its commands and their options."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from iris_py.cli.options import Json, make_group
from iris_py.cli.outcome import end_of_help, execute
from iris_py.cli.settings import Settings, with_settings
from iris_py.defaults import ROTATION_TIMEOUT_S

if TYPE_CHECKING:
    from iris_py.api.keys import RotationStep

app = make_group(
    "keys", "Make secrets and keys, rotate secrets in files or in a running network, and find your per-user secret."
)


@app.command("new", epilog=end_of_help("iris keys new --output network.secret"))
def keys_new(
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="PATH",
            help="Write the secret into a new private file instead of printing it.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Make a network secret: one line, for every node as IRIS_SECRET or in a file named by IRIS_SECRET_FILE."""
    from iris_py.cli import keys as command

    raise typer.Exit(execute(lambda: command.new(output, as_json=json)))


@app.command("path", epilog=end_of_help("iris keys path"))
def keys_path(json: Json = False) -> None:
    """Print the path of your per-user secret, which is made when first needed."""
    from iris_py.cli import keys as command

    raise typer.Exit(execute(lambda: command.path(as_json=json)))


@app.command("administrator", epilog=end_of_help("iris keys administrator --output administration.key"))
def keys_administrator(
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="PATH", help="Write the key into a new private file.", show_default=False),
    ] = None,
    json: Json = False,
) -> None:
    """Make an administrator key, which authorizes the rotation of a running network's secret.

    This prints the key, or with -o writes it to a file. It also prints the public half for every node's setting
    IRIS_ADMINISTRATOR, or administrator in its file.
    """
    from iris_py.cli import keys as command

    raise typer.Exit(execute(lambda: command.administrator(output, as_json=json)))


@app.command("identity", epilog=end_of_help("iris keys identity --output us.identity"))
def keys_identity(
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="PATH", help="Write the key into a new private file.", show_default=False),
    ] = None,
    json: Json = False,
) -> None:
    """Make the key pair of a cloud, for the gateways that connect it to other clouds.

    The private key is printed, or with -o written to a file. All gateways of this cloud use this one key: the setting
    identity_file is its path. The public key is printed too; without -o and --json it goes to standard error, so that standard
    output has the private key alone. The public key is not secret: neighbours write it into their settings.
    """
    from iris_py.cli import keys as command

    raise typer.Exit(execute(lambda: command.identity(output, as_json=json)))


@app.command("public", epilog=end_of_help("iris keys public us.identity"))
def keys_public(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The private key of a cloud.", show_default=False)],
    json: Json = False,
) -> None:
    """Print the public key of a cloud's private key, for its neighbours."""
    from iris_py.cli import keys as command

    raise typer.Exit(execute(lambda: command.public(file, as_json=json)))


SecretFile = Annotated[
    Path | None,
    typer.Argument(
        metavar="FILE", help="A secret file, as for IRIS_SECRET_FILE; without it, the running network.", show_default=False
    ),
]
AdministrationKeyFile = Annotated[
    Path | None,
    typer.Option(
        "--administration-key", metavar="PATH", help="Without FILE: file with the administrator key.", show_default=False
    ),
]
StepTimeout = Annotated[
    float, typer.Option("--timeout", min=0.0, metavar="SECONDS", help="Timeout for the acknowledgements of linked nodes.")
]
Force = Annotated[
    bool, typer.Option("--force", metavar="", help="Continue although linked nodes are behind and may be excluded.")
]


@app.command("list", epilog=end_of_help("iris keys list", "iris keys list --running"))
@with_settings
def keys_list(
    settings: Settings,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE", help="A secret file; by default the secret of a node on this machine.", show_default=False
        ),
    ] = None,
    running: Annotated[
        bool,
        typer.Option(
            "--running", metavar="", help="Query the running network, and the progress of the linked nodes in a rotation."
        ),
    ] = False,
    json: Json = False,
) -> int:
    """Print the id of each generation of the secrets, but no secret. The primary one encrypts, the others are accepted."""
    from iris_py.cli import keys as command

    if running and file is not None:
        raise typer.BadParameter("a file is not a running network: leave one of them out", param_hint="'--running'")
    if running:
        return execute(lambda: command.list_running(settings, as_json=json), verbosity=settings.verbose)
    return execute(lambda: command.list_generations(settings, file, as_json=json), verbosity=settings.verbose)


@app.command("add", epilog=end_of_help("iris keys add network.secret"))
@with_settings
def keys_add(
    settings: Settings,
    file: SecretFile = None,
    administration_key: AdministrationKeyFile = None,
    timeout: StepTimeout = ROTATION_TIMEOUT_S,
    json: Json = False,
) -> int:
    """Begin a rotation in a file or in the running network: make a new generation, accepted but not used to encrypt yet."""
    return _take_step(settings, "add", file, administration_key, timeout, as_json=json)


@app.command("rotate", epilog=end_of_help("iris keys rotate --administration-key administration.key"))
@with_settings
def keys_rotate(
    settings: Settings,
    file: SecretFile = None,
    administration_key: AdministrationKeyFile = None,
    timeout: StepTimeout = ROTATION_TIMEOUT_S,
    force: Force = False,
    json: Json = False,
) -> int:
    """Continue a rotation when every node has the new generation: the newest generation encrypts, the others are accepted."""
    return _take_step(settings, "rotate", file, administration_key, timeout, force=force, as_json=json)


@app.command("retire", epilog=end_of_help("iris keys retire network.secret"))
@with_settings
def keys_retire(
    settings: Settings,
    file: SecretFile = None,
    administration_key: AdministrationKeyFile = None,
    timeout: StepTimeout = ROTATION_TIMEOUT_S,
    force: Force = False,
    abandon: Annotated[
        bool, typer.Option("--abandon", metavar="", help="Discard an added generation that does not encrypt yet.")
    ] = False,
    json: Json = False,
) -> int:
    """End a rotation when every node encrypts with the new generation: only this primary generation stays. Nodes without it are
    excluded.

    This is refused while an added generation does not encrypt yet: run `rotate` first, or discard that generation with
    --abandon.
    """
    return _take_step(settings, "retire", file, administration_key, timeout, force=force, abandon=abandon, as_json=json)


def _take_step(
    settings: Settings,
    step: "RotationStep",
    file: Path | None,
    key_file: Path | None,
    timeout_s: float,
    *,
    force: bool = False,
    abandon: bool = False,
    as_json: bool,
) -> int:
    from iris_py.cli import keys as command

    if file is not None and key_file is not None:
        raise typer.BadParameter(
            "it is only for the running network: leave it or FILE out", param_hint="'--administration-key'"
        )
    if file is not None:
        return execute(lambda: command.take_step(step, file, abandon=abandon, as_json=as_json), verbosity=settings.verbose)
    if key_file is None:
        raise typer.BadParameter("give FILE, or --administration-key for the running network", param_hint="'FILE'")
    return execute(
        lambda: command.take_running_step(
            settings, step, key_file, timeout_s=timeout_s, force=force, abandon=abandon, as_json=as_json
        ),
        verbosity=settings.verbose,
    )
