"""docs/bench.md has commands that are understood, and the bounds of the code."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any, cast

import pytest
from typer.main import get_command

from iris_py.cli.app import make_app
from iris_py.cli.bench.latency_histogram import ERROR

PAGE = (Path(__file__).parents[5] / "docs" / "bench.md").read_text()
COMMANDS = [line.partition("#")[0].strip() for line in PAGE.splitlines() if line.startswith("iris bench ")]


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_is_understood(command: str) -> None:
    _iris, _bench, name, *arguments = shlex.split(command)
    group = cast("Any", get_command(make_app(["bench"]))).commands["bench"]
    group.commands[name].make_context(name, arguments)  # which raises for what it does not understand


def test_the_error_of_percentiles_is_that_of_the_code() -> None:
    assert {float(found) for found in re.findall(r"at most ([\d.]+) %", PAGE)} == {round(ERROR * 100, 1)}
