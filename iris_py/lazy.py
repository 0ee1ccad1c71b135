"""Public names that are imported at their first use (PEP 562)."""

from __future__ import annotations

import gc
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType


def lazily(namespace: dict[str, Any], modules: Mapping[str, str]) -> Callable[[str], object]:
    """Return the ``__getattr__`` of a module that exports names of other modules.

    Call this only where type checkers do not see it: otherwise they would take every wrong name for an object.

    Args:
        namespace: ``globals()`` of the module.
        modules: The defining module of each name, relative to the package.
    """

    def find(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module {namespace['__name__']!r} has no attribute {name!r}")
        value = namespace[name] = getattr(load_module(f"{namespace['__package__']}.{modules[name]}"), name)
        return value

    return find


def load_module(name: str) -> ModuleType:
    """Return a module, imported without the garbage collector.

    An import makes tens of thousands of functions and classes, and no garbage. The collector would visit all of them several
    times, a tenth of the time of an import. Afterwards they count as old: frozen and thawed, objects move to the oldest
    generation without a visit. A program that has frozen objects of its own keeps them frozen, and gets a plain import.
    """
    if name in sys.modules or not gc.isenabled() or gc.get_freeze_count():
        return import_module(name)
    gc.disable()
    try:
        return import_module(name)
    finally:
        gc.freeze()
        gc.unfreeze()
        gc.enable()
