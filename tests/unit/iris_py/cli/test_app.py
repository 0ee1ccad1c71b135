"""The command line: what it understands, and how it says that it does not."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest
import typer
from typer.main import get_command

from iris_py.build import build
from iris_py.cli import commands
from iris_py.cli.app import make_app, run
from iris_py.cli.settings import Settings
from iris_py.errors import ConfigurationError
from iris_security import AdministrationKey, CloudKey, Secret, parse_administrator

#: No key of anybody.
KEY = AdministrationKey(b"a" * 32)
NAMES = [name for names in commands.COMMANDS.values() for name in names]


def test_help_leaves_no_stand_ins_of_modules_behind() -> None:
    program = (
        "from iris_py.cli.app import run; run(['--help']); import rich.markdown, rich.traceback; "
        "assert rich.markdown.__file__ and rich.traceback.__file__"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, timeout=60)


@pytest.mark.parametrize(
    "arguments", [["--help"], ["-h"], ["keys", "-h"], *([command, "--help"] for command in NAMES), ["keys", "new", "--help"]]
)
def test_help(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 0
    captured = capsys.readouterr()
    assert "Usage: iris" in captured.out
    assert captured.err == ""


@pytest.mark.parametrize(
    "command", ["node", "join", "request", "broadcast", "survey", "tunnel", "publish", "subscribe", "gateway", "members"]
)
def test_common_options_and_exit_codes_are_in_every_help(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    run([command, "--help"])
    text = capsys.readouterr().out
    for option in (
        "--network",
        "--secret-file",
        "--secret-command",
        "--listen",
        "--seed",
        "--zone",
        "--no-discovery",
        "--config",
        "--context",
        "--verbose",
        "--json",
    ):
        assert option in text
    assert "Exit codes" in text
    assert "--secret " not in text, "arguments are visible to every user of the machine"


def test_modules_are_imported_when_they_are_needed() -> None:
    """A request from a shell is not to wait for what draws progress bars."""
    program = "import sys, iris_py.cli.app as app; app.run(['request', 'a', 'b', '--listen', 'c']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert {"iris_py.cli.request", "iris_py.cli.commands.request"} <= loaded
    assert not loaded & {"rich", "rich.progress", "iris_py.cli.commands.demo", "iris_py.cli.join"}


@pytest.mark.parametrize("width", ["60", "120"])
@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]], ids=str)
def test_the_overview_says_what_the_whole_command_line_says(
    arguments: list[str], width: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is made without the options of the commands, for these take a third of its time."""
    monkeypatch.setenv("COLUMNS", width)
    run(arguments)
    shown = capsys.readouterr()
    with suppress(typer.Exit):
        cast("Any", get_command(make_app()))(arguments, standalone_mode=False, prog_name="iris")
    assert shown == capsys.readouterr()
    assert all(name in shown.out for name in NAMES)


