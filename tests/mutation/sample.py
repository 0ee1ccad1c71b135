"""Mutants: a sample that the same seed chooses again, spread over the packages by their size."""

from __future__ import annotations

import ast
import random
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT: Final = Path(__file__).parents[2]

#: The strata, with the part of the sample that each gets. Tools (the command line, the simulators) are no part of what is
#: promised, and what imports PySpark runs in processes that are not measured.
STRATA: Final = {"security": 0.15, "overlay": 0.35, "iris_py": 0.35, "spark_connector": 0.15}
LEFT_OUT: Final = ("iris_py/cli/", "iris_py/testing/")
#: So the sample is not about a few large modules.
MUTANTS_PER_MODULE_MAX: Final = 4

#: Defects as people make them: off by one, the wrong way round, a condition negated or forgotten.
OPERATORS: Final = tuple(
    f"core/{name}"
    for name in (
        "AddNot",
        "NumberReplacer",
        "ReplaceAndWithOr",
        "ReplaceBinaryOperator_Add_Sub",
        "ReplaceBinaryOperator_FloorDiv_Mul",
        "ReplaceBinaryOperator_Div_Mul",
        "ReplaceBinaryOperator_Mul_Div",
        "ReplaceBinaryOperator_Sub_Add",
        "ReplaceBreakWithContinue",
        "ReplaceComparisonOperator_Eq_NotEq",
        "ReplaceComparisonOperator_GtE_Gt",
        "ReplaceComparisonOperator_Gt_GtE",
        "ReplaceComparisonOperator_IsNot_Is",
        "ReplaceComparisonOperator_Is_IsNot",
        "ReplaceComparisonOperator_LtE_Lt",
        "ReplaceComparisonOperator_Lt_LtE",
        "ReplaceComparisonOperator_NotEq_Eq",
        "ReplaceContinueWithBreak",
        "ReplaceFalseWithTrue",
        "ReplaceOrWithAnd",
        "ReplaceTrueWithFalse",
        "ReplaceUnaryOperator_Delete_Not",
        "ZeroIterationForLoop",
    )
)


#: The star that stands for no multiplication.
KEYWORDS_ONLY: Final = "*,"


@dataclass(frozen=True, order=True, slots=True)
class Mutant:
    """One defect: an operator at one of the places in a module where it applies."""

    module: str
    """Its path below the root of the repository."""
    line: int
    operator: str
    occurrence: int
    """Counts the places of the operator in the module."""

    @property
    def stratum(self) -> str:
        return self.module.split("/")[0]

    def source(self) -> str:
        """Return the module with the defect."""
        changed = mutate_code((ROOT / self.module).read_text(), get_operator(self.operator)(), self.occurrence)
        assert changed is not None, self
        return str(changed)

    def line_text(self) -> str:
        """Return the line as it is without the defect."""
        return (ROOT / self.module).read_text().splitlines()[self.line - 1].strip()


def choose(count: int, seed: int, prefixes: Sequence[str] = ()) -> list[Mutant]:
    """Return a sample of mutants; the same for the same seed and the same code.

    Args:
        count: How many.
        seed: Chooses them.
        prefixes: The beginnings of the paths of modules to choose from. Without any, each stratum has its part.
    """
    rng = random.Random(seed)
    if prefixes:
        modules = [module for stratum in STRATA for module in modules_of(stratum) if module.startswith(tuple(prefixes))]
        if not modules:
            raise SystemExit(f"no module begins with {' or '.join(prefixes)}")
        return sorted(_choose_from(modules, count, max(MUTANTS_PER_MODULE_MAX, 2 * count // len(modules)), rng))
    chosen: list[Mutant] = []
    for stratum, part in STRATA.items():
        chosen += _choose_from(modules_of(stratum), round(count * part), MUTANTS_PER_MODULE_MAX, rng)
    return sorted(chosen)


def _choose_from(modules: list[str], count: int, per_module: int, rng: random.Random) -> list[Mutant]:
    weights = [len((ROOT / module).read_text().splitlines()) for module in modules]
    chosen: dict[Mutant, None] = {}
    used = dict.fromkeys(modules, 0)
    for _ in range(100 * count):
        if len(chosen) == count:
            break
        (module,) = rng.choices(modules, weights)
        found = mutants_of(module)
        if used[module] >= per_module or not found:
            continue
        mutant = rng.choice(found)
        if mutant not in chosen:
            chosen[mutant] = None
            used[module] += 1
    return list(chosen)


def modules_of(stratum: str) -> list[str]:
    """Return the modules of a stratum that the tests of this process reach."""
    paths = sorted((ROOT / stratum).rglob("*.py"))
    names = [path.relative_to(ROOT).as_posix() for path in paths if "pyspark" not in path.read_text()]
    return [name for name in names if not name.startswith(LEFT_OUT) and not name.endswith("__init__.py")]


@cache
def mutants_of(module: str) -> tuple[Mutant, ...]:
    """Return all mutants of a module that may change what it does."""
    text = (ROOT / module).read_text()
    idle, lines = idle_lines(text), text.splitlines()
    tree = get_ast(text)
    found = []
    for name in OPERATORS:
        operator = get_operator(name)()
        starts = [start for node in ast_nodes(tree) for start, _end in operator.mutation_positions(node)]
        found += [
            Mutant(module, line, name, number)
            for number, (line, _column) in enumerate(starts)
            if line not in idle and lines[line - 1].strip() != KEYWORDS_ONLY
        ]
    return tuple(sorted(found))


def idle_lines(text: str) -> set[int]:
    """Return the lines where a change is no defect: annotations, heads of classes, assertions of our own invariants, and
    constants to tune.
    """
    idle: set[int] = set()

    def leave_out(node: ast.expr | ast.stmt | None) -> None:
        if node is not None:
            idle.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))

    tree = ast.parse(text)
    owners: list[ast.Module | ast.ClassDef] = [tree]
    for node in ast.walk(tree):
        if isinstance(node, ast.arg | ast.AnnAssign):
            leave_out(node.annotation)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            leave_out(node.returns)
        elif isinstance(node, ast.ClassDef):
            owners.append(node)
            # How a class is made, frozen or with slots: a fence against mistakes of ours.
            idle.update(range(min([node.lineno, *(each.lineno for each in node.decorator_list)]), node.body[0].lineno))
        elif isinstance(node, ast.Assert | ast.If | ast.Call) and _is_idle(node):
            leave_out(node)
    for owner in owners:
        for statement in owner.body:
            if isinstance(statement, ast.Assign | ast.AnnAssign | ast.Expr):
                leave_out(statement)
    return idle


def _is_idle(node: ast.Assert | ast.If | ast.Call) -> bool:
    if isinstance(node, ast.If):
        return ast.unparse(node.test) == "TYPE_CHECKING"
    return isinstance(node, ast.Assert) or ast.unparse(node.func).startswith(("logger.", "warnings."))
