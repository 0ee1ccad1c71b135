"""Tests of security/iris_security/administration.py."""

import copy
import os
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_security import (
    AdministrationKey,
    AuthenticationError,
    Secret,
    SecretFormatError,
    SignedGenerations,
    parse_administrator,
)
from iris_security.administration import NUMBER_MAX, RANK_BYTES, Rank
from iris_security.keyring import GENERATIONS_MAX

KEY = AdministrationKey(bytes(range(32)))
SECRETS = tuple(Secret(bytes([number]) * 32) for number in range(GENERATIONS_MAX + 1))


@given(st.integers(1, NUMBER_MAX), st.lists(st.sampled_from(SECRETS), min_size=1, max_size=GENERATIONS_MAX, unique=True))
def test_what_the_administrator_has_signed_is_read(number: int, secrets: list[Secret]) -> None:
    signed = KEY.sign("net", number, secrets)
    opened = SignedGenerations.open(signed.encoded, "net", KEY.administrator)
    assert (opened.number, opened.secrets, opened.rank) == (number, tuple(secrets), signed.rank)


@given(st.data())
def test_nothing_of_it_can_be_changed(data: st.DataObject) -> None:
    encoded = bytearray(KEY.sign("net", 7, SECRETS[:2]).encoded)
    encoded[data.draw(st.integers(0, len(encoded) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(AuthenticationError):
        SignedGenerations.open(bytes(encoded), "net", KEY.administrator)


@given(st.binary(max_size=400))
def test_what_nobody_signed_is_refused(encoded: bytes) -> None:
    with pytest.raises(AuthenticationError):
        SignedGenerations.open(encoded, "net", KEY.administrator)


def test_it_is_for_one_network_and_from_one_administrator() -> None:
    encoded = KEY.sign("net", 1, SECRETS[:1]).encoded
    with pytest.raises(AuthenticationError):
        SignedGenerations.open(encoded, "ne", KEY.administrator)
    with pytest.raises(AuthenticationError):
        SignedGenerations.open(encoded, "net", AdministrationKey.generate(os.urandom).administrator)


@pytest.mark.parametrize(
    ("number", "count", "values"),
    [(0, 1, 1), (1, 0, 0), (1, 5, 5), (1, 1, 2), (1, 2, 1)],
    ids=["no number", "none", "too many", "one too many", "one too few"],
)
def test_what_no_administrator_signs_is_refused(number: int, count: int, values: int) -> None:
    said = number.to_bytes(4, "big") + bytes([count]) + b"".join(secret.value for secret in SECRETS[:values])
    signature = KEY._signing.sign(b"generations", b"net\0" + said)
    with pytest.raises(AuthenticationError):
        SignedGenerations.open(said + signature, "net", KEY.administrator)


@pytest.mark.parametrize("count", [1, 2])
def test_a_generation_that_is_there_twice_is_refused(count: int) -> None:
    said = (1).to_bytes(4, "big") + bytes([count]) + SECRETS[0].value * 2
    signature = KEY._signing.sign(b"generations", b"net\0" + said)
    with pytest.raises(AuthenticationError):
        SignedGenerations.open(said + signature, "net", KEY.administrator)


@pytest.mark.parametrize(
    ("number", "secrets"), [(0, SECRETS[:1]), (NUMBER_MAX + 1, SECRETS[:1]), (1, ()), (1, SECRETS), (1, SECRETS[:1] * 2)]
)
def test_what_cannot_be_signed(number: int, secrets: tuple[Secret, ...]) -> None:
    with pytest.raises(ValueError, match=r"1 to"):
        KEY.sign("net", number, secrets)


def test_of_two_the_larger_number_counts_and_then_the_digest() -> None:
    first, other, second = KEY.sign("net", 1, SECRETS[:1]), KEY.sign("net", 1, SECRETS[1:2]), KEY.sign("net", 2, SECRETS[:1])
    assert Rank() < first.rank < second.rank
    assert Rank() < other.rank < second.rank
    assert first.rank != other.rank


def test_a_rank_is_read_as_it_was_written() -> None:
    rank = KEY.sign("net", 300, SECRETS[:1]).rank
    assert len(rank.encode()) == RANK_BYTES
    assert Rank.decode(rank.encode()) == rank
    with pytest.raises(ValueError, match="12 bytes"):
        Rank.decode(b"short")


def test_texts_are_read_as_they_were_written() -> None:
    key = AdministrationKey.generate(os.urandom)
    assert AdministrationKey.parse(f" {key.text}\n") == key
    assert parse_administrator(key.administrator_text) == key.administrator
    assert key.administrator_text.startswith("irispublic1.")


@pytest.mark.parametrize(
    "text", ["", "iris1.abc", "irispublic1." + "A" * 48, KEY.administrator_text[:-1], KEY.administrator_text + "A"]
)
def test_a_text_that_is_none(text: str) -> None:
    with pytest.raises(SecretFormatError):
        parse_administrator(text)
    with pytest.raises(SecretFormatError):
        AdministrationKey.parse(text)


def test_the_private_half_is_not_given_to_nodes_and_not_shown() -> None:
    with pytest.raises(SecretFormatError, match="only the public half") as caught:
        parse_administrator(KEY.text)
    assert KEY.text not in str(caught.value)


@pytest.mark.parametrize("holder", [KEY, KEY.sign("net", 1, SECRETS[:2])])
def test_keys_are_neither_shown_nor_pickled_nor_changed(holder: AdministrationKey | SignedGenerations) -> None:
    assert "hidden" in repr(holder)
    assert KEY.text not in repr(holder)
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(holder)
    with pytest.raises(AttributeError):
        holder.encoded = b""
    assert copy.deepcopy(holder) is holder
