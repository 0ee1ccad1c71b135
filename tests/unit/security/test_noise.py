"""Tests of security/iris_security/noise.py by itself; test_noise_interoperability.py runs it against another implementation."""

import hashlib
import hmac
from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from iris_security import AuthenticationError, Handshake, TransportKeys
from iris_security.aead import TAG_BYTES
from iris_security.noise import PROTOCOL_NAME
from iris_security.symmetric import DH_KEY_BYTES, MESSAGE_BYTES_MAX, PAYLOAD_BYTES_MAX

PSK = bytes(range(100, 132))
PROLOGUE = b"IRIS and more"
OURS = bytes(range(1, 33))
THEIRS = bytes(range(2, 34))

# The points of low order of Curve25519, little-endian, with p = 2^255 - 19: 0, 1, two of order 8, p - 1, p, p + 1; and 0 with
# the top bit, which X25519 ignores (RFC 7748 section 5).
LOW_ORDER = [
    bytes(32),
    b"\x01" + bytes(31),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
    ((1 << 255) - 20).to_bytes(32, "little"),
    ((1 << 255) - 19).to_bytes(32, "little"),
    ((1 << 255) - 18).to_bytes(32, "little"),
    bytes(31) + b"\x80",
]


def initiator(*, psk: bytes = PSK, prologue: bytes = PROLOGUE) -> Handshake:
    return Handshake(initiator=True, psk=psk, prologue=prologue, ephemeral_private=OURS)


def responder(*, psk: bytes = PSK, prologue: bytes = PROLOGUE) -> Handshake:
    return Handshake(initiator=False, psk=psk, prologue=prologue, ephemeral_private=THEIRS)


def completed() -> tuple[Handshake, Handshake]:
    one, two = initiator(), responder()
    two.read_message(one.write_message())
    one.read_message(two.write_message())
    return one, two


def awaiting_message_2() -> tuple[Handshake, bytes]:
    one, two = initiator(), responder()
    two.read_message(one.write_message(b"first"))
    return one, two.write_message(b"second")


def awaiting_message_1() -> tuple[Handshake, bytes]:
    return responder(), initiator().write_message(b"first")


AWAITING = pytest.mark.parametrize("awaiting", [awaiting_message_1, awaiting_message_2])


class Script:
    """Noise written out once more, with none of the code under test, to make messages that no honest peer makes."""

    def __init__(self) -> None:
        self.hash = hashlib.sha256(PROTOCOL_NAME + PROLOGUE).digest()
        self.chaining_key = PROTOCOL_NAME
        _, mixed = self.mix_key(PSK, with_hash=True)
        self.mix_hash(mixed)

    def mix_hash(self, data: bytes) -> None:
        self.hash = hashlib.sha256(self.hash + data).digest()

    def mix_key(self, material: bytes, *, with_hash: bool = False) -> tuple[bytes, bytes]:
        extracted = hmac.new(self.chaining_key, material, "sha256").digest()
        first = hmac.new(extracted, b"\x01", "sha256").digest()
        second = hmac.new(extracted, first + b"\x02", "sha256").digest()
        third = hmac.new(extracted, second + b"\x03", "sha256").digest()
        self.chaining_key = first
        return (third, second) if with_hash else (second, third)

    def message(self, public: bytes, *materials: bytes, payload: bytes = b"") -> bytes:
        self.mix_hash(public)
        key, _ = self.mix_key(public)
        for material in materials:
            key, _ = self.mix_key(material)
        sealed = AESGCM(key).encrypt(bytes(12), payload, self.hash)
        self.mix_hash(sealed)
        return public + sealed


