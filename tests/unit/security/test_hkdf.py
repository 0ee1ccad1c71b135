"""Tests of security/iris_security/hkdf.py."""

import pytest

from iris_security.hkdf import hkdf


def test_rfc_5869_test_case_1() -> None:
    derived = hkdf(
        bytes.fromhex("0b" * 22),
        salt=bytes.fromhex("000102030405060708090a0b0c"),
        info=bytes.fromhex("f0f1f2f3f4f5f6f7f8f9"),
        length=42,
    )
    assert derived.hex() == "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"


def test_rfc_5869_test_case_3_without_salt_and_info() -> None:
    derived = hkdf(bytes.fromhex("0b" * 22), info=b"", length=42)
    assert derived.hex() == "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8"


@pytest.mark.parametrize("other", [{"salt": b"other"}, {"info": b"other"}, {"secret": b"other"}])
def test_every_argument_matters(other: dict[str, bytes]) -> None:
    arguments = {"secret": b"secret", "salt": b"salt", "info": b"info"}

    def derive(secret: bytes, salt: bytes, info: bytes) -> bytes:
        return hkdf(secret, salt=salt, info=info)

    assert derive(**arguments) != derive(**(arguments | other))
    assert len(derive(**arguments)) == 32
