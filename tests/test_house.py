"""Figures of the code base: size, names, coupling and prose. Each figure has a limit, and limits are only lowered.

``python tests/test_house.py`` prints all figures beside their limits, and the places behind a figure whose name is given.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import iris_py.sync

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[1]
PACKAGES: Final = ("iris_py", "overlay/iris_overlay", "security/iris_security", "spark_connector")

#: Lower a limit when its figure falls. A figure that falls without a better text or better code defeats its purpose.
LIMITS: Final = {
    "small modules without a reason": 0,
    "small modules with a reason of their own": 15,
    "functions over 70 lines": 0,
    "internal functions with nine parameters or more": 0,
    "private attributes of other objects": 0,
    "modules named by a gerund": 0,
    "modules that differ by a plural s": 1,  # the commands `iris node` and `iris nodes`, which users type
    "class names in several modules": 0,
    "classes with three bases of this repository": 0,
    "vague words in 1,000 words of docstrings": 55,
    "what, who and whose in 10,000 words": 9,
    "sentences over 30 % vague words, in 1,000": 1,
}
#: Figures without any place, if all is well.
MAY_BE_ZERO: Final = (
    "functions over 70 lines",
    "internal functions with nine parameters or more",
    "private attributes of other objects",
    "small modules without a reason",
    "modules named by a gerund",
    "modules that differ by a plural s",
    "class names in several modules",
    "classes with three bases of this repository",
)
#: Figures that are reported and have no limit.
REPORTED: Final = ("modules", "lines", "modules under 60 lines", "functions with nine parameters or more")

FUNCTION_LINES_MAX: Final = 70
PARAMETERS_MAX: Final = 8
#: Functions that may have more, with the reason: their parameters are the interface.
PUBLIC_SIGNATURES: Final = {
    "iris_py/api/communication.py Communication.request": "a method of Node",
    "iris_py/api/communication.py Communication.subscribe": "likewise",
    "iris_py/api/node.py Node.join": "likewise",
    "iris_py/sync/node.py Node.join": "a method of the synchronous Node",
    "iris_py/sync/node.py Node.request": "likewise",
    "iris_py/sync/node.py Node.request_future": "likewise",
    "iris_py/sync/node.py Node.subscribe": "likewise",
    "iris_py/testing/federation.py VirtualFederation.__init__": "of iris_py.testing, for tests of programs",
    "iris_py/testing/nodes.py NodeSimulation.start_node": "likewise",
    "spark_connector/dataframes/dispatch.py dispatch": "a function for programs on Spark",
    "spark_connector/dataframes/sql.py register": "likewise",
    "spark_connector/executors/cluster.py ExecutorCluster.__init__": "a class for programs on Spark",
    "spark_connector/local/client.py LocalAgent.request": "a method for tasks on Spark, as that of Node",
    "spark_connector/local/client.py LocalAgent.request_future": "likewise",
}
#: Likewise the functions of commands: typer makes an option of each parameter.
COMMANDS: Final = "iris_py/cli/commands/"
BASES_MAX: Final = 2
SMALL_LINES: Final = 60
#: Kinds of small modules, by the pattern of their paths, and the reason for all of a kind.
SMALL_KINDS: Final = {
    "*/__init__.py": "a package needs it, for its docstring and its public names",
    "*/__main__.py": "`python -m` needs it to start a package",
    "iris_py/cli/commands/*.py": "one for each command: help loads 63 modules; with the work beside the options, 437",
    "*/config.py": "a concern has the same file name in every layer: timeouts and bounds",
    "*/errors.py": "likewise: errors",
    "*/events.py": "likewise: the events of a layer for its owner",
    "*/limits.py": "likewise: the bounds of a layer",
}
#: A module with this line is a program, run by `python -m` in a process of its own. The process loads no more than it needs.
PROGRAM_LINE: Final = 'if __name__ == "__main__":\n'
#: Other small modules, each with the reason why no user of the module takes it in.
SMALL_MODULES: Final = {
    "iris_py/api/broadcast.py": "a part of the node, named in every layer by its pattern",
    "iris_py/cli/version.py": "with the encoder of JSON, which `iris version` needs only for --json",
    "iris_py/json_lines.py": "the base of all objects in JSON Lines, in several layers",
    "iris_py/lazy.py": "five public modules begin with it",
    "iris_py/net/socket_pair.py": "for `iris serve` alone, so no node loads it; and sockets stay in this folder",
    "iris_py/net/tcp_info.py": "the driver and the real sockets, which do without each other, read the same struct of Linux",
    "iris_py/observe/node_name.py": "twenty modules in five layers name nodes with it, and help loads it",
    "iris_py/payloads.py": "types for both interfaces and the layers below, so it is below them",
    "iris_py/testing/cores/signer.py": "three simulations, which do without each other, sign with it",
    "iris_py/wire/fingerprint.py": "for connectors alone, so no node loads it",
    "security/iris_security/aead.py": "a primitive's wrapper that several layers import, and that is reviewed alone",
    "security/iris_security/hkdf.py": "the only key derivation of the package, reviewed alone",
    "security/iris_security/key_material.py": "the base of all objects with keys, reviewed alone",
    "security/iris_security/replay.py": "an algorithm of its own RFC, reviewed alone",
    "spark_connector/topics/unavailable.py": "imported where the import of its neighbours fails",
}
#: Private names of objects of other projects, with the paths that may read them, and the reason. No module at these paths may
#: define such a name, so that only foreign objects are exempt.
FOREIGN_NAMES: Final = {
    "_current_frames": (("iris_py/net/watchdog.py",), "of sys: documented, and the only way to the stack of another thread"),
    "_replace": (
        ("iris_py/cli/serve/status.py", "iris_py/gateway/surveys.py", "iris_py/streams/raft/"),
        "a public method of every named tuple",
    ),
} | dict.fromkeys(
    (
        *("_active_spark_context", "_gateway", "_jsc", "_jvm"),  # the Java virtual machine of the session
        *("_judf", "_unwrapped"),  # the Java object of a function
        "_parse_datatype_string",  # before Spark 4.0
    ),
    (("spark_connector/",), "of PySpark, which has no public way to these objects"),
)
#: Public classes with the same name in `iris_py` and `iris_py.sync`: the same thing with and without `await`, so a program that
#: changes its interface changes an import alone.
COUNTERPARTS: Final = {
    *("Handler", "Members", "Membership", "Node", "Subscription", "Survey", "Tunnel"),
    *("Stream", "StreamRecords", "StreamWriter", "Streams"),
}
SYNC: Final = "iris_py/sync/"
#: Nouns and adjectives of the field that end in -ing.
NO_GERUNDS: Final = {"hedging", "keyring", "pacing", "pending", "ping", "ring", "routing", "tracing"}
QUESTION_WORDS: Final = {"what", "who", "whom", "whose", "whoever"}
VAGUE_WORDS: Final = QUESTION_WORDS | {
    *("that", "those", "this", "these", "such", "there", "it", "its", "they", "them", "so", "one", "ones", "none"),
    *("others", "each", "everybody", "somebody", "nobody", "everything", "something", "nothing", "whatever", "whichever"),
}
#: Shorter sentences have too few words for a share.
SENTENCE_WORDS_MIN: Final = 8
VAGUE_SHARE_MAX: Final = 0.3


@dataclass
class Figures:
    """Counts by name, the places behind them, and the words of docstrings."""

    counts: Counter[str] = field(default_factory=Counter)
    places: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    words: Counter[str] = field(default_factory=Counter)

    def add(self, name: str, place: str) -> None:
        self.counts[name] += 1
        self.places[name].append(place)


def sentences(docstring: str) -> Iterator[list[str]]:
    """Split a text into sentences of lower-case words; short sentences are left out."""
    for sentence in re.split(r"(?<=[.;:]) ", re.sub(r"\s+", " ", docstring)):
        words = [word.lower() for word in re.findall(r"[A-Za-z_']+", sentence)]
        if len(words) >= SENTENCE_WORDS_MIN:
            yield words


def own_names(tree: ast.Module) -> set[str]:
    """Return the names of functions, fields and attributes that a module defines."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            names.add(node.attr)
    return names


