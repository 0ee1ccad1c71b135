"""Run mypy and pyright on all programs that the documents show: `python -m tests.typed_programs`.

The programs are the Python blocks of the pages and of the docstrings of modules, and the files of examples/. A whole program is
checked as it is. A part of a program is checked inside a function. It may use names that an earlier block of the same page
defines, the names in ``GIVEN``, and modules of the standard library. tests/typed has the types that both checkers must infer.
"""

from __future__ import annotations

import ast
import builtins
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tests.pages import PAGES, ROOT, blocks_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

FOLDER: Final = ROOT / "build" / "programs"
#: What mypy knows of Iris and of what it imports: to find that out anew takes it ten times as long as the programs.
MYPY_CACHE: Final = ROOT / "build" / "programs-mypy"
#: Folders whose files pyright checks where they are; mypy does so with all others of the repository.
FILES: Final = ("examples", "tests/typed")
#: The oldest Python of Iris: what passes there does so on newer ones.
OLDEST: Final = "3.11"
#: Names that blocks use without defining them, with their types. A name has the same meaning on all pages.
GIVEN: Final = {
    "answer": "collections.abc.Callable[[iris_py.Request], collections.abc.Awaitable[bytes]]",
    "changed": "pyspark.sql.DataFrame",
    "daily": "pyspark.sql.DataFrame",
    "data": "bytes",
    "echo": "collections.abc.Callable[[iris_py.Request], collections.abc.Awaitable[bytes]]",
    "group": "iris_overlay.ids.GroupId",
    "handler": "iris_py.Handler",
    "node": "iris_py.Node",
    "orders": "pyspark.sql.DataFrame",
    "secret": "str",
    "spark": "pyspark.sql.SparkSession",
}
#: Modules that blocks use without importing them.
MODULES: Final = {"iris": "import iris_py as iris", "iris_py": "import iris_py"}
_PARSED: Final = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


@dataclass(frozen=True, slots=True)
class Program:
    """A program, or a part of one.

    Attributes:
        origin: The file that shows it, from the top of the repository.
        line: The number of its first line there.
        text: The code, not indented.
        file: The file name that its first line gives; empty if there is none.
        around: Names of the module whose docstring shows it, each with the statement that imports it.
    """

    origin: str
    line: int
    text: str
    file: str = ""
    around: Mapping[str, str] = field(default_factory=dict)

    @property
    def tree(self) -> ast.Module:
        """The syntax tree of the text."""
        tree = compile(self.text, self.origin, "exec", _PARSED)
        assert isinstance(tree, ast.Module)
        return tree


@dataclass(slots=True)
class Written:
    """A file for the checkers, with the page and line that each of its lines comes from."""

    path: Path
    lines: list[str]
    origins: list[str]

    def add(self, text: str, program: Program | None = None, *, indent: str = "") -> None:
        """Add lines of a program, or other lines."""
        for number, line in enumerate(text.splitlines()):
            self.lines.append(indent + line if line else line)
            self.origins.append("" if program is None else f"{program.origin}:{program.line + number}")


# -- finding them


def programs_of(page: Path) -> list[Program]:
    """Return the programs of a page, in their order."""
    return [Program(block.page, block.line + 1, block.text, block.file) for block in blocks_of(page) if block.kind == "python"]


def docstring_programs(path: Path) -> list[Program]:
    """Return the programs of the docstring of a module, in their order."""
    tree = ast.parse(path.read_text())
    doc = ast.get_docstring(tree, clean=False) or ""
    name = path.relative_to(ROOT).as_posix()
    module = name.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
    around = {public: f"from {module} import {public}" for public in public_names(tree)} | {"iris_py": f"import {module}"}
    return [
        Program(name, doc.count("\n", 0, match.start(1)) + 1, body, around=around)
        for match in re.finditer(r"::\n\n((?:    .*\n|\n)+)", doc + "\n")
        if is_program(body := textwrap.dedent(match[1]).rstrip("\n") + "\n")
    ]


def public_names(tree: ast.Module) -> list[str]:
    """Return the names in ``__all__``, or the classes and functions of a module without it."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return names
    return [node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)]


def is_program(text: str) -> bool:
    """Tell whether an indented block of a docstring is Python code, not a drawing or a formula."""
    try:
        tree = compile(text, "a docstring", "exec", _PARSED)
    except SyntaxError:
        return False
    return any(isinstance(node, ast.Call) for node in ast.walk(tree))


# -- making files of them


def bound_names(tree: ast.AST) -> set[str]:
    """Return the names that code defines anywhere."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                found.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                found.add(name)
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                found |= {each.asname or each.name.partition(".")[0] for each in names}
    return found


def free_names(tree: ast.AST) -> set[str]:
    """Return the names that code uses and does not define."""
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return used - bound_names(tree) - set(dir(builtins)) - {"__name__", "__file__"}


def imports_of(tree: ast.Module) -> dict[str, str]:
    """Return the names that code imports, each with the statement that imports it."""
    return {
        name: ast.unparse(ast.Import([each]) if isinstance(node, ast.Import) else ast.ImportFrom(node.module, [each], 0))
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for each in node.names
        for name in (each.asname or each.name.partition(".")[0],)
    }


def is_whole(tree: ast.Module) -> bool:
    """Tell whether code runs by itself: it defines all names that it uses, and awaits only inside functions."""
    if free_names(tree):
        return False
    functions = ast.FunctionDef | ast.AsyncFunctionDef
    outside = [node for each in tree.body if not isinstance(each, functions | ast.ClassDef) for node in ast.walk(each)]
    return not any(isinstance(node, ast.Await | ast.AsyncWith | ast.AsyncFor) for node in outside)


