"""The programs in the documentation run, and do what it says."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from iris_py.federation.settings import parse_settings
from iris_security import CloudKey
from tests import warm
from tests.ports import free_port
from tests.standstills import without_standstills

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 100
BLOCK_TIMEOUT_S = 60  # of one block of a tutorial
TUTORIAL = "Ten minutes: two clouds on one machine"


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


def test_the_program_of_statistics_md_prints_what_it_says(home: Path) -> None:
    files = programs("statistics.md")
    write(files, home / "project")
    said = (ROOT / "docs" / "statistics.md").read_text().partition("It prints\n\n```\n")[2].partition("```")[0]
    assert said.count("\n") == 5
    assert run(["-X", "dev", "-W", "error", "counted.py"], home / "project") == said


def test_the_programs_of_metrics_md_print_what_they_say(home: Path) -> None:
    files = programs("metrics.md")
    assert set(files) == {"service.py", "registry.py", "observed.py", "events.py"}
    write(files, home / "project")
    shown = run(["-X", "dev", "-W", "error", "service.py"], home / "project")
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/metrics SERVING\n", shown)
    assert run(["-X", "dev", "-W", "error", "registry.py"], home / "project") == "True\n"
    assert run(["-X", "dev", "-W", "error", "observed.py"], home / "project") == "True\n"
    assert run(["-X", "dev", "-W", "error", "events.py"], home / "project") == "WARNING seed_unreached 127.0.0.1:1\n"


def test_the_programs_of_codecs_md_print_what_they_say(home: Path) -> None:
    files = programs("codecs.md")
    assert set(files) == {"quotes.py", "lines.py"}
    write(files, home / "project")
    assert run(["-X", "dev", "-W", "error", "quotes.py"], home / "project").splitlines() == [
        "Quote(symbol='X', price=1.5)",
        "RemoteError: Expected `str`, got `int` - at `$.symbol`",
        "EncodeError: the value has the type Quote, not Ask",
        "sold X",
    ]
    assert run(["-X", "dev", "-W", "error", "lines.py"], home / "project") == "['a', 'b']\n"


def test_the_programs_of_streams_md_print_what_they_say(home: Path) -> None:
    files = programs("how-to/streams.md")
    assert set(files) == {"notes.py", "many.py", "follow.py", "orders.py", "plain.py"}
    write(files, home / "project")
    text = (ROOT / "docs" / "how-to" / "streams.md").read_text()
    said = [part.partition("```")[0] for part in text.split("```text\n")[1:]]
    shown = [run(["-X", "dev", "-W", "error", name], home / "project") for name in ("notes.py", "follow.py", "orders.py")]
    assert shown == said
    assert run(["notes.py"], home / "project") == "at 0 1\n0 milk\n1 milk\n"
    assert run(["-X", "dev", "-W", "error", "many.py"], home / "project") == "10000\n"
    assert run(["-X", "dev", "-W", "error", "plain.py"], home / "project") == "b'milk'\n"


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


def end_of(service: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Wait for the end of a program; return its exit code and the rest of both outputs."""
    out, errors = service.communicate(timeout=TIMEOUT_S)
    return service.returncode, out, without_standstills(errors)


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
        assert end_of(second) == (0, "", "")
        assert run(["ask.py"], home / "project") == "rows for SELECT 1\n"
        services[2].send_signal(signal.SIGINT)
        assert end_of(services[2]) == (0, "", "")
    finally:
        for service in services:
            service.kill()
            service.communicate()


def test_fixtures_are_not_loaded_where_nobody_asks_for_them(home: Path) -> None:
    """Nothing of Iris is imported by a pytest that does not use it, and nothing of pytest by a program that uses Iris."""
    write({"test_other.py": "import sys\n\ndef test_it() -> None:\n    assert 'iris_py' not in sys.modules\n"}, home / "other")
    assert "1 passed" in run(["-m", "pytest", "-q", "-p", "no:cacheprovider"], home / "other")
    run(["-c", "import iris_py.testing, sys; assert 'pytest' not in sys.modules"], home / "other")


