"""The rule of output: lines of JSON, tables on a terminal, plain columns elsewhere."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from typing import TYPE_CHECKING

import msgspec
import pytest

from iris_py.cli.outcome import ExitCode, execute
from iris_py.cli.output import Column, Line, Output, PayloadLine, payload_fields
from iris_py.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path


class Row(Line, tag="row"):
    """Anything with a name and a number."""

    name: str
    number: int = 0


class Reply(PayloadLine, tag="reply"):
    """Anything with bytes."""

    member: str


COLUMNS = (
    Column[Row]("name", lambda row: row.name),
    Column[Row]("number", lambda row: f"{row.number:,}", is_number=True),
)
ROWS = [Row(name="a [b]", number=7), Row(name="", number=12_000)]


def test_json_is_one_object_a_line_with_its_kind(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    output = Output(as_json=True)
    output.table(ROWS, COLUMNS)
    output.line(Reply(member="é", **payload_fields(b"caf\xc3\xa9\n")), text="never seen")
    output.line(Reply(member="m", **payload_fields(b"\xff")))
    lines = capsysbinary.readouterr().out.splitlines()
    assert [json.loads(line) for line in lines] == [
        {"kind": "row", "name": "a [b]", "number": 7},
        {"kind": "row", "name": "", "number": 12_000},
        {"kind": "reply", "member": "é", "payload": "café\n"},
        {"kind": "reply", "member": "m", "payload_base64": "/w=="},
    ]


def test_columns_are_aligned_and_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output(as_json=False)
    output.table([*ROWS, Row(name="x\x1b[2J\n", number=1)], COLUMNS)
    output.line(ROWS[0], text="a line")
    output.line(ROWS[0])
    output.table([], COLUMNS)
    assert capsys.readouterr().out == "a [b]          7\n-         12,000\nx\\x1b[2J       1\na line\n"


class Terminal(io.TextIOWrapper):
    """A terminal as programs see it."""

    def __init__(self) -> None:
        self.content = io.BytesIO()
        super().__init__(self.content, encoding="utf-8", write_through=True)

    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_table_as_wide_as_it(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", "24")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    Output(as_json=False).table([*ROWS, Row(name="long " * 9)], COLUMNS)
    shown = re.sub(r"\x1b\[[01]m", "", terminal.content.getvalue().decode())  # bold is no colour
    assert "\x1b" not in shown
    lines = shown.splitlines()
    assert lines[0].split() == ["name", "number"]
    assert lines[1].split() == ["a", "[b]", "7"]
    assert max(map(len, lines)) <= 24


def test_a_reader_that_has_seen_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)

        async def command() -> int:
            Output(as_json=True).line(ROWS[0])
            return 0

        assert execute(command) == ExitCode.BROKEN_PIPE


def test_output_into_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "out"
    path.write_text("what was there before")
    with Output(as_json=True, path=path) as output:
        output.line(ROWS[0])
        assert msgspec.json.decode(path.read_bytes()) == {"kind": "row", "name": "a [b]", "number": 7}
        assert not output.is_terminal
    assert capsys.readouterr().out == ""
    with pytest.raises(ConfigurationError, match=r"--output: .* cannot be written: .*Correct the path"):
        Output(as_json=True, path=tmp_path / "none" / "out")
