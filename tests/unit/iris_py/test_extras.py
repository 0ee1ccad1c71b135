"""The command that installs what an optional part of Iris needs."""

from __future__ import annotations

import shlex
import tomllib
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from iris_py import extras

if TYPE_CHECKING:
    import pytest


def test_the_version_of_a_package_is_that_of_its_metadata(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in (extras.DISTRIBUTION, *extras.REQUIRED, "typing_extensions", "Typing.Extensions"):
        assert extras.version_of(package) == metadata.version(package)
    assert extras.version_of("no-package-of-this-name") == "(not installed)"
    (tmp_path / "installed_later-1.5.egg-info").mkdir()
    (tmp_path / "installed_later-1.5.egg-info" / "PKG-INFO").write_text("Name: installed-later\nVersion: 1.5\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert extras.version_of("installed-later") == "1.5", "installed in another way"


def test_it_names_the_packages_and_never_iris() -> None:
    for extra in ("spark", "arrow", "otel", "plots"):
        words = shlex.split(extras.install_command(extra))
        assert words[:2] == ["pip", "install"]
        assert len(words) > 2
        assert not [word for word in words if "iris" in word]
    assert [word for word in shlex.split(extras.install_command("spark")) if word.startswith("pyspark")]


def test_an_extra_brings_what_it_is_made_of(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        "msgspec>=0.19",
        "uvloop>=0.21; sys_platform != 'win32'",
        'iris-messaging[b]; extra == "a"',
        "x[y]<2,>=1; python_version > '3' and extra == 'a'",
        'pack>=1 ; extra == "b"',
        'other; extra == "c"',
    ]
    monkeypatch.setattr(metadata, "requires", lambda _distribution: lines)
    assert extras.install_command("a") == "pip install 'pack>=1' 'x[y]<2,>=1'"
    assert extras.install_command("b") == "pip install 'pack>=1'"
    everything = {"msgspec": "msgspec>=0.19", "uvloop": "uvloop>=0.21", "x": "x[y]<2,>=1", "pack": "pack>=1"}
    assert extras.requirements("a") == everything


#: Extras for whoever works on Iris.
OURS = {"all", "bench", "browser", "dev", "docs", "fuzz", "interface", "mutants", "nats", "release"}


def test_one_extra_is_all_that_a_user_may_want() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted, found = ["all"], set()
    while wanted:
        for text in extras[wanted.pop()]:
            if text.startswith("iris-messaging["):
                wanted += text.partition("[")[2].removesuffix("]").split(",")
                found.update(wanted)
    assert found == set(extras) - OURS


def test_where_iris_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(distribution: str) -> list[str]:
        raise metadata.PackageNotFoundError(distribution)

    monkeypatch.setattr(metadata, "requires", missing)
    assert extras.install_command("spark") == "pip install '.[spark]' in a clone of Iris"
