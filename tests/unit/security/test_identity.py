"""Tests of security/iris_security/identity.py."""

import hashlib
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_security import IDENTITY_SEED_BYTES, SIGNATURE_BYTES, AuthenticationError, Identity, Purpose, verify_signature
from iris_security.signature import PUBLIC_KEY_BYTES

#: RFC 8032 section 7.1, test 1: the private and the public key.
SEED = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
PUBLIC_KEY = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")


def test_the_key_pair_is_that_of_the_standard() -> None:
    identity = Identity(SEED)
    assert identity.public_key == PUBLIC_KEY
    assert identity.node_id == hashlib.sha256(b"iris node id" + PUBLIC_KEY).digest()[:16]


@given(st.binary(min_size=IDENTITY_SEED_BYTES, max_size=IDENTITY_SEED_BYTES), st.sampled_from(Purpose), st.binary())
def test_a_signature_shows_who_made_it(seed: bytes, purpose: Purpose, data: bytes) -> None:
    identity = Identity(seed)
    signature = identity.sign(purpose, data)
    assert len(signature) == SIGNATURE_BYTES
    assert verify_signature(purpose, data, signature) == identity.node_id


@given(st.integers(0, SIGNATURE_BYTES - 1), st.integers(0, 7))
def test_any_changed_bit(position: int, bit: int) -> None:
    signature = bytearray(Identity(SEED).sign(Purpose.OVERLAY, b"data"))
    signature[position] ^= 1 << bit
    with pytest.raises(AuthenticationError):
        verify_signature(Purpose.OVERLAY, b"data", bytes(signature))


def test_a_signature_is_for_one_purpose_and_one_thing() -> None:
    signature = Identity(SEED).sign(Purpose.OVERLAY, b"data")
    for purpose in set(Purpose) - {Purpose.OVERLAY}:
        with pytest.raises(AuthenticationError):
            verify_signature(purpose, b"data", signature)
    for data in (b"", b"dat", b"data\x00", b"Data"):
        with pytest.raises(AuthenticationError):
            verify_signature(Purpose.OVERLAY, data, signature)


def test_no_label_begins_another_one_up_to_its_end() -> None:
    labels = [purpose.value + b"\x00" for purpose in Purpose]
    assert not any(one is not other and one.startswith(other) for one in labels for other in labels)


@pytest.mark.parametrize("length", [0, PUBLIC_KEY_BYTES, SIGNATURE_BYTES - 1, SIGNATURE_BYTES + 1])
def test_what_has_another_size_is_no_signature(length: int) -> None:
    with pytest.raises(AuthenticationError):
        verify_signature(Purpose.OVERLAY, b"data", bytes(length))


@pytest.mark.parametrize("length", [0, 31, 33])
def test_a_seed_has_its_size(length: int) -> None:
    with pytest.raises(ValueError, match=f"32 bytes, not {length}"):
        Identity(bytes(length))


def test_the_private_key_is_not_shown_and_does_not_travel() -> None:
    identity = Identity(SEED)
    assert repr(identity) == f"Identity({identity.node_id.hex()})"
    assert SEED.hex() not in repr(vars(type(identity)))
    with pytest.raises(TypeError, match="never leaves its process"):
        pickle.dumps(identity)