@pytest.mark.parametrize("arguments", [["keys", "path"], ["simulate", "--suite", "all", "--nodes", "2"]], ids=" ".join)
def test_garbage_is_collected_while_a_command_works(arguments: list[str]) -> None:
    program = (
        f"import atexit, gc, sys; sys.argv[1:] = {arguments}; from iris_py.cli import main; "
        "atexit.register(lambda: print(gc.isenabled(), gc.get_freeze_count() > 0)); main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "True True"


def test_each_command_is_the_module_of_its_name() -> None:
    """And so each module there is a command: none is left out of the table."""
    folder = Path(commands.__file__).parent
    assert sorted(NAMES) == sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__")
    found: dict[str, Any] = cast("Any", get_command(make_app())).commands
    assert list(found) == NAMES
    for name, command in found.items():
        alone: dict[str, Any] = cast("Any", get_command(make_app([name]))).commands
        assert list(alone) == [name]
        assert [each.name for each in alone[name].params] == [each.name for each in command.params]


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_version(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([option]) == 0
    assert capsys.readouterr().out == f"iris {build()}\n"


@pytest.mark.parametrize("arguments", [[], ["keys"]])
def test_nothing_asked_shows_help(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    assert "Usage: iris" in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["frob"], "No such command 'frob'. See `iris --help`."),
        (["nod"], "Did you mean 'node', 'nodes'? See `iris --help`."),
        (["--frob"], "See `iris --help`."),
        (["request"], "Missing argument 'NAME'. See `iris request --help`."),
        (["request", "a"], "there is nothing to send: give TEXT"),
        (["request", "a", "b", "c"], "unexpected extra argument"),
        (["request", "a", "b", "--timeout", "soon"], "'--timeout'"),
        (["request", "a", "b", "--timeout", "0"], "'--timeout'"),
        (["request", "a", "b", "--secret", "x"], "No such option"),
        (["join", "a"], "Missing option '--exec'"),
        (["join", "a", "--exec", "cat", "--concurrency", "0"], "'--concurrency'"),
        (["demo", "--members", "0"], "'--members'"),
        (["demo", "--timeout", "9"], "'--timeout': it needs --spark"),
        (["keys", "old"], "No such command 'old'. See `iris keys --help`."),
        (["keys", "add"], "'FILE': give FILE, or --administration-key for the running network"),
        (["keys", "rotate", "FILE", "--administration-key", "KEY"], "leave it or FILE out"),
        (["keys", "list", "FILE", "--running"], "'--running': a file is not a running network"),
        (["keys", "retire", "--administration-key", KEY.text], "is a secret, not the path"),
        (["keys", "public", "nowhere"], "FILE: nowhere cannot be read"),
        (["keys", "public", CloudKey(b"c" * 32).text], "is a secret, not the path"),
        (["keys", "retire", "--administration-key", "nowhere"], "--administration-key: nowhere cannot be read"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert words in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.shows_secrets
def test_new_secret(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["keys", "new"]) == 0
    first = capsys.readouterr().out
    assert Secret.parse(first).text + "\n" == first
    assert run(["keys", "new", "--json"]) == 0
    assert Secret.parse(json.loads(capsys.readouterr().out)["secret"]).text != first.strip()
    path = tmp_path / "secret"
    assert run(["keys", "new", "--output", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert run(["keys", "new", "--output", str(path)]) == 2
    assert "exists already" in capsys.readouterr().err


@pytest.mark.shows_secrets
def test_new_administration_key(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["keys", "administrator"]) == 0
    key, public = capsys.readouterr().out.splitlines()
    assert AdministrationKey.parse(key).administrator == parse_administrator(public)
    assert run(["keys", "administrator", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert AdministrationKey.parse(said["key"]).administrator_text == said["administrator"] != public
    path = tmp_path / "key"
    assert run(["keys", "administrator", "-o", str(path)]) == 0
    assert capsys.readouterr().out == f"{AdministrationKey.parse(path.read_text()).administrator_text}\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert run(["keys", "administrator", "-o", str(path)]) == 2
    for wrong in ("a secret", "two lines"):
        path.unlink()
        path.write_text(Secret(b"s" * 32).text if wrong == "a secret" else f"{key}\n{key}\n")
        path.chmod(0o600)
        assert run(["keys", "add", "--administration-key", str(path)]) == 2
        said = capsys.readouterr().err
        assert "administration key" in said
        assert Secret(b"s" * 32).text not in said
        assert key not in said


@pytest.mark.shows_secrets
def test_new_key_of_a_cloud(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["keys", "identity"]) == 0
    captured = capsys.readouterr()
    key = CloudKey.parse(captured.out)
    assert captured == (f"{key.text}\n", f"{key.public_text}\n")
    assert run(["keys", "identity", "--json"]) == 0
    captured = capsys.readouterr()
    said = json.loads(captured.out)
    assert CloudKey.parse(said["identity"]).public_text == said["public"] != key.public_text
    assert captured.err == ""
    path = tmp_path / "us.identity"
    assert run(["keys", "identity", "-o", str(path)]) == 0
    key = CloudKey.parse(path.read_text())
    assert capsys.readouterr() == (f"{key.public_text}\n", "")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert run(["keys", "identity", "-o", str(path)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert CloudKey.parse(path.read_text()) == key


def test_the_public_half_of_the_key_of_a_cloud(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    key, path = CloudKey(b"c" * 32), tmp_path / "us.identity"
    path.write_text(f"# of us\n{key.text}\n")
    path.chmod(0o600)
    assert run(["keys", "public", str(path)]) == 0
    assert capsys.readouterr() == (f"{key.public_text}\n", "")
    assert run(["keys", "public", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "kind": "public",
        "public": key.public_text,
        "cloud": key.cloud_id.hex(),
    }


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (Secret(b"s" * 32).text, 'starts with "irisidp1."'),
        (KEY.text, 'starts with "irisidp1."'),
        (CloudKey(b"c" * 32).public_text, "this is the public half"),
        (CloudKey(b"c" * 32).text[:-1], "has 48 characters"),
        (f"{CloudKey(b'c' * 32).text}\n" * 2, "holds 2 lines"),
        ("", "holds 0 lines"),
    ],
    ids=["a secret", "an administration key", "a public key", "cut off", "two of them", "nothing"],
)
def test_a_file_without_the_key_of_a_cloud(
    content: str, words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "us.identity"
    path.write_text(content)
    path.chmod(0o600)
    assert run(["keys", "public", str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert words in captured.err
    assert "iris keys identity" in captured.err
    assert not content or content not in captured.err


def test_path_of_the_secret(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert run(["keys", "path"]) == 0
    assert capsys.readouterr().out == f"{tmp_path}/iris/secret\n"
    assert run(["keys", "path", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"kind": "path", "path": f"{tmp_path}/iris/secret", "exists": False}
    assert list(tmp_path.iterdir()) == []


def test_settings_leave_what_is_not_said_to_others(tmp_path: Path) -> None:
    assert set(Settings().connect_arguments().values()) == {None}
    words = {"seeds": ["a:1", "b:2"], "discovery": False, "secret_file": tmp_path, "zone": "eu"}
    assert Settings(words, tmp_path / "iris.toml", verbose=2).as_options() == [
        *("--secret-file", str(tmp_path), "--seed", "a:1", "--seed", "b:2", "--zone", "eu", "--no-discovery"),
        *("--config", str(tmp_path / "iris.toml"), "--verbose", "--verbose"),
    ]
    said = Settings({"seeds": ["a:1"], "discovery": False}).connect_arguments()
    assert (said["seeds"], said["discovery"]) == (["a:1"], False)
    assert Settings({"secret_command": "pass show 'a b'"}).connect_arguments()["secret_command"] == ("pass", "show", "a b")
    with pytest.raises(ConfigurationError, match="--secret-command cannot be split"):
        Settings({"secret_command": "pass 'show"}).connect_arguments()
    with pytest.raises(ConfigurationError, match="--secret-file"):
        Settings({"secret_file": tmp_path / "none"}).connect_arguments()


@pytest.mark.parametrize(
    "arguments",
    [
        *(["keys", command] for command in ("list", "add", "rotate", "retire")),
        ["keys", "new", "-o"],
        ["members", "--secret-file"],
        ["members", "--config"],
    ],
    ids=" ".join,
)
def test_a_secret_in_place_of_a_path_is_refused_and_not_shown(
    arguments: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    secret = Secret(bytes(range(32))).text
    assert run([*arguments, secret]) == 2
    captured = capsys.readouterr()
    assert "is a secret, not the path of a file" in captured.err
    assert secret not in captured.out + captured.err
    assert list(tmp_path.iterdir()) == []