class TestCompleted:
    def test_both_sides_agree(self) -> None:
        one, two = completed()
        assert one.is_complete
        assert two.is_complete
        assert one.handshake_hash == two.handshake_hash
        ours, theirs = one.split(), two.split()
        assert (ours.send, ours.receive) == (theirs.receive, theirs.send)
        assert ours.send != ours.receive

    def test_pinned(self) -> None:
        psk = bytes.fromhex("4d8a592c67200379fe1c485458a5d36db560f38a16dec0276ca55cdbb8d846d8")
        one, two = initiator(psk=psk, prologue=b"IRIS"), responder(psk=psk, prologue=b"IRIS")
        first = one.write_message()
        two.read_message(first)
        second = two.write_message(b"hello")
        assert one.read_message(second) == b"hello"
        assert first.hex() == (
            "07a37cbc142093c8b755dc1b10e86cb426374ad16aa853ed0bdfc0b2b86d1c7c24bb9c0b6244704ee00157c3926d2047"
        )
        assert second.hex() == (
            "ab9f2628c325c141e9fb2430f106850f62930bc3f0b12df39a9b84a49c7c1d12ec9e72fffc9924ce3c1188cbd0b3ebc975cbd0635d"
        )
        assert one.handshake_hash.hex() == "cfa78a4e17d8d2ac23d766c5f2beff5d496601cd403f71ac07974c7748963fe5"
        keys = one.split()
        assert keys.send.hex() == "ecc3466249f2c403e06ce0887c8411be72bd521bf91a65a710475fca4dac3ed9"
        assert keys.receive.hex() == "b750b62895c923c961b9663e94b101c48f5d8a037cc6236130f6f295cecfe0bf"

    def test_written_out_by_hand(self) -> None:
        script = Script()
        shared = X25519PrivateKey.from_private_bytes(OURS).exchange(X25519PrivateKey.from_private_bytes(THEIRS).public_key())
        public = [X25519PrivateKey.from_private_bytes(key).public_key().public_bytes_raw() for key in (OURS, THEIRS)]
        one, two = initiator(), responder()
        first = script.message(public[0])
        assert one.write_message() == first
        two.read_message(first)
        second = script.message(public[1], shared)
        assert two.write_message() == second
        one.read_message(second)
        assert one.handshake_hash == script.hash
        extracted = hmac.new(script.chaining_key, b"", "sha256").digest()
        send = hmac.new(extracted, b"\x01", "sha256").digest()
        receive = hmac.new(extracted, send + b"\x02", "sha256").digest()
        assert one.split() == TransportKeys(send=send, receive=receive)

    @pytest.mark.parametrize("payload", [b"", b"x", bytes(1000), bytes(PAYLOAD_BYTES_MAX)])
    def test_payloads(self, payload: bytes) -> None:
        one, two = initiator(), responder()
        first = one.write_message(payload)
        assert len(first) == DH_KEY_BYTES + len(payload) + TAG_BYTES
        assert two.read_message(first) == payload
        second = two.write_message(payload)
        assert len(second) == DH_KEY_BYTES + len(payload) + TAG_BYTES
        assert one.read_message(second) == payload

    def test_fresh_ephemerals_make_fresh_keys(self) -> None:
        one = initiator()
        two = Handshake(initiator=False, psk=PSK, prologue=PROLOGUE, ephemeral_private=bytes(range(3, 35)))
        two.read_message(one.write_message())
        one.read_message(two.write_message())
        assert one.split() != completed()[0].split()


