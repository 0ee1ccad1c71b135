"""The rule of output: lines of JSON, tables on a terminal, plain columns elsewhere."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from iris_py.cli import lists, request, topology
from iris_py.cli.outcome import ExitCode, execute
from iris_py.cli.output import GAP, Column, Output
from iris_py.errors import ConfigurationError
from iris_py.json_lines import Line, PayloadLine, payload_fields
from iris_py.overview.clusters import ClusterLine, MemberStatsLine
from iris_py.overview.nodes import NodeLine
from iris_py.overview.topics import TopicLine
from iris_py.overview.topology import TopologyNodeLine

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


NODE = NodeLine(
    id="0bfe65865dedff8aec3c24b93e7116c3",
    name="web-1/orders.py",
    address="10.20.30.40:47400",
    zone="eu/a",
    version="0.10.12",
    uptime_s=86_400 * 123.4,
    unix_s=0.0,
    links=128,
    clusters=12,
    subscriptions=3,
    seals="541ea8b28adc7c04",
    accepts=["362c335a8ce3e066"],
    round_trip_s=0.0123,
)
CLUSTER = ClusterLine(
    name="orders.checkout",
    members=1234,
    requests_per_s=123_456,
    failed_per_s=1234.5,
    errors_per_s=1234.5,
    error="RemoteError",
    waiting=12,
    is_unserved=False,
    running=12_345,
    queued=12_345,
    rejected=12_345,
    p99_s=0.0123,
    tunnels_open=3,
    tunnels_max=64,
    tunnel_holders={},
)


#: Every table of a command, with a line as long as usual ones are: IPv4, a zone of two levels, large numbers.
TABLES: Any = {
    "nodes": (lists._NODE_COLUMNS, NODE),
    "clusters": (lists.CLUSTER_COLUMNS, CLUSTER),
    "topics": (
        lists._TOPIC_COLUMNS,
        TopicLine(
            pattern="orders.*.created",
            subscriptions=1234,
            delivered_per_s=123_456,
            dropped=12_345,
            queued=12_345,
            oldest_s=12.3,
            is_promoted=True,
        ),
    ),
    "members --stats": (
        lists._MEMBER_COLUMNS,
        MemberStatsLine(
            id=NODE.id,
            name=NODE.name,
            address=NODE.address,
            zone=NODE.zone,
            queued=1024,
            running=128,
            concurrency=128,
            requests_per_s=12_345,
            failed=12_345,
            rejected=12_345,
            p99_s=0.0123,
            weight=1.5,
            round_trip_s=0.0123,
        ),
    ),
    "members": (
        request._COLUMNS,
        request.MemberLine(id=NODE.id, name=NODE.name, address=NODE.address, zone=NODE.zone, is_stand_in=False),
    ),
    "topology": (
        topology._COLUMNS,
        topology._Row(
            "eu-west/a",
            TopologyNodeLine(
                id=NODE.id,
                name=NODE.name,
                address=NODE.address,
                zone=NODE.zone,
                version=NODE.version,
                links=["a"] * 128,
                clusters=["orders", "mail"],
                state="told",
            ),
        ),
    ),
}


@pytest.mark.parametrize("name", TABLES)
def test_usual_lines_fit_80_columns(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    columns, line = TABLES[name]
    Output(as_json=False).table([line] * 3, columns)
    plain = capsys.readouterr().out.splitlines()
    assert len(plain) == 3
    # Without a terminal no column is left out, and the name of a node may make a row of programs longer.
    has_name = "name" in [column.title for column in columns]
    assert max(map(len, plain)) <= 80 + has_name * (len(NODE.name) + len(GAP))
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    Output(as_json=False).table([line] * 3, columns)
    shown = terminal.content.getvalue().decode().splitlines()
    assert len(shown) == 4, "each in one line, below the heads"
    assert max(map(len, shown)) <= 80
    assert shown[1].split()[0] == plain[0].split()[0]
    left_out = [column.title for column in columns if column.title not in shown[0]]
    remark = capsys.readouterr().err
    named = f"iris: columns left out of a narrow terminal: {', '.join(left_out)}. A wider terminal or --json shows them.\n"
    assert remark == (named if left_out else "")


@pytest.mark.parametrize("width", range(10, 100, 7))
def test_columns_that_do_not_fit_are_left_out_by_their_rank(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    columns, line = TABLES["nodes"]
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "dumb")
    Output(as_json=False).table([line], columns)
    shown = terminal.content.getvalue().decode()
    assert max(map(len, shown.splitlines())) <= width
    ranks = [column.rank for column in columns if column.rank and column.title in shown]
    assert ranks == list(range(1, len(ranks) + 1)), "those of the highest ranks went first"


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
