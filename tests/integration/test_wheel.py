"""The wheel: what it installs, and that it lives beside modules and distributions called `security` and `overlay`."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 100
TOP_LEVEL = {"iris_py", "iris_overlay", "iris_security", "spark_connector", "pyspark_iris.py"}


def run(*arguments: str, directory: Path | None = None) -> str:
    done = subprocess.run(arguments, cwd=directory, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory), directory=ROOT)
    (path,) = directory.glob("*.whl")
    return path


def foreign_wheel(directory: Path, name: str) -> Path:
    """Make a distribution of this name that has an import package of the same name."""
    path = directory / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{name}/__init__.py", "IS_FOREIGN = True\n")
        file.writestr(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        file.writestr(f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{name}-1.0.dist-info/RECORD", f"{name}/__init__.py,,\n{name}-1.0.dist-info/RECORD,,\n")
    return path


def make_environment(directory: Path) -> Path:
    """Make a virtual environment that has what Iris needs, and not Iris; return its Python."""
    venv.create(directory, with_pip=False)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(directory), "platbase": str(directory)}))
    # What is on the path so is found behind what is installed; its .pth files, with our own checkout, are not read.
    own = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    (packages / "dependencies.pth").write_text("\n".join(own))
    return directory / "bin" / "python"


def install(python: Path, *wheels: Path) -> None:
    pip = (sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", "install", "--no-compile")
    run(*pip, "--quiet", "--no-deps", "--no-index", "--force-reinstall", *map(str, wheels))


def first_program() -> str:
    found = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def run_first_program(python: Path, directory: Path) -> None:
    """Run it until it has printed its reply; if it serves on then, stop it."""
    (directory / "first.py").write_text(first_program())
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("IRIS_", "XDG_", "PYTHON"))}
    environment |= {"HOME": str(directory), "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [str(python), "first.py"], cwd=directory, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        rest, errors = process.communicate(timeout=TIMEOUT_S)
    finally:
        process.kill()
        process.communicate()
    assert "rows for SELECT 1" in line, line + rest + errors
    assert "Traceback" not in errors


def test_only_our_names_are_installed(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        top = {name.split("/")[0] for name in file.namelist()}
    assert {name for name in top if not name.endswith(".dist-info")} == TOP_LEVEL
    assert wheel.name.startswith("iris_messaging-")


@pytest.mark.parametrize("is_first", [True, False], ids=["before", "after"])
def test_distributions_called_security_and_overlay_live_beside_it(wheel: Path, tmp_path: Path, is_first: bool) -> None:
    python = make_environment(tmp_path / "environment")
    foreign = [foreign_wheel(tmp_path, name) for name in ("security", "overlay")]
    for wheels in ([wheel], foreign) if is_first else (foreign, [wheel]):
        install(python, *wheels)
    say = "import overlay, security, iris_py; print(overlay.IS_FOREIGN, security.IS_FOREIGN, iris_py.__file__)"
    words = run(str(python), "-c", say, directory=tmp_path).split()
    assert words[:2] == ["True", "True"]
    assert words[2].startswith(str(tmp_path / "environment"))
    run_first_program(python, tmp_path)


def test_the_first_program_runs_next_to_a_security_py(wheel: Path, tmp_path: Path) -> None:
    python = make_environment(tmp_path / "environment")
    install(python, wheel)
    project = tmp_path / "project"
    (project / "overlay").mkdir(parents=True)
    (project / "overlay" / "__init__.py").write_text("raise ImportError('this is not for Iris')\n")
    (project / "security.py").write_text("raise ImportError('this is not for Iris')\n")
    run_first_program(python, project)
    assert run(str(python), "-m", "iris_py.cli", "--version", directory=project).startswith("iris ")
