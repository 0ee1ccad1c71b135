"""The examples run, as a user would run them, and print what they say they print."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
TIMEOUT_S = 60


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An isolated network: its own secret and its own remembered peers."""
    return {
        **{key: value for key, value in os.environ.items() if not key.startswith("IRIS_")},
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }


def run(example: str, environment: dict[str, str], stdin: str = "") -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / example)],
        input=stdin,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_hello(environment: dict[str, str]) -> None:
    lines = run("hello.py", environment).splitlines()

    assert [line.split(",")[0] for line in lines] == ["hello ada", "hello grace", "hello barbara", "hello frances"]


def test_cache_invalidation(environment: dict[str, str]) -> None:
    lines = run("cache_invalidation.py", environment, stdin="motd\nmotd\n\n").splitlines()

    assert sorted(lines) == ["forget 'motd': gone", "forget 'motd': was not here", "told 1 caches", "told 1 caches"]


def test_service_discovery(environment: dict[str, str]) -> None:
    lines = run("service_discovery.py", environment).splitlines()

    assert sorted(line.split(" at ")[0] for line in lines[:-1]) == ["mail 2.4", "mail 2.5", "print 1.0"]
    assert lines[-1] == "mail is served by 2 of 3 nodes"


def test_every_example_is_tested() -> None:
    tested = Path(__file__).read_text()

    assert [path.name for path in sorted(EXAMPLES.glob("*.py")) if f'"{path.name}"' not in tested] == []
