"""Sealed payloads: what opens, for whom, and how often."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_security import AuthenticationError, ReplayError, Secret
from iris_security.sealed_requests import (
    ANSWER_OVERHEAD_BYTES,
    KEYED_OVERHEAD_BYTES,
    REQUEST_OVERHEAD_BYTES,
    WINDOW_MS,
    OpenedRequest,
    SaltTable,
    SealedExchange,
    open_request,
    seal_request,
)
from tests.wire.client import hkdf

if TYPE_CHECKING:
    from collections.abc import Callable

SECRET, OTHER = Secret(bytes(range(32))), Secret(b"o" * 32)
NOW_MS = 1_700_000_000_000
SALT, REPLY_SALT = b"s" * 16, b"r" * 16


def sealed_request(
    payload: bytes = b"plaintext", *, salt: bytes = SALT, key: bytes | None = None
) -> tuple[bytes, SealedExchange]:
    return seal_request(SECRET, "vault", payload, salt=salt, sealed_ms=NOW_MS, key=key)


def opened_request(number: int, sealed_ms: int = NOW_MS) -> OpenedRequest:
    return OpenedRequest(b"", number.to_bytes(16, "big"), sealed_ms, SealedExchange(SECRET, b"vault", SALT))


def accepts(table: SaltTable, request: OpenedRequest, now_ms: int, identity: bytes = b"") -> bool:
    try:
        table.take(request, identity, now_ms)
    except ReplayError:
        return False
    return True


class TestFormat:
    @pytest.mark.parametrize(("key", "overhead"), [(None, REQUEST_OVERHEAD_BYTES), (b"k", KEYED_OVERHEAD_BYTES)])
    @pytest.mark.parametrize("payload", [b"", b"plaintext", bytes(70_000)])
    def test_a_request_and_its_reply_open(self, payload: bytes, key: bytes | None, overhead: int) -> None:
        sealed, exchange = sealed_request(payload, key=key)
        assert len(sealed) == len(payload) + overhead
        assert sealed[:17] == b"\x01" + SALT
        opened = open_request([SECRET], "vault", memoryview(sealed))
        assert (opened.payload, opened.salt, opened.sealed_ms) == (payload, SALT, NOW_MS)
        reply = opened.exchange.seal_reply(payload[::-1], REPLY_SALT)
        assert len(reply) == len(payload) + ANSWER_OVERHEAD_BYTES
        assert exchange.open_reply(reply) == payload[::-1]
        assert exchange.open_failure(opened.exchange.seal_failure(payload, REPLY_SALT)) == payload

    def test_the_bytes_are_those_of_the_page(self) -> None:
        """Another program makes the same of the keys that docs/wire.md names."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        sealed, _exchange = sealed_request()
        key = hkdf(SECRET.value, SALT, b"iris sealed requestvault")
        inner = AESGCM(key).decrypt(bytes(12), sealed[17:], sealed[:17])
        assert inner == b"\x00" + NOW_MS.to_bytes(8, "big") + b"plaintext"
        reply = open_request([SECRET], "vault", sealed).exchange.seal_reply(b"reply", REPLY_SALT)
        key = hkdf(SECRET.value, REPLY_SALT, b"iris sealed reply" + SALT + b"vault")
        assert AESGCM(key).decrypt(bytes(12), reply[17:], reply[:17]) == b"reply"

    def test_the_plaintext_is_not_in_it(self) -> None:
        sealed, exchange = sealed_request(b"plaintext" * 10, key=b"the key")
        assert b"plaintext" not in sealed
        assert b"the key" not in sealed
        assert b"plaintext" not in exchange.seal_reply(b"plaintext", REPLY_SALT)
        assert "plaintext" not in repr(open_request([SECRET], "vault", sealed))

    def test_each_flipped_bit_leads_to_nothing(self) -> None:
        sealed, exchange = sealed_request(key=b"k")
        reply, failure = exchange.seal_reply(b"reply", REPLY_SALT), exchange.seal_failure(b"failure", REPLY_SALT)
        opens: tuple[Callable[[bytes], object], ...] = (
            lambda data: open_request([SECRET], "vault", data),
            exchange.open_reply,
            exchange.open_failure,
        )
        for data, open_ in zip((sealed, reply, failure), opens, strict=True):
            open_(data)
            for bit in range(8 * len(data)):
                changed = bytearray(data)
                changed[bit // 8] ^= 1 << bit % 8
                with pytest.raises(AuthenticationError):
                    open_(bytes(changed))

    def test_what_is_cut_or_longer_leads_to_nothing(self) -> None:
        sealed, exchange = sealed_request()
        reply = exchange.seal_reply(b"reply", REPLY_SALT)
        for data in [*(sealed[:size] for size in range(len(sealed))), sealed + b"\0", b"plain", b"\x01" * 100]:
            with pytest.raises(AuthenticationError):
                open_request([SECRET], "vault", data)
        for data in [*(reply[:size] for size in range(len(reply))), reply + b"\0"]:
            with pytest.raises(AuthenticationError):
                exchange.open_reply(data)

    @pytest.mark.parametrize("inner", [b"", b"\x00" * 8, b"\x02" + bytes(8), b"\x01" + bytes(8 + 15), b"\xff" * 100])
    def test_what_a_holder_of_the_secret_seals_by_mistake_is_refused(self, inner: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        outer = b"\x01" + SALT
        key = hkdf(SECRET.value, SALT, b"iris sealed requestvault")
        with pytest.raises(AuthenticationError):
            open_request([SECRET], "vault", outer + AESGCM(key).encrypt(bytes(12), inner, outer))

    @pytest.mark.parametrize("size", [0, 15, 17])
    def test_a_salt_of_another_size_is_refused(self, size: int) -> None:
        with pytest.raises(ValueError, match=f"16 bytes, not {size}"):
            sealed_request(salt=bytes(size))

    def test_a_name_that_is_none_is_refused(self) -> None:
        for name in ("", "a\0", "n" * 256):
            with pytest.raises(ValueError, match="name"):
                seal_request(SECRET, name, b"", salt=SALT, sealed_ms=NOW_MS)
            with pytest.raises(ValueError, match="name"):
                open_request([SECRET], name, b"")


class TestBinding:
    def test_another_secret_or_name_opens_nothing(self) -> None:
        sealed, exchange = sealed_request()
        for secrets, name in (([OTHER], "vault"), ([SECRET], "vaults"), ([SECRET], "vaul"), ([], "vault")):
            with pytest.raises(AuthenticationError):
                open_request(secrets, name, sealed)
        reply = exchange.seal_reply(b"reply", REPLY_SALT)
        for other in (SealedExchange(OTHER, b"vault", SALT), SealedExchange(SECRET, b"vaults", SALT)):
            with pytest.raises(AuthenticationError):
                other.open_reply(reply)

    def test_a_reply_opens_for_its_request_alone(self) -> None:
        (_, first), (_, second) = sealed_request(salt=b"1" * 16), sealed_request(salt=b"2" * 16)
        with pytest.raises(AuthenticationError):
            second.open_reply(first.seal_reply(b"reply", REPLY_SALT))

    def test_a_reply_opens_for_each_request_with_its_key(self) -> None:
        (_, first), (_, second) = (sealed_request(salt=salt, key=b"k") for salt in (b"1" * 16, b"2" * 16))
        _, other = sealed_request(salt=b"1" * 16, key=b"l")
        reply = first.seal_reply(b"reply", REPLY_SALT)
        assert second.open_reply(reply) == b"reply"
        with pytest.raises(AuthenticationError):
            other.open_reply(reply)

    def test_neither_a_request_nor_a_failure_passes_as_a_reply(self) -> None:
        sealed, exchange = sealed_request()
        for data in (sealed, exchange.seal_failure(b"reply", REPLY_SALT)):
            with pytest.raises(AuthenticationError):
                exchange.open_reply(data)
        with pytest.raises(AuthenticationError):
            exchange.open_failure(exchange.seal_reply(b"failure", REPLY_SALT))

    def test_two_replies_to_one_request_have_two_keys(self) -> None:
        """Two members may have executed it: one key for both would show what is different in them."""
        _, exchange = sealed_request()
        one, two = exchange.seal_reply(b"reply", b"1" * 16), exchange.seal_reply(b"reply", b"2" * 16)
        assert one[17:] != two[17:]
        assert exchange.open_reply(one) == exchange.open_reply(two) == b"reply"

    def test_every_accepted_generation_opens_and_its_own_answers(self) -> None:
        sealed, exchange = sealed_request()
        opened = open_request([OTHER, SECRET], "vault", sealed)
        assert exchange.open_reply(opened.exchange.seal_reply(b"reply", REPLY_SALT)) == b"reply"


class TestSaltTable:
    def test_each_salt_is_taken_once(self) -> None:
        table = SaltTable()
        assert accepts(table, opened_request(1), NOW_MS)
        assert not accepts(table, opened_request(1), NOW_MS)
        assert accepts(table, opened_request(2), NOW_MS)

    @pytest.mark.parametrize("away_ms", [-WINDOW_MS, -1, 0, 1, WINDOW_MS])
    def test_within_the_window_it_is_taken_once(self, away_ms: int) -> None:
        table = SaltTable()
        assert accepts(table, opened_request(1), NOW_MS + away_ms)
        assert not accepts(table, opened_request(1), NOW_MS + WINDOW_MS)
        assert not accepts(table, opened_request(1), NOW_MS + WINDOW_MS + 1)
        assert not accepts(table, opened_request(1), NOW_MS - WINDOW_MS)

    @pytest.mark.parametrize("away_ms", [-WINDOW_MS - 1, WINDOW_MS + 1, 10**12])
    def test_what_is_too_old_or_yet_to_come_is_refused_and_not_kept(self, away_ms: int) -> None:
        table = SaltTable()
        assert not accepts(table, opened_request(1), NOW_MS + away_ms)
        assert len(table) == 0

    def test_the_same_identity_is_taken_again(self) -> None:
        table = SaltTable()
        assert accepts(table, opened_request(1), NOW_MS, b"identity")
        assert accepts(table, opened_request(1), NOW_MS, b"identity")
        assert not accepts(table, opened_request(1), NOW_MS, b"another")
        assert not accepts(table, opened_request(1), NOW_MS)
        assert not accepts(table, opened_request(1), NOW_MS + WINDOW_MS + 1, b"identity")

    def test_salts_are_forgotten_with_their_time(self) -> None:
        table = SaltTable()
        for number in range(10):
            assert accepts(table, opened_request(number), NOW_MS)
        assert accepts(table, opened_request(10, NOW_MS + WINDOW_MS + 1), NOW_MS + WINDOW_MS + 1)
        assert len(table) == 1

    def test_a_clock_that_is_set_back_brings_nothing_back(self) -> None:
        table = SaltTable()
        assert accepts(table, opened_request(1), NOW_MS)
        assert accepts(table, opened_request(2, NOW_MS + WINDOW_MS + 1), NOW_MS + WINDOW_MS + 1)
        assert not accepts(table, opened_request(1), NOW_MS)

    def test_a_full_table_refuses_what_it_cannot_tell(self) -> None:
        table = SaltTable(salts_max=3)
        for number in range(5):
            assert accepts(table, opened_request(number, NOW_MS + number), NOW_MS)
            assert len(table) <= 3
        assert not any(accepts(table, opened_request(number, NOW_MS + number), NOW_MS) for number in range(5))
        assert not accepts(table, opened_request(9, NOW_MS + 1), NOW_MS), "as old as what was forgotten"
        assert accepts(table, opened_request(9, NOW_MS + 5), NOW_MS)

    def test_a_table_keeps_at_least_one(self) -> None:
        assert accepts(SaltTable(salts_max=1), opened_request(1), NOW_MS)
        with pytest.raises(ValueError, match="at least 1"):
            SaltTable(salts_max=0)

    @given(
        st.lists(
            st.tuples(
                st.integers(0, 5),
                st.integers(-2 * WINDOW_MS, 2 * WINDOW_MS),
            ),
            max_size=60,
        ),
        st.integers(1, 4),
        st.lists(st.integers(-WINDOW_MS, WINDOW_MS), min_size=6, max_size=6),
    )
    def test_no_order_and_no_clock_takes_a_salt_twice(
        self, order: list[tuple[int, int]], salts_max: int, sealed: list[int]
    ) -> None:
        table, taken = SaltTable(salts_max), set[int]()
        for number, now in order:
            if accepts(table, opened_request(number, NOW_MS + sealed[number]), NOW_MS + now):
                assert number not in taken
                taken.add(number)
            assert len(table) <= salts_max


def test_keys_stay_out_of_the_text_and_of_pickles() -> None:
    import pickle

    _, exchange = sealed_request()
    assert SECRET.value.hex() not in repr(exchange)
    assert repr(SECRET.value)[2:-1] not in repr(exchange)
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(exchange)
