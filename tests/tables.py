"""The tables that a node keeps, as the source has them and as `tables.toml` declares them."""

from __future__ import annotations

import ast
import dataclasses
import gc
import importlib
import re
import tomllib
from collections import deque
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import msgspec

from iris_overlay.timers import DeadlineTable

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
DECLARED_IN = ROOT / "tests" / "tables.toml"
#: The packages whose tables are declared, and the folder that each lies in.
HOMES = {"iris_overlay": ROOT / "overlay", "iris_security": ROOT / "security", "iris_py": ROOT}
#: What runs no node among others, or simulates them.
LEFT_OUT = ("iris_py.cli", "iris_py.testing")
#: The names of types whose values grow.
MUTABLE = {
    "Counter",
    "DeadlineTable",
    "OrderedDict",
    "Queue",
    "WeakKeyDictionary",
    "WeakSet",
    "WeakValueDictionary",
    "bytearray",
    "defaultdict",
    "deque",
    "dict",
    "list",
    "set",
}
#: The same as types; those of asyncio are no matter of what runs without it.
CONTAINERS = (dict, list, set, deque, bytearray, DeadlineTable)
#: Types whose arguments say nothing of what a value holds.
OPAQUE = {"Callable", "ClassVar", "Generic", "Iterator", "Literal", "type"}
#: What a declaration says of a table that has no number of its own.
KINDS = ("local", "turn", "fixed")


@dataclass(frozen=True)
class Table:
    """One attribute of a class that holds containers."""

    module: str
    name: str
    """The class and the attribute, and ``[]`` behind them for the containers in it."""

    def __str__(self) -> str:
        return f"{self.module}:{self.name}"


# What the source has


@cache
def tables_of_source() -> tuple[Table, ...]:
    """Return every table of every class."""
    return tuple(_tables_of_source())


def _tables_of_source() -> Iterator[Table]:
    for package, home in HOMES.items():
        for path in sorted((home / package).rglob("*.py")):
            module = ".".join(path.relative_to(home).with_suffix("").parts).removesuffix(".__init__")
            if not module.startswith(LEFT_OUT):
                yield from tables_of_text(module, path.read_text())


def tables_of_text(module: str, text: str) -> Iterator[Table]:
    """Return the tables of the classes of one module."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef):
            depths: dict[str, int] = {}
            for name, depth in _attributes(node):
                depths[name] = max(depth, depths.get(name, 0))
            for name, depth in depths.items():
                for suffix in ("", "[]")[:depth]:
                    yield Table(module, f"{node.name}.{name}{suffix}")


def _attributes(cls: ast.ClassDef) -> Iterator[tuple[str, int]]:
    """Return the attributes of a class, with how deep containers are nested in each as far as one place in the source tells."""
    for statement in cls.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            yield statement.target.id, max(_depth_of_type(statement.annotation), _depth_of_value(statement.value))
        elif isinstance(statement, ast.Assign):
            for target in statement.targets:
                if isinstance(target, ast.Name) and not target.id.startswith("__"):
                    yield target.id, _depth_of_value(statement.value)
        elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _assigned_in(statement)


def _assigned_in(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[str, int]]:
    arguments = function.args
    typed = [each for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs) if each.annotation is not None]
    given = {each.arg: _depth_of_type(each.annotation) for each in typed}
    for node in ast.walk(function):
        pairs: list[tuple[ast.expr, ast.expr | None]] = []
        declared = 0
        if isinstance(node, ast.AnnAssign):
            pairs, declared = [(node.target, node.value)], _depth_of_type(node.annotation)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    pairs += zip(target.elts, node.value.elts, strict=False)
                else:
                    pairs.append((target, node.value))
        for target, value in pairs:
            if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
                passed = given.get(value.id, 0) if isinstance(value, ast.Name) else 0
                yield target.attr, max(declared, passed, _depth_of_value(value))


def _name_of(node: ast.expr) -> str:
    if isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _depth_of_type(node: ast.expr | None) -> int:
    """Return how deep containers are nested in an annotation; one whose bound the decoder checks by itself is none."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        node = ast.parse(node.value, mode="eval").body
    if isinstance(node, ast.BinOp):
        return max(_depth_of_type(node.left), _depth_of_type(node.right))
    if isinstance(node, ast.Subscript):
        name = _name_of(node)
        if name in OPAQUE or (name == "Annotated" and "max_length" in ast.unparse(node)):
            return 0
        inside = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return (name in MUTABLE) + max(map(_depth_of_type, inside), default=0)
    return int(node is not None and _name_of(node) in MUTABLE)


