"""Build what is released, twice, and check it: `python -m tests.release [NAME ...]`, or `--write-api` after a release.

Leaves the wheel, the source distribution, the bill of materials and the list of licences in `dist`. Says of each check
whether it holds, and ends with 1 if one does not.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.release import api, typing_checks

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT: Final = Path(__file__).parents[2]
DIST: Final = ROOT / "dist"
PROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
#: Modules that only this repository needs: what runs them is not installed.
NOT_INSTALLED: Final = (
    *("iris_py/testing/soak.py", "iris_py/testing/stream_soak.py", "iris_py/testing/cores/pair.py"),
    *("iris_py/testing/cores/stream", "tests/", "benchmarks/", "docs/"),
)
TYPED: Final = tuple(typing_checks.PACKAGES)
#: Licences of packages that Iris needs which allow to use Iris under its own.
LICENCES: Final = ("MIT", "BSD", "Apache", "ISC", "PSF", "Python Software Foundation", "MPL")
#: What runs where nothing but Iris is installed: a request over real sockets, and every module that needs no extra.
SMOKE: Final = """
import asyncio, importlib, sys
import iris_py, iris_py.sync, iris_py.gateway, iris_py.service, iris_py.testing, iris_py.metrics, spark_connector
for module in (iris_py, iris_py.sync, iris_py.gateway, iris_py.service, iris_py.testing):
    for name in module.__all__:
        getattr(module, name)
async def main():
    async with iris_py.connect(secret=iris_py.Secret(bytes(32)), discovery=False) as node:
        async with node.join("echo", lambda request: request.payload):
            assert await node.request("echo", "hi", codec="json") == "hi"
