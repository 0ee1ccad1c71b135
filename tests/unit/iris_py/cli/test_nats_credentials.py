"""`iris door password` and `iris door nkey` print credentials that a door takes."""

from __future__ import annotations

import io
import json
from base64 import b32decode, urlsafe_b64encode
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from iris_py.cli.app import run
from iris_py.doors.nats.nkeys import decode_user_key, is_signed
from iris_py.doors.nats.passwords import PASSWORD_BYTES_MAX, hash_token, read_password_hash
from iris_py.doors.settings import parse_settings

if TYPE_CHECKING:
    from collections.abc import Callable


class Terminal(io.TextIOWrapper):
    """Standard input at a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    """Give bytes on standard input."""
    return lambda content: monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))


@pytest.mark.parametrize("content", [b"a secret", b"a secret\n", "ä\n".encode(), b"x" * PASSWORD_BYTES_MAX])
def test_the_hash_of_the_line_on_standard_input_is_for_the_file_of_a_door(
    content: bytes, given: Callable[[bytes], None], capsys: pytest.CaptureFixture[str]
) -> None:
    given(content)
    assert run(["door", "password"]) == 0
    printed = capsys.readouterr().out.strip()
    password = content.decode().rstrip("\n")
    assert read_password_hash(printed).verify(password)
    assert not read_password_hash(printed).verify(f"{password}x")
    settings = parse_settings(f'[users.ann]\npassword = "{printed}"\npublish = [">"]\n', "door.toml")
    assert settings.users["ann"].password == read_password_hash(printed)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "a password has 1 to 1024 bytes"),
        (b"\n", "a password has 1 to 1024 bytes"),
        (b"x" * (PASSWORD_BYTES_MAX + 1), "a password has 1 to 1024 bytes"),
        (b"one\ntwo\n", "several lines"),
        (b"\xff", "not UTF-8"),
    ],
)
def test_what_is_no_password_is_refused(
    content: bytes, text: str, given: Callable[[bytes], None], capsys: pytest.CaptureFixture[str]
) -> None:
    given(content)
    assert run(["door", "password"]) == 2
    captured = capsys.readouterr()
    assert text in captured.err
    assert captured.out == ""


def test_at_a_terminal_a_password_is_typed_twice_and_not_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = ["one", "one", "one", "two"]
    monkeypatch.setattr("sys.stdin", Terminal(io.BytesIO()))
    monkeypatch.setattr("getpass.getpass", lambda _prompt: typed.pop(0))
    assert run(["door", "password", "--json"]) == 0
    assert read_password_hash(json.loads(capsys.readouterr().out)["hash"]).verify("one")
    assert run(["door", "password"]) == 2
    assert "the two passwords differ" in capsys.readouterr().err


def test_each_token_is_another_one_and_a_file_has_its_hash(capsys: pytest.CaptureFixture[str]) -> None:
    tokens = set()
    for _ in range(2):
        assert run(["door", "password", "--token", "--json"]) == 0
        line = json.loads(capsys.readouterr().out)
        assert line["hash"] == hash_token(line["token"])
        tokens.add(line["token"])
    assert len(tokens) == 2


def test_the_owner_of_a_seed_signs_for_the_public_half(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["door", "nkey", "--json"]) == 0
    line = json.loads(capsys.readouterr().out)
    assert line["seed"].startswith("SU")
    raw = b32decode(line["seed"] + "=" * (-len(line["seed"]) % 8))
    signature = Ed25519PrivateKey.from_private_bytes(raw[2:-2]).sign(b"nonce")
    assert is_signed(decode_user_key(line["nkey"]), urlsafe_b64encode(signature).decode(), b"nonce")
    assert run(["door", "nkey"]) == 0
    assert 'nkey = "U' in capsys.readouterr().out
