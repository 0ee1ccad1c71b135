"""The conversion of plain values gives what typer gives, for every option of every command."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any, cast

import pytest
from typer.main import get_command

from iris_py.cli.app import make_app
from iris_py.cli.conversion import convert_plainly

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: Texts as a user may give them: plain ones, and those that need typer.
TEXTS = [
    *("", "a", "-", "wait", "raise", "drop_oldest", "*", "eu/west", "127.0.0.1:7000", "NAME=VALUE", "a\0b", " 5 "),
    *("0", "1", "16", "007", "-1", "+1", "1.5", "0.001", "0.0001", ".5", "5.", "1e3", "1_000", "nan", "inf", "99999999999"),
    *("999999999999999999999999", "1024", "1025", "true", "no", "٣"),
]


def parameters() -> Iterator[tuple[str, Any, Any, Any]]:
    """Yield each option and argument: its name, a context, as typer makes it, and with plain values converted."""

    def walk(path: str, plain: Any, quick: Any) -> Iterator[tuple[str, Any, Any, Any]]:
        context = plain.context_class(plain)
        pairs = zip(plain.get_params(context), quick.get_params(context), strict=True)
        yield from ((f"{path} {one.name}", context, one, other) for one, other in pairs)
        for name in getattr(plain, "commands", {}):
            yield from walk(f"{path} {name}", plain.commands[name], quick.commands[name])

    quick = cast("Any", get_command(make_app()))
    convert_plainly(quick)
    yield from walk("iris", cast("Any", get_command(make_app())), quick)


def outcome(parameter: Any, context: Any, value: object) -> tuple[object, ...]:
    """Return the converted value with its types, or the text of the error."""
    parameter.callback = None  # it would print, and end the command
    try:
        found = parameter.process_value(context, value)
    except Exception as exc:
        return type(exc).__name__, str(exc)
    return type(found), repr(found), [type(each) for each in found] if isinstance(found, list) else None


def test_every_option_of_every_command_is_converted_as_typer_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there, unreadable = tmp_path / "there", tmp_path / "unreadable"
    there.touch()
    unreadable.touch(mode=0o000)
    monkeypatch.chdir(tmp_path)
    compared = 0
    for name, context, plain, quick in parameters():
        several = plain.multiple or plain.nargs == -1
        values = [*TEXTS, str(there), str(unreadable), "missing", str(tmp_path)]
        if plain.type_descriptor.annotation is bool:
            values = ["true", "maybe"]  # flags have no text
        for value in [None, plain.default, *values]:
            given = [value] if several and isinstance(value, str) else value
            assert outcome(quick, context, given) == outcome(plain, context, given), (name, given)
            compared += 1
    assert compared > 10_000


@pytest.mark.parametrize(
    "arguments",
    [
        ["version", "--json"],
        ["request", "a", "b", "--listen", "c", "--timeout", "2.5", "--idempotent", "--on-full", "raise", "--seed", "d"],
        ["subscribe", "a", "b", "--listen", "c"],
        ["keys", "public", "nowhere"],
        ["join", "--help"],
    ],
    ids=" ".join,
)
def test_plain_values_do_not_import_pydantic(arguments: list[str]) -> None:
    program = f"import sys, iris_py.cli.app as app; app.run({arguments!r}); print('\\npydantic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
