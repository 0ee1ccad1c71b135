"""Tests of tests/audit.py."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.audit import CLEAN, UNKNOWN, VULNERABLE, batches, judge

if TYPE_CHECKING:
    from pathlib import Path

FLAW = {"id": "PYSEC-1", "fix_versions": ["2.0", "1.9.1"]}
A = {"name": "a", "version": "1", "vulns": []}
B = {"name": "b", "version": "1", "vulns": []}

LOCK = """\
# made by make lock
a==1 ; python_version < '3.0' \\
    --hash=sha256:00 \\
    --hash=sha256:01
    # via b
b==1 \\
    --hash=sha256:02
b==2 ; python_version >= '3.0' \\
    --hash=sha256:03
"""

#: Writes a report in which every package but `lost` was looked up, and `bad` is vulnerable.
PROGRAM = f"""#!{sys.executable}
import json, pathlib, sys
names = pathlib.Path(sys.argv[sys.argv.index("--requirement") + 1]).read_text().split()
packages = [dict(zip(("name", "version"), name.split("=="))) for name in names]
for package in packages:
    package |= {{"skip_reason": "not there"}} if package["name"] == "lost" else {{"vulns": []}}
    if package["name"] == "bad":
        package["vulns"] = [{json.dumps(FLAW)}]
pathlib.Path(sys.argv[sys.argv.index("--output") + 1]).write_text(json.dumps({{"dependencies": packages}}))
"""


@pytest.mark.parametrize(
    ("packages", "asked", "code", "says"),
    [
        ([A], ["a==1"], CLEAN, "1 packages, and no known vulnerability."),
        ([A | {"vulns": [FLAW]}], ["a==1"], VULNERABLE, "a 1: PYSEC-1, mended in 2.0, 1.9.1"),
        ([A | {"vulns": [{"id": "X", "fix_versions": []}]}], ["a==1"], VULNERABLE, "mended in no version"),
        ([{"name": "a", "version": "1", "skip_reason": "not found"}, B], ["a==1", "b==1"], UNKNOWN, "1 of 2 packages"),
        ([B], ["a==1", "b==1"], UNKNOWN, "1 of 2 packages could not be looked up: a==1."),
        (
            [{"name": "a", "version": "1", "skip_reason": "?"}, B | {"vulns": [FLAW]}],
            ["a==1", "b==1"],
            VULNERABLE,
            "b 1: PYSEC-1",
        ),
        ([{"name": "a", "version": "1", "skip_reason": "?"}], ["a==1"], UNKNOWN, "could not reach its database"),
        ([], ["a==1"], UNKNOWN, "could not reach its database"),
        ([], [], UNKNOWN, "could not reach its database"),
    ],
)
def test_what_is_not_known_is_no_good_news(packages: list[dict[str, object]], asked: list[str], code: int, says: str) -> None:
    found, text = judge([json.dumps({"dependencies": packages})], asked)
    assert found == code
    assert says in text


@pytest.mark.parametrize("report", ["", "no JSON", "[]", "{}"])
def test_a_database_that_cannot_be_reached_is_told(report: str) -> None:
    found, text = judge([report], ["a==1"])
    assert found == UNKNOWN
    assert "could not reach its database" in text
    assert judge([json.dumps({"dependencies": [A]}), report], ["a==1", "a==2"])[0] == UNKNOWN


def test_everything_that_the_locks_name_is_asked_about_once_for_any_system() -> None:
    assert batches([LOCK, LOCK, "c==1 --hash=sha256:04\n"]) == [["a==1", "b==1", "c==1"], ["b==2"]]


@pytest.mark.parametrize(
    ("lock", "code", "says"),
    [
        (LOCK, CLEAN, "3 packages, and no known vulnerability."),
        (LOCK + "bad==3 --hash=sha256:05\n", VULNERABLE, "bad 3: PYSEC-1, mended in 2.0, 1.9.1"),
        (LOCK + "lost==3 --hash=sha256:05\n", UNKNOWN, "1 of 4 packages could not be looked up: lost==3."),
    ],
)
def test_the_command_asks_about_the_locks(tmp_path: Path, lock: str, code: int, says: str) -> None:
    program = tmp_path / "pip-audit"
    program.write_text(PROGRAM)
    program.chmod(0o700)
    assert run(str(program), tmp_path, lock) == (code, says)


def test_the_command_says_that_it_could_not_ask_and_heeds_no_old_report(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "0.json").write_text(json.dumps({"dependencies": [A, B]}))
    code, says = run("/bin/false", tmp_path, LOCK)
    assert code == UNKNOWN
    assert "could not reach its database" in says


def run(program: str, directory: Path, lock: str) -> tuple[int, str]:
    (directory / "one.lock").write_text(lock)
    command = [sys.executable, "-m", "tests.audit", program, str(directory / "work"), str(directory / "one.lock")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert done.stderr == ""
    return done.returncode, done.stdout.strip()
