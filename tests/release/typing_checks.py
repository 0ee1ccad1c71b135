"""The types that programs see, as pyright reads them from our packages, and whether the newest Python has all that we use.

`pyright --verifytypes` takes every module without an underscore for public. What is public of Iris are the names in `__all__`
(docs/deprecations.md): of these and their attributes each has to say its type, so that all type checkers find the same one. Of
everything else no type may be unknown, which would make unknown whatever is made of it.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT: Final = Path(__file__).parents[2]
#: Import packages with a py.typed, and where each is found in the repository.
PACKAGES: Final = {"iris_py": ".", "iris_overlay": "overlay", "iris_security": "security", "spark_connector": "."}
#: Modules whose `__all__` is what programs use.
PUBLIC: Final = (
    "iris_py",
    "iris_py.gateway",
    "iris_py.metrics",
    "iris_py.service",
    "iris_py.sync",
    "iris_py.testing",
    "iris_py.web",
    "iris_security",
    "spark_connector",
)
#: What pyright says where a type is only inferred, and of what is unknown because of something else, which it names, too.
INFERRED: Final = ("missing type annotation", "Ambiguous base class override")
FOLLOWING: Final = "partially unknown"
#: For one call of pyright, which takes a minute for the largest package on a busy machine.
TIMEOUT_S: Final = 600
#: The oldest Python that Iris runs on, and the newest, which not every machine has.
OLDEST: Final = "3.11"
NEWEST: Final = "3.14"
#: What is looked for: names that are gone, and what is to go. The rest is mypy's.
NEWEST_RULES: Final = {
    "typeCheckingMode": "off",
    "reportAttributeAccessIssue": "error",
    "reportDeprecated": "error",
}


def pyright(*arguments: str) -> dict[str, Any]:
    """Run pyright on this environment; return its report.

    Raises:
        RuntimeError: It has made none.
    """
    folders = [str(ROOT / folder) for folder in dict.fromkeys(PACKAGES.values())]
    environment = {
        **os.environ,
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", ""))),
        "VIRTUAL_ENV": sys.prefix,  # it finds the packages of others here, and passes over --pythonpath for --verifytypes
        "PYTHONPATH": os.pathsep.join(folders),
    }
    command = [sys.executable, "-m", "pyright", *arguments, "--outputjson"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    try:
        found: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        raise RuntimeError((done.stdout + done.stderr).strip()[-1500:]) from None
    return found


def public_names() -> set[str]:
    """Return what programs use, by the module where it is written: ``iris_py.api.node.Node``. Base classes are among them."""
    names = set()
    for path in PUBLIC:
        module = importlib.import_module(path)
        for name in module.__all__:
            value = getattr(module, name)
            found = value.__mro__ if inspect.isclass(value) else [value] if inspect.isfunction(value) else []
            names |= {
                f"{each.__module__}.{each.__qualname__}" for each in found if each.__module__.partition(".")[0] in PACKAGES
            }
    return names


def untyped(symbols: Iterable[dict[str, Any]], public: set[str]) -> list[str]:
    """Return the names that do not say their type and have to, each with what pyright says.

    Args:
        symbols: As pyright reports them.
        public: As :func:`public_names` returns them.
    """
    found = []
    for symbol in symbols:
        owner, _, attribute = symbol["name"].rpartition(".")
        is_public = symbol["name"] in public or (owner in public and not attribute.startswith("_"))
        said = [" ".join(each["message"].split()) for each in symbol["diagnostics"] if each["severity"] == "error"]
        faults = [text for text in said if FOLLOWING not in text and (is_public or not any(map(text.__contains__, INFERRED)))]
        found += [f"{symbol['name']}: {fault}" for fault in faults]
    return found


def check_public() -> tuple[int, list[str]]:
    """Return how many names pyright has looked at, and those without a type."""
    public = public_names()
    symbols = [
        each
        for package in PACKAGES
        for each in pyright("--verifytypes", package, "--ignoreexternal")["typeCompleteness"]["symbols"]
    ]
    return len(symbols), untyped(symbols, public)


def check_newest() -> list[str]:
    """Return what the newest Python has no more, or warns of: what pyright says of it, less what it says of the oldest."""
    with tempfile.TemporaryDirectory() as scratch:
        settings = Path(scratch, "pyrightconfig.json")
        include = [os.path.relpath(ROOT / folder / package, scratch) for package, folder in PACKAGES.items()]
        paths = [str(ROOT / "overlay"), str(ROOT / "security")]
        settings.write_text(json.dumps({"include": include, "extraPaths": paths, **NEWEST_RULES}))
        old, new = (
            pyright("--project", str(settings), "--pythonversion", version)["generalDiagnostics"]
            for version in (OLDEST, NEWEST)
        )
    return [f"{each['file']}: {each['message']}" for each in new if each not in old]


def check_oldest() -> str:
    """Return what vermin says of what the oldest Python does not have yet; empty if it has everything."""
    command = [str(Path(sys.executable).with_name("vermin")), "--no-tips", "--violations", f"--target={OLDEST}-"]
    done = subprocess.run(
        [*command, *(str(ROOT / folder / package) for package, folder in PACKAGES.items())],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    return (done.stdout + done.stderr).strip() if done.returncode else ""
