"""Tests of `iris version`: it names the program, Python, and the packages beneath."""

from __future__ import annotations

import json
import platform
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement

from iris_py.build import build
from iris_py.cli.app import run

if TYPE_CHECKING:
    import pytest

PROJECT = tomllib.loads((Path(__file__).parents[4] / "pyproject.toml").read_text())["project"]


def test_the_versions_are_those_of_iris_of_python_and_of_all_that_iris_needs(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["version", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    needed = {Requirement(each).name for each in PROJECT["dependencies"]}
    assert printed.keys() == {"kind", "iris", "commit", "python", "packages"}
    assert printed["packages"].keys() == needed
    assert printed["iris"] == PROJECT["version"]
    assert printed["python"].startswith(f"{platform.python_implementation()} {platform.python_version()} on ")
    assert printed["packages"]["msgspec"] == version("msgspec")


def test_each_version_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["version"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].partition("+")[0] == f"iris {PROJECT['version']}"
    assert lines[0] == f"iris {build()}"
    assert f"cryptography {version('cryptography')}" in lines
