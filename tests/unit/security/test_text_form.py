"""Tests of security/iris_security/text_form.py: secrets that stand where they do not belong are recognized."""

from __future__ import annotations

import pytest

from iris_security import AdministrationKey, CloudKey, Keyring, Secret, encode_name
from iris_security.administration import ADMINISTRATOR_PREFIX
from iris_security.text_form import SECRET_CHARACTERS_MIN, hide_secrets, holds_secret, refuse_secret


def seeded(count: int) -> bytes:
    return bytes(range(count))


SECRETS = {
    "secret": Secret.generate(seeded).text,
    "administration key": AdministrationKey.generate(seeded).text,
    "cloud key": CloudKey.generate(seeded).text,
}


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS.keys())
@pytest.mark.parametrize("shape", ["{}", " {}\n", "databases@{}", "{}@eu", "news.{}.>", "work-{}", '"{}",'])
def test_a_secret_is_recognized_wherever_it_stands_and_hidden(secret: str, shape: str) -> None:
    text = shape.format(secret)
    assert holds_secret(text)
    assert hide_secrets(text) == shape.format("[secret]")
    with pytest.raises(ValueError, match="a secret or a private key is given in place of a name") as raised:
        refuse_secret(text)
    assert secret.partition(".")[2] not in str(raised.value)


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS.keys())
def test_a_secret_that_was_cut_is_recognized_while_it_shows_half(secret: str) -> None:
    prefix, _dot, value = secret.partition(".")
    assert holds_secret(f"{prefix}.{value[:SECRET_CHARACTERS_MIN]}")
    assert not holds_secret(f"{prefix}.{value[: SECRET_CHARACTERS_MIN - 1]}")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "databases",
        "iris1.temperature",
        "iris1.a.long.topic.with.many.tokens.in.it",
        "iris.gateway.eu",
        "iris2." + "x" * 48,
        "x" * 60,
        CloudKey.generate(seeded).public_text,
        AdministrationKey.generate(seeded).administrator_text,
    ],
)
def test_names_and_public_keys_are_no_secrets(text: str) -> None:
    assert not holds_secret(text)
    assert hide_secrets(text) == text
    refuse_secret(text)


def test_no_key_is_derived_for_a_secret_in_place_of_a_name() -> None:
    for secret in SECRETS.values():
        for use in (
            lambda secret=secret: encode_name(secret),
            lambda secret=secret: Keyring(Secret(bytes(32)), network=secret),
            lambda secret=secret: Keyring(Secret(bytes(32)), clusters={secret: Secret(bytes(32))}),
            lambda secret=secret: Keyring(Secret(bytes(32))).cluster(secret),
        ):
            with pytest.raises(ValueError, match="is given in place of a name") as raised:
                use()
            assert secret not in str(raised.value)
    assert ADMINISTRATOR_PREFIX == "irispublic1."
