"""`iris config`: the settings of a node on this machine with their sources, a check of a file, and the schema."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from iris_py.cli.outcome import ExitCode, complain
from iris_py.cli.output import Column, Output
from iris_py.config import Config, check_file, config_path, find_origins
from iris_py.errors import ConfigurationError
from iris_py.files.secrets import is_present
from iris_py.json_lines import Line, Lines
from iris_py.settings.table import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from iris_py.cli.settings import Settings
    from iris_py.config import Origin
    from iris_py.settings.table import Setting, Shape

__all__ = ["LINES", "ConfigurationFile", "SettingLine", "check", "schema", "setting_lines", "show"]

#: The text in place of a secret.
SET: Final = "set"
#: The command-line option of each setting, by name of the setting.
_OPTIONS: Final = {setting.name: setting.option_name for setting in SETTINGS}

#: The type of a setting's value in JSON.
Value: TypeAlias = "str | int | bool | list[str] | None"


class SettingLine(Line, tag="setting"):
    """A setting of a node started with these options: value and source."""

    name: str
    value: str | int | bool | list[str] | None
    """For a secret, only the fact that it is set; for clusters, the names of those with their own secret."""
    source: str
    """`argument`, `variable`, `file` or `default`."""
    place: str | UnsetType = UNSET
    """The option, variable, or file and line; absent for a default. If several sources give cluster secrets, all of them."""


class ShowSummary(Line, tag="summary"):
    """The number of settings, and the configuration file."""

    file: str | None
    """The configuration file, or None without a file."""
    settings: int


class MistakeLine(Line, tag="mistake"):
    """A mistake in a configuration file."""

    file: str
    line: int
    text: str
    """The mistake and the correction."""


class CheckSummary(Line, tag="summary"):
    """The number of mistakes in a configuration file."""

    file: str
    mistakes: int


class SchemaLine(Line, tag="schema"):
    """The JSON Schema of configuration files."""

    document: dict[str, Any]


#: The lines of `--json`, by command.
LINES: Final[Lines] = {
    "config show": (SettingLine, ShowSummary),
    "config check": (MistakeLine, CheckSummary),
    "config schema": (SchemaLine,),
}

#: By shape of a setting: the type of its value in the file, and the default if `Config` has none.
_FILE_TYPES: Final[Mapping[Shape, tuple[Any, Any]]] = {
    "text": (str, ""),
    "choice": (str, ""),
    "path": (str, ""),
    "flag": (bool, False),
    "number": (int, 0),
    "addresses": (list[str], []),
    "command": (list[str], []),
    "secret": (str | list[str], ""),
    "secrets": (dict[str, str | list[str]], {}),
}
#: The sentence that follows the description of a path.
_RELATIVE: Final = " A relative path starts in the directory of this file."


def _file_field(setting: Setting) -> tuple[str, Any, Any]:
    """Return the name, the type and the default of a setting in the configuration file, as `msgspec.defstruct` takes them."""
    kind, default = _FILE_TYPES[setting.shape]
    limits: dict[str, Any] = {}
    for each in fields(Config):
        if each.name == setting.name:
            limits = dict(each.metadata.get("limits", {}))
            default = each.default if isinstance(each.default, str | int) else default
    if setting.shape == "choice":
        kind = Literal[limits.pop("choices")]
    text = setting.summary + (_RELATIVE if setting.shape == "path" else "")
    return setting.name, Annotated[kind, Meta(description=text, **limits)], default


#: The settings of an Iris node: iris.toml.
ConfigurationFile: Final = msgspec.defstruct(
    "ConfigurationFile",
    [_file_field(setting) for setting in SETTINGS if setting.is_key],
    kw_only=True,
    forbid_unknown_fields=True,
    namespace={"__doc__": "The settings of an Iris node: iris.toml."},
)


async def show(settings: Settings, *, as_json: bool) -> int:
    """Print the settings of a node started with these options, with the source of each."""
    lines, summary = setting_lines(settings)
    columns = (
        Column[SettingLine]("setting", lambda line: line.name),
        Column[SettingLine]("value", lambda line: _shown(line.value)),
        Column[SettingLine]("source", lambda line: line.source if line.place is UNSET else f"{line.source} {line.place}"),
    )
    output = Output(as_json=as_json)
    output.table(lines, columns)
    output.line(summary)
    return ExitCode.OK


def setting_lines(settings: Settings) -> tuple[list[SettingLine], ShowSummary]:
    """Return the settings of a node started with these options, without secrets, and the summary of the list.

    Raises:
        ConfigurationError: A setting is wrong.
    """
    config = settings.load()
    arguments = dict(settings.connect_arguments())
    origins = find_origins(**arguments)  # type: ignore[arg-type]
    lines = [_line(name, _value(config, name), found) for name, found in origins.items()]
    path = config_path(settings.config_file())
    return lines, ShowSummary(str(path) if path is not None and is_present(path) else None, len(lines))


async def check(settings: Settings, file: Path | None, *, as_json: bool) -> int:
    """Print every mistake in a configuration file with its line, on standard error as a compiler does."""
    path = config_path(file if file is not None else settings.config_file())
    output = Output(as_json=as_json)
    if path is None:
        raise ConfigurationError("this user has no home directory, and so no configuration file. Name one, or set HOME.")
    if file is None and settings.config_file() is None and not is_present(path):
        output.line(CheckSummary(str(path), 0), f"there is no {path}: a node here uses the defaults")
        return ExitCode.OK
    mistakes = check_file(path)
    for line, text in mistakes:
        if as_json:
            output.line(MistakeLine(str(path), line, text))
        else:
            complain(f"{path}:{line}: {text}")
    output.line(CheckSummary(str(path), len(mistakes)), None if mistakes else f"{path}: no mistakes")
    return ExitCode.USAGE if mistakes else ExitCode.OK


async def schema(*, as_json: bool) -> int:
    """Print the JSON Schema of configuration files, for completion and checks in editors."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    document = head | msgspec.json.schema(ConfigurationFile)
    text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
    Output(as_json=as_json).line(SchemaLine(document), text)
    return ExitCode.OK


def _value(config: Config, name: str) -> Value:
    if name == "secret":
        return SET if config.secret is not None or config.secret_command is not None else "the per-user secret"
    value = getattr(config, name)
    if name == "clusters":
        return list(value) if not callable(value) else SET
    return list(value) if isinstance(value, tuple) else value


def _line(name: str, value: Value, origins: Sequence[Origin]) -> SettingLine:
    places = ", ".join(filter(None, map(_place_of, origins)))
    return SettingLine(name, value, origins[0].source, places or UNSET)


def _place_of(origin: Origin) -> str:
    if origin.source == "argument":
        return _OPTIONS[origin.key]
    return origin.variable if origin.path is None else f"{origin.path}:{origin.line}"


def _shown(value: Value) -> str:
    if isinstance(value, list):
        return ", ".join(value)
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