def _depth_of_value(node: ast.expr | None) -> int:
    """Return 1 for an expression that makes a container, as far as one can see; else 0."""
    if isinstance(node, ast.Dict | ast.List | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp):
        return 1
    if isinstance(node, ast.IfExp):
        return max(_depth_of_value(node.body), _depth_of_value(node.orelse))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Add | ast.BitOr):
        return max(_depth_of_value(node.left), _depth_of_value(node.right))
    if isinstance(node, ast.Call):
        if _name_of(node.func) == "field":
            made = [_name_of(each.value) for each in node.keywords if each.arg == "default_factory"]
            return int(any(name in MUTABLE for name in made))
        return int(_name_of(node.func) in {*MUTABLE, "fromkeys", "sorted"})
    return 0


# What is declared


@cache
def declarations() -> dict[Table, str]:
    """Return what `tables.toml` says of each table."""
    sections = tomllib.loads(DECLARED_IN.read_text())
    return {Table(module, name): said for module, tables in sections.items() for name, said in tables.items()}


def bound_of(table: Table, _asked: tuple[Table, ...] = ()) -> int | None:
    """Return how many entries a table has at most; None if it has no number, since what it follows is of this program itself.

    Raises:
        ValueError: The declaration cannot be understood, names what is no number, or is in a circle.
    """
    if table in _asked:
        raise ValueError(f"{table} is as large as itself")
    said = declarations()[table]
    kind, colon, reason = said.partition(": ")
    if colon and kind in KINDS:
        if not reason:
            raise ValueError(f"{table} does not say why it is {kind}")
        return None
    if not said.startswith("within "):
        return number_of(table.module, said)
    total = 0
    for term in said.removeprefix("within ").split(" + "):
        factor, _, name = term.rpartition(" * ")
        if "." not in name:
            total += number_of(table.module, term)
            continue
        other = Table(*name.split(":")) if ":" in name else Table(table.module, name)
        if other not in declarations():
            raise ValueError(f"{table} is within {other}, which is not declared")
        bound = bound_of(other, (*_asked, table))
        if bound is None:
            return None
        total += bound * int(factor or 1)
    return total


def constants_of(table: Table, said: str) -> set[str]:
    """Return the names of the constants that a declaration is made of, without their modules."""
    kind, colon, _ = said.partition(": ")
    if colon and kind in KINDS:
        return set()
    terms = re.split(r" (?:\+|\*|//) ", said.removeprefix("within "))
    return {term.rpartition(".")[2] for term in terms if not term.isdigit() and term.rpartition(".")[2].isupper()}


def number_of(module: str, expression: str) -> int:
    """Return the value of an expression of constants.

    Raises:
        ValueError: It is no such expression, or one of its names is that of no integer.
    """
    if not re.fullmatch(r"[\w.]+( (\+|\*|//) [\w.]+)*", expression):
        raise ValueError(
            f"{expression!r} of {module} is neither a number nor 'within', 'local: why', 'turn: who', 'fixed: why'"
        )

    def value_of(node: ast.expr) -> int:
        if isinstance(node, ast.BinOp):
            left, right = value_of(node.left), value_of(node.right)
            if isinstance(node.op, ast.Mult):
                return left * right
            return left + right if isinstance(node.op, ast.Add) else left // right
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        found = constant(module, ast.unparse(node))
        if type(found) is not int or found <= 0:
            raise ValueError(f"{ast.unparse(node)} of {module} is {found!r}, which bounds nothing")
        return found

    return value_of(ast.parse(expression, mode="eval").body)


