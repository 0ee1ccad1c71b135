"""`iris config`, contexts and completion: the settings of this machine, and where they come from."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from dataclasses import fields
from importlib.metadata import version
from typing import TYPE_CHECKING

import msgspec
import pytest

from iris_py.cli.app import run
from iris_py.cli.config import ConfigurationFile
from iris_py.cli.contexts import context_names
from iris_py.config import Config
from iris_py.settings.table import FILE_KEYS, SETTINGS, VARIABLES
from iris_security import Secret
from tests.leaks import find_secrets

if TYPE_CHECKING:
    from pathlib import Path

SECRET = Secret(bytes(range(32))).text


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of configuration files of a user who has set nothing yet."""
    for name in [name for name in os.environ if name.startswith("IRIS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "iris").mkdir(mode=0o700)
    return tmp_path / "iris"


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


def test_each_setting_with_its_origin(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(
        folder / "staging.toml",
        f'network = "file"\nlisten = "127.0.0.1:7400"\nsecret = "{SECRET}"\nzone = "file"\n[clusters]\ndb = "{SECRET}"\n',
    )
    (folder / "more").mkdir()
    write(folder / "more" / "logs", SECRET)
    monkeypatch.setenv("IRIS_CLUSTERS_DIRECTORY", str(folder / "more"))
    monkeypatch.setenv("IRIS_ZONE", "variable")
    monkeypatch.setenv("IRIS_NETWORK", "variable")
    options = ["config", "show", "--context", "staging", "--network", "argument", "--seed", "a:1", "--seed", "b:2"]
    assert run([*options, "--json"]) == 0
    out, error = capsys.readouterr()
    *lines, summary = map(json.loads, out.splitlines())
    found = {line["name"]: (line["value"], line["source"], line.get("place")) for line in lines}
    assert (
        found.items()
        >= {
            "network": ("argument", "argument", "--network"),
            "seeds": (["a:1", "b:2"], "argument", "--seed"),
            "zone": ("variable", "variable", "IRIS_ZONE"),
            "listen": ("127.0.0.1:7400", "file", f"{path}:2"),
            "secret": ("set", "file", f"{path}:3"),
            "clusters": (["db", "logs"], "variable", f"IRIS_CLUSTERS_DIRECTORY, {path}:5"),
            "discovery": (True, "default", None),
        }.items()
    )
    hidden = {"keyring", "secret_command", "state_directory", "config_directory", "is_port_shared"}
    assert found.keys() == {field.name for field in fields(Config)} - hidden
    assert summary == {"kind": "summary", "file": str(path), "settings": len(found)}
    assert run(options) == 0
    plain, _ = capsys.readouterr()
    assert f"listen             127.0.0.1:7400  file {path}:2\n" in plain
    assert "discovery          true            default\n" in plain
    assert find_secrets([out, plain, error]) == []


def test_an_option_counts_before_the_variable_that_it_names(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each option of the table, and --config; a new option needs values here."""
    secrets = [str(write(folder / name, SECRET)) for name in ("one", "two")]
    files = [str(write(folder / f"{name}.toml", f'zone = "{name}"\n')) for name in ("one", "two")]
    values = {
        "network": ("network", "option", "variable"),
        "secret_file": ("secret", *secrets),
        "secret_command": ("secret", "one", "two"),
        "listen": ("listen", "127.0.0.1:1", "127.0.0.1:2"),
        "advertise": ("advertise", "127.0.0.1", "127.0.0.2"),
        "seeds": ("seeds", "a:1", "b:2"),
        "zone": ("zone", "option", "variable"),
        "name": ("name", "option", "variable"),
        "discovery": ("discovery", None, "yes"),
        "config": ("zone", *files),
    }
    shown: dict[str, object] = {"secret_file": "set", "secret_command": "set", "advertise": ["127.0.0.1"], "seeds": ["a:1"]}
    shown |= {"discovery": False, "config": "one"}
    options = {setting.name: setting.option_name for setting in SETTINGS if setting.option is not None} | {"config": "--config"}
    assert options.keys() == values.keys()
    for name, option in options.items():
        setting, given, other = values[name]
        with monkeypatch.context() as patch:
            patch.setenv(VARIABLES[name], str(other))
            assert run(["config", "show", "--json", option, *filter(None, [given])]) == 0
        lines = map(json.loads, capsys.readouterr().out.splitlines())
        (line,) = [each for each in lines if each.get("name") == setting]
        assert line["place"] == (f"{files[0]}:1" if name == "config" else option)
        assert line["value"] == shown.get(name, given)


def test_defaults_need_no_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "show"]) == 0
    assert "secret             the per-user secret  default\n" in capsys.readouterr().out
    assert run(["config", "check"]) == 0
    assert capsys.readouterr().out == f"there is no {folder}/iris.toml: a node here uses the defaults\n"


MISTAKES = f"""\
listne = "x"
seeds = [
    "a",
]
secret = "{SECRET[:-1]}"
listen = "0.0.0.0:99"
zone = 3

[clusters]
good = "{SECRET}"
db = "nonsense"
"""


def test_a_check_names_every_mistake_with_its_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(folder / "iris.toml", MISTAKES)
    assert run(["config", "check"]) == 2
    out, error = capsys.readouterr()
    assert out == ""
    lines = error.splitlines()
    for line, (number, words) in zip(
        lines,
        [
            (1, "there is no setting 'listne'. Did you mean 'listen'?"),
            (2, "seeds 'a' is not host:port. Write it like 127.0.0.1:4711"),
            (5, "secret "),
            (7, "zone must be text, not int. Correct it."),
            (11, "clusters.db is not a secret"),
        ],
        strict=True,
    ):
        assert line.startswith(f"iris: {path}:{number}: {words}"), line
    assert find_secrets([error]) == []
    assert run(["config", "check", "--json", str(path)]) == 2
    *mistakes, summary = map(json.loads, capsys.readouterr().out.splitlines())
    assert [each["line"] for each in mistakes] == [1, 2, 5, 7, 11]
    assert summary == {"kind": "summary", "file": str(path), "mistakes": 5}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("zone = \n", ":1: this is not TOML: "),
        ('zone = "a"\n\nzone = "b"\n', ":3: this is not TOML: "),
        (f'"{SECRET}" = "x"\n', ":1: a secret is given in place of the name of a setting"),
        (f'secret = "{SECRET}"\nsecret_file = "x"\n', ":1: secret and secret_file are both given"),
        ('listen = "0.0.0.0:99"\n', ":1: listen: 0.0.0.0:99 accepts connections from other machines"),
        (f'[clusters]\n"{SECRET}" = "x"\n', ":1: a secret is given in place of the name of a cluster"),
    ],
    ids=["no value", "twice", "secret as a key", "two secrets", "open to others", "secret as a cluster"],
)
def test_single_mistakes(folder: Path, capsys: pytest.CaptureFixture[str], text: str, words: str) -> None:
    path = write(folder / "wrong.toml", text)
    assert run(["config", "check", str(path)]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert find_secrets([error]) == []


def test_files_without_a_mistake(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(folder / "good.toml", f'secret = "{SECRET}"\nlisten = "0.0.0.0:7400"\n')
    assert run(["config", "check", "--context", "good"]) == 0
    assert capsys.readouterr().out == f"{path}: no mistakes\n"
    assert run(["config", "check", str(folder / "none.toml")]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_contexts(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(["config", "show", "--context", "production"]) == 2
    assert f"there is no {folder}/production.toml. There is no context yet." in capsys.readouterr().err
    write(folder / "production.toml", 'zone = "p"\n')
    write(folder / "iris.toml", 'zone = "i"\n')
    monkeypatch.setenv("IRIS_CONFIG", "/nowhere")
    assert context_names() == ["iris", "production"]
    assert run(["config", "show", "--context", "production"]) == 0
    assert re.search(r"^zone +p +file .*/production.toml:1$", capsys.readouterr().out, re.MULTILINE)
    for wrong, words in ((["--context", "producton"], "Did you mean 'production'?"), (["--context", "../iris/iris"], "no /")):
        assert run(["config", "show", *wrong]) == 2
        assert words in capsys.readouterr().err
    assert run(["config", "show", "--context", "production", "--config", "x"]) == 2
    assert "--context and --config are both given" in capsys.readouterr().err


def test_the_schema_knows_every_key(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "schema"]) == 0
    document = json.loads(capsys.readouterr().out)
    found = document["$defs"]["ConfigurationFile"]
    assert found["properties"].keys() == set(FILE_KEYS)
    assert found["additionalProperties"] is False
    assert {name: value.get("default") for name, value in found["properties"].items() if name in ("listen", "zone")} == {
        "listen": Config().listen,
        "zone": Config().zone,
    }
    number = found["properties"]["max_message_bytes"]
    assert number["default"] == Config().max_message_bytes
    assert (number["minimum"], number["maximum"]) == (1024, 64 * 1024 * 1024)
    assert set(found["properties"]["observe"]["enum"]) == {"all", "counts", "none"}
    assert found["properties"]["secret_file"]["description"].endswith("A relative path starts in the directory of this file.")
    assert all(len(each["description"]) > 20 for each in found["properties"].values())
    msgspec.convert(tomllib.loads(f'secret = "{SECRET}"\nseeds = ["a:1"]\n[clusters]\na = "b"\n'), ConfigurationFile)
    with pytest.raises(msgspec.ValidationError, match="listne"):
        msgspec.convert({"listne": "x"}, ConfigurationFile)


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("req", ["request"]),
        ("config s", ["show", "schema"]),
        ("node --context st", ["staging"]),
        ("request --context staging da", ["databases"]),
        ("request --context broken da", []),
        ("members da", []),
        ("monitor --kind link_c", ["link_closed"]),
    ],
)
def test_completion_knows_names_of_this_machine(folder: Path, words: str, completed: list[str]) -> None:
    write(folder / "staging.toml", f'[clusters]\ndatabases = "{SECRET}"\nlogs = "{SECRET}"\n')
    write(folder / "broken.toml", "what = ever")
    given = f"iris {words}"
    environment = os.environ | {
        "_IRIS_COMPLETE": "complete_bash",
        "COMP_WORDS": given,
        "COMP_CWORD": str(len(given.split()) - 1),
        "XDG_CONFIG_HOME": str(folder.parent),
    }
    done = subprocess.run([sys.executable, "-m", "iris_py"], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == completed, done.stderr
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("shell", "words"),
    [
        ("bash", {"COMP_WORDS": "iris req", "COMP_CWORD": "1"}),
        ("zsh", {"_TYPER_COMPLETE_ARGS": "iris req"}),
        ("fish", {"_TYPER_COMPLETE_ARGS": "iris req", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}),
    ],
)
def test_scripts_for_shells_say_words_that_are_answered(
    shell: str, words: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["completion", shell]) == 0
    script = capsys.readouterr().out
    words |= {"_IRIS_COMPLETE": f"complete_{shell}"}
    assert all(f"{name}=" in script for name in words)
    assert words["_IRIS_COMPLETE"] in script
    ask = [sys.executable, "-m", "iris_py"]
    done = subprocess.run(ask, env=os.environ | words, capture_output=True, text=True, check=False)
    assert "request" in done.stdout, f"typer {version('typer')} wants other words: {done.stderr}"


def test_bash_completes_with_the_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", "bash"]) == 0
    (tmp_path / "script").write_text(capsys.readouterr().out)
    (tmp_path / "iris").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m iris_py "$@"\n')
    (tmp_path / "iris").chmod(0o755)
    ask = """source ./script; complete -p iris; COMP_WORDS=(iris config s) COMP_CWORD=2
        _iris_completion ./iris s config; printf '%s\n' "${COMPREPLY[@]}" """
    done = subprocess.run(["bash", "-c", ask], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["complete -o default -F _iris_completion iris", "show", "schema"]


def test_no_script_for_another_shell(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", "ksh"]) == 2
    assert "there is no completion for 'ksh'. Use one of: bash, zsh, fish." in capsys.readouterr().err
