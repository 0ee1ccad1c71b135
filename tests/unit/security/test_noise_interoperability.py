"""Runs noise.py and record.py against the independent implementation `noiseprotocol`."""

from collections.abc import Callable

import pytest
from cryptography.exceptions import InvalidTag
from noise.connection import Keypair, NoiseConnection
from noise.exceptions import NoiseValueError

from iris_security import AuthenticationError, Handshake, RecordOpener, RecordSealer

# The other implementation warns of ephemeral keys that a test sets.
pytestmark = pytest.mark.filterwarnings("ignore:One of ephemeral keypairs is already set:UserWarning")

# What the other implementation raises: a wrong tag comes through from the layer below.
REFUSALS = (InvalidTag, NoiseValueError)

PSK = bytes(range(100, 132))
PROLOGUE = b"IRIS and more"
OURS = bytes(range(1, 33))
THEIRS = bytes(range(2, 34))
PAYLOADS = [b"", b"hello", bytes(range(256)) * 200]


class Reference:
    """The other implementation, with the methods of `Handshake`."""

    def __init__(self, *, initiator: bool, psk: bytes = PSK, prologue: bytes = PROLOGUE) -> None:
        self.noise = NoiseConnection.from_name(b"Noise_NNpsk0_25519_AESGCM_SHA256")
        self.noise.set_psks(psk)
        self.noise.set_prologue(prologue)
        if initiator:
            self.noise.set_as_initiator()
        else:
            self.noise.set_as_responder()
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


def ours(*, initiator: bool, psk: bytes = PSK, prologue: bytes = PROLOGUE) -> Handshake:
    return Handshake(initiator=initiator, psk=psk, prologue=prologue, ephemeral_private=OURS)


def shake_hands(our: Handshake, reference: Reference, *, we_initiate: bool, payload: bytes = b"") -> None:
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


@BOTH_ROLES
def test_records_over_a_rekey(we_initiate: bool) -> None:
    our, reference = ours(initiator=we_initiate), Reference(initiator=not we_initiate)
    shake_hands(our, reference, we_initiate=we_initiate)
    keys = our.split()
    sealer, opener = RecordSealer(keys.send, rekey_records=3), RecordOpener(keys.receive, rekey_records=3)
    for number in range(10):
        if number and number % 3 == 0:
            reference.noise.rekey_inbound_cipher()
            reference.noise.rekey_outbound_cipher()
        payload = b"record %d" % number
        assert reference.open(sealer.seal(payload)) == payload
        assert opener.open(reference.seal(payload)) == payload


def messages_for(we_read: int) -> tuple[Callable[[], Handshake], Callable[[], Reference], bytes]:
    """Return makers of two sides that both wait for one message, and that message."""
    if we_read == 1:
        message = ours(initiator=True).write_message(b"first")
        return (lambda: ours(initiator=False)), (lambda: Reference(initiator=False)), message

    # Both initiators use one ephemeral key, so one answer fits both.
    def our_initiator() -> Handshake:
        side = Handshake(initiator=True, psk=PSK, prologue=PROLOGUE, ephemeral_private=THEIRS)
        side.write_message()
        return side

    def reference_initiator() -> Reference:
        side = Reference(initiator=True)
        side.write_message()
        return side

    answering = ours(initiator=False)
    answering.read_message(Handshake(initiator=True, psk=PSK, prologue=PROLOGUE, ephemeral_private=THEIRS).write_message())
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
        with pytest.raises(REFUSALS):
            reference.read_message(message[:size])


@BOTH_ROLES
@pytest.mark.parametrize("wrong", [{"psk": bytes(range(32))}, {"prologue": b"IRIS"}], ids=["psk", "prologue"])
def test_both_refuse_another_network(we_initiate: bool, wrong: dict[str, bytes]) -> None:
    our, reference = ours(initiator=we_initiate, **wrong), Reference(initiator=not we_initiate)
    if we_initiate:
        with pytest.raises(REFUSALS):
            reference.read_message(our.write_message())
    else:
        with pytest.raises(AuthenticationError):
            our.read_message(reference.write_message())