iris_py.run(main())
extras = {"opentelemetry", "prometheus_client", "h11", "matplotlib", "pyarrow", "pyspark", "pydantic", "pytest", "textual"}
assert not extras & sys.modules.keys(), extras & sys.modules.keys()
"""


class Fault(Exception):
    """A check does not hold."""


def run(*command: str | Path, **environment: str) -> str:
    """Run a command in the repository; return what it prints.

    Raises:
        Fault: It fails.
    """
    done = subprocess.run(
        [str(part) for part in command],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise Fault(f"{' '.join(map(str, command[:4]))} ...: {(done.stdout + done.stderr).strip()[-1500:]}")
    return done.stdout


def tool(name: str) -> Path:
    """Return a command of this environment."""
    return Path(sys.executable).parent / name


def check_build() -> str:
    """Build the wheel and the source distribution twice, in places of their own: both times the same bytes."""
    moment = run("git", "log", "-1", "--format=%ct").strip()
    digests = []
    DIST.mkdir(exist_ok=True)
    for old in DIST.iterdir():
        old.unlink()
    with tempfile.TemporaryDirectory() as scratch:
        for place in (DIST, Path(scratch)):
            run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", place, SOURCE_DATE_EPOCH=moment)
            digests.append({path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(place.iterdir())})
    if digests[0] != digests[1] or len(digests[0]) != 2:
        raise Fault(f"two builds of one commit differ: {digests}")
    return ", ".join(f"{name} {digest[:12]}" for name, digest in digests[0].items())


def wheel() -> Path:
    """Return the wheel that was built."""
    found = sorted(DIST.glob("*.whl"))
    if not found:
        raise Fault("there is no wheel in dist: run the check called build first")
    return found[0]


def check_files() -> str:
    """Check the metadata, and that the wheel has all that is to be installed, and nothing else."""
    run(tool("validate-pyproject"), "pyproject.toml")
    run(tool("twine"), "check", "--strict", *DIST.glob("*.whl"), *DIST.glob("*.tar.gz"))
    run(tool("check-wheel-contents"), wheel())
    with zipfile.ZipFile(wheel()) as file:
        names = file.namelist()
    surplus = [name for name in names if name.startswith(NOT_INSTALLED)]
    untyped = [package for package in TYPED if f"{package}/py.typed" not in names]
    if surplus or untyped:
        raise Fault(f"not to be installed: {surplus}; without py.typed: {untyped}")
    return f"{len(names)} files"


def check_version() -> str:
    """Check that the version is the same everywhere, and that the changelog has a section of it."""
    version = PROJECT["version"]
    text = (ROOT / "iris_py" / "__init__.py").read_text()
    if f'__version__ = "{version}"' not in text:
        raise Fault(f"iris_py.__version__ is not {version}")
    heading = re.search(rf"^## {re.escape(version)} \((.+)\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    if heading is None:
        raise Fault(f"CHANGELOG.md has no section '## {version} (date)'")
    return f"{version} ({heading[1]})" + ("; put the date there before the tag" if heading[1] == "unreleased" else "")


def check_api() -> str:
    """Check that the changelog names whatever programs could use in the last release and cannot use in this one."""
    old, new = api.SNAPSHOT.read_text().splitlines(), api.interface()
    names = api.broken(old, new)
    silent = api.unmentioned(names, (ROOT / "CHANGELOG.md").read_text(), PROJECT["version"])
    if silent:
        raise Fault(
            f"these differ from the last release, and no entry with **Changed** or **Removed** names them: {', '.join(silent)}"
        )
    return f"{len(new)} lines, {len(names)} of the last release changed"


def check_types() -> str:
    """Check that everything public says its type, and that nothing of ours has an unknown one."""
    try:
        count, untyped = typing_checks.check_public()
    except RuntimeError as exc:
        raise Fault(str(exc)) from None
    if untyped:
        raise Fault(f"{len(untyped)} names: {'; '.join(untyped[:20])}")
    return f"{count} names in {len(TYPED)} packages"


def check_pythons() -> str:
    """Check that the oldest Python has all that we use, and that the newest has it still."""
    oldest, newest = typing_checks.OLDEST, typing_checks.NEWEST
    try:
        found = [typing_checks.check_oldest(), *typing_checks.check_newest()]
    except RuntimeError as exc:
        raise Fault(str(exc)) from None
    if any(found):
        raise Fault("; ".join(filter(None, found))[:1500])
    return f"{oldest} has everything, and {newest} still"


def check_install() -> str:
    """Install the wheel in an empty environment, without extras; use it, and write what came along and under which licences."""
    with tempfile.TemporaryDirectory() as scratch:
        venv.create(scratch, with_pip=True)
        python = Path(scratch, "bin", "python")
        run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel())
        clean = {"PYTHONPATH": "", "HOME": scratch}
        run(python, "-P", "-c", SMOKE, **clean)
        for words in (("--help",), ("--version",), ("simulate", "--help"), ("demo", "--help")):
            run(python.with_name("iris"), *words, **clean)
        run(python, "-m", "pip", "--disable-pip-version-check", "uninstall", "--quiet", "--yes", "pip", "setuptools")
        bill = ("environment", python, "--pyproject", "pyproject.toml", "--sv", "1.6", "--output-reproducible")
        run(tool("cyclonedx-py"), *bill, "--of", "JSON", "-o", DIST / "sbom.json")
    return write_licences()


def write_licences() -> str:
    """Write the licences of what the bill of materials names.

    Raises:
        Fault: A package has one that is not known to allow our use of it.
    """
    lines, doubtful = [], []
    for each in sorted(json.loads((DIST / "sbom.json").read_text())["components"], key=lambda one: str(one["name"]).lower()):
        said = [
            one.get("expression") or one["license"].get("id") or one["license"].get("name") for one in each.get("licenses", [])
        ]
        names = sorted({str(name).replace("License :: OSI Approved :: ", "") for name in said if name and len(str(name)) < 100})
        lines.append(f"{each['name']} {each.get('version', '')}: {', '.join(names) or 'unknown'}")
        if not any(allowed in name for name in names for allowed in LICENCES):
            doubtful.append(lines[-1])
    (DIST / "licences.txt").write_text("\n".join(lines) + "\n")
    if doubtful:
        raise Fault(f"read these licences, and name them in tests/release/__main__.py: {'; '.join(doubtful)}")
    return f"{len(lines)} packages in dist/sbom.json and dist/licences.txt"


CHECKS: Final[dict[str, Callable[[], str]]] = {
    "version": check_version,
    "build": check_build,
    "files": check_files,
    "api": check_api,
    "types": check_types,
    "pythons": check_pythons,
    "install": check_install,
}


def main() -> int:
    """Run the checks that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.release", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(CHECKS))
    parser.add_argument("--write-api", action="store_true", help="take the interface of now for that of the last release")
    arguments = parser.parse_args()
    if arguments.write_api:
        api.SNAPSHOT.write_text("\n".join(api.interface()) + "\n")
        return 0
    if unknown := set(arguments.names) - CHECKS.keys():
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    has_fault = False
    for name in arguments.names or CHECKS:
        try:
            print(f"ok     {name:8} {CHECKS[name]()}", flush=True)
        except Fault as exc:
            has_fault = True
            print(f"FAULT  {name:8} {exc}", flush=True)
    return int(has_fault)


if __name__ == "__main__":
    sys.exit(main())