def write(program: Program, before: Sequence[Program], path: Path) -> Written:
    """Return the file for a program, with the context that it needs.

    Args:
        program: The program.
        before: The programs before it on the same page or in the same docstring.
        path: The path of the file.

    Raises:
        ValueError: The program uses a name that nothing defines.
    """
    written = Written(path, [], [])
    if is_whole(program.tree):
        text = program.text
        for each in before:
            if each.file.endswith(".py"):  # it is beside this one
                text = re.sub(rf"^from {each.file[:-3]} import ", f"from .{each.file[:-3]} import ", text, flags=re.MULTILINE)
        written.add(text, program)
        return written
    imports, parameters, earlier = list[str](), list[str](), list[Program]()
    names, seen = sorted(free_names(program.tree)), set[str]()
    while names:
        if (name := names.pop(0)) in seen:
            continue
        seen.add(name)
        maker = next((each for each in reversed(before) if name in bound_names(each.tree)), None)
        if maker is not None and name in (known := imports_of(maker.tree)):
            imports.append(known[name])
        elif maker is not None and maker.file:
            imports.append(f"from .{maker.file.removesuffix('.py')} import {name}")
        elif maker is not None and not is_whole(maker.tree):
            earlier.append(maker)
            names += sorted(free_names(maker.tree))
        elif name in program.around:
            imports.append(program.around[name])
        elif name in MODULES:
            imports.append(MODULES[name])
        elif name in GIVEN:
            imports += [f"import {module}" for module in re.findall(r"([\w.]+)\.\w+", GIVEN[name])]
            parameters.append(f"{name}: {GIVEN[name]}")
        elif name in sys.stdlib_module_names:
            imports.append(f"import {name}")
        else:
            raise ValueError(f"{program.origin}:{program.line}: nothing before it defines {name!r}")
    written.add("\n".join(sorted(set(imports))))
    written.add(f"async def part({', '.join(parameters)}) -> None:")
    for each in [part for part in before if part in earlier]:
        written.add(each.text, each, indent="    ")
    written.add(program.text, program, indent="    ")
    return written


def write_all(folder: Path) -> list[Written]:
    """Write the files of all programs below an empty folder."""
    modules = [path for top in ("iris_py", "spark_connector") for path in sorted((ROOT / top).rglob("*.py"))]
    texts = [programs_of(page) for page in PAGES] + [docstring_programs(path) for path in modules]
    found = []
    for programs in texts:
        for number, program in enumerate(programs):
            place = folder / re.sub(r"\W", "_", program.origin.removesuffix(".md").removesuffix(".py"))
            name = program.file.removesuffix(".py") or f"line_{program.line}"
            found.append(write(program, programs[:number], place / f"{name}.py"))
    for written in found:
        written.path.parent.mkdir(parents=True, exist_ok=True)
        written.path.write_text("\n".join(written.lines) + "\n")
    return found


# -- having them checked


def mypy(folder: Path) -> Iterator[str]:
    """Yield what mypy finds below a folder: ``path:line: text``. Its only setting is ``--strict``."""
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--explicit-package-bases", "--no-error-summary"]
    command += [
        "--no-color-output",
        f"--cache-dir={MYPY_CACHE}",
        f"--python-version={OLDEST}",
        str(folder),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1) or done.stderr:
        raise RuntimeError(f"mypy failed: {done.stdout}{done.stderr}")
    yield from done.stdout.splitlines()


def pyright(folder: Path, others: Sequence[str] = ()) -> Iterator[str]:
    """Yield what pyright finds below a folder, and in others of the repository: ``path:line: text``."""
    settings = folder / "pyrightconfig.json"
    include = [".", *(os.path.relpath(ROOT / each, folder) for each in others)]
    settings.write_text(
        json.dumps({"include": include, "pythonVersion": OLDEST, "reportUnnecessaryTypeIgnoreComment": "error"})
    )
    command = [sys.executable, "-m", "pyright", f"--project={settings}", f"--pythonpath={sys.executable}", "--outputjson"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        found = json.loads(done.stdout)["generalDiagnostics"]
    except ValueError:
        raise RuntimeError(f"pyright failed: {done.stdout}{done.stderr}") from None
    for each in found:
        line = each["range"]["start"]["line"] + 1
        yield f"{each['file']}:{line}: {each['severity']}: {each['message']} [{each.get('rule', '')}]"


def findings(said: Iterable[str], written: Iterable[Written]) -> list[str]:
    """Return the findings of a checker once each, with page and line in place of the generated file and its line."""
    origins = {each.path.resolve(): each.origins for each in written}
    found: dict[str, None] = {}
    for text in said:
        match = re.match(r"([^:\n]+):(\d+):(?:\d+:)? (.*)", text, re.DOTALL)
        if match is not None:
            path = (ROOT / match[1]).resolve()
            origin = origins[path][int(match[2]) - 1] if path in origins else ""
            found[f"{origin or f'{os.path.relpath(path, ROOT)}:{match[2]}'}: {match[3]}"] = None
    return list(found)


def main() -> int:
    """Check all programs; print the findings."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    written = write_all(FOLDER)
    checkers = {"mypy": lambda: list(mypy(FOLDER)), "pyright": lambda: list(pyright(FOLDER, FILES))}
    with ThreadPoolExecutor(len(checkers)) as pool:
        said = dict(zip(checkers, pool.map(lambda check: check(), checkers.values()), strict=True))
    found = [f"{text} ({checker})" for checker, texts in said.items() for text in findings(texts, written)]
    print("\n".join(found) if found else f"mypy and pyright find nothing wrong in {len(written)} programs of the documents")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
