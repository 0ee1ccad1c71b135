"""Tests of security/iris_security/record.py."""

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from hypothesis import given
from hypothesis import strategies as st

from iris_security import AuthenticationError, KeyExhaustedError, RecordOpener, RecordSealer, Suite
from iris_security.aead import TAG_BYTES
from iris_security.record import COUNTER_MAX, FILLS_BUFFERS, KEPT_FROM_RECORDS, REKEY_RECORDS, rekey

KEY = bytes(range(32))


def records(count: int, *, rekey_records: int = REKEY_RECORDS) -> list[bytes]:
    sealer = RecordSealer(KEY, rekey_records=rekey_records)
    return [sealer.seal(b"record %d" % number) for number in range(count)]


def test_pinned() -> None:
    sealer = RecordSealer(KEY, rekey_records=1)
    assert sealer.seal(b"hello").hex() == "66d9d9b2da0e0c4679f3a82524f5e0499271e16f30"
    assert sealer.seal(b"hello").hex() == "127e405fe505b159f55b98fb740d94992e8955ae8b"
    assert rekey(KEY).hex() == "0201675c87335949b909793da5bb4d92fcf6d44b92a6e0792b6ae48b1881259d"


def test_sealed_as_designed() -> None:
    first, second = records(2)
    assert first == AESGCM(KEY).encrypt(bytes(12), b"record 0", b"")
    assert second == AESGCM(KEY).encrypt(bytes(11) + b"\x01", b"record 1", b"")


def test_a_rest_changes_no_record() -> None:
    """Rests at all distances from a rekey, and before and after the cipher is kept."""
    rekey_records, count = KEPT_FROM_RECORDS + 3, 5 * KEPT_FROM_RECORDS
    expected = records(count, rekey_records=rekey_records)
    for every in range(1, KEPT_FROM_RECORDS + 5):
        sealer, opener = RecordSealer(KEY, rekey_records=rekey_records), RecordOpener(KEY, rekey_records=rekey_records)
        for number, record in enumerate(expected):
            if number % every == 0:
                sealer.rest()
                opener.rest()
            assert sealer.seal(b"record %d" % number) == record
            assert opener.open(record) == b"record %d" % number
        assert sealer.rekeys == opener.rekeys == (count - 1) // rekey_records


def test_a_cipher_is_kept_in_a_series_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    made = 0
    original = Suite.cipher

    def count(suite: Suite, key: bytes) -> object:
        nonlocal made
        made += 1
        return original(suite, key)

    monkeypatch.setattr(Suite, "cipher", count)
    sealer, opener = RecordSealer(KEY), RecordOpener(KEY)
    for series in (1, 2):
        for _ in range(3 * KEPT_FROM_RECORDS):
            opener.open(sealer.seal(b""))
        assert made == 2 * series * (KEPT_FROM_RECORDS + 1)
        sealer.rest()
        opener.rest()


def test_chacha_is_sealed_and_rekeyed_alike() -> None:
    sealer = RecordSealer(KEY, Suite.CHACHA20_POLY1305, rekey_records=1)
    cipher = ChaCha20Poly1305(KEY)
    assert sealer.seal(b"first") == cipher.encrypt(bytes(12), b"first", b"")
    key = cipher.encrypt(bytes(4) + b"\xff" * 8, bytes(32), b"")[:32]
    assert rekey(KEY, Suite.CHACHA20_POLY1305) == key
    second = sealer.seal(b"second")
    assert second == ChaCha20Poly1305(key).encrypt(bytes(11) + b"\x01", b"second", b"")
    opener = RecordOpener(KEY, Suite.CHACHA20_POLY1305, rekey_records=2)
    assert opener.open(RecordSealer(KEY, Suite.CHACHA20_POLY1305).seal(b"x")) == b"x"
    with pytest.raises(AuthenticationError):
        RecordOpener(KEY).open(RecordSealer(KEY, Suite.CHACHA20_POLY1305).seal(b"x"))


def test_rekeyed_as_noise_says() -> None:
    key = AESGCM(KEY).encrypt(bytes(4) + b"\xff" * 8, bytes(32), b"")[:32]
    assert rekey(KEY) == key
    # The counter goes on.
    assert records(3, rekey_records=2)[2] == AESGCM(key).encrypt(bytes(11) + b"\x02", b"record 2", b"")


@pytest.mark.parametrize(("count", "rekeys"), [(0, 0), (1, 0), (3, 0), (4, 1), (6, 1), (7, 2)])
def test_records_and_rekeys_are_counted_at_both_ends(count: int, rekeys: int) -> None:
    sealer, opener = RecordSealer(KEY, rekey_records=3), RecordOpener(KEY, rekey_records=3)
    for _ in range(count):
        opener.open(sealer.seal(b"x"))
    assert (sealer.records, sealer.rekeys) == (opener.records, opener.rekeys) == (count, rekeys)


