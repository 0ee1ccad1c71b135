"""The example in examples/nats: services in several languages serve one cluster, beside a native one, at a door."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from typing import IO, TYPE_CHECKING, cast

import pytest

from tests.nats.languages import CLIENTS, ENVIRONMENT, built_service, missing_clients
from tests.nats.places import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EXAMPLE = ROOT / "examples" / "nats"
LANGUAGES = [language for language in CLIENTS if language not in missing_clients()]
WAIT_S = 60


class Terminals:
    """Programs of the example, in a network of their own."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        own = {name: value for name, value in os.environ.items() if not name.startswith("IRIS_")}
        self.environment = {**own, **ENVIRONMENT, "HOME": str(directory), "XDG_CONFIG_HOME": str(directory)}
        self._stack = stack

    def start(self, *command: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE, text=True)
        self._stack.enter_context(process)
        self._stack.callback(process.kill)
        return process

    def read_line(self, process: subprocess.Popen[str]) -> str:
        return cast("IO[str]", process.stdout).readline().strip()


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[Terminals]:
    with ExitStack() as stack:
        yield Terminals(tmp_path, stack)


@pytest.mark.timeout(600)
def test_services_in_all_languages_share_a_name(terminals: Terminals) -> None:
    door = terminals.start(sys.executable, "-m", "iris_py", "door", "nats", "--at", "127.0.0.1:0", "--json")
    url = terminals.read_line(door).partition('"url":"')[2].partition('"')[0]
    services = [terminals.start(sys.executable, str(EXAMPLE / "service.py"))]
    services += [terminals.start(*built_service(language), url) for language in LANGUAGES]
    assert [terminals.read_line(service) for service in services] == ["serving"] * (1 + len(LANGUAGES))
    command = [sys.executable, str(EXAMPLE / "ask.py"), "Python", *LANGUAGES]
    done = subprocess.run(command, env=terminals.environment, capture_output=True, text=True, timeout=WAIT_S, check=True)
    *replies, failure = done.stdout.splitlines()
    assert sorted(replies) == sorted(f"4 words, counted in {language}" for language in ("Python", *LANGUAGES))
    assert "there are no words" in failure
    for service in services:
        service.terminate()
        assert service.wait(WAIT_S) == 0


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.timeout(600)
def test_a_caller_reads_the_error_of_each_language(language: str, terminals: Terminals) -> None:
    door = terminals.start(sys.executable, "-m", "iris_py", "door", "nats", "--at", "127.0.0.1:0", "--json")
    url = terminals.read_line(door).partition('"url":"')[2].partition('"')[0]
    assert terminals.read_line(terminals.start(*built_service(language), url)) == "serving"
    command = [sys.executable, str(EXAMPLE / "ask.py"), language]
    done = subprocess.run(command, env=terminals.environment, capture_output=True, text=True, timeout=WAIT_S, check=True)
    assert done.stdout.splitlines()[-1].endswith("400 there are no words")


def test_the_page_names_all_files() -> None:
    files = {path.name for path in EXAMPLE.iterdir() if path.is_file()} - {"README.md"}
    page = (EXAMPLE / "README.md").read_text()
    assert [name for name in files if f"`{name}`" not in page] == []
