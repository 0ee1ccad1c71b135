"""The programs in the documentation run, and do what it says."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 100


def programs(document: str) -> dict[str, str]:
    """Return the Python programs of a document that begin with the name of their file."""
    blocks = re.findall(r"```python\n# (\w+\.py)\n(.*?)```", (ROOT / "docs" / document).read_text(), re.DOTALL)
    return dict(blocks)


def write(files: Mapping[str, str], directory: Path) -> None:
    directory.mkdir(exist_ok=True)
    for name, text in files.items():
        (directory / name).write_text(text)


def run(arguments: list[str], directory: Path) -> str:
    """Run Python in a directory; nothing may go wrong."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=directory, env=environment, capture_output=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
    return done.stdout.decode()


def test_the_tests_of_testing_md_pass(home: Path) -> None:
    files = programs("testing.md")
    assert set(files) == {"conftest.py", "test_failover.py", "test_with_fixtures.py"}
    write(files, home / "project")
    out = run(["-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"], home / "project")
    assert "7 passed" in out


def test_programs_are_typed(home: Path) -> None:
    for document in (
        "testing.md",
        "sync.md",
        "tracing.md",
        "service.md",
    ):  # in one test: what one run found out about Iris serves the next
        files = programs(document)
        assert files
        write(files, home / document)
        mypy = ["-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", str(home / "cache"), *files]
        assert run(mypy, home / document) == ""


def test_the_programs_of_sync_md_run(home: Path) -> None:
    files = programs("sync.md")
    write(files, home / "project")
    assert files
    for name in files:
        run(["-X", "dev", "-W", "error", name], home / "project")


def test_the_programs_of_tracing_md_print_what_they_say(home: Path) -> None:
    files = programs("tracing.md")
    assert set(files) == {"headers.py", "traced.py"}
    write(files, home / "project")
    assert run(["-X", "dev", "-W", "error", "headers.py"], home / "project") == "Moin 1 True True\n"
    spans = run(["-X", "dev", "-W", "error", "traced.py"], home / "project").splitlines()
    assert sorted(spans) == [
        "look it up INTERNAL",
        "note INTERNAL",
        "prices/request CLIENT",
        "prices/request SERVER",
        "publish sold PRODUCER",
        "sell INTERNAL",
    ]


def start(name: str, directory: Path) -> subprocess.Popen[str]:
    """Start a program of a document that says when it serves, and wait until it does."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-W", "error", name]
    process = subprocess.Popen(
        command, cwd=directory, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("serving at 127.0.0.1:")
    return process


def test_the_services_of_service_md_serve_until_they_are_stopped(home: Path) -> None:
    files = programs("service.md")
    assert set(files) == {"service.py", "ask.py", "service_sync.py"}
    write(files, home / "project")
    services = []
    try:
        first, second = services = [start("service.py", home / "project") for _ in range(2)]
        assert run(["ask.py"], home / "project").startswith("rows for SELECT 1 from process ")
        first.kill()
        first.wait()
        assert run(["ask.py"], home / "project") == f"rows for SELECT 1 from process {second.pid}\n"
        services.append(start("service_sync.py", home / "project"))
        second.terminate()
        assert (second.communicate(timeout=TIMEOUT_S), second.returncode) == (("", ""), 0)
        assert run(["ask.py"], home / "project") == "rows for SELECT 1\n"
        services[2].send_signal(signal.SIGINT)
        assert (services[2].communicate(timeout=TIMEOUT_S), services[2].returncode) == (("", ""), 0)
    finally:
        for service in services:
            service.kill()
            service.communicate()


def test_fixtures_are_not_loaded_where_nobody_asks_for_them(home: Path) -> None:
    """Nothing of Iris is imported by a pytest that does not use it, and nothing of pytest by a program that uses Iris."""
    write({"test_other.py": "import sys\n\ndef test_it() -> None:\n    assert 'iris_py' not in sys.modules\n"}, home / "other")
    assert "1 passed" in run(["-m", "pytest", "-q", "-p", "no:cacheprovider"], home / "other")
    run(["-c", "import iris_py.testing, sys; assert 'pytest' not in sys.modules"], home / "other")
