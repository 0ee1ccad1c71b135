"""The common options of all commands."""

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Concatenate, Final, ParamSpec, TypedDict

import typer
from typer.models import OptionInfo

if TYPE_CHECKING:
    from iris_py.config import Config

__all__ = ["PANEL", "Settings", "with_settings"]

#: The heading of these options in help texts.
PANEL: Final = "Network"


class ConnectArguments(TypedDict):
    """The arguments of `iris_py.connect`. None leaves a setting to environment and file."""

    network: str | None
    secret_file: Path | None
    secret_command: tuple[str, ...] | None
    listen: str | None
    advertise: list[str] | None
    seeds: list[str] | None
    zone: str | None
    name: str | None
    discovery: bool | None
    config: Path | None


def _complete_context(incomplete: str) -> list[str]:
    from iris_py.cli.completion import complete_context

    return complete_context(incomplete)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of the node on the command line. The annotations are the options.

    The secret itself has no option, because every user of a machine can read the arguments of all processes.
    """

    network: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the network. [IRIS_NETWORK]", rich_help_panel=PANEL)
    ] = None
    secret_file: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH", help="File with the network secret. [IRIS_SECRET_FILE, IRIS_SECRET]", rich_help_panel=PANEL
        ),
    ] = None
    secret_command: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND", help="Command that prints the network secret. [IRIS_SECRET_COMMAND]", rich_help_panel=PANEL
        ),
    ] = None
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Address to listen on; by default loopback and any free port. [IRIS_LISTEN]",
            rich_help_panel=PANEL,
        ),
    ] = None
    advertise: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST[:PORT]",
            help="Address that others dial instead, behind NAT or in a container; repeatable. [IRIS_ADVERTISE]",
            rich_help_panel=PANEL,
        ),
    ] = None
    seed: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST:PORT",
            help="A node to dial, in addition to discovered nodes; repeatable. [IRIS_SEEDS]",
            rich_help_panel=PANEL,
        ),
    ] = None
    zone: Annotated[
        str | None,
        typer.Option(metavar="ZONE", help="Location of this node, such as eu-west/a. [IRIS_ZONE]", rich_help_panel=PANEL),
    ] = None
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Label of this node; by default host/program. [IRIS_NAME]", rich_help_panel=PANEL),
    ] = None
    no_discovery: Annotated[
        bool,
        typer.Option(
            "--no-discovery", metavar="", help="Find nodes only through the seeds. [IRIS_DISCOVERY]", rich_help_panel=PANEL
        ),
    ] = False
    config: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Configuration file. [IRIS_CONFIG]", rich_help_panel=PANEL),
    ] = None
    context: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The configuration file NAME.toml in ~/.config/iris.",
            rich_help_panel=PANEL,
            autocompletion=_complete_context,
        ),
    ] = None
    verbose: Annotated[
        int,
        typer.Option(
            "--verbose", "-v", count=True, metavar="", show_default=False, help="Show the node's activity; -vv shows all."
        ),
    ] = 0
    log_json: Annotated[
        bool,
        typer.Option("--log-json", metavar="", help="Write standard error as JSON, one object per line."),
    ] = False
    options: frozenset[str] = frozenset()
    """Not an option: the names of the command's own options, as ``--timeout``."""

    def connect_arguments(self) -> ConnectArguments:
        """Return the arguments of `iris_py.connect`.

        Raises:
            ConfigurationError: The secret file cannot be read, or the command is invalid.
        """
        from iris_py.files.secret_command import split_command

        command = None if self.secret_command is None else split_command(self.secret_command, "--secret-command")
        if self.secret_file is not None:
            _check_readable(self.secret_file, "--secret-file")  # the node reads the file, now and at each reload
        return ConnectArguments(
            network=self.network,
            secret_file=self.secret_file,
            secret_command=command,
            listen=self.listen,
            advertise=self.advertise or None,
            seeds=self.seed or None,
            zone=self.zone,
            name=self.name,
            discovery=False if self.no_discovery else None,
            config=self.config_file(),
        )

    def config_file(self) -> Path | None:
        """Return the configuration file given by an option, if any.

        Raises:
            ConfigurationError: The context does not exist, or both options are given.
        """
        if self.context is None:
            return self.config
        from iris_py.cli.contexts import context_file
        from iris_py.errors import ConfigurationError

        if self.config is not None:
            raise ConfigurationError("--context and --config are both given, and each names a file. Leave one out.")
        return context_file(self.context)

    def as_options(self) -> list[str]:
        """Return the equivalent options for the command line of another process."""
        words = []
        for each in fields(self):
            value, name = getattr(self, each.name), f"--{each.name.replace('_', '-')}"
            if each.name == "options" or value in (None, False, 0):
                continue
            if each.name == "verbose":
                words += [name] * value
            elif value is True:
                words.append(name)
            else:
                words += [word for one in (value if isinstance(value, list) else [value]) for word in (name, str(one))]
        return words

    def load(self) -> "Config":
        """Load all settings, for a command that needs them before its node starts.

        Raises:
            ConfigurationError: A setting is wrong.
        """
        from iris_py.config import load_config

        return load_config(**self.connect_arguments())


Arguments = ParamSpec("Arguments")


def with_settings(command: Callable[Concatenate[Settings, Arguments], int]) -> Callable[..., None]:
    """Add the common options to a command: typer sees all options, the command receives the common ones as `Settings`."""
    own = list(inspect.signature(command).parameters.values())[1:]
    common = [
        inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=each.type)
        for each in fields(Settings)
        if each.name != "options"
    ]
    options = frozenset(f"--{each.name.rstrip('_').replace('_', '-')}" for each in own if _is_option(each))

    def wrapper(*args: Arguments.args, **values: Arguments.kwargs) -> None:
        settings = Settings(**{each.name: values.pop(each.name) for each in common}, options=options)  # type: ignore[arg-type]
        raise typer.Exit(command(settings, *args, **values))

    wrapper.__name__ = command.__name__
    wrapper.__doc__ = command.__doc__
    parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own] + common
    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {each.name: each.annotation for each in parameters}
    return wrapper


def _is_option(parameter: inspect.Parameter) -> bool:
    return any(isinstance(each, OptionInfo) for each in getattr(parameter.annotation, "__metadata__", ()))


def _check_readable(path: Path, option: str) -> None:
    """Raise an error that names the option of an unreadable file."""
    from iris_py.errors import ConfigurationError
    from iris_py.files.secrets import check_path

    check_path(path, option)
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
    except OSError as exc:
        raise ConfigurationError(
            f"{option}: {path} cannot be read: {exc.strerror}. Correct the path or its permissions."
        ) from exc
