"""`iris doctor --bundle` with real settings, files and nodes: what is in the file, and that no secret is."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import iris_py
import iris_py.sync
from iris_py.cli.doctor import command
from iris_py.cli.settings import Settings
from iris_security import AdministrationKey, CloudKey, Secret
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Callable

#: What no bundle may show, where it is no secret of Iris.
WORD: Final = "Correct-Horse-Battery"
CHECKS: Final = "config,secret-file,secret,state,seeds"
OF_NODES: Final = ("own-node.jsonl", "nodes.jsonl", "events.jsonl", "gone.jsonl")


def run(tmp_path: Path, *words: str, checks: str = CHECKS) -> tuple[int, dict[str, bytes], str]:
    """Run the command; return its exit code, the files of the bundle and its standard error."""
    path = tmp_path / "bundle.tar.gz"
    arguments = ["doctor", "--only", checks, "--bundle", str(path), *words]
    done = subprocess.run([sys.executable, "-m", "iris_py.cli", *arguments], capture_output=True, text=True, check=False)
    return done.returncode, unpack(path), done.stderr


def run_here(
    tmp_path: Path, cluster: str | None = None, *, checks: str = CHECKS, is_anonymous: bool = False, **given: object
) -> dict[str, bytes]:
    """Run the command in this process; return the files of the bundle."""
    wanted = command.BundleOptions(tmp_path / "bundle.tar.gz", is_anonymous=is_anonymous)
    options: dict[str, Any] = {
        "only": [checks] if checks else (),
        "skip": (),
        "fix_hints": False,
        "strict": False,
        "as_json": True,
    }
    asyncio.run(command.doctor(Settings(given), cluster, **options, bundle=wanted))
    return unpack(wanted.path)


def unpack(path: Path) -> dict[str, bytes]:
    files = {}
    with tarfile.open(path) as archive:
        for each in archive.getmembers():
            file = archive.extractfile(each)
            assert file is not None
            files[Path(each.name).name] = file.read()
    return files


def lines(content: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in content.splitlines()]


def forms_of(mark: str) -> set[bytes]:
    """Return a mark in the forms that a program might show it in."""
    raw = {mark.encode(), mark.partition(".")[2].encode()[:16]} if mark.startswith("iris") else {mark.encode()}
    if mark.startswith("iris1.") and len(mark) == len(new_secret()):
        value = Secret.parse(mark).value
        raw |= {value, value.hex().encode(), base64.b64encode(value), base64.urlsafe_b64encode(value).rstrip(b"=")}
    return raw | {base64.b64encode(mark.encode())}


def new_secret() -> str:
    return Secret.generate(os.urandom).text


# Each puts secrets into one place, and returns them.


def in_variable(_home: Path, patch: pytest.MonkeyPatch) -> list[str]:
    marks = [new_secret(), new_secret()]
    patch.setenv("IRIS_SECRET", ",".join(marks))
    return marks


def in_variable_mistyped(_home: Path, patch: pytest.MonkeyPatch) -> list[str]:
    mark = new_secret()[:-3]
    patch.setenv("IRIS_SECRET", f"{mark} {WORD}")
    return [mark[:40], WORD]


def in_secret_file(home: Path, patch: pytest.MonkeyPatch) -> list[str]:
    marks = [new_secret(), new_secret()]
    (home / "secrets").write_text("\n".join(marks))
    patch.setenv("IRIS_SECRET_FILE", str(home / "secrets"))
    return marks


def in_secret_file_that_is_none(home: Path, patch: pytest.MonkeyPatch) -> list[str]:
    (home / "secrets").write_text(WORD)
    patch.setenv("IRIS_SECRET_FILE", str(home / "secrets"))
    return [WORD]


def in_per_user_secret(home: Path, _patch: pytest.MonkeyPatch) -> list[str]:
    with iris_py.sync.connect(discovery=False):
        pass
    return [(home / "config" / "iris" / "secret").read_text().split()[-1]]


def in_configuration_file(home: Path, patch: pytest.MonkeyPatch) -> list[str]:
    marks = [new_secret() for _ in range(4)]
    (home / "clusters").mkdir(mode=0o700)
    (home / "clusters" / "orders").write_text(marks[3])
    file = home / "iris.toml"
    file.write_text(
        f'secret = ["{marks[0]}", "{marks[1]}"]\nclusters_directory = "clusters"\n[clusters]\ndatabases = "{marks[2]}"\n'
    )
    file.chmod(0o600)
    patch.setenv("IRIS_CONFIG", str(file))
    return marks


def in_wrong_keys_of_the_file(home: Path, patch: pytest.MonkeyPatch) -> list[str]:
    marks = [new_secret(), WORD]
    file = home / "iris.toml"
    file.write_text(f'secrte = "{marks[0]}"\nzone = "{marks[0]}"\n[password]\nof = ["{WORD}"]\n')
    patch.setenv("IRIS_CONFIG", str(file))
    return marks


def in_file_that_is_no_toml(home: Path, patch: pytest.MonkeyPatch) -> list[str]:
    mark = new_secret()
    file = home / "iris.toml"
    file.write_text(f'secret = "{mark}\n')
    patch.setenv("IRIS_CONFIG", str(file))
    return [mark]


def in_name_of_a_cluster(home: Path, patch: pytest.MonkeyPatch) -> list[str]:
    mark = new_secret()
    file = home / "iris.toml"
    file.write_text(f'[clusters]\n"{mark}" = "databases"\n')
    file.chmod(0o600)
    patch.setenv("IRIS_CONFIG", str(file))
    return [mark]


def in_command(home: Path, patch: pytest.MonkeyPatch) -> list[str]:
    mark = new_secret()
    (home / "printed").write_text(mark)
    patch.setenv("IRIS_SECRET_COMMAND", f"sh -c 'cat {home}/printed' --password={WORD}")
    return [mark, WORD]


def in_error_of_a_command(_home: Path, patch: pytest.MonkeyPatch) -> list[str]:
    patch.setenv("VAULT_TOKEN", f"hvs.{WORD}")
    patch.setenv("IRIS_SECRET_COMMAND", f"sh -c 'echo the token $VAULT_TOKEN is refused: $1 >&2; exit 1' sh second-{WORD}")
    return [WORD]


def in_wrong_variables(_home: Path, patch: pytest.MonkeyPatch) -> list[str]:
    marks = [new_secret() for _ in range(3)]
    administrator = AdministrationKey.generate(os.urandom).text
    cloud = CloudKey.generate(os.urandom).text
    for name, value in zip(("IRIS_SECRT", "IRIS_ZONE", "IRIS_NETWORK"), marks, strict=True):
        patch.setenv(name, value)
    patch.setenv("IRIS_ADMINISTRATOR", administrator)
    patch.setenv("IRIS_NAME", cloud)
    return [*marks, administrator, cloud]


def in_name_and_zone(_home: Path, patch: pytest.MonkeyPatch) -> list[str]:
    marks = [new_secret(), new_secret()[:-3]]  # which was cut off as it was copied
    patch.setenv("IRIS_SECRET", marks[0])
    patch.setenv("IRIS_NAME", marks[1])
    patch.setenv("IRIS_NETWORK", marks[1])
    return marks


def in_seeds(_home: Path, patch: pytest.MonkeyPatch) -> list[str]:
    mark = new_secret()
    patch.setenv("IRIS_SECRET", mark)
    patch.setenv("IRIS_SEEDS", f"joe:{WORD}@127.0.0.1:{free_port()}")
    return [mark, WORD]


PLACES: Final = [value for name, value in sorted(globals().items()) if name.startswith("in_")]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
def test_no_byte_of_a_bundle_shows_a_secret(
    home: Path, monkeypatch: pytest.MonkeyPatch, place: Callable[[Path, pytest.MonkeyPatch], list[str]]
) -> None:
    monkeypatch.setenv("IRIS_DISCOVERY", "no")
    marks = place(home, monkeypatch)
    files = run_here(home)
    whole = b"\0".join(files.values())
    assert [mark for mark in marks for form in forms_of(mark) if form in whole] == []
    findings = lines(files["findings.jsonl"])
    assert {"config", "secret"} <= {line.get("check") for line in findings}


def test_the_command_line_is_shown_without_the_arguments_of_a_secret_command(home: Path) -> None:
    _code, files, _error = run(home, "--secret-command", f"sh -c 'exit 1' {WORD}", "--no-discovery")
    assert b"--secret-command 'sh [arguments left out]' --no-discovery" in files["README.txt"]
    assert WORD.encode() not in b"".join(files.values())


def test_a_bundle_has_findings_settings_answers_and_surroundings(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IRIS_SECRET", new_secret())
    with iris_py.sync.connect(name="first", zone="eu/a") as node, node.join("databases", lambda request: request.payload):
        seed = node.address
        code, files, error = run(home, "databases", "--no-discovery", "--seed", seed, checks=f"{CHECKS},cluster")
    assert code == 0
    assert "the bundle is" in error
    assert b"Left out:" in files["README.txt"]
    assert f"--seed {seed}".encode() in files["README.txt"]
    findings = lines(files["findings.jsonl"])
    assert [line["status"] for line in findings if line.get("check") == "cluster"] == ["ok"]
    assert findings[-1]["kind"] == "summary"
    assert lines(files["version.json"])[0]["iris"] == iris_py.__version__
    settings = {line["name"]: line for line in lines(files["settings.jsonl"]) if line["kind"] == "setting"}
    assert settings["secret"] == {
        "kind": "setting",
        "name": "secret",
        "value": "set",
        "source": "variable",
        "place": "IRIS_SECRET",
    }
    assert settings["seeds"]["value"] == [seed]
    answer, summary = lines(files["nodes.jsonl"])
    assert answer["node"]["name"] == "first"
    assert answer["node"]["zone"] == "eu/a"
    assert "databases" in answer["statistics"]["clusters"]
    assert (summary["kind"], summary["answered"]) == ("summary", 1)
    assert "link_opened" in {line["event"] for line in lines(files["events.jsonl"])}
    assert lines(files["gone.jsonl"])[-1]["kind"] == "summary"
    machine, *seen = lines(files["surroundings.jsonl"])
    assert machine["host"] == socket.gethostname()
    assert machine["is_uvloop_used"] is machine["event_loop"].startswith("uvloop")
    answers = {line["question"]: line["answer"] for line in seen}
    assert answers["limits"]["descriptors_max"] > 0
    assert "lo" in {each["name"] for each in answers["interfaces"]}
    assert answers["cluster"]["total"] == 1


def test_without_any_node_a_bundle_has_all_that_is_known_here(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IRIS_SECRET", new_secret())
    seed = f"127.0.0.1:{free_port()}"
    code, files, _error = run(home, "--no-discovery", "--seed", seed)
    assert code == 8
    assert [line["status"] for line in lines(files["findings.jsonl"]) if line.get("check") == "seeds"] == ["FAULT"]
    assert b"nodes.jsonl: no other node was found" in files["README.txt"]
    assert lines(files["own-node.jsonl"])
    assert lines(files["surroundings.jsonl"])


def test_without_a_secret_a_bundle_makes_none_and_says_so(home: Path) -> None:
    code, files, _error = run(home, "--no-discovery")
    assert code == 0
    assert not (home / "config" / "iris" / "secret").exists()
    assert {*OF_NODES} & {*files} == set()
    assert files["README.txt"].count(b"no node was queried") == len(OF_NODES)


def test_a_setting_that_is_wrong_leaves_out_only_what_needs_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IRIS_LISTEN", "somewhere")
    code, files, _error = run(home)
    assert code == 8
    assert b"settings.jsonl: ConfigurationError" in files["README.txt"]
    assert lines(files["findings.jsonl"])[0]["status"] == "FAULT"
    assert lines(files["surroundings.jsonl"])[0]["kind"] == "machine"


#: In each name that is the user's.
MARK: Final = "zqx"


def texts_of(files: dict[str, bytes]) -> str:
    """Return all text of a bundle, and the names of its files."""
    return "\n".join((*files, *(content.decode() for content in files.values())))


def leaks_of(files: dict[str, bytes], *more: str) -> list[str]:
    """Return where a marked name stands."""
    return [
        f"{name}: {line}"
        for name, content in files.items()
        for line in content.decode().splitlines()
        if any(mark.casefold() in line.casefold() for mark in (MARK, *more))
    ]


def marked_settings(home: Path, patch: pytest.MonkeyPatch) -> None:
    """Put marked names into every setting, file, variable and place of this machine that has one."""
    directory = home / f"dir-{MARK}"
    (directory / "clusters").mkdir(parents=True, mode=0o700)
    (directory / "clusters" / f"own-{MARK}").write_text(new_secret())
    file = directory / f"file-{MARK}.toml"
    file.write_text(
        f'network = "net-{MARK}"\nclusters_directory = "clusters"\nlisten = "127.0.0.1:{free_port()}"\n'
        f'advertise = ["advertised-{MARK}.example:7400", "10.77.66.55"]\n'
        f'[clusters]\nsealed-{MARK} = "{new_secret()}"\n'
    )
    file.chmod(0o600)
    (directory / "secret").write_text(new_secret())
    (directory / "secret").chmod(0o600)
    patch.setenv("IRIS_CONFIG", str(file))
    patch.setenv("IRIS_SECRET_FILE", str(directory / "secret"))
    patch.setenv("IRIS_DISCOVERY", "no")
    patch.setenv("IRIS_ZONE", f"region-{MARK}/hall-{MARK}")
    patch.setenv("IRIS_NAME", f"doctor-{MARK}/program")
    patch.setenv("XDG_STATE_HOME", str(home / f"state {MARK}"))
    patch.setenv("LOGNAME", f"user-{MARK}")
    patch.setattr("platform.node", lambda: f"machine-{MARK}")
    patch.chdir(directory)


def test_an_anonymous_bundle_has_no_name_of_settings_nodes_or_machine(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marked_settings(home, monkeypatch)
    cluster, topic = f"databases-{MARK}", f"topic-{MARK}.*"
    with (
        iris_py.sync.connect(name=f"first-{MARK}/app.py", zone=f"eu-{MARK}/a", listen="127.0.0.1:0", advertise=[]) as node,
        node.join(cluster, lambda request: request.payload),
        node.join(f"sealed-{MARK}", lambda request: request.payload),
        node.subscribe(topic, lambda _message: None),
    ):
        node.request(cluster, b"")
        seeds = [node.address, f"host-{MARK}.example:7400", "10.88.77.66:7400"]
        options = {"seeds": seeds, "name": f"option-{MARK}"}
        files = run_here(home, f"{cluster}", checks="", is_anonymous=True, **options)
    assert leaks_of(files, "10.77.66.55", "10.88.77.66", str(home)) == []
    node_line = lines(files["nodes.jsonl"])[0]
    about = {about for line in lines(files["surroundings.jsonl"])[1:] for about in line["about"]}
    [named] = about & {*node_line["statistics"]["clusters"]}  # the same in both
    findings = {line["check"]: line for line in lines(files["findings.jsonl"]) if line["kind"] == "check"}
    assert findings["cluster"]["status"] != "skipped"
    assert f"iris doctor {named} ".encode() in files["README.txt"]
    settings = {line["name"]: line for line in lines(files["settings.jsonl"]) if line["kind"] == "setting"}
    assert {"network", "zone", "seeds", "observe"} <= {*settings}
    assert settings["zone"]["place"] == "IRIS_ZONE"
    assert settings["observe"]["value"] == "all"
    assert b"name-, host- or path- with digits" in files["README.txt"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("IRIS_ZONE", f"bad zone {MARK} {'x' * 80}"),
        ("IRIS_LISTEN", f"host-{MARK}"),
        ("IRIS_SEEDS", f"first-{MARK}:1,second {MARK}"),
        ("IRIS_CONFIG", f"/nowhere/{MARK}.toml"),
        ("IRIS_SECRET_FILE", f"missing-{MARK}"),
        ("IRIS_SECRET_COMMAND", f"/opt/{MARK}/tool read {MARK}"),
        ("IRIS_CLUSTERS_DIRECTORY", f"/nowhere {MARK}/clusters"),
        ("IRIS_NAME", f"n{MARK}\u00e9"),
    ],
)
def test_an_anonymous_bundle_has_no_name_of_a_setting_that_is_wrong(
    home: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv("IRIS_DISCOVERY", "no")
    monkeypatch.setenv(name, value)
    files = run_here(home, is_anonymous=True)
    assert leaks_of(files, str(home)) == []
    assert "FAULT" in {line.get("status") for line in lines(files["findings.jsonl"])}


def test_without_anonymous_names_stay(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marked_settings(home, monkeypatch)
    files = run_here(home)
    assert f"net-{MARK}" in texts_of(files)
    assert f"machine-{MARK}" in texts_of(files)
