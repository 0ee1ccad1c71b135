"""Redaction: known secrets wherever they stand, and texts that look like secrets."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from iris_py.cli.doctor.redaction import REDACTED, Redaction, known_secrets
from iris_py.cli.settings import Settings
from iris_security import AdministrationKey, Secret

if TYPE_CHECKING:
    from pathlib import Path

WORD = "correct-horse-battery"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"it says {WORD}.", f"it says {REDACTED}."),
        ("cut off: iris1.abc", f"cut off: {REDACTED}"),
        ("irisadmin1.abcDEF irisidp1.abc-_", f"{REDACTED} {REDACTED}"),
        ("dial amqp://joe:hunter2@broker:5672", f"dial amqp://{REDACTED}@broker:5672"),
        ("seeds joe:hunter2@10.0.0.1:7400,a:1", f"seeds {REDACTED}@10.0.0.1:7400,a:1"),
        ("vault -token=s.abc --api-key=1", f"vault -token={REDACTED} --api-key={REDACTED}"),
        ("Authorization: Bearer abcdefgh.ijk", f"Authorization: Bearer {REDACTED}"),
    ],
)
def test_a_secret_is_taken_out(text: str, shown: str) -> None:
    assert Redaction([WORD])(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "database@eu at 10:30",
        "the secret of the network, 541ea8b28adc7c04",
        "irispublic1.abcdefg is the key of the administrator",
        "10.0.0.1:7400 (TCP: Address already in use)",
        "write to joe@example.com",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert Redaction([WORD, "a", ""])(text) == text


def test_known_secrets_are_those_of_settings_files_and_variables(tmp_path: Path) -> None:
    marks = [Secret.generate(os.urandom).text for _ in range(5)]
    administrator = AdministrationKey.generate(os.urandom).text
    file, directory, secrets = tmp_path / "iris.toml", tmp_path / "config" / "iris", tmp_path / "clusters"
    for each in (directory, secrets):
        each.mkdir(parents=True, mode=0o700)
    file.write_text(
        f'secret_command = ["vault", "read", "-token=token-of-vault"]\nlistne = "mistaken-place"\n'
        f'[clusters]\ndb = ["{marks[0]}"]\n'
    )
    (directory / "secret").write_text(f"# a comment\n{marks[1]}\n")
    (secrets / "db").write_text(f"{marks[2]}\n{marks[3]}\n")
    environ = {
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "IRIS_CONFIG": str(file),
        "IRIS_CLUSTERS_DIRECTORY": str(secrets),
        "IRIS_SECRET": f"{marks[4]},{administrator}",
        "IRIS_SECRT": "mistaken-name",
        "IRIS_SECRET_COMMAND": "pass show 'the entry'",
        "IRIS_ZONE": "europe-west",
        "VAULT_TOKEN": "hvs.something",
        "EDITOR": "something-else",
    }
    found = known_secrets(Settings({"secret_command": "op read op://vault/iris"}), environ)
    assert {*marks, administrator, "mistaken-name", "mistaken-place", "the entry", "hvs.something"} <= found
    assert {"token-of-vault", "op://vault/iris"} <= found
    assert not {"europe-west", "something-else", "comment", "vault", "# a comment"} & found