def qualified_names(tree: ast.Module) -> dict[ast.AST, str]:
    """Return the names of methods with their classes."""
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node: f"{each.name}.{node.name}" for each in classes for node in each.body if isinstance(node, functions)}


def count_function(figures: Figures, node: ast.FunctionDef | ast.AsyncFunctionDef, module: str, name: str) -> None:
    place = f"{module}:{node.lineno} {name}"
    parameters = [each.arg for each in node.args.posonlyargs + node.args.args + node.args.kwonlyargs]
    if len(parameters) - (parameters[:1] in (["self"], ["cls"])) > PARAMETERS_MAX:
        figures.add("functions with nine parameters or more", place)
        if f"{module} {name}" not in PUBLIC_SIGNATURES and not module.startswith(COMMANDS):
            figures.add("internal functions with nine parameters or more", place)
    first = node.body[0]
    docstring_lines = (first.end_lineno or 0) - first.lineno + 1 if ast.get_docstring(node) else 0
    if (node.end_lineno or 0) - node.lineno + 1 - docstring_lines > FUNCTION_LINES_MAX:
        figures.add("functions over 70 lines", place)


def count_private(figures: Figures, node: ast.Attribute, own: set[str], place: str) -> None:
    """Count an attribute that is private in a class of another module. The module's own classes are its own affair."""
    is_private = node.attr.startswith("_") and not node.attr.startswith("__") and node.attr not in own
    readers, _reason = FOREIGN_NAMES.get(node.attr, ((), ""))
    if place.startswith(readers):
        return
    if is_private and ast.unparse(node.value) not in ("self", "cls", "super()", "os", "os.environ"):
        figures.add("private attributes of other objects", f"{place} {ast.unparse(node)}")


