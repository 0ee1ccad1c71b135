"""The command: its choices, its text, and its exit codes."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from iris_py.cli.doctor import command
from iris_py.cli.outcome import ExitCode
from iris_py.cli.settings import Settings
from iris_py.errors import ConfigurationError
from tests.unit.iris_py.cli.doctor.made_up import FAULTS, MadeUp

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self


class Entered(MadeUp):
    """Surroundings in place of the real ones."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        pass


def run(made_up: MadeUp, only: Sequence[str] = (), skip: Sequence[str] = (), **options: Any) -> int:
    arguments = {"fix_hints": False, "strict": False, "as_json": False, **options}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "Actual", lambda _settings: made_up)
        return asyncio.run(command.doctor(Settings(), None, only=only, skip=skip, **arguments))


def test_a_line_for_each_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(Entered(), only=["config,udp"]) == ExitCode.OK
    assert capsys.readouterr().out.splitlines() == [
        "ok       config         network 'default', listening on 10.0.0.1:7400, 1 seed",
        "ok       udp            3 of 3 nodes send them back",
    ]


def test_a_fault_has_advice_and_on_demand_commands(capsys: pytest.CaptureFixture[str]) -> None:
    made_up = Entered()
    FAULTS["port"]["TCP"](made_up)
    assert run(made_up, only=["port"], fix_hints=True) == ExitCode.FAULT
    line, hint = capsys.readouterr().out.splitlines()
    assert line.startswith("FAULT    port           a node cannot listen on 10.0.0.1:7400 (TCP: Address already in use")
    assert line.endswith("--listen or IRIS_LISTEN.")
    assert hint.strip() == "$ ss -ltnp 'sport = :7400'"


def test_what_one_fault_leaves_undone_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    made_up = Entered()
    FAULTS["udp"]["blocked"](made_up)
    assert run(made_up, only=["udp", "mtu", "cluster"]) == ExitCode.FAULT
    fault, *skipped = capsys.readouterr().out.splitlines()
    assert fault.startswith("FAULT    udp ")
    assert skipped == [
        "skipped  mtu: because of `udp`",
        "skipped  cluster: because no cluster was named: `iris doctor NAME` looks at one",
    ]


def test_warnings_are_faults_only_to_the_strict(capsys: pytest.CaptureFixture[str]) -> None:
    made_up = Entered(ignored_ones=("the environment variable IRIS_LISTNE has no effect.",))
    assert run(made_up, only=["config"]) == ExitCode.OK
    assert run(made_up, only=["config"], strict=True) == ExitCode.FAULT
    assert capsys.readouterr().out.count("warning") == 2


def test_json_has_an_object_for_each_check_and_a_summary(capsys: pytest.CaptureFixture[str]) -> None:
    made_up = Entered()
    FAULTS["udp"]["blocked"](made_up)
    assert run(made_up, only=["udp", "mtu"], as_json=True) == ExitCode.FAULT
    udp, mtu, summary = map(json.loads, capsys.readouterr().out.splitlines())
    assert (udp["kind"], udp["check"], udp["status"]) == ("check", "udp", "FAULT")
    assert (mtu["status"], mtu["because"]) == ("skipped", "udp")
    assert summary == {"kind": "summary", "ok": 0, "warnings": 0, "faults": 1, "skipped": 1}


def test_what_comes_from_others_steers_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    made_up = Entered(secret_error="\x1b[2Jno secret\n. Correct it.")
    run(made_up, only=["secret"])
    assert "\x1b" not in capsys.readouterr().out


def test_a_check_that_does_not_exist() -> None:
    with pytest.raises(ConfigurationError, match="no check 'udb'"):
        run(Entered(), only=["udb"])


class Terminal(io.StringIO):
    """A standard error that a person sees."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_what_is_waited_for_and_keeps_none_of_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    run(Entered(), only=["config", "limits"])
    assert "1/2 the settings ..." in terminal.getvalue()
    assert "2/2 descriptors and threads ..." in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")
    assert "..." not in capsys.readouterr().out
