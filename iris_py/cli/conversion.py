"""The conversion of plain values on a command line: texts, numbers, paths and choices that need no explanation.

Typer converts each value, even a missing one, with a validator of pydantic. To import pydantic and to make the validators takes
as long as all the rest of a short command. So this module converts plain values itself, with the same results, and leaves all
others to typer, which also explains mistakes.
"""

from __future__ import annotations

import os
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Protocol, cast, get_args, get_origin

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    class OptionLimits(Protocol):
        """The part of typer's `ParameterInfo` that describes the valid values of an option."""

        parser: object
        min: float | None
        max: float | None
        case_sensitive: bool

    class OptionType(Protocol):
        """The type of an option in the code of its command."""

        annotation: object
        parameter_info: OptionLimits

    class CommandOption(Protocol):
        """An option or an argument of a command."""

        required: bool
        multiple: bool
        nargs: int
        type_descriptor: OptionType
        callback: Callable[[object, CommandOption, object], object] | None
        process_value: Callable[[object, object], object]

    class CommandTree(Protocol):
        """A command, or a group of commands."""

        commands: Mapping[str, CommandTree]
        get_params: Callable[[object], list[CommandOption]]


__all__ = ["convert_plainly"]

_UNKNOWN: Final = object()
# Numbers without a sign, an exponent or needless zeros. Their digits fit into a float and into 64 bits.
_INTEGER: Final = re.compile(r"0|[1-9][0-9]{0,14}")
_NUMBER: Final = re.compile(r"(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,15})?")
#: The attributes of an option by which typer checks more of a path than that it can be read, and their defaults.
_PATH_CHECKS: Final = {
    "exists": False,
    "file_okay": True,
    "dir_okay": True,
    "writable": False,
    "readable": True,
    "resolve_path": False,
    "allow_dash": False,
    "path_type": None,
}


def convert_plainly(command: object) -> None:
    """Make a command of typer, and all commands below it, convert plain values without pydantic.

    Args:
        command: The command, from `typer.main.get_command`. Versions of typer without pydantic need no change.
    """
    command = cast("CommandTree", command)
    command.get_params = partial(_get_params, command.get_params)  # with the option --help, which is made for each call
    for inner in getattr(command, "commands", {}).values():
        convert_plainly(inner)


def _get_params(get_params: Callable[[object], list[CommandOption]], context: object) -> list[CommandOption]:
    """Return the options and arguments of a command, which convert plain values."""
    parameters = get_params(context)
    for parameter in parameters:
        if hasattr(parameter, "type_descriptor") and "process_value" not in vars(parameter):
            parameter.process_value = partial(_process, parameter, parameter.process_value)
    return parameters


def _process(parameter: CommandOption, process: Callable[[object, object], object], context: object, value: object) -> object:
    """Convert a value, and pass it to the callback of its option, as `process_value` of typer does."""
    converted = _convert(parameter, value)
    if converted is _UNKNOWN:
        return process(context, value)
    return converted if parameter.callback is None else parameter.callback(context, parameter, converted)


def _convert(parameter: CommandOption, value: object) -> object:
    has_several = parameter.multiple or parameter.nargs == -1
    if value is None:
        return _UNKNOWN if parameter.required else () if has_several else None
    if parameter.nargs not in (1, -1):
        return _UNKNOWN
    about = parameter.type_descriptor
    if about.parameter_info.parser is not None:
        return _UNKNOWN
    if not has_several:
        return _convert_one(about.annotation, about.parameter_info, value)
    if not isinstance(value, list | tuple) or not value or get_origin(about.annotation) is not list:
        return _UNKNOWN
    (kind,) = get_args(about.annotation)
    converted = [_convert_one(kind, about.parameter_info, each) for each in value]
    return _UNKNOWN if _UNKNOWN in converted else converted


def _convert_one(kind: object, limits: OptionLimits, value: object) -> object:
    if kind is str and isinstance(value, str):
        return value
    if kind in (int, float):
        return _convert_number(kind, limits, value)
    if kind is Path and all(getattr(limits, name) == default for name, default in _PATH_CHECKS.items()):
        return _convert_path(value)
    if get_origin(kind) is Literal and limits.case_sensitive and value in get_args(kind):
        return value
    return _UNKNOWN


def _convert_number(kind: object, limits: OptionLimits, value: object) -> object:
    if isinstance(value, str) and (_INTEGER if kind is int else _NUMBER).fullmatch(value):
        value = int(value) if kind is int else float(value)
    if type(value) is not kind or not isinstance(value, int | float):
        return _UNKNOWN
    is_inside = (limits.min is None or value >= limits.min) and (limits.max is None or value <= limits.max)
    return value if is_inside else _UNKNOWN


def _convert_path(value: object) -> object:
    if isinstance(value, Path):
        return value if not os.path.lexists(value) or os.access(value, os.R_OK) else _UNKNOWN
    if not isinstance(value, str) or "\0" in value:
        return _UNKNOWN
    return _convert_path(Path(value))