@given(st.lists(st.binary(max_size=100), max_size=30), st.integers(1, 5))
def test_round_trip_over_any_rekey(plaintexts: list[bytes], rekey_records: int) -> None:
    sealer, opener = RecordSealer(KEY, rekey_records=rekey_records), RecordOpener(KEY, rekey_records=rekey_records)
    for plaintext in plaintexts:
        sealed = sealer.seal(plaintext)
        assert len(sealed) == len(plaintext) + TAG_BYTES
        assert opener.open(sealed) == plaintext


def test_round_trip_over_the_usual_rekey() -> None:
    sealer, opener = RecordSealer(KEY), RecordOpener(KEY)
    for _ in range(REKEY_RECORDS):
        opener.open(sealer.seal(b""))
    sealed = sealer.seal(b"after")
    assert opener.open(sealed) == b"after"
    with_old_key = AESGCM(KEY).encrypt(REKEY_RECORDS.to_bytes(12, "big"), b"after", None)
    assert sealed != with_old_key


def test_larger_than_a_noise_message() -> None:
    plaintext = bytes(200_000)
    assert RecordOpener(KEY).open(RecordSealer(KEY).seal(plaintext)) == plaintext


@pytest.mark.parametrize("buffer", [bytearray, memoryview])
def test_any_buffer(buffer: type[bytearray] | type[memoryview]) -> None:
    sealed = RecordSealer(KEY).seal(buffer(b"hello"))
    opened = RecordOpener(KEY).open(buffer(sealed))
    assert opened == b"hello"
    assert type(opened) is bytes


def test_a_record_is_refused_a_second_time() -> None:
    opener = RecordOpener(KEY)
    first, second = records(2)
    opener.open(first)
    with pytest.raises(AuthenticationError):
        opener.open(first)
    opener.open(second)
    with pytest.raises(AuthenticationError):
        opener.open(first)


@pytest.mark.parametrize("rekey_records", [1, 2, 3, 100])
def test_a_dropped_record_stops_the_stream(rekey_records: int) -> None:
    opener = RecordOpener(KEY, rekey_records=rekey_records)
    sealed = records(6, rekey_records=rekey_records)
    opener.open(sealed[0])
    for later in sealed[2:]:
        with pytest.raises(AuthenticationError):
            opener.open(later)


def test_swapped_records_are_refused() -> None:
    first, second = records(2)
    opener = RecordOpener(KEY)
    with pytest.raises(AuthenticationError):
        opener.open(second)
    assert opener.open(first) == b"record 0"


@pytest.mark.parametrize("at_rekey", [False, True])
def test_each_changed_bit_is_refused(at_rekey: bool) -> None:
    sealed = records(3, rekey_records=2 if at_rekey else 100)
    opener = RecordOpener(KEY, rekey_records=2 if at_rekey else 100)
    opener.open(sealed[0])
    opener.open(sealed[1])
    for bit in range(8 * len(sealed[2])):
        changed = bytearray(sealed[2])
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(AuthenticationError):
            opener.open(changed)
    # A failure moved nothing, not even over a rekey.
    assert opener.open(sealed[2]) == b"record 2"


def test_each_truncation_and_extension_is_refused() -> None:
    sealed = records(1)[0]
    opener = RecordOpener(KEY)
    for size in range(len(sealed)):
        with pytest.raises(AuthenticationError):
            opener.open(sealed[:size])
    with pytest.raises(AuthenticationError):
        opener.open(sealed + b"\0")


def test_the_failure_is_opaque() -> None:
    with pytest.raises(AuthenticationError) as raised:
        RecordOpener(KEY).open(b"")
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__


def test_another_key_is_refused() -> None:
    with pytest.raises(AuthenticationError):
        RecordOpener(bytes(32)).open(records(1)[0])


def test_sides_that_rekey_differently_part() -> None:
    sealed = records(3, rekey_records=2)
    opener = RecordOpener(KEY, rekey_records=3)
    opener.open(sealed[0])
    opener.open(sealed[1])
    with pytest.raises(AuthenticationError):
        opener.open(sealed[2])


def test_the_last_counter_is_not_used() -> None:
    """Nobody lives to seal 2^64 records, so the test sets the counters forward."""
    sealer, opener = RecordSealer(KEY, rekey_records=1 << 64), RecordOpener(KEY, rekey_records=1 << 64)
    assert COUNTER_MAX == 2**64 - 2  # the one after it is the nonce of a rekey
    sealer._counter = opener._counter = COUNTER_MAX
    last = sealer.seal(b"last")
    assert last == AESGCM(KEY).encrypt(COUNTER_MAX.to_bytes(12, "big"), b"last", None)  # No rekey was due.
    assert opener.open(last) == b"last"
    for _ in range(2):
        with pytest.raises(KeyExhaustedError):
            sealer.seal(b"one more")
        with pytest.raises(AuthenticationError):
            opener.open(AESGCM(KEY).encrypt(bytes(4) + b"\xff" * 8, b"one more", None))