def constant(module: str, name: str) -> object:
    """Return a constant by its name in a module, or its dotted name; or the default of a field of a dataclass or struct."""
    path = [*(module.split(".") if "." not in name else ()), *name.split(".")]
    for length in range(len(path) - 1, 0, -1):
        try:
            found: object = importlib.import_module(".".join(path[:length]))
        except ModuleNotFoundError:
            continue
        for part in path[length:]:
            if isinstance(found, type) and dataclasses.is_dataclass(found):
                found = next((field.default for field in dataclasses.fields(found) if field.name == part), None)
            elif isinstance(found, type) and issubclass(found, msgspec.Struct):
                found = next((field.default for field in msgspec.structs.fields(found) if field.name == part), None)
            else:
                found = getattr(found, part, None)
        return found
    return None


# What a node holds


@dataclass(frozen=True)
class Held:
    """A container that something reaches."""

    table: Table | None
    """The declaration that it falls under; None if it is no attribute of a class of ours, and not in one."""
    place: str
    """Where it is, for people."""
    size: int
    """How many entries it has."""


def held_by(root: object) -> Iterator[Held]:
    """Return every container that an object holds, directly or not, each once.

    Raises:
        LookupError: One is an attribute that nothing declares.
    """
    found: dict[int, object] = {id(root): root}
    waiting = [root]
    owned: set[int] = set()
    unknown: dict[int, str] = {}
    while waiting:
        each = waiting.pop()
        if isinstance(each, DeadlineTable):  # as large as its length says, which counts where it is kept
            owned |= {id(each._heap), id(each._live)}
        for name, value in _attributes_of(each):
            for part in value if isinstance(value, tuple) else (value,):
                if isinstance(part, CONTAINERS):
                    table = _declared(type(each), name)
                    if table is None:
                        unknown[id(part)] = f"{type(each).__module__}:{type(each).__name__}.{name}"
                    else:
                        yield from _tables_in(table, part, owned)
        for other in _referents(each):
            if id(other) not in found:
                found[id(other)] = other
                waiting.append(other)
    undeclared = [place for key, place in unknown.items() if key not in owned]  # else it is another's, and counted there
    if undeclared:
        raise LookupError(f"these hold containers, and nothing declares them: {', '.join(sorted(undeclared))}")
    names = {id(vars(each)) for each in found.values() if hasattr(each, "__dict__")}
    for key, each in found.items():
        if isinstance(each, CONTAINERS) and key not in owned and key not in names:
            yield Held(None, f"{type(each).__name__} of {type(each)}", len(each))


def _declared(cls: type, name: str) -> Table | None:
    tables = (Table(kind.__module__, f"{kind.__name__}.{name}") for kind in cls.__mro__)
    return next((table for table in tables if table in declarations()), None)


def _tables_in(table: Table, value: Any, owned: set[int]) -> Iterator[Held]:
    owned.add(id(value))
    yield Held(table, str(table), len(value))
    inner = Table(table.module, f"{table.name}[]")
    entries = list(value.values() if isinstance(value, dict) else () if isinstance(value, DeadlineTable | bytearray) else value)
    while entries:
        entry = entries.pop()
        if isinstance(entry, tuple):
            entries += entry
        elif isinstance(entry, CONTAINERS) and inner in declarations():
            owned.add(id(entry))
            yield Held(inner, str(inner), len(entry))


def _attributes_of(each: object) -> Iterator[tuple[str, object]]:
    """Return the attributes of an object of ours."""
    cls = type(each)
    if not cls.__module__.startswith(tuple(HOMES)) or isinstance(each, type | DeadlineTable):
        return
    names = dict.fromkeys(getattr(each, "__dict__", ()))
    for kind in cls.__mro__:
        slots = kind.__dict__.get("__slots__", ())
        names.update(dict.fromkeys([slots] if isinstance(slots, str) else slots))
    for name in names:
        if hasattr(each, name):
            yield name, getattr(each, name)


def _referents(each: object) -> list[object]:
    if isinstance(each, FunctionType):
        return list(each.__closure__ or ())
    return [other for other in gc.get_referents(each) if not isinstance(other, type | ModuleType | BuiltinFunctionType)]
