"""The properties of tests/property as targets: the fuzzer makes the bytes that Hypothesis draws its examples from.

Machines of Hypothesis (`RuleBasedStateMachine`) cannot be run so: they are classes of unittest, and no functions of bytes.
"""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.fuzz.target import Kind, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FOLDER = Path(__file__).parents[1] / "property"


def _found() -> Iterator[Target]:
    for path in sorted(FOLDER.glob("test_*.py")):
        module = importlib.import_module(f"tests.property.{path.stem}")
        for name, test in inspect.getmembers(module, inspect.isfunction):
            hypothesis = getattr(test, "hypothesis", None)
            if hypothesis is not None and test.__module__ == module.__name__:
                name = f"{path.stem}-{name}".replace("test_", "").replace("_", "-")
                yield Target(name, _target(hypothesis.fuzz_one_input), Kind.PROPERTY, bytes_max=8192)


def _target(run_one: Callable[[bytes], Any]) -> Callable[[bytes], None]:
    """Return a function of this module: the process that runs a target imports the module that has it."""

    def run(data: bytes) -> None:
        run_one(data)

    return run


TARGETS = tuple(_found())
