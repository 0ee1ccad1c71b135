"""Runs noise_kk.py and record.py against the independent implementation `noiseprotocol`."""

from collections.abc import Callable

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from noise.connection import Keypair, NoiseConnection
from noise.exceptions import NoiseValueError

from iris_security import AuthenticationError, KnownKeysHandshake, RecordOpener, RecordSealer

# The other implementation warns of ephemeral keys that a test sets.
pytestmark = pytest.mark.filterwarnings("ignore:One of ephemeral keypairs is already set:UserWarning")

# What the other implementation raises: a wrong tag comes through from the layer below.
REFUSALS = (InvalidTag, NoiseValueError)

PROLOGUE = b"IRIF and more"
OUR_STATIC = bytes(range(100, 132))
THEIR_STATIC = bytes(range(101, 133))
OURS = bytes(range(1, 33))
THEIRS = bytes(range(2, 34))
PAYLOADS = [b"", b"hello", bytes(range(256)) * 200]


def public(private: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


class Reference:
    """The other implementation, with the methods of `KnownKeysHandshake`; it is the peer."""

    def __init__(
        self, *, initiator: bool, static: bytes = THEIR_STATIC, peer: bytes = OUR_STATIC, prologue: bytes = PROLOGUE
    ) -> None:
        self.noise = NoiseConnection.from_name(b"Noise_KK_25519_AESGCM_SHA256")
        self.noise.set_prologue(prologue)
        if initiator:
            self.noise.set_as_initiator()
        else:
            self.noise.set_as_responder()
        self.noise.set_keypair_from_private_bytes(Keypair.STATIC, static)
        self.noise.set_keypair_from_public_bytes(Keypair.REMOTE_STATIC, public(peer))
        self.noise.set_keypair_from_private_bytes(Keypair.EPHEMERAL, THEIRS)
        self.noise.start_handshake()

    @property
    def is_complete(self) -> bool:
        return bool(self.noise.handshake_finished)

    @property
    def handshake_hash(self) -> bytes:
        return bytes(self.noise.get_handshake_hash())

    def write_message(self, payload: bytes = b"") -> bytes:
        return bytes(self.noise.write_message(payload))

    def read_message(self, message: bytes) -> bytes:
        return bytes(self.noise.read_message(message))

    def seal(self, plaintext: bytes) -> bytes:
        return bytes(self.noise.encrypt(plaintext))

    def open(self, sealed: bytes) -> bytes:
        return bytes(self.noise.decrypt(sealed))


def ours(
    *,
    initiator: bool,
    static: bytes = OUR_STATIC,
    peer: bytes = THEIR_STATIC,
    prologue: bytes = PROLOGUE,
    ephemeral: bytes = OURS,
) -> KnownKeysHandshake:
    return KnownKeysHandshake(
        initiator=initiator,
        static_private=static,
        peer_static_public=public(peer),
        prologue=prologue,
        ephemeral_private=ephemeral,
    )


def shake_hands(our: KnownKeysHandshake, reference: Reference, *, we_initiate: bool, payload: bytes = b"") -> None:
    first, second = (our, reference) if we_initiate else (reference, our)
    assert second.read_message(first.write_message(payload)) == payload
    assert first.read_message(second.write_message(payload)) == payload


BOTH_ROLES = pytest.mark.parametrize("we_initiate", [True, False], ids=["initiator", "responder"])


@BOTH_ROLES
@pytest.mark.parametrize("payload", PAYLOADS, ids=len)
def test_handshake(we_initiate: bool, payload: bytes) -> None:
    our, reference = ours(initiator=we_initiate), Reference(initiator=not we_initiate)
    shake_hands(our, reference, we_initiate=we_initiate, payload=payload)
    assert our.is_complete
    assert reference.is_complete
    assert our.handshake_hash == reference.handshake_hash


@BOTH_ROLES
def test_records_both_ways(we_initiate: bool) -> None:
    our, reference = ours(initiator=we_initiate), Reference(initiator=not we_initiate)
    shake_hands(our, reference, we_initiate=we_initiate)
    keys = our.split()
    sealer, opener = RecordSealer(keys.send), RecordOpener(keys.receive)
    for payload in PAYLOADS * 3:
        assert reference.open(sealer.seal(payload)) == payload
        assert opener.open(reference.seal(payload)) == payload


def messages_for(we_read: int) -> tuple[Callable[[], KnownKeysHandshake], Callable[[], Reference], bytes]:
    """Return makers of two sides that both wait for one message, and that message."""
    # Both are the same side with the same keys, so one message fits both.
    if we_read == 1:
        message = ours(initiator=True).write_message(b"first")
        return (
            (lambda: ours(initiator=False, static=THEIR_STATIC, peer=OUR_STATIC)),
            (lambda: Reference(initiator=False)),
            message,
        )

    def our_initiator() -> KnownKeysHandshake:
        side = ours(initiator=True, static=THEIR_STATIC, peer=OUR_STATIC, ephemeral=THEIRS)
        side.write_message()
        return side

    def reference_initiator() -> Reference:
        side = Reference(initiator=True)
        side.write_message()
        return side

    answering = ours(initiator=False)
    answering.read_message(ours(initiator=True, static=THEIR_STATIC, peer=OUR_STATIC, ephemeral=THEIRS).write_message())
    return our_initiator, reference_initiator, answering.write_message(b"second")


@pytest.mark.parametrize("number", [1, 2])
def test_both_refuse_each_changed_byte(number: int) -> None:
    make_ours, make_reference, message = messages_for(number)
    assert make_ours().read_message(message) == make_reference().read_message(message)
    for at in range(len(message)):
        changed = message[:at] + bytes([message[at] ^ 1 << at % 8]) + message[at + 1 :]
        our = make_ours()
        with pytest.raises(AuthenticationError):
            our.read_message(changed)
        reference = make_reference()
        with pytest.raises(REFUSALS):
            reference.read_message(changed)


@pytest.mark.parametrize("number", [1, 2])
def test_both_refuse_each_truncation(number: int) -> None:
    make_ours, make_reference, message = messages_for(number)
    for size in range(len(message)):
        our = make_ours()
        with pytest.raises(AuthenticationError):
            our.read_message(message[:size])
        reference = make_reference()
        with pytest.raises((*REFUSALS, ValueError)):  # a key that is too short
            reference.read_message(message[:size])


STRANGER = bytes(range(50, 82))


@BOTH_ROLES
@pytest.mark.parametrize(
    "wrong", [{"static": STRANGER}, {"peer": STRANGER}, {"prologue": b"IRIF"}], ids=["own key", "key of the peer", "prologue"]
)
def test_both_refuse_strangers(we_initiate: bool, wrong: dict[str, bytes]) -> None:
    our, reference = ours(initiator=we_initiate, **wrong), Reference(initiator=not we_initiate)
    if we_initiate:
        with pytest.raises(REFUSALS):
            reference.read_message(our.write_message())
    else:
        with pytest.raises(AuthenticationError):
            our.read_message(reference.write_message())
