"""Nkeys: the text of keys, and signatures as clients make them."""

from __future__ import annotations

from base64 import b32decode, b64encode, urlsafe_b64encode

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from iris_py.doors.nats.nkeys import decode_user_key, encode_seed, encode_user_key, is_signed

#: A pair of the documentation of NATS.
SEED = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"
KEY = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"
RAW_SEED = b32decode(SEED + "======")[2:34]


def private_key() -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(RAW_SEED)


def test_a_pair_of_the_documentation_is_read_and_written() -> None:
    assert encode_seed(RAW_SEED) == SEED
    assert decode_user_key(KEY) == private_key().public_key().public_bytes_raw()
    assert encode_user_key(decode_user_key(KEY)) == KEY


@pytest.mark.parametrize("text", ["", "U", KEY[:-1] + "5", SEED, KEY.lower(), "A" + KEY[1:], KEY[:-1], "é" * 56, KEY + "="])
def test_another_text_is_no_user_key(text: str) -> None:
    with pytest.raises(ValueError, match="begins with 'U'"):
        decode_user_key(text)


def test_a_signature_is_of_this_key_and_this_nonce() -> None:
    key = decode_user_key(KEY)
    signature = private_key().sign(b"nonce")
    text = urlsafe_b64encode(signature).decode()
    for form in (text, text.rstrip("="), b64encode(signature).decode()):
        assert is_signed(key, form, b"nonce")
        assert not is_signed(key, form, b"another")
    assert not is_signed(bytes(32), text, b"nonce")
    for wrong in ("", "é" * 86, "A" * 86, text[:-4], text + "AAAA", "!" * 86):
        assert not is_signed(key, wrong, b"nonce")
