"""Public names that are imported at their first use (PEP 562)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


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
        value = namespace[name] = getattr(import_module(f"{namespace['__package__']}.{modules[name]}"), name)
        return value

    return find
