"""Tests of security/iris_security/noise_kk.py; test_noise_kk_interoperability.py runs it against another implementation."""

from collections.abc import Callable

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from iris_security import AuthenticationError, KnownKeysHandshake
from iris_security.noise_kk import PROTOCOL_NAME
from iris_security.symmetric import DH_KEY_BYTES, PAYLOAD_BYTES_MAX, SymmetricState
from tests.unit.security.test_noise import LOW_ORDER

PROLOGUE = b"IRIF and more"
STATICS = bytes(range(100, 132)), bytes(range(101, 133))
EPHEMERALS = bytes(range(1, 33)), bytes(range(2, 34))
STRANGER = bytes(range(50, 82))


def public(private: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def dh(private: bytes, other_private: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(private).exchange(
        X25519PrivateKey.from_private_bytes(other_private).public_key()
    )


def first_message(ephemeral_public: bytes, ephemeral_static: bytes) -> SymmetricState:
    """Return the state before the payload of message 1, with an ephemeral key and a product that no honest peer may have."""
    script = SymmetricState(PROTOCOL_NAME, PROLOGUE)
    for key in (public(STATICS[0]), public(STATICS[1]), ephemeral_public):
        script.mix_hash(key)
    script.mix_key(ephemeral_static)
    script.mix_key(dh(*STATICS))
    return script


def initiator(
    *, static: bytes = STATICS[0], peer: bytes = STATICS[1], prologue: bytes = PROLOGUE, ephemeral: bytes = EPHEMERALS[0]
) -> KnownKeysHandshake:
    return KnownKeysHandshake(
        initiator=True,
        static_private=static,
        peer_static_public=public(peer),
        prologue=prologue,
        ephemeral_private=ephemeral,
    )


def responder(
    *, static: bytes = STATICS[1], peer: bytes = STATICS[0], prologue: bytes = PROLOGUE, ephemeral: bytes = EPHEMERALS[1]
) -> KnownKeysHandshake:
    return KnownKeysHandshake(
        initiator=False,
        static_private=static,
        peer_static_public=public(peer),
        prologue=prologue,
        ephemeral_private=ephemeral,
    )


def completed() -> tuple[KnownKeysHandshake, KnownKeysHandshake]:
    one, two = initiator(), responder()
    two.read_message(one.write_message())
    one.read_message(two.write_message())
    return one, two


def awaiting_message_2() -> tuple[KnownKeysHandshake, bytes]:
    one, two = initiator(), responder()
    two.read_message(one.write_message(b"first"))
    return one, two.write_message(b"second")


def awaiting_message_1() -> tuple[KnownKeysHandshake, bytes]:
    return responder(), initiator().write_message(b"first")


AWAITING = pytest.mark.parametrize("awaiting", [awaiting_message_1, awaiting_message_2])


class TestCompleted:
    def test_both_sides_agree(self) -> None:
        one, two = completed()
        assert one.is_complete
        assert two.is_complete
        assert one.handshake_hash == two.handshake_hash
        assert one.payload_hash == two.payload_hash
        ours, theirs = one.split(), two.split()
        assert (ours.send, ours.receive) == (theirs.receive, theirs.send)
        assert ours.send != ours.receive

    @pytest.mark.parametrize("payload", [b"", b"x", bytes(PAYLOAD_BYTES_MAX)], ids=len)
    def test_payloads(self, payload: bytes) -> None:
        one, two = initiator(), responder()
        assert two.read_message(one.write_message(payload)) == payload
        assert one.read_message(two.write_message(lambda transcript: transcript[:0] + payload)) == payload

    def test_fresh_ephemerals_make_fresh_keys(self) -> None:
        one, two = initiator(), responder(ephemeral=bytes(range(3, 35)))
        two.read_message(one.write_message())
        one.read_message(two.write_message())
        assert one.split() != completed()[0].split()


class TestRefused:
    @AWAITING
    def test_each_changed_bit(self, awaiting: Callable[[], tuple[KnownKeysHandshake, bytes]]) -> None:
        message = awaiting()[1]
        for bit in range(8 * len(message)):
            side, _ = awaiting()
            changed = bytearray(message)
            changed[bit // 8] ^= 1 << bit % 8
            with pytest.raises(AuthenticationError):
                side.read_message(bytes(changed))
            assert not side.is_complete

    @AWAITING
    def test_each_truncation_and_extension(self, awaiting: Callable[[], tuple[KnownKeysHandshake, bytes]]) -> None:
        message = awaiting()[1]
        for wrong in [message[:size] for size in range(len(message))] + [message + b"\0"]:
            side, _ = awaiting()
            with pytest.raises(AuthenticationError):
                side.read_message(wrong)

    @pytest.mark.parametrize(
        "stranger",
        [
            lambda: initiator(static=STRANGER),
            lambda: initiator(peer=STRANGER),
            lambda: initiator(prologue=b"IRIF and less"),
            # The two roles are not the same: our own key at the other side is no peer.
            lambda: initiator(static=STATICS[1], peer=STATICS[0]),
        ],
        ids=["another key", "for another one", "another prologue", "the key of the responder"],
    )
    def test_an_initiator_that_is_another_one(self, stranger: Callable[[], KnownKeysHandshake]) -> None:
        with pytest.raises(AuthenticationError):
            responder().read_message(stranger().write_message())

    def test_the_stolen_key_of_a_side_does_not_show_another_one_to_it(self) -> None:
        """A thief of the responder's private key can forge message 1, and cannot read what answers it."""
        forger = first_message(public(EPHEMERALS[0]), dh(EPHEMERALS[0], STATICS[1]))
        two = responder()
        assert two.read_message(public(EPHEMERALS[0]) + forger.encrypt_and_hash(b"")) == b""
        answer = two.write_message(b"hello")
        forger.mix_hash(answer[:DH_KEY_BYTES])
        forger.mix_key(dh(EPHEMERALS[0], EPHEMERALS[1]))
        forger.mix_key(dh(STATICS[1], EPHEMERALS[1]))  # in the place of the initiator's key, which the thief does not have
        with pytest.raises(InvalidTag):
            forger.decrypt_and_hash(answer[DH_KEY_BYTES:])

    def test_a_message_that_comes_back(self) -> None:
        """The initiator's own message, reflected, must not answer it."""
        one = initiator()
        first = one.write_message()
        with pytest.raises(AuthenticationError):
            one.read_message(first)

    def test_an_answer_to_another_handshake(self) -> None:
        _, answer = awaiting_message_2()
        one = initiator(ephemeral=EPHEMERALS[1])
        one.write_message(b"first")
        with pytest.raises(AuthenticationError):
            one.read_message(answer)

    @pytest.mark.parametrize("point", LOW_ORDER, ids=lambda point: point.hex()[:8])
    def test_a_point_of_low_order_in_message_1(self, point: bytes) -> None:
        """The tag is right: the peer has its key and lies. It shows at once, not in our own next message."""
        two = responder()
        with pytest.raises(AuthenticationError):
            two.read_message(point + first_message(point, bytes(32)).encrypt_and_hash(b""))
        with pytest.raises(RuntimeError):
            two.write_message()

    @pytest.mark.parametrize("point", LOW_ORDER, ids=lambda point: point.hex()[:8])
    def test_a_point_of_low_order_in_message_2(self, point: bytes) -> None:
        one, script = initiator(), first_message(public(EPHEMERALS[0]), dh(EPHEMERALS[0], STATICS[1]))
        assert one.write_message() == public(EPHEMERALS[0]) + script.encrypt_and_hash(b"")
        script.mix_hash(point)
        script.mix_key(bytes(32))
        script.mix_key(bytes(32))
        with pytest.raises(AuthenticationError):
            one.read_message(point + script.encrypt_and_hash(b""))

    @pytest.mark.parametrize("point", LOW_ORDER, ids=lambda point: point.hex()[:8])
    def test_a_point_of_low_order_as_the_key_of_the_peer(self, point: bytes) -> None:
        with pytest.raises(ValueError, match="low order"):
            KnownKeysHandshake(
                initiator=True,
                static_private=STATICS[0],
                peer_static_public=point,
                prologue=b"",
                ephemeral_private=EPHEMERALS[0],
            )

    @AWAITING
    def test_then_it_is_dead(self, awaiting: Callable[[], tuple[KnownKeysHandshake, bytes]]) -> None:
        side, message = awaiting()
        with pytest.raises(AuthenticationError):
            side.read_message(b"")
        with pytest.raises(RuntimeError, match="DEAD"):
            side.read_message(message)
        with pytest.raises(RuntimeError, match="DEAD"):
            side.write_message()
        with pytest.raises(RuntimeError, match="DEAD"):
            _ = side.handshake_hash

    @AWAITING
    def test_all_failures_look_alike(self, awaiting: Callable[[], tuple[KnownKeysHandshake, bytes]]) -> None:
        message = awaiting()[1]
        texts = set()
        for wrong in (b"", message[:-1], bytes(32) + message[32:], message[:-1] + bytes([message[-1] ^ 1])):
            with pytest.raises(AuthenticationError) as raised:
                awaiting()[0].read_message(wrong)
            assert raised.value.__cause__ is None
            texts.add(str(raised.value))
        assert len(texts) == 1


class TestMisused:
    def test_out_of_turn(self) -> None:
        with pytest.raises(RuntimeError):
            initiator().read_message(bytes(48))
        with pytest.raises(RuntimeError):
            responder().write_message()
        for side in completed():
            with pytest.raises(RuntimeError):
                side.write_message()
            with pytest.raises(RuntimeError):
                side.read_message(bytes(48))

    def test_split_twice(self) -> None:
        one, _ = completed()
        one.split()
        with pytest.raises(RuntimeError):
            one.split()

    def test_too_large_a_payload_changes_nothing(self) -> None:
        one = initiator()
        with pytest.raises(ValueError, match="at most"):
            one.write_message(bytes(PAYLOAD_BYTES_MAX + 1))
        responder().read_message(one.write_message())

    @pytest.mark.parametrize("wrong", ["static_private", "peer_static_public", "ephemeral_private"])
    def test_keys_of_another_size(self, wrong: str) -> None:
        keys = {"static_private": STATICS[0], "peer_static_public": public(STATICS[1]), "ephemeral_private": EPHEMERALS[0]}
        with pytest.raises(ValueError, match="has 32 bytes, not 31"):
            KnownKeysHandshake(initiator=True, prologue=b"", **(keys | {wrong: bytes(31)}))


def test_it_is_of_no_more_than_one_payload_a_key() -> None:
    script = SymmetricState(PROTOCOL_NAME, b"")
    script.mix_key(bytes(32))
    sealed = script.encrypt_and_hash(b"")
    assert sealed != AESGCM(bytes(32)).encrypt(bytes(12), b"", b"")
    with pytest.raises(AssertionError, match="second payload"):
        script.encrypt_and_hash(b"")


def test_keys_stay_out_of_the_text() -> None:
    one, _ = completed()
    assert repr(one) == "KnownKeysHandshake(initiator=True, COMPLETE)"
    assert repr(one.split()) == "TransportKeys(<hidden>)"
