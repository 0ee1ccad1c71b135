"""The public interface as lines of text, and what of it a release may not take away in silence.

`tests/release/api.txt` has the interface of the last release: a line for each public name, each method, and each parameter in
its order. A line that is gone, or another one in its place, breaks programs; the changelog has to name it. New lines do not.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import griffe

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).parents[2]
SNAPSHOT = Path(__file__).with_name("api.txt")
PACKAGES = (
    "iris_py",
    "iris_py.sync",
    "iris_py.gateway",
    "iris_py.service",
    "iris_py.testing",
    "iris_py.web",
    "spark_connector",
)


def interface() -> list[str]:
    """Return the public interface, as it is written in the sources."""
    loader = griffe.GriffeLoader(search_paths=[ROOT, ROOT / "overlay", ROOT / "security"])
    for package in ("iris_overlay", "iris_security", "iris_py", "spark_connector"):
        loader.load(package)
    loader.resolve_aliases(implicit=False, external=False)
    lines: list[str] = []
    for package in PACKAGES:
        module = loader.modules_collection[package]
        for name in sorted(_exported(module)):
            lines += _lines_of(f"{package}.{name}", module[name])
    return lines


def broken(old: Sequence[str], new: Sequence[str]) -> list[str]:
    """Return the names whose lines are gone or have changed, in their order.

    A parameter that was added behind the others, with a default, breaks nothing.
    """
    current = {line.partition("(")[0]: line for line in new}
    return [
        name
        for name, line in ((line.partition("(")[0], line) for line in old)
        if name not in current or not _is_kept(line, current[name])
    ]


def unmentioned(names: Sequence[str], changelog: str, version: str) -> list[str]:
    """Return which of these names the changelog of a version does not have in an entry of what changed."""
    section = re.search(rf"^## {re.escape(version)}\b.*?(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    entries = re.split(r"\n(?=\* )", section[0]) if section is not None else []
    told = "\n".join(entry for entry in entries if re.search(r"\*\*(Changed|Removed|Deprecated)\*\*", entry))
    words = ((name, name.removesuffix(".__init__").rpartition(".")[2]) for name in names)  # a class is called by its name
    return [name for name, word in words if not re.search(rf"\b{re.escape(word)}\b", told)]


def _exported(module: griffe.Object | griffe.Alias) -> list[str]:
    return [str(name) for name in module.exports or ()]


def _lines_of(path: str, value: griffe.Object | griffe.Alias) -> Iterator[str]:
    value = value.final_target if isinstance(value, griffe.Alias) else value
    if isinstance(value, griffe.Function):
        yield f"{path}({', '.join(_parameters(value))})"
    elif isinstance(value, griffe.Class):
        yield path
        for name, member in sorted(value.all_members.items()):
            member = member.final_target if isinstance(member, griffe.Alias) else member
            if not name.startswith("_") or name == "__init__":
                if isinstance(member, griffe.Function):
                    yield from _lines_of(f"{path}.{name}", member)
                else:
                    yield f"{path}.{name}"
    else:
        yield path


def _parameters(function: griffe.Function) -> Iterator[str]:
    """Yield each parameter; keyword arguments that a TypedDict describes, one by one, and the last of all."""
    described: list[str] = []
    for parameter in function.parameters:
        annotation = parameter.annotation
        if parameter.kind is griffe.ParameterKind.var_keyword and isinstance(annotation, griffe.ExprSubscript):
            described += function.modules_collection[annotation.slice.canonical_path].attributes  # type: ignore[union-attr]
        else:
            yield _parameter(parameter)
    yield from (f"*:{name}=" for name in described)


def _parameter(parameter: griffe.Parameter) -> str:
    mark = {"variadic positional": "*", "variadic keyword": "**", "keyword-only": "*:"}.get(
        parameter.kind.value if parameter.kind is not None else "", ""
    )
    return f"{mark}{parameter.name}{'' if parameter.default is None or mark in ('*', '**') else '='}"


def _is_kept(old: str, new: str) -> bool:
    """Tell whether every call that the old line allows, the new one does."""
    before, after = ([part for part in line.partition("(")[2].removesuffix(")").split(", ") if part] for line in (old, new))
    if ("(" in old) is not ("(" in new):
        return False
    positional, now = ([part for part in parts if not part.startswith("*")] for parts in (before, after))
    kept = now[: len(positional)]
    if [part.removesuffix("=") for part in kept] != [part.removesuffix("=") for part in positional]:
        return False
    if any(was.endswith("=") and not part.endswith("=") for was, part in zip(positional, kept, strict=True)):
        return False
    named = {part.lstrip("*:").removesuffix("="): part for part in after}
    gone = [part for part in before if part.startswith("*") and part.lstrip("*:").removesuffix("=") not in named]
    added = {part.lstrip("*:") for part in after} - {part.lstrip("*:") for part in before}
    was = {part.lstrip("*:").removesuffix("=") for part in before}
    demanded = [part for part in added if not part.endswith("=") and part not in was and f"*{part}" not in after]
    hardened = [
        part for part in before if part.endswith("=") and not named.get(part.lstrip("*:").removesuffix("="), "=").endswith("=")
    ]
    return not (gone or demanded or hardened)
