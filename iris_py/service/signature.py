"""Signatures of the functions of a service: their parameters, with annotations resolved as far as possible."""

from __future__ import annotations

import functools
import inspect
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, get_origin

from iris_py.api.node import Node
from iris_py.patterns.messages import Message, Request

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["NOTHING", "Parameter", "Signature", "Unresolved", "read_signature", "show_type"]

#: Stands for the missing annotation of a parameter or result.
NOTHING: Final = inspect.Parameter.empty

#: Names that annotations may use without an import at run time, because many programs import them for type checkers only.
_KNOWN: Final = {f"{prefix}{kind.__name__}": kind for prefix in ("", "iris.", "iris_py.") for kind in (Message, Node, Request)}


@dataclass(frozen=True, slots=True)
class Unresolved:
    """An annotation that cannot be evaluated at run time.

    Attributes:
        text: The annotation as written.
        reason: The error of its evaluation.
    """

    text: str
    reason: str


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a function.

    Attributes:
        name: Its name.
        annotation: The type; ``NOTHING`` without annotation, or :class:`Unresolved`.
        is_required: Whether it has no default.
        is_positional_only: Whether it cannot be passed by name.
        is_keyword_only: Whether it cannot be passed by position.
    """

    name: str
    annotation: Any
    is_required: bool
    is_positional_only: bool
    is_keyword_only: bool


@dataclass(frozen=True, slots=True)
class Signature:
    """The signature of a function.

    Attributes:
        name: The function with its module, for errors.
        parameters: Its parameters, without ``*args`` and ``**kwargs``.
        returns: The annotation of the result; ``NOTHING`` without annotation, or :class:`Unresolved`.
        takes_any: Whether it has ``*args``.
    """

    name: str
    parameters: tuple[Parameter, ...]
    returns: Any
    takes_any: bool


def read_signature(function: Callable[..., object]) -> Signature:
    """Return the signature of a function, a method, a partial, or a callable object.

    A C function without a signature counts as a function of a single parameter.
    """
    try:
        found = _inspect(function)
    except (TypeError, ValueError):
        return Signature(_name_of(function), (Parameter("request", NOTHING, True, True, False),), NOTHING, False)
    names = _globals_of(function)
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = tuple(
        Parameter(
            each.name,
            _resolve(each.annotation, names),
            each.default is NOTHING,
            each.kind is inspect.Parameter.POSITIONAL_ONLY,
            each.kind is inspect.Parameter.KEYWORD_ONLY,
        )
        for each in found.parameters.values()
        if each.kind not in several
    )
    takes_any = any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in found.parameters.values())
    return Signature(_name_of(function), parameters, _resolve(found.return_annotation, names), takes_any)


def show_type(annotation: object) -> str:
    """Return a type as written in code."""
    if isinstance(annotation, Unresolved):
        return annotation.text
    if isinstance(annotation, type) and get_origin(annotation) is None:
        return annotation.__qualname__
    return str(getattr(annotation, "__name__", annotation)) if not get_origin(annotation) else str(annotation)


if sys.version_info >= (3, 14):  # novm: vermin does not see the version that was asked for

    def _inspect(function: Callable[..., object]) -> inspect.Signature:
        """Return a signature; annotations with undefined names stay references."""
        from annotationlib import Format

        return inspect.signature(function, annotation_format=Format.FORWARDREF)

else:

    def _inspect(function: Callable[..., object]) -> inspect.Signature:
        """Return a signature."""
        return inspect.signature(function)


def _resolve(annotation: Any, names: dict[str, Any]) -> Any:  # noqa: ANN401 - annotations are of any type
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__forward_arg__", None)
    if not isinstance(text, str):
        return annotation
    try:
        return eval(text, names)  # noqa: S307 - as inspect.get_annotations() does with code of the program itself
    except Exception as exc:
        return _KNOWN.get(text) or Unresolved(text, str(exc))


def _function_of(function: Any) -> Any:  # noqa: ANN401 - any callable
    """Return the Python function inside of partials, methods and wrappers."""
    while True:
        if isinstance(function, functools.partial):
            function = function.func
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        elif inspect.ismethod(function):
            function = function.__func__
        elif inspect.isclass(function):
            return function.__init__
        elif inspect.isfunction(function) or inspect.isbuiltin(function):
            return function
        else:
            method = getattr(type(function), "__call__", None)  # noqa: B004 - its code is needed
            if not inspect.isfunction(method):
                return function
            function = method


def _globals_of(function: Callable[..., object]) -> dict[str, Any]:
    return getattr(_function_of(function), "__globals__", {})


def _name_of(function: object) -> str:
    named = function if hasattr(function, "__qualname__") else _function_of(function)
    name = getattr(named, "__qualname__", None) or type(function).__qualname__
    return f"{getattr(named, '__module__', None) or '?'}.{name}"
