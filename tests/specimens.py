"""Finds all exception classes of the packages, and makes specimens of each."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGES = ("iris_overlay", "iris_security", "iris_py", "spark_connector")
#: A value for each annotation that a parameter of an error has.
VALUES: dict[str, Any] = {
    "Executed | None": "maybe",
    "str": "databases@eu",
    "str | None": "ab" * 16,
    "ProblemName": "forbidden",
    "int": 3,
    "int | None": 4,
    "float": 1.5,
    "float | None": 0.5,
    "bool": True,
    "bytes": b"\x00payload",
    "Path": Path("/run/iris"),
    "tuple[str, ...]": ("one", "two"),
    "Sequence[str]": ["one", "two"],
    "Mapping[str, str]": {"192.0.2.1:1": "is silent"},
    "Mapping[str, int]": {"ab": 3},
    "bytes | IrisError": b"\x01",
}


def find_error_classes() -> list[type[BaseException]]:
    """Import all modules of the packages, and return each exception class that they define."""
    for package in PACKAGES:
        path = importlib.import_module(package).__path__
        for module in pkgutil.walk_packages(path, f"{package}."):
            if not module.name.endswith(".__main__"):
                importlib.import_module(module.name)
    found = {kind for kind in _subclasses(BaseException) if kind.__module__.partition(".")[0] in PACKAGES}
    return sorted(found, key=lambda kind: (kind.__module__, kind.__qualname__))


def _subclasses(kind: type[BaseException]) -> Iterator[type[BaseException]]:
    for each in type.__subclasses__(kind):
        yield each
        yield from _subclasses(each)


def make_specimens(kind: type[BaseException]) -> list[BaseException]:
    """Make an error with the arguments that its class requires, and one with all of them."""
    if getattr(kind.__init__, "__module__", "").partition(".")[0] not in PACKAGES:  # that of Exception, or tests.leaks
        return [kind("some text. Do something.")]
    parameters = inspect.signature(kind).parameters.values()
    required = [each for each in parameters if each.default is each.empty]
    return [_make(kind, required), _make(kind, list(parameters))]


def _make(kind: type[BaseException], parameters: list[inspect.Parameter]) -> BaseException:
    by_position = [VALUES[each.annotation] for each in parameters if each.kind is not each.KEYWORD_ONLY]
    by_name = {each.name: VALUES[each.annotation] for each in parameters if each.kind is each.KEYWORD_ONLY}
    return kind(*by_position, **by_name)
