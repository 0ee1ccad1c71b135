"""The handler or service named on the command line of `iris serve` (``MODULE:NAME``), and its source files."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import sysconfig
import traceback
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Final

from iris_py import Handler, Sealed
from iris_py.cli.standard_error import show_traceback
from iris_py.errors import ConfigurationError
from iris_py.service import Service
from iris_py.settings.values import refuse_secret_value
from iris_py.sync import Handler as SyncHandler
from iris_py.wire.names import nearest_name

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["HandlerTarget", "imported_files", "load_target", "parse_target"]

#: The directories of installed packages, which are not edited while a service runs.
_INSTALLED: Final = tuple({path + os.sep for key, path in sysconfig.get_paths().items() if key.endswith("lib")})


@dataclass(frozen=True, slots=True)
class HandlerTarget:
    """The name of a handler or service, as on a command line: a module and an attribute."""

    module: str
    names: tuple[str, ...]
    """The names of the attributes that lead from the module to the handler."""

    @property
    def name(self) -> str:
        """The last part of the attribute's name; also the default name of the cluster."""
        return self.names[-1]


def parse_target(text: str) -> HandlerTarget:
    """Parse ``MODULE:NAME``, where NAME may be an attribute of an attribute: ``app:services.upper``.

    Raises:
        ConfigurationError: The text has another form.
    """
    refuse_secret_value(text, "MODULE:NAME")
    module, separator, handler = text.partition(":")
    names = tuple(handler.split("."))
    if not separator or not all(each.isidentifier() for each in (*module.split("."), *names)):
        written = f" For {text}, write the module that it is in: {text[:-3]}:NAME." if text.endswith(".py") else ""
        raise ConfigurationError(f"{text!r} is not MODULE:HANDLER, such as shop.prices:quote.{written}")
    return HandlerTarget(module, names)


def load_target(target: HandlerTarget, directory: str) -> Any:  # noqa: ANN401 - any object of the module
    """Import and return the object named on a command line.

    Args:
        target: The name of the object.
        directory: The directory that is searched first for modules.

    Raises:
        ConfigurationError: The module cannot be imported (its traceback is on standard error), the attribute does not exist,
            or the object cannot be served.
    """
    sys.path.insert(0, directory)
    try:
        module = importlib.import_module(target.module)
    except ModuleNotFoundError as exc:
        if exc.name is not None and f"{target.module}.".startswith(f"{exc.name}."):
            raise ConfigurationError(
                f"there is no module {exc.name!r} in {directory}. Correct the name, or give its directory with --directory."
            ) from None
        raise ConfigurationError(f"the module {target.module!r} needs {exc.name!r}, which is not installed here.") from exc
    except Exception as exc:
        show_traceback(exc, event="import_failed")
        raise ConfigurationError(f"the module {target.module!r} cannot be imported: {type(exc).__name__}: {exc}") from exc
    return _find(module, target)


def _served_names(owner: object) -> list[str]:
    """Return the public names of servable objects in a module or class, without imported names."""
    home = owner.__name__ if isinstance(owner, ModuleType) else owner.__module__

    def is_imported(value: object) -> bool:
        return isinstance(value, type | FunctionType) and value.__module__ != home

    public = {name: value for name, value in vars(owner).items() if not name.startswith("_")}
    return [name for name, value in public.items() if _can_be_served(value) and not is_imported(value)]


def _find(module: ModuleType, target: HandlerTarget) -> Any:  # noqa: ANN401 - any object of the module
    found: Any = module
    for index, name in enumerate(target.names):
        if not hasattr(found, name):
            owner = ".".join((target.module, *target.names[:index]))
            served = _served_names(found)
            advice = nearest_name(name, served) if served else "Nothing in it can be served."
            raise ConfigurationError(f"{owner} has no {name!r}. {advice}")
        found = getattr(found, name)
    if not _can_be_served(found):
        raise ConfigurationError(
            f"{target.name} is {found!r}, which is not a handler. Name an async or plain function of a request, an "
            "iris_py.Handler, or an iris_py.service.Service."
        )
    return found


def _can_be_served(found: object) -> bool:
    if isinstance(found, type):
        return issubclass(found, Handler | SyncHandler)
    return callable(found) or isinstance(found, Service | Sealed | Handler | SyncHandler)


def imported_files(target: HandlerTarget, error: BaseException | None = None) -> list[str]:
    """Return the source files of all imported modules except installed packages, sorted: changes of these files restart
    workers.

    Args:
        target: The handler, whose own file is included even after a failed import.
        error: The error of a failed import, whose files are included, too; None without an error.
    """
    found = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    try:
        spec = importlib.util.find_spec(target.module)
        found.append(spec.origin if spec is not None else None)
    except (ImportError, ValueError):
        pass
    while error is not None:
        found += [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
        found += [error.filename] if isinstance(error, SyntaxError) else []
        error = error.__cause__
    return sorted(_edited(found))


def _edited(paths: Iterable[str | None]) -> set[str]:
    return {os.path.abspath(path) for path in paths if path and path.endswith(".py") and not path.startswith(_INSTALLED)}
