"""The handler that a command line names: found, or an error that says what to write."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

import iris_py
from iris_py.cli.serve.handlers import HandlerTarget, imported_files, load_target, parse_target
from iris_py.errors import ConfigurationError
from iris_py.service import Service

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROGRAM = """\
import iris_py
from iris_py.service import Service

async def upper(request):
    return request.payload.upper()

class Shout(iris_py.Handler):
    async def on_request(self, request):
        return request.payload.upper()

class services:
    shout = Shout()

number = 7
service = Service()
"""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    before, path = set(sys.modules), list(sys.path)
    (tmp_path / "program_to_serve.py").write_text(PROGRAM)
    (tmp_path / "needy_program.py").write_text("import no_such_package_anywhere\n")
    (tmp_path / "empty_program.py").write_text("from os.path import join\nnumber = 7\n")
    (tmp_path / "failing_program.py").write_text("1 / 0\n")
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("text", "target"),
    [("a:b", HandlerTarget("a", ("b",))), ("shop.prices:services.quote", HandlerTarget("shop.prices", ("services", "quote")))],
)
def test_targets(text: str, target: HandlerTarget) -> None:
    assert parse_target(text) == target
    assert parse_target(text).name == text.split(".")[-1].split(":")[-1]


@pytest.mark.parametrize("text", ["", "a", "a:", ":b", "a:b c", "a/b.py:c", "a:b:c", "a..b:c"])
def test_no_targets(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is not MODULE:HANDLER, such as"):
        parse_target(text)


def test_a_file_in_place_of_a_module() -> None:
    with pytest.raises(ConfigurationError, match=r"write the module that it is in: shout:NAME"):
        parse_target("shout.py")


def test_handlers_are_found(project: Path) -> None:
    assert issubclass(load_target(parse_target("program_to_serve:Shout"), str(project)), iris_py.Handler)
    assert isinstance(load_target(parse_target("program_to_serve:services.shout"), str(project)), iris_py.Handler)
    assert isinstance(load_target(parse_target("program_to_serve:service"), str(project)), Service)
    assert callable(load_target(parse_target("program_to_serve:upper"), str(project)))
    files = imported_files(parse_target("program_to_serve:upper"))
    assert str(project / "program_to_serve.py") in files
    assert os.__file__ not in files
    assert pytest.__file__ not in files


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("no_such_program:x", "there is no module 'no_such_program' in"),
        ("program_to_serve:uper", "program_to_serve has no 'uper'. Did you mean 'upper'?"),
        ("program_to_serve:services.x", r"program_to_serve.services has no 'x'. Use one of: shout"),
        ("program_to_serve:nothing", r"program_to_serve has no 'nothing'. Use one of: upper, Shout, service\.$"),
        ("empty_program:x", "empty_program has no 'x'. Nothing in it can be served."),
        ("program_to_serve:number", "number is 7, which is not a handler"),
        ("program_to_serve:services", "which is not a handler"),
        ("needy_program:x", "the module 'needy_program' needs 'no_such_package_anywhere'"),
        ("failing_program:x", "the module 'failing_program' cannot be imported: ZeroDivisionError"),
    ],
)
def test_mistakes_say_what_to_do(project: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        load_target(parse_target(text), str(project))


def test_the_files_of_a_failure_are_known(project: Path) -> None:
    target = parse_target("failing_program:x")
    with pytest.raises(ConfigurationError) as caught:
        load_target(target, str(project))
    assert str(project / "failing_program.py") in imported_files(target, caught.value)