def test_the_last_counter_is_not_used_after_a_rekey_either() -> None:
    """The second rekey would be due at 2^64, beyond the last counter."""
    sealer, opener = RecordSealer(KEY, rekey_records=1 << 63), RecordOpener(KEY, rekey_records=1 << 63)
    for counter in (1 << 63, COUNTER_MAX):
        sealer._counter = opener._counter = counter
        assert opener.open(sealer.seal(b"late")) == b"late"
    with pytest.raises(KeyExhaustedError):
        sealer.seal(b"one more")
    with pytest.raises(AuthenticationError):
        opener.open(AESGCM(rekey(KEY)).encrypt(bytes(4) + b"\xff" * 8, b"one more", None))


@pytest.mark.parametrize("side", [RecordSealer, RecordOpener])
def test_wrong_arguments(side: type[RecordSealer] | type[RecordOpener]) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        side(bytes(16))
    with pytest.raises(ValueError, match="at least 1"):
        side(KEY, rekey_records=0)


def test_a_counter_is_not_used_again_after_a_wrong_argument() -> None:
    sealer = RecordSealer(KEY)
    with pytest.raises(TypeError):
        sealer.seal("text")  # type: ignore[arg-type]
    assert sealer.seal(b"x") == AESGCM(KEY).encrypt(bytes(11) + b"\x01", b"x", None)


@pytest.mark.parametrize("side", [RecordSealer(KEY), RecordOpener(KEY)])
def test_the_key_stays_out_of_the_text(side: RecordSealer | RecordOpener) -> None:
    assert repr(KEY)[2:-1] not in repr(side)
    assert KEY.hex() not in repr(side)


def test_a_key_that_reaches_exactly_to_the_last_counter_is_followed_by_one_for_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iris_security.record.COUNTER_MAX", 3)
    sealer, opener = RecordSealer(KEY, rekey_records=3), RecordOpener(KEY, rekey_records=3)
    for number in range(4):  # counters 0 to 3
        assert opener.open(sealer.seal(b"record %d" % number)) == b"record %d" % number
    with pytest.raises(KeyExhaustedError):
        sealer.seal(b"one too many")


fills_buffers = pytest.mark.skipif(not FILLS_BUFFERS, reason="this version of cryptography fills no buffers")


@fills_buffers
@given(st.lists(st.tuples(st.binary(max_size=100), st.booleans(), st.booleans()), max_size=30), st.integers(1, 5))
def test_buffers_are_filled_with_the_same_records(plaintexts: list[tuple[bytes, bool, bool]], rekey_records: int) -> None:
    """Both ways of each side share its counter and its keys."""
    sealer, other = (RecordSealer(KEY, rekey_records=rekey_records) for _ in range(2))
    opener = RecordOpener(KEY, rekey_records=rekey_records)
    for plaintext, is_sealed_into, is_opened_into in plaintexts:
        sealed = bytearray(len(plaintext) + TAG_BYTES)
        if is_sealed_into:
            sealer.seal_into(plaintext, memoryview(sealed))
        else:
            sealed[:] = sealer.seal(plaintext)
        assert sealed == other.seal(plaintext)
        opened = bytearray(len(plaintext))
        if is_opened_into:
            opener.open_into(sealed, memoryview(opened))
        else:
            opened[:] = opener.open(sealed)
        assert opened == plaintext
    assert (sealer.records, sealer.rekeys) == (other.records, other.rekeys) == (opener.records, opener.rekeys)


@fills_buffers
def test_a_changed_record_is_opened_into_no_buffer_and_counts_for_nothing() -> None:
    opener, (first, second) = RecordOpener(KEY), records(2)
    buffer = memoryview(bytearray(len(first) - TAG_BYTES))
    for wrong in (second, first[:-1] + bytes((first[-1] ^ 1,)), bytes(len(first))):
        with pytest.raises(AuthenticationError):
            opener.open_into(wrong, buffer)
    assert opener.records == 0
    opener.open_into(first, buffer)
    assert bytes(buffer) == b"record 0"


@fills_buffers
def test_a_failed_encryption_uses_up_its_counter() -> None:
    """A nonce never serves twice, whatever was written under it."""
    sealer = RecordSealer(KEY)
    with pytest.raises(ValueError, match="buffer"):
        sealer.seal_into(b"record 0", memoryview(bytearray(3)))
    assert sealer.records == 1
    assert sealer.seal(b"record 1") == records(2)[1]


@fills_buffers
def test_no_buffer_is_filled_once_the_counters_are_used_up() -> None:
    sealer, opener = RecordSealer(KEY, rekey_records=COUNTER_MAX + 2), RecordOpener(KEY, rekey_records=COUNTER_MAX + 2)
    sealer._counter = opener._counter = COUNTER_MAX + 1  # those of years
    with pytest.raises(KeyExhaustedError):
        sealer.seal_into(b"", memoryview(bytearray(TAG_BYTES)))
    with pytest.raises(AuthenticationError):
        opener.open_into(bytes(TAG_BYTES), memoryview(bytearray(0)))
