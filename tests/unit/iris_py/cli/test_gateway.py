"""`iris gateway --check`: the rules in effect, or every mistake."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from iris_py.cli.app import run
from iris_security import CloudKey, Secret

if TYPE_CHECKING:
    from pathlib import Path

OWN, EU = CloudKey(b"b" * 32), CloudKey(b"k" * 32)
SETTINGS = f"""
[gateway]
name = "us"
identity_file = "us.identity"
[cloud.eu]
keys = ["{EU.public_text}"]
dial = ["gw.eu.example.org:7450"]
[[export]]
to = ["eu"]
cluster = "scorers-v2"
as = "scorers"
[[import]]
from = ["eu"]
topic = "[bold].>"
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the settings of a gateway, with its identity beside it, for a user without other settings."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "120")
    (tmp_path / "us.identity").write_text(OWN.text + "\n")
    (tmp_path / "us.identity").chmod(0o600)
    path = tmp_path / "federation.toml"
    path.write_text(SETTINGS)
    path.chmod(0o644)
    return path


def test_the_rules_in_effect_are_printed(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["gateway", str(file), "--check"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    for words in (
        f"This cloud calls itself 'us'. Its public key, for neighbours: {OWN.public_text}",
        "eu: dials gw.eu.example.org:7450",
        f"key {EU.public_text}",
        "Exports to eu",
        "scorers-v2",
        "1,024 in flight",
        "Imports from eu",
        "[bold].>@eu",
    ):
        assert words in captured.out
    assert OWN.text not in captured.out


def test_rules_as_json(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["gateway", str(file), "--check", "--json"]) == 0
    eu, summary = map(json.loads, capsys.readouterr().out.splitlines())
    assert summary == {"kind": "summary", "identity": OWN.public_text, "neighbours": 1}
    assert (eu["alias"], eu["keys"], eu["links"]) == ("eu", [EU.public_text], "dials gw.eu.example.org:7450")
    assert eu["exports"] == [
        {
            "kind": "cluster",
            "outside": "scorers",
            "local": "scorers-v2",
            "uses": "request",
            "limits": "1,024 in flight",
            "line": 8,
        }
    ]
    assert [row["local"] for row in eu["imports"]] == ["[bold].>@eu"]


def test_a_gateway_without_neighbours_or_rules(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(SETTINGS.split("[[export]]", maxsplit=1)[0])
    assert run(["gateway", str(file), "--check"]) == 0
    assert "Exports to eu: nothing" in capsys.readouterr().out
    file.write_text(SETTINGS.split("[cloud.eu]", maxsplit=1)[0])
    assert run(["gateway", str(file), "--check"]) == 0
    assert "There is no neighbour: write a table [cloud.ALIAS] for each." in capsys.readouterr().out


def test_every_mistake_is_a_line(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(SETTINGS.replace("dial", "diel").replace('as = "scorers"', "block = true"))
    assert run(["gateway", str(file), "--check"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert [line.split(". ")[0] for line in captured.err.splitlines()] == [
        "iris: federation.toml:5: [cloud.eu] has no dial, and [gateway] has no listen, so there can be no connection",
        "iris: federation.toml:7: [cloud.eu] has no key 'diel'",
        "iris: federation.toml:11: [[export]] block: it is only for topics, but this rule is for a cluster",
    ]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (EU.public_text, OWN.public_text, "federation.toml:6: [cloud.eu] keys: this is the key of this cloud itself"),
        ("us.identity", "no.identity", "identity_file: "),
    ],
)
def test_mistakes_beside_the_file(file: Path, old: str, new: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(SETTINGS.replace(old, new))
    assert run(["gateway", str(file), "--check"]) == 2
    assert capsys.readouterr().err.startswith(f"iris: {words}")


def test_a_cluster_with_a_secret_of_its_own_is_not_exported(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "iris").mkdir()
    path = tmp_path / "iris" / "iris.toml"
    path.write_text(f'[clusters]\nscorers-v2 = "{Secret(bytes(32)).text}"\n')
    path.chmod(0o600)
    assert run(["gateway", str(file), "--check"]) == 2
    assert (
        "federation.toml:8: [[export]] cluster: 'scorers-v2' exports 'scorers-v2', which has its own secret"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("databases", "'databases' names no cloud. Write it like databases@eu"),
        ("databases@", "is not a valid alias of a cloud"),
        ("databases@EU", "is not a valid alias of a cloud"),
    ],
)
def test_only_names_of_other_clouds_can_be_explained(name: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["federation", "explain", name]) == 2
    assert said in capsys.readouterr().err
