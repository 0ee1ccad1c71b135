"""Tests of security/iris_security/symmetric.py, with both patterns."""

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from iris_security import AuthenticationError, TransportKeys
from iris_security.aead import TAG_BYTES
from iris_security.symmetric import DH_KEY_BYTES, MESSAGE_BYTES_MAX, PAYLOAD_BYTES_MAX, SymmetricState
from tests.unit.security.handshakes import BOTH_PATTERNS, EPHEMERALS, KK, LOW_ORDER, NN, STATICS, STRANGER, Pattern, public

BOTH_MESSAGES = pytest.mark.parametrize("number", [1, 2])
EACH_POINT = pytest.mark.parametrize("point", LOW_ORDER, ids=lambda point: point.hex()[:8])


# -- completed


@BOTH_PATTERNS
def test_both_sides_agree(pattern: Pattern) -> None:
    one, two = pattern.completed()
    assert one.is_complete
    assert two.is_complete
    assert one.handshake_hash == two.handshake_hash
    assert one.payload_hash == two.payload_hash
    ours, theirs = one.split(), two.split()
    assert (ours.send, ours.receive) == (theirs.receive, theirs.send)
    assert ours.send != ours.receive


@BOTH_PATTERNS
def test_written_out_by_hand(pattern: Pattern) -> None:
    script, one, two = pattern.script(), pattern.initiator(), pattern.responder()
    first = script.message(public(EPHEMERALS[0]), *pattern.firsts)
    assert one.write_message() == first
    two.read_message(first)
    second = script.message(public(EPHEMERALS[1]), *pattern.seconds)
    assert two.write_message() == second
    one.read_message(second)
    assert one.handshake_hash == script.hash
    send, receive, datagrams = script.split()
    assert one.split() == TransportKeys(send=send, receive=receive, datagrams=datagrams)


@BOTH_PATTERNS
@pytest.mark.parametrize("payload", [b"", b"x", bytes(1000), bytes(PAYLOAD_BYTES_MAX)], ids=len)
def test_payloads(pattern: Pattern, payload: bytes) -> None:
    one, two = pattern.initiator(), pattern.responder()
    first = one.write_message(payload)
    assert len(first) == DH_KEY_BYTES + len(payload) + TAG_BYTES
    assert two.read_message(first) == payload
    second = two.write_message(lambda transcript: transcript[:0] + payload)
    assert len(second) == DH_KEY_BYTES + len(payload) + TAG_BYTES
    assert one.read_message(second) == payload


@BOTH_PATTERNS
def test_fresh_ephemerals_make_fresh_keys(pattern: Pattern) -> None:
    one, _ = pattern.completed(ephemeral_private=bytes(range(3, 35)))
    assert one.split() != pattern.completed()[0].split()


# -- refused


@BOTH_PATTERNS
@BOTH_MESSAGES
def test_each_changed_bit(pattern: Pattern, number: int) -> None:
    message = pattern.awaiting(number)[1]
    for bit in range(8 * len(message)):
        side, _ = pattern.awaiting(number)
        changed = bytearray(message)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(AuthenticationError):
            side.read_message(bytes(changed))
        assert not side.is_complete


@BOTH_PATTERNS
@BOTH_MESSAGES
def test_each_truncation_and_extension(pattern: Pattern, number: int) -> None:
    message = pattern.awaiting(number)[1]
    for wrong in [message[:size] for size in range(len(message))] + [message + b"\0"]:
        side, _ = pattern.awaiting(number)
        with pytest.raises(AuthenticationError):
            side.read_message(wrong)


@BOTH_PATTERNS
def test_larger_than_a_noise_message_even_if_authentic(pattern: Pattern) -> None:
    ephemeral = public(EPHEMERALS[0])
    largest = pattern.script().message(ephemeral, *pattern.firsts, payload=bytes(PAYLOAD_BYTES_MAX))
    assert len(largest) == MESSAGE_BYTES_MAX
    pattern.responder().read_message(largest)
    larger = pattern.script().message(ephemeral, *pattern.firsts, payload=bytes(PAYLOAD_BYTES_MAX + 1))
    with pytest.raises(AuthenticationError):
        pattern.responder().read_message(larger)


@pytest.mark.parametrize(
    ("pattern", "changed"),
    [
        pytest.param(NN, {"psk": bytes(32)}, id="another secret"),
        pytest.param(NN, {"prologue": b"IRIS and less"}, id="another prologue"),
        pytest.param(KK, {"prologue": b"IRIF and less"}, id="another prologue between clouds"),
        pytest.param(KK, {"static_private": STRANGER}, id="another key"),
        pytest.param(KK, {"peer_static_public": public(STRANGER)}, id="for another one"),
        # The two roles are not the same: our own key at the other side is no peer.
        pytest.param(
            KK, {"static_private": STATICS[1], "peer_static_public": public(STATICS[0])}, id="the key of the responder"
        ),
    ],
)
def test_an_initiator_with_other_arguments(pattern: Pattern, changed: dict[str, bytes]) -> None:
    with pytest.raises(AuthenticationError):
        pattern.responder().read_message(pattern.initiator(**changed).write_message())


