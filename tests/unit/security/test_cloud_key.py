"""Tests of security/iris_security/cloud_key.py."""

import copy
import hashlib
import os
import pickle

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from iris_security import CloudKey, SecretFormatError, cloud_id_of, cloud_public_key_text, pair_id, parse_cloud_public_key
from iris_security.hkdf import hkdf
from tests.unit.security.handshakes import LOW_ORDER

KEY = CloudKey(bytes(range(32)))
OTHER = CloudKey(bytes(range(1, 33)))


@given(st.binary(min_size=32, max_size=32))
def test_texts_are_read_as_they_were_written(value: bytes) -> None:
    key = CloudKey(value)
    assert key.public == X25519PrivateKey.from_private_bytes(value).public_key().public_bytes_raw()
    assert CloudKey.parse(f" {key.text}\n") == key
    assert parse_cloud_public_key(f" {key.public_text}\n") == key.public
    assert cloud_public_key_text(key.public) == key.public_text
    assert (len(key.text), len(key.public_text)) == (57, 56)


def test_pinned() -> None:
    assert KEY.text == "irisidp1.AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh_4PvO7"
    assert KEY.public_text == "irisid1.j0DFrbaPJWJK5bIU6nZ6bslNgp09e14a0bpvPiE4KF8XZqfm"
    assert KEY.public.hex() == "8f40c5adb68f25624ae5b214ea767a6ec94d829d3d7b5e1ad1ba6f3e2138285f"
    assert KEY.cloud_id == cloud_id_of(KEY.public) == hashlib.sha256(b"iris cloud" + KEY.public).digest()[:16]
    assert KEY.cloud_id.hex() == "2aeb5a28a801807de5d3fb6a00e55f03"


def test_keys_that_are_made() -> None:
    assert CloudKey.generate(os.urandom) != CloudKey.generate(os.urandom)
    assert CloudKey.generate(lambda size: bytes(range(size))) == KEY
    with pytest.raises(ValueError, match="32 bytes, not 31"):
        CloudKey.generate(lambda size: bytes(size - 1))


def test_equality() -> None:
    assert CloudKey(KEY.value) == KEY
    assert hash(CloudKey(KEY.value)) == hash(KEY)
    assert KEY != OTHER
    assert KEY.value != KEY


def test_the_name_of_a_pair_has_no_order() -> None:
    smaller, larger = sorted((KEY.public, OTHER.public))
    assert pair_id(smaller, larger) == pair_id(larger, smaller)
    assert pair_id(smaller, larger) == hashlib.sha256(b"iris federation pair" + smaller + larger).digest()[:8]
    assert pair_id(smaller, smaller) not in (pair_id(larger, larger), pair_id(smaller, larger))


def test_pseudonyms_are_of_one_cloud_towards_one_neighbour() -> None:
    assert KEY.origin_key(OTHER.public) == hkdf(KEY.value, info=b"iris origin" + OTHER.public)
    assert len({KEY.origin_key(OTHER.public), KEY.origin_key(KEY.public), OTHER.origin_key(KEY.public)}) == 3


@pytest.mark.parametrize(
    "text", ["", "iris1.abc", "irisid1." + "A" * 48, KEY.public_text[:-1], KEY.public_text + "A", "irisidp1." + "A" * 48]
)
def test_a_text_that_is_none(text: str) -> None:
    with pytest.raises(SecretFormatError):
        parse_cloud_public_key(text)
    with pytest.raises(SecretFormatError):
        CloudKey.parse(text)


def test_one_half_in_the_place_of_the_other() -> None:
    with pytest.raises(SecretFormatError, match="only the public half") as caught:
        parse_cloud_public_key(f" {KEY.text}")
    assert KEY.text not in str(caught.value)
    with pytest.raises(SecretFormatError, match="need the private half"):
        CloudKey.parse(f" {KEY.public_text}")


@pytest.mark.parametrize("point", LOW_ORDER, ids=lambda point: point.hex()[:8])
def test_a_public_key_that_nobody_has_made(point: bytes) -> None:
    with pytest.raises(SecretFormatError, match="not a valid public key"):
        parse_cloud_public_key(cloud_public_key_text(point))


def test_keys_are_neither_shown_nor_pickled_nor_changed() -> None:
    assert repr(KEY) == "CloudKey(<hidden>)"
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(KEY)
    with pytest.raises(AttributeError):
        KEY.value = b""
    assert copy.deepcopy(KEY) is KEY
