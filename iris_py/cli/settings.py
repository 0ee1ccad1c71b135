"""The options that are common to all commands with a node."""

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Concatenate, Final, ParamSpec, cast

import typer
from typer.models import OptionInfo

from iris_py.settings.table import SETTINGS, ConnectArguments, Setting, Shape, variable_of

if TYPE_CHECKING:
    from iris_py.api.awaitable_context import Opening
    from iris_py.api.node import Node
    from iris_py.config import Config

__all__ = ["PANEL", "Settings", "with_settings"]

#: The heading of the common options in help texts.
PANEL: Final = "Network"

#: The settings with an option on the command line.
_WITH_OPTION: Final = tuple(setting for setting in SETTINGS if setting.option is not None)
#: The type of an option's value by the shape of the setting. A command is one text, split as a shell does.
_TYPES: Final[Mapping[Shape, object]] = {
    "text": str | None,
    "choice": str | None,
    "path": Path | None,
    "flag": bool,
    "number": int | None,
    "addresses": list[str] | None,
    "command": str | None,
}


def _complete_context(incomplete: str) -> list[str]:
    from iris_py.cli.completion import complete_context

    return complete_context(incomplete)


@dataclass(frozen=True, slots=True)
class Settings:
    """The common options as given on a command line. The annotated fields are options besides those of the table of settings.

    The secret itself has no option, because every user of a machine can read the arguments of all processes.
    """

    given: Mapping[str, object] = field(default_factory=dict)
    """Not an option: the values of the table's options on the command line, by the name of the setting."""
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
        arguments: dict[str, object] = {}
        for setting in _WITH_OPTION:
            value = self.given.get(setting.name)
            if setting.shape == "command" and value is not None:
                from iris_py.files.secret_command import split_command

                value = split_command(str(value), setting.option_name)
            elif setting.shape == "path" and isinstance(value, Path):
                _check_readable(value, setting.option_name)  # the node reads the file, now and at each reload
            arguments[setting.name] = value
        return cast("ConnectArguments", arguments | {"config": self.config_file()})

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
        """Return these options as words for the command line of another process."""
        words = []
        for setting in _WITH_OPTION:
            value = self.given.get(setting.name)
            if isinstance(value, bool):
                words.append(setting.option_name)
            elif value is not None:
                values = value if isinstance(value, list) else [value]
                words += [word for each in values for word in (setting.option_name, str(each))]
        for name in ("config", "context"):
            value = getattr(self, name)
            words += [] if value is None else [f"--{name}", str(value)]
        return words + ["--verbose"] * self.verbose + ["--log-json"] * self.log_json

    def load(self) -> "Config":
        """Load all settings from options, environment and file, for commands that need them before a node starts.

        Raises:
            ConfigurationError: A setting is wrong.
        """
        from iris_py.config import load_config

        return load_config(**self.connect_arguments())

    def visit(self, config: "Config | None" = None) -> "Opening[Node]":
        """Start the node of a short-lived command, and leave with the end of the ``async with`` block.

        The node serves no cluster. Environment and file often give one port to every program of a machine. If a command took
        this port during the restart of a service, the service would have to use another. So the node takes any port.

        Args:
            config: The resulting configuration, if loaded already.

        Raises:
            ConfigurationError: A setting is wrong.
            HandshakeError: Every seed answers, and no seed holds this secret.
        """
        from iris_py.api.awaitable_context import Opening
        from iris_py.api.node import start_node

        first = (config or self.load()).without_shared_port()
        return Opening(start_node(first, reload=lambda: self.load().without_shared_port()))


Arguments = ParamSpec("Arguments")


def with_settings(command: Callable[Concatenate[Settings, Arguments], int]) -> Callable[..., None]:
    """Add the common options to a command: typer sees all options, and the command receives the common ones as `Settings`."""
    own = list(inspect.signature(command).parameters.values())[1:]
    named, others = _common_parameters()
    options = frozenset(f"--{each.name.rstrip('_').replace('_', '-')}" for each in own if _is_option(each))

    def wrapper(*args: Arguments.args, **values: Arguments.kwargs) -> None:
        given = {setting.name: _value_of(setting, values.pop(parameter.name)) for parameter, setting in named}
        settings = Settings(
            {name: value for name, value in given.items() if value is not None},
            **{each.name: values.pop(each.name) for each in others},  # type: ignore[arg-type]
            options=options,
        )
        raise typer.Exit(command(settings, *args, **values))

    wrapper.__name__ = command.__name__
    wrapper.__doc__ = command.__doc__
    parameters = (
        [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own]
        + [parameter for parameter, _setting in named]
        + others
    )
    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {each.name: each.annotation for each in parameters}
    return wrapper


@cache
def _common_parameters() -> tuple[list[tuple[inspect.Parameter, Setting]], list[inspect.Parameter]]:
    """Return the parameters from which typer makes the common options: those of the table of settings, and the others."""
    others = [
        inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=each.type)
        for each in fields(Settings)
        if each.name not in ("given", "options")
    ]
    return [(_parameter(setting), setting) for setting in _WITH_OPTION], others


def _parameter(setting: Setting) -> inspect.Parameter:
    """Return the parameter of a command function from which typer makes the option of a setting."""
    option, name = setting.option, setting.option_name
    assert option is not None
    variables = ", ".join((variable_of(setting.name), *option.other_variables))
    text = f"{option.help} [{variables}]"
    return inspect.Parameter(
        name.removeprefix("--").replace("-", "_"),
        inspect.Parameter.KEYWORD_ONLY,
        default=False if setting.shape == "flag" else None,
        annotation=Annotated[
            _TYPES[setting.shape], typer.Option(name, metavar=option.metavar, help=text, rich_help_panel=PANEL)
        ],
    )


def _value_of(setting: Setting, value: object) -> object:
    """Convert the value of an option to the value of its setting; None if the option was not given."""
    assert setting.option is not None
    if setting.shape == "flag":
        return not setting.option.is_negated if value else None
    return value or None if isinstance(value, list) else value


def _is_option(parameter: inspect.Parameter) -> bool:
    return any(isinstance(each, OptionInfo) for each in getattr(parameter.annotation, "__metadata__", ()))


def _check_readable(path: Path, option: str) -> None:
    """Raise an error that names the option if a file cannot be read."""
    from iris_py.errors import ConfigurationError
    from iris_py.files.secrets import check_path

    check_path(path, option)
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
    except OSError as exc:
        raise ConfigurationError(
            f"{option}: {path} cannot be read: {exc.strerror}. Correct the path or its permissions."
        ) from exc