@BOTH_PATTERNS
def test_a_message_that_comes_back(pattern: Pattern) -> None:
    """The initiator's own message, reflected, must not answer it."""
    one = pattern.initiator()
    first = one.write_message()
    with pytest.raises(AuthenticationError):
        one.read_message(first)


@BOTH_PATTERNS
def test_an_answer_to_another_handshake(pattern: Pattern) -> None:
    _, answer = pattern.awaiting(2)
    one = pattern.initiator(ephemeral_private=EPHEMERALS[1])
    one.write_message(b"first")
    with pytest.raises(AuthenticationError):
        one.read_message(answer)


@BOTH_PATTERNS
@EACH_POINT
def test_a_point_of_low_order_in_message_1(pattern: Pattern, point: bytes) -> None:
    """The tag is right: the peer has the key and lies. It shows at once, not in our own next message."""
    two = pattern.responder()
    with pytest.raises(AuthenticationError):
        two.read_message(pattern.script().message(point, *pattern.firsts_low))
    with pytest.raises(RuntimeError):
        two.write_message()


@BOTH_PATTERNS
@EACH_POINT
def test_a_point_of_low_order_in_message_2(pattern: Pattern, point: bytes) -> None:
    one, script = pattern.initiator(), pattern.script()
    assert one.write_message() == script.message(public(EPHEMERALS[0]), *pattern.firsts)
    with pytest.raises(AuthenticationError):
        one.read_message(script.message(point, *pattern.seconds_low))


@BOTH_PATTERNS
@BOTH_MESSAGES
def test_a_failure_is_final(pattern: Pattern, number: int) -> None:
    side, message = pattern.awaiting(number)
    with pytest.raises(AuthenticationError):
        side.read_message(b"")
    for use in (lambda: side.read_message(message), side.write_message, side.split, lambda: side.handshake_hash):
        with pytest.raises(RuntimeError, match="DEAD"):
            use()


@BOTH_PATTERNS
@BOTH_MESSAGES
def test_all_failures_look_alike(pattern: Pattern, number: int) -> None:
    message = pattern.awaiting(number)[1]
    texts = set()
    for wrong in (b"", message[:-1], bytes(32) + message[32:], message[:-1] + bytes([message[-1] ^ 1])):
        with pytest.raises(AuthenticationError) as raised:
            pattern.awaiting(number)[0].read_message(wrong)
        assert raised.value.__cause__ is None
        texts.add(str(raised.value))
    assert len(texts) == 1


# -- misused


@BOTH_PATTERNS
def test_out_of_turn(pattern: Pattern) -> None:
    with pytest.raises(RuntimeError):
        pattern.initiator().read_message(bytes(48))
    with pytest.raises(RuntimeError):
        pattern.responder().write_message()
    one = pattern.initiator()
    one.write_message()
    with pytest.raises(RuntimeError):
        one.write_message()
    for side in pattern.completed():
        with pytest.raises(RuntimeError):
            side.write_message()
        with pytest.raises(RuntimeError):
            side.read_message(bytes(48))


@BOTH_PATTERNS
def test_split_too_early(pattern: Pattern) -> None:
    one = pattern.initiator()
    one.write_message()
    assert not one.is_complete
    with pytest.raises(RuntimeError):
        one.split()
    with pytest.raises(RuntimeError):
        _ = one.handshake_hash


@BOTH_PATTERNS
def test_split_twice(pattern: Pattern) -> None:
    """Two sealers of one key would use every nonce twice."""
    one, _ = pattern.completed()
    one.split()
    with pytest.raises(RuntimeError):
        one.split()
    assert one.is_complete
    assert len(one.handshake_hash) == 32


@BOTH_PATTERNS
def test_too_large_a_payload_changes_nothing(pattern: Pattern) -> None:
    one = pattern.initiator()
    with pytest.raises(ValueError, match="at most"):
        one.write_message(bytes(PAYLOAD_BYTES_MAX + 1))
    pattern.responder().read_message(one.write_message())


@pytest.mark.parametrize(
    ("pattern", "wrong", "said"),
    [
        (NN, "psk", "a pre-shared key has 32 bytes, not 31"),
        (NN, "ephemeral_private", "an ephemeral key has 32 bytes, not 31"),
        (KK, "static_private", "a static key has 32 bytes, not 31"),
        (KK, "peer_static_public", "a static key has 32 bytes, not 31"),
    ],
)
def test_keys_of_another_size(pattern: Pattern, wrong: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        pattern.initiator(**{wrong: bytes(31)})


@BOTH_PATTERNS
def test_keys_stay_out_of_the_text(pattern: Pattern) -> None:
    one, _ = pattern.completed()
    assert repr(one) == f"{pattern.kind.__name__}(initiator=True, COMPLETE)"
    assert repr(one.split()) == "TransportKeys(<hidden>)"


def test_a_key_is_for_one_payload() -> None:
    script = SymmetricState(KK.name, b"")
    script.mix_key(bytes(32))
    sealed = script.encrypt_and_hash(b"")
    assert sealed != AESGCM(bytes(32)).encrypt(bytes(12), b"", b"")
    with pytest.raises(AssertionError, match="second payload"):
        script.encrypt_and_hash(b"")
