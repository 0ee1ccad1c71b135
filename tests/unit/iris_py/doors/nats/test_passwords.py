"""Hashes of passwords and tokens in the file of a NATS door."""

from __future__ import annotations

import pytest

from iris_py.doors.nats import passwords
from iris_py.doors.nats.passwords import (
    KNOWN_S,
    NO_HASH,
    KnownPasswords,
    PasswordHash,
    hash_password,
    hash_token,
    read_password_hash,
    read_token_hash,
)

SALT = bytes(range(16))


def test_a_hash_comes_back_from_its_text_and_knows_its_password() -> None:
    found = read_password_hash(hash_password("pässword", SALT).text())
    assert found.verify("pässword")
    assert not any(map(found.verify, ("password", "", "pässword ", "x" * 2000, "\ud800")))


def test_the_algorithm_is_that_of_rfc_7914() -> None:
    expected = "fdbabe1c9d3472007856e7190d01e9fe7c6ad7cbc8237830e77376634b373162"
    assert PasswordHash(10, 8, 16, b"NaCl", bytes.fromhex(expected)).verify("password")


def test_no_password_is_right_for_a_user_that_does_not_exist() -> None:
    assert not NO_HASH.verify("")


@pytest.mark.parametrize("password", ["", "x" * 1025])
def test_a_password_has_a_length(password: str) -> None:
    with pytest.raises(ValueError, match="1 to 1024 bytes"):
        hash_password(password, SALT)


@pytest.mark.parametrize(
    "text",
    [
        "secret",
        "scrypt:14:8:1:AAAA",
        "scrypt:14:8:1:AAAA:AAAA",
        "scrypt:14:8:1:!:AAAA",
        "scrypt:x:8:1:AAAA:AAAA",
        "scrypt:40:8:1:AAAA:" + "A" * 43 + "=",
        "scrypt:14:8:1000:AAAA:" + "A" * 43 + "=",
        "scrypt:14:8:1::" + "A" * 43 + "=",
        "scrypt:14:8:1:é:AAAA",
    ],
)
def test_another_text_is_no_hash_of_a_password(text: str) -> None:
    with pytest.raises(ValueError, match="iris door password"):
        read_password_hash(text)


def test_a_token_is_found_by_its_hash() -> None:
    assert read_token_hash(hash_token("token")) == hash_token("token") != hash_token("other")


@pytest.mark.parametrize("text", ["token", "sha256:", "sha256:" + "A" * 64, "0" * 64])
def test_another_text_is_no_hash_of_a_token(text: str) -> None:
    with pytest.raises(ValueError, match="--token"):
        read_token_hash(text)


def test_a_right_password_is_remembered_for_its_hash_and_some_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    known = KnownPasswords(bytes(32))
    other = NO_HASH._replace(salt=SALT)
    known.add(NO_HASH, "a", 5.0)
    assert known.has(NO_HASH, "a", 5.0)
    assert not known.has(other, "a", 5.0)
    assert not known.has(NO_HASH, "b", 5.0)
    assert not known.has(NO_HASH, "a", 5.0 + KNOWN_S)
    monkeypatch.setattr(passwords, "KNOWN_MAX", 3)
    for number in range(3):
        known.add(NO_HASH, str(number), 6.0)
    assert not known.has(NO_HASH, "a", 6.0)
    assert known.has(NO_HASH, "0", 6.0)