class TestRefused:
    @AWAITING
    def test_each_changed_bit(self, awaiting: Callable[[], tuple[Handshake, bytes]]) -> None:
        message = awaiting()[1]
        for bit in range(8 * len(message)):
            side, _ = awaiting()
            changed = bytearray(message)
            changed[bit // 8] ^= 1 << bit % 8
            with pytest.raises(AuthenticationError):
                side.read_message(bytes(changed))
            assert not side.is_complete

    @AWAITING
    def test_each_truncation_and_extension(self, awaiting: Callable[[], tuple[Handshake, bytes]]) -> None:
        message = awaiting()[1]
        for wrong in [message[:size] for size in range(len(message))] + [message + b"\0"]:
            side, _ = awaiting()
            with pytest.raises(AuthenticationError):
                side.read_message(wrong)

    def test_larger_than_a_noise_message_even_if_authentic(self) -> None:
        public = X25519PrivateKey.from_private_bytes(OURS).public_key().public_bytes_raw()
        largest = Script().message(public, payload=bytes(PAYLOAD_BYTES_MAX))
        assert len(largest) == MESSAGE_BYTES_MAX
        responder().read_message(largest)
        with pytest.raises(AuthenticationError):
            responder().read_message(Script().message(public, payload=bytes(PAYLOAD_BYTES_MAX + 1)))

    def test_another_secret(self) -> None:
        with pytest.raises(AuthenticationError):
            responder().read_message(initiator(psk=bytes(32)).write_message())

    def test_another_prologue(self) -> None:
        with pytest.raises(AuthenticationError):
            responder().read_message(initiator(prologue=b"IRIS and less").write_message())

    def test_a_message_that_comes_back(self) -> None:
        """The initiator's own message, reflected, must not answer it."""
        one = initiator()
        first = one.write_message()
        with pytest.raises(AuthenticationError):
            one.read_message(first)

    def test_an_answer_to_another_handshake(self) -> None:
        _, answer = awaiting_message_2()
        one = Handshake(initiator=True, psk=PSK, prologue=PROLOGUE, ephemeral_private=THEIRS)
        one.write_message(b"first")
        with pytest.raises(AuthenticationError):
            one.read_message(answer)

    @pytest.mark.parametrize("point", LOW_ORDER, ids=lambda point: point.hex()[:8])
    def test_a_point_of_low_order_in_message_1(self, point: bytes) -> None:
        """The tag is right: the peer has the secret and lies. It shows at once, not in our own next message."""
        two = responder()
        with pytest.raises(AuthenticationError):
            two.read_message(Script().message(point))
        with pytest.raises(RuntimeError):
            two.write_message()

    @pytest.mark.parametrize("point", LOW_ORDER, ids=lambda point: point.hex()[:8])
    def test_a_point_of_low_order_in_message_2(self, point: bytes) -> None:
        script = Script()
        one = initiator()
        script.message(one.write_message()[:DH_KEY_BYTES])
        with pytest.raises(AuthenticationError):
            one.read_message(script.message(point, bytes(32)))

    @AWAITING
    def test_then_it_is_dead(self, awaiting: Callable[[], tuple[Handshake, bytes]]) -> None:
        side, message = awaiting()
        with pytest.raises(AuthenticationError):
            side.read_message(b"")
        with pytest.raises(RuntimeError, match="DEAD"):
            side.read_message(message)
        with pytest.raises(RuntimeError, match="DEAD"):
            side.write_message()
        with pytest.raises(RuntimeError, match="DEAD"):
            side.split()
        with pytest.raises(RuntimeError, match="DEAD"):
            _ = side.handshake_hash

    @AWAITING
    def test_all_failures_look_alike(self, awaiting: Callable[[], tuple[Handshake, bytes]]) -> None:
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
        one = initiator()
        one.write_message()
        with pytest.raises(RuntimeError):
            one.write_message()

    def test_after_the_end(self) -> None:
        for side in completed():
            with pytest.raises(RuntimeError):
                side.write_message()
            with pytest.raises(RuntimeError):
                side.read_message(bytes(48))

    def test_split_too_early(self) -> None:
        one = initiator()
        one.write_message()
        assert not one.is_complete
        with pytest.raises(RuntimeError):
            one.split()
        with pytest.raises(RuntimeError):
            _ = one.handshake_hash

    def test_split_twice(self) -> None:
        """Two sealers of one key would use every nonce twice."""
        one, _ = completed()
        one.split()
        with pytest.raises(RuntimeError):
            one.split()
        assert one.is_complete
        assert len(one.handshake_hash) == 32

    def test_too_large_a_payload_changes_nothing(self) -> None:
        one = initiator()
        with pytest.raises(ValueError, match="at most"):
            one.write_message(bytes(PAYLOAD_BYTES_MAX + 1))
        responder().read_message(one.write_message())

    def test_keys_of_another_size(self) -> None:
        with pytest.raises(ValueError, match="pre-shared"):
            initiator(psk=bytes(16))
        with pytest.raises(ValueError, match="ephemeral"):
            Handshake(initiator=True, psk=PSK, prologue=b"", ephemeral_private=bytes(31))


def test_keys_stay_out_of_the_text() -> None:
    one, _ = completed()
    assert repr(one) == "Handshake(initiator=True, COMPLETE)"
    assert repr(one.split()) == "TransportKeys(<hidden>)"
