"""The reference of the command line is that of the code, and what it shows is right."""

from __future__ import annotations

import itertools
import re
import shlex
from typing import Any, cast

import pytest
from typer.main import get_command

from iris_py.cli.app import make_app
from iris_py.cli.outcome import EXIT_CODES_HELP, ExitCode
from tests import cli_reference

COMMANDS = dict(cli_reference.all_commands())
STALE = "the page or the schemas are not those of the code: run `make reference`"


def test_the_page_is_made_of_the_code() -> None:
    assert cli_reference.PAGE.read_text() == cli_reference.make_page(), STALE


def test_the_schemas_are_made_of_the_code() -> None:
    found = {path.name: path.read_text() for path in cli_reference.SCHEMAS.iterdir()}
    assert found == cli_reference.make_schemas(), STALE


def test_every_command_has_json_with_a_schema() -> None:
    with_json = {name for name, command in COMMANDS.items() if any("--json" in each.opts for each in command.params)}
    assert with_json == set(COMMANDS)
    assert set(cli_reference.find_lines()) == with_json


@pytest.mark.parametrize("command", sorted(cli_reference.find_lines()))
def test_kinds_are_told_apart_and_described(command: str) -> None:
    kinds: tuple[Any, ...] = cli_reference.find_lines()[command]
    tags = [kind.__struct_config__.tag for kind in kinds]
    assert len(set(tags)) == len(tags)
    for kind in kinds:
        assert kind.__struct_config__.tag_field == "kind"
        assert kind.__doc__
        assert re.fullmatch(r"[a-z-]+", kind.__struct_config__.tag)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_help_has_an_example_that_is_understood(name: str) -> None:
    examples = cli_reference.examples_of(COMMANDS[name])
    assert examples
    for example in examples:
        words = shlex.split(example[example.index("iris ") :], comments=False)
        command, *arguments = itertools.takewhile(lambda word: word not in ("|", "<", ">", "&"), words)
        assert command == "iris"
        assert f"{example} ".startswith(f"iris {name} ") or f"| iris {name} " in example, example
        found = cast("Any", get_command(make_app()))
        with found.make_context("iris", [], resilient_parsing=True) as context:
            while hasattr(found, "commands"):
                _, found, arguments = found.resolve_command(context, arguments)
            assert found is not None
            found.make_context(name, arguments, parent=context)  # which raises for what it does not understand


@pytest.mark.parametrize("name", COMMANDS)
def test_each_option_is_described(name: str) -> None:
    for each in COMMANDS[name].params:
        if not each.hidden and each.name != "help":
            assert each.help, each.name
            assert each.metavar is not None, each.name


def test_every_exit_code_is_said() -> None:
    said = {int(code) for code in re.findall(r"(\d+) ", EXIT_CODES_HELP)}
    assert said == {int(code) for code in ExitCode} - {ExitCode.BROKEN_PIPE}