def count_prose(figures: Figures, docstring: str, place: str) -> None:
    for words in sentences(docstring):
        figures.words.update(words)
        figures.counts["sentences"] += 1
        if sum(word in VAGUE_WORDS for word in words) / len(words) > VAGUE_SHARE_MAX:
            figures.add("sentences over 30 % vague words, in 1,000", f"{place} {' '.join(words)}")


def name_of(base: ast.expr) -> str:
    """Return the last name of the base of a class."""
    if isinstance(base, ast.Subscript):
        return name_of(base.value)
    return base.attr if isinstance(base, ast.Attribute) else ast.unparse(base)


def count_small(figures: Figures, name: str, text: str) -> None:
    figures.add("modules under 60 lines", name)
    if name in SMALL_MODULES:
        figures.add("small modules with a reason of their own", name)
    elif not any(fnmatch(name, pattern) for pattern in SMALL_KINDS) and PROGRAM_LINE not in text:
        figures.add("small modules without a reason", name)


def count_module(figures: Figures, path: Path, text: str) -> dict[str, list[str]]:
    """Count one module; returns the names of its classes, each with the names of its bases."""
    tree, name, classes = ast.parse(text), str(path.relative_to(ROOT)), {}
    own, qualified = own_names(tree), qualified_names(tree)
    figures.counts["lines"] += text.count("\n")
    if 0 < text.count("\n") < SMALL_LINES:
        count_small(figures, name, text)
    if path.stem.endswith("ing") and path.stem not in NO_GERUNDS:
        figures.add("modules named by a gerund", name)
    for node in ast.walk(tree):
        place = f"{name}:{getattr(node, 'lineno', 0)}"
        match node:
            case ast.ClassDef():
                classes[node.name] = [name_of(base) for base in node.bases]
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                count_function(figures, node, name, qualified.get(node, node.name))
            case ast.Attribute():
                count_private(figures, node, own, place)
            case ast.Expr(value=ast.Constant(value=str(docstring))):
                count_prose(figures, docstring, place)
    return classes


