"""The tests of nats-py, unmodified: first with nats-server, then with a door in its place. They fail alike, but for a list."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as XmlTree

import pytest

from tests.nats.places import ROOT, SERVER, SUITE, WORK

HERE = Path(__file__).parent
FILES = ("test_client.py", "test_client_v2.py", "test_client_nkeys.py", "test_micro_service.py")
#: The time of one test, and of all of them.
TEST_TIMEOUT_S, SUITE_TIMEOUT_S = 60, 1800

EXPECTED: dict[str, Any] = tomllib.loads((HERE / "expected.toml").read_text(encoding="utf-8"))


def run_suite(server: str) -> dict[str, str]:
    """Run the tests; return the outcome of each: passed, failed or skipped.

    Args:
        server: The text of the program that is started as nats-server.
    """
    home = WORK / "home"
    shutil.rmtree(home, ignore_errors=True)
    program = home / "nats-server" / "nats-server"
    program.parent.mkdir(parents=True)
    program.write_text(server, encoding="utf-8")
    program.chmod(0o755)
    report = home / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:randomly"]
    command += ["-o", "addopts=", "-o", "asyncio_mode=strict", f"--timeout={TEST_TIMEOUT_S}", f"--junitxml={report}"]
    environment = {**os.environ, "HOME": str(home), "PYTHONPATH": str(SUITE)}
    environment.pop("PYTEST_ADDOPTS", None)
    with (WORK / "suite.log").open("ab") as log:
        subprocess.run(
            [*command, *(f"tests/{name}" for name in FILES)],
            cwd=SUITE,
            env=environment,
            stdout=log,
            stderr=log,
            check=False,
            timeout=SUITE_TIMEOUT_S,
        )
    outcomes: dict[str, str] = {}
    for case in XmlTree.parse(report).iter("testcase"):
        name = f"{case.get('classname', '').rpartition('tests.')[2]}.{case.get('name')}"
        kinds = {child.tag for child in case}
        outcome = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        if outcomes.get(name) != "failed":  # parts of a test have its name
            outcomes[name] = outcome
    return outcomes


@pytest.fixture(scope="module")
def server() -> dict[str, str]:
    """The outcomes with nats-server."""
    return run_suite(f'#!/bin/sh\nexec "{SERVER}" "$@"\n')


@pytest.fixture(scope="module")
def door() -> dict[str, str]:
    """The outcomes with a door."""
    return run_suite(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -P -m tests.nats.stand_in "$@"\n')


def failed(outcomes: dict[str, str]) -> set[str]:
    """Return the tests that failed, without those that fail by chance."""
    return {name for name, outcome in outcomes.items() if outcome == "failed"} - set(EXPECTED["chance"])


@pytest.mark.timeout(SUITE_TIMEOUT_S)
def test_nats_server_passes_all_but_the_listed_tests(server: dict[str, str]) -> None:
    assert failed(server) == set(EXPECTED["server"])


@pytest.mark.timeout(2 * SUITE_TIMEOUT_S)
def test_a_door_passes_all_but_the_listed_tests(server: dict[str, str], door: dict[str, str]) -> None:
    assert door.keys() == server.keys()
    assert failed(door) == {*EXPECTED["server"], *EXPECTED["door"]}
    passed = [name for name, outcome in door.items() if outcome == "passed"]
    assert len(passed) >= EXPECTED["passed_min"]