def section(document: str, title: str) -> str:
    """Return a section of a document, without its heading."""
    text = (ROOT / "docs" / document).read_text()
    return re.split(r"^## ", text.split(f"\n## {title}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]


def without_what_differs(output: str) -> str:
    """Return what is the same whenever a tutorial is run: no keys, ids and numbers, and lines without their ends."""
    for pattern in (r"irisid1\.[\w-]{48}", r"\b[0-9a-f]{8}\b", r"\d[\d.,]*"):
        output = re.sub(pattern, "#", output)
    return "\n".join(line.rstrip() for line in output.strip().splitlines())


class Shell:
    """One shell, to which blocks of commands are given, as to a terminal.

    Args:
        directory: Where it begins.
        environment: Its environment.
    """

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            ["bash"], cwd=directory, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, start_new_session=True, preexec_fn=self._hear_hangups,
        )  # fmt: skip

    @staticmethod
    def _hear_hangups() -> None:
        """Let SIGHUP come through, as in a terminal, also where the tests run under nohup: children inherit what is ignored."""
        signal.signal(signal.SIGHUP, signal.SIG_DFL)

    def run(self, block: str) -> str:
        """Run commands, and return what they print."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{block}\necho; echo '--end--'\n")
        self._process.stdin.flush()
        return "".join(iter(self._process.stdout.readline, "--end--\n"))

    def kill(self) -> None:
        """End the shell, and whatever it has started."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()


def logs_of(folder: Path) -> str:
    """Return what the programs of a tutorial have said, for a failure that only they explain."""
    return "\n".join(f"{path.relative_to(folder)}:\n{path.read_text()}" for path in sorted(folder.rglob("*.log")))


@pytest.mark.long
@pytest.mark.timeout(300)  # two dozen commands, each of which starts a Python
def test_the_tutorial_of_federation_md_prints_what_it_says(home: Path) -> None:
    """Its blocks are typed one after the other; one with an output is typed again until it prints that, as people do."""
    bin_directory = home / "bin"
    write({"iris": f'#!/bin/sh\nexec {sys.executable} -m iris_py.cli "$@"\n'}, bin_directory)
    (bin_directory / "iris").chmod(0o755)
    port = free_port()
    environment = {**os.environ, "PATH": f"{bin_directory}:{os.environ['PATH']}", "COLUMNS": "110"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    blocks = re.findall(r"```sh\n(.*?)```\n(?:\n```\n(.*?)```)?", section("federation.md", TUTORIAL), re.DOTALL)
    assert len(blocks) > 15
    (home / "tutorial").mkdir()
    shell = Shell(home / "tutorial", environment)
    try:
        for commands, expected in blocks:
            deadline = time.monotonic() + BLOCK_TIMEOUT_S
            printed = shell.run(commands.replace("127.0.0.1:7450", f"127.0.0.1:{port}"))
            while not without_what_differs(printed).startswith(without_what_differs(expected)):
                assert time.monotonic() < deadline, (
                    f"{commands} prints, and the document does not:\n{printed}\n{logs_of(home / 'tutorial')}"
                )
                printed = shell.run(commands.replace("127.0.0.1:7450", f"127.0.0.1:{port}"))
    finally:
        shell.kill()


def test_settings_in_federation_md_are_right() -> None:
    """Whole files are read as a gateway does; a block that is a part of one is read behind a head that it needs."""
    text = (ROOT / "docs" / "federation.md").read_text()
    blocks = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    assert len(blocks) > 1
    keys = {name: CloudKey(bytes([number]) * 32).public_text for number, name in enumerate(("eu", "us", "asia"), 1)}
    for block in blocks:
        missing = [alias for alias in keys if f"[cloud.{alias}]" not in block and f'"{alias}"' in block]
        head = (
            "" if "[gateway]" in block else '[gateway]\nname = "us"\nidentity_file = "us.identity"\nlisten = "0.0.0.0:7450"\n'
        )
        head += "".join(f'[cloud.{alias}]\nkeys = ["{keys[alias]}"]\n' for alias in missing)
        whole = block + head if "[gateway]" in block else head + block
        parse_settings(re.sub(r"irisid1\.[-.]{3,}", lambda _: keys["eu"], whole), "federation.md")


def help_of(command: str) -> str:
    done = warm.run([sys.executable, "-m", "iris_py.cli", *command.split(), "--help"], timeout=TIMEOUT_S, text=True)
    done.check_returncode()
    return str(done.stdout)


def test_commands_in_federation_md_exist() -> None:
    """Each that the page names has a help, and each option that it is given there is in that help."""
    text = (ROOT / "docs" / "federation.md").read_text()
    named = set(re.findall(r"`iris ((?:keys |federation )?[a-z]+)\b", text))
    assert {"gateway", "keys identity", "keys public", "federation status"} <= named
    helps = {command: help_of(command) for command in sorted(named)}
    for command, options in re.findall(r"\biris ((?:keys |federation )?[a-z]+)((?: [^\s`|;]+)*)", text):
        for option in re.findall(r"(?<= )--?[a-z][a-z-]*", options if command in named else ""):
            assert option in helps[command], (command, option)