@functools.cache
def measure() -> Figures:
    """Count everything, once."""
    figures = Figures()
    classes: defaultdict[str, set[str]] = defaultdict(set)
    bases: dict[str, list[str]] = {}
    stems: defaultdict[Path, set[str]] = defaultdict(set)
    for path in sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        figures.counts["modules"] += 1
        stems[path.parent].add(path.stem)
        for name, own_bases in count_module(figures, path, path.read_text()).items():
            classes[name.lstrip("_")].add(str(path.relative_to(ROOT)))
            bases[f"{path.relative_to(ROOT)} {name}"] = own_bases
    for folder, names in stems.items():
        for name in sorted(name for name in names if f"{name}s" in names):
            figures.add("modules that differ by a plural s", f"{folder.relative_to(ROOT)}/{name}")
    for name, modules in sorted(classes.items()):
        others = {module for module in modules if not module.startswith(SYNC)} if name in COUNTERPARTS else modules
        if len(others) > 1 or len(modules) - len(others) > 1:
            figures.add("class names in several modules", f"{name}: {', '.join(sorted(modules))}")
    for place, own_bases in bases.items():
        if sum(name.lstrip("_") in classes for name in own_bases) > BASES_MAX:
            figures.add("classes with three bases of this repository", f"{place}({', '.join(own_bases)})")
    for name in MAY_BE_ZERO:
        figures.counts.setdefault(name, 0)
    words = sum(figures.words.values())
    vague, questions = (sum(figures.words[word] for word in those) for those in (VAGUE_WORDS, QUESTION_WORDS))
    figures.counts["vague words in 1,000 words of docstrings"] = round(1000 * vague / words)
    figures.counts["what, who and whose in 10,000 words"] = round(10_000 * questions / words)
    heavy = "sentences over 30 % vague words, in 1,000"
    figures.counts[heavy] = round(1000 * figures.counts[heavy] / figures.counts["sentences"])
    return figures


@pytest.mark.parametrize("name", LIMITS)
def test_no_figure_passes_its_limit(name: str) -> None:
    figures = measure()
    assert figures.counts[name] <= LIMITS[name], "\n".join(figures.places[name])


def test_the_limits_are_of_figures_that_are_counted() -> None:
    assert LIMITS.keys() <= measure().counts.keys()


def test_each_public_signature_is_of_a_function_with_many_parameters() -> None:
    found = {re.sub(r":\d+", "", place) for place in measure().places["functions with nine parameters or more"]}
    assert PUBLIC_SIGNATURES.keys() <= found


def test_each_counterpart_is_public_in_both_interfaces() -> None:
    assert {*iris_py.__all__} & {*iris_py.sync.__all__} >= COUNTERPARTS


def test_no_own_object_is_exempt_as_a_foreign_one() -> None:
    for name, (readers, _reason) in FOREIGN_NAMES.items():
        for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
            if str(path.relative_to(ROOT)).startswith(readers):
                assert name not in own_names(ast.parse(path.read_text())), f"{path} has its own {name}"


def test_each_reason_for_a_small_module_is_of_one() -> None:
    small = set(measure().places["modules under 60 lines"])
    assert SMALL_MODULES.keys() <= small
    assert [pattern for pattern in SMALL_KINDS if not any(fnmatch(name, pattern) for name in small)] == []


def main(names: list[str]) -> None:
    """Print all figures, and the places of some."""
    figures = measure()
    for name in (*REPORTED, *LIMITS):
        print(f"{name:48} {figures.counts[name]:>8,}   limit {LIMITS.get(name, '-')}")
    for name in names:
        print(f"\n{name}:", *figures.places[name], sep="\n  ")


if __name__ == "__main__":
    main(sys.argv[1:])
