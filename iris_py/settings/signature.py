"""The settings as keyword arguments of a function: its signature, its docstring, and the error for an unknown name.

A function takes them as ``**settings: Unpack[ConnectSettings]``. Type checkers and editors expand this; `show_settings` does so
for ``help()``, notebooks and the reference.
"""

from __future__ import annotations

import inspect
import re
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Final, TypeVar

from iris_py.settings.table import ARGUMENTS, SETTINGS
from iris_py.wire.names import nearest_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from iris_py.settings.table import Setting

__all__ = ["check_names", "show_settings"]

#: Finds the entry of ``**settings`` among the ``Args:`` of a docstring.
_ENTRY: Final = re.compile(r"^    settings: .*\n(?: {8}.*\n)*", re.MULTILINE)
#: Columns of a docstring in ``help()``.
_COLUMNS: Final = 124

Shown = TypeVar("Shown", bound="Callable[..., object]")


def show_settings(function: Shown) -> Shown:
    """Show every setting in the signature and in the docstring of a function that takes ``**settings``."""
    signature = inspect.signature(function)
    own = [each for each in signature.parameters.values() if each.kind is Parameter.KEYWORD_ONLY]
    settings = [Parameter(each.name, Parameter.KEYWORD_ONLY, default=None, annotation=each.type) for each in SETTINGS]
    shown = Signature([*settings, *own], return_annotation=signature.return_annotation)
    function.__signature__ = shown  # type: ignore[attr-defined]
    text = inspect.getdoc(function)
    if text is not None:  # python -OO removes docstrings
        function.__doc__ = _ENTRY.sub(lambda _found: "".join(map(_entry, SETTINGS)), text)
    return function


def _entry(setting: Setting) -> str:
    """Return the entry of a setting in a docstring."""
    lines = [f"    {setting.name}:"]
    for word in setting.text.split():  # textwrap takes ten times as long, in every program that connects
        if len(lines[-1]) + len(word) >= _COLUMNS:
            lines.append(" " * 7)
        lines[-1] += f" {word}"
    return "\n".join(lines) + "\n"


def check_names(function: str, settings: Iterable[str]) -> None:
    """Check the names of the settings passed to a function.

    Raises:
        TypeError: No setting has this name; the text is Python's for an unexpected argument, with a suggestion.
    """
    for name in settings:
        if name not in ARGUMENTS:
            known = (*ARGUMENTS, "config")
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}. {nearest_name(name, known)}")
