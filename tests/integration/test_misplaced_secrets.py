"""A secret in place of a name on the command line, or in a setting that a command reads: no command repeats it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from iris_py.cli.app import run
from iris_py.cli.outcome import ExitCode
from tests.unit.security.test_text_form import SECRETS

if TYPE_CHECKING:
    from pathlib import Path

SECRET = SECRETS["secret"]
QUIET = ("--no-discovery",)


def said_by(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """Run a command; returns its exit code and all that it has printed, which has no secret in it."""
    code = run(words)
    captured = capfd.readouterr()
    said = captured.out + captured.err
    assert not any(secret.partition(".")[2][:20] in said for secret in SECRETS.values()), said
    assert "Traceback" not in said
    return code, said


@pytest.mark.parametrize(
    "words",
    [
        ("doctor", SECRET, *QUIET),
        ("doctor", f"databases@{SECRET}", *QUIET),
        ("doctor", f"{SECRET}@eu", "--json", *QUIET),
        ("doctor", "--only", SECRET),
        ("doctor", "--network", SECRET),
        ("request", SECRET, "x", *QUIET),
        ("request", f"databases@{SECRET}", "x", *QUIET),
        ("broadcast", SECRET, "x", *QUIET),
        ("publish", SECRET, "x", *QUIET),
        ("subscribe", f"{SECRET}.>", *QUIET),
        ("members", SECRET, *QUIET),
        ("join", SECRET, "--exec", "cat", *QUIET),
        ("request", "databases", "x", "--network", SECRET),
        ("request", "databases", "x", "--zone", SECRET),
        ("request", "databases", "x", "--name", SECRET),
        ("request", "databases", "x", "--seed", SECRET),
        ("request", "databases", "x", "--listen", SECRET),
        ("request", "databases", "x", "--context", SECRET),
        ("request", "databases", "x", "--config", SECRET),
        ("request", "databases", "x", "--timeout", SECRET),
        (SECRET,),
        ("nodes", f"--{SECRET}"),
        ("gateway", SECRET),
        ("serve", SECRET),
        ("serve", f"{SECRET}:handler"),
        ("ping", SECRET, *QUIET),
        ("trace", SECRET, *QUIET),
        ("survey", SECRET, "x", *QUIET),
        ("tunnel", SECRET, *QUIET),
        ("top", "--once", "--cluster", SECRET, *QUIET),
        ("top", "--once", "--node", SECRET, *QUIET),
        ("nodes", "--in", SECRET, *QUIET),
        ("topics", f"{SECRET}.>", *QUIET),
        ("monitor", "--kind", SECRET, *QUIET),
        ("federation", "explain", f"{SECRET}@eu", *QUIET),
    ],
    ids=lambda words: " ".join(words).replace(SECRET, "SECRET").replace(" --no-discovery", ""),
)
@pytest.mark.parametrize("form", [(), ("--log-json",)], ids=["text", "json"])
def test_no_command_repeats_a_secret_in_place_of_a_name(
    home: Path, capfd: pytest.CaptureFixture[str], words: tuple[str, ...], form: tuple[str, ...]
) -> None:
    code, said = said_by(capfd, *words, *form)
    others = {"doctor": ExitCode.FAULT, "nodes": ExitCode.NO_MEMBERS, "topics": ExitCode.NO_MEMBERS}  # one checks, two filter
    assert code in (ExitCode.USAGE, others.get(words[0])), said


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS.keys())
@pytest.mark.parametrize("variable", ["IRIS_NETWORK", "IRIS_ZONE", "IRIS_NAME", "IRIS_LISTEN", "IRIS_SEEDS", "IRIS_OBSERVE"])
def test_the_doctor_names_the_variable_and_not_the_secret_in_it(
    home: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, variable: str, secret: str
) -> None:
    monkeypatch.setenv(variable, secret)
    for words in (("doctor",), ("doctor", "--json"), ("config", "show")):
        code, said = said_by(capfd, *words)
        assert code != ExitCode.OK
        assert f"{variable} holds a secret or a private key" in said


def test_a_gateway_names_the_line_of_a_secret_in_its_file(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = home / "federation.toml"
    for secret in SECRETS.values():
        path.write_text(f'[gateway]\nname = "us"\nidentity_file = "key"\n\n[cloud."{secret}"]\nkeys = []\n')
        path.chmod(0o600)
        code, said = said_by(capfd, "gateway", str(path), "--check")
        assert code == ExitCode.USAGE
        assert "federation.toml:5: this line contains a secret" in said
