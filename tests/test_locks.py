"""Tests of locks/: what pyproject.toml asks for is in them, at a version that it allows, and every entry has a hash."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.audit import entries, locked

ROOT = Path(__file__).parents[1]
LOCKS = sorted((ROOT / "locks").glob("*.lock"))
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
#: The extras whose packages are locked. The others are for single commands (CONTRIBUTING.md).
LOCKED_EXTRAS = {"arrow", "spark", "docs", "dev", "web"}
#: An entry: one version, perhaps a marker, then hashes.
ENTRY = re.compile(r"[a-z0-9-]+(\[[a-z0-9,-]+\])?==[^ ;=]+( ; [^-]*?\S)?(\s+--hash=sha256:[0-9a-f]{64})+")


def wanted() -> dict[str, list[Requirement]]:
    """Return what each lock has to satisfy."""
    project, groups = PROJECT["project"], PROJECT["dependency-groups"]
    extras = [text for extra in sorted(LOCKED_EXTRAS) for text in project["optional-dependencies"][extra]]
    texts = {
        "dev.lock": [*project["dependencies"], *extras],
        "build.lock": [*PROJECT["build-system"]["requires"], *groups["build"]],
        "tools.lock": groups["tools"],
    }
    return {name: list(map(Requirement, each)) for name, each in texts.items()}


def unsatisfied(requirements: list[Requirement], lock: str) -> list[str]:
    """Return which requirements a lock does not satisfy."""
    versions: dict[str, list[str]] = {}
    for entry in locked(lock):
        (specifier,) = entry.specifier
        versions.setdefault(entry.name, []).append(specifier.version)
    return [
        str(one)
        for one in requirements
        if not (found := versions.get(canonicalize_name(one.name))) or not all(map(one.specifier.contains, found))
    ]


def test_there_is_a_lock_for_all_that_an_environment_is_made_of() -> None:
    assert {path.name for path in LOCKS} == set(wanted())


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.name)
def test_a_lock_has_what_the_project_asks_for(path: Path) -> None:
    own = PROJECT["project"]["name"]
    requirements = [one for one in wanted()[path.name] if one.name != own]
    assert requirements
    assert unsatisfied(requirements, path.read_text()) == [], "run make lock"


def test_the_project_itself_asks_for_nothing_more_than_the_extras_that_are_locked() -> None:
    own = PROJECT["project"]["name"]
    extras = {extra for one in wanted()["dev.lock"] if one.name == own for extra in one.extras}
    assert extras <= LOCKED_EXTRAS


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.name)
def test_every_entry_of_a_lock_has_a_version_and_hashes_and_names_no_index(path: Path) -> None:
    assert [entry for entry in entries(path.read_text()) if not ENTRY.fullmatch(entry)] == []


def test_what_builds_packages_has_the_same_version_in_both_locks_of_an_environment() -> None:
    build, dev = ({one.name: one for one in locked((ROOT / "locks" / name).read_text())} for name in ("build.lock", "dev.lock"))
    assert "hatchling" in build.keys() & dev.keys()
    assert [name for name in build.keys() & dev.keys() if build[name].specifier != dev[name].specifier] == []


@pytest.mark.parametrize(
    ("requirement", "is_satisfied"),
    [("b", True), ("B>=1,<3", True), ("b>=2", False), ("a_c[x]>=1", True), ("d", False)],
)
def test_a_requirement_that_a_lock_does_not_satisfy_is_found(requirement: str, is_satisfied: bool) -> None:
    lock = "a-c==1.5 --hash=sha256:00\nb==1 ; python_version < '3' --hash=sha256:00\nb==2 --hash=sha256:00\n"
    assert (unsatisfied([Requirement(requirement)], lock) == []) is is_satisfied


def test_the_environment_is_made_of_the_locks_and_their_hashes_alone() -> None:
    """Each installation that `make test` needs demands hashes, or takes the project itself and nothing else."""
    text = (ROOT / "Makefile").read_text()
    assert re.search(r"^LOCKED := \$\(INSTALL\) --require-hashes$", text, re.MULTILINE)
    (rule,) = re.findall(r"^\$\(READY\):.*\n((?:\t.*\n)+)", text, re.MULTILINE)
    installs = [line.split("-m pip ", 1)[1] for line in rule.splitlines() if "-m pip " in line]
    assert installs == [
        "$(LOCKED) -r locks/build.lock",
        "$(LOCKED) --no-build-isolation -r locks/dev.lock",
        "$(INSTALL) --no-build-isolation --no-deps --editable .",
    ]
