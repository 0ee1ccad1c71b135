"""Runs noise.py, noise_kk.py and record.py against the independent implementation `noiseprotocol`."""

from collections.abc import Callable

import pytest
from cryptography.exceptions import InvalidTag
from noise.connection import Keypair, NoiseConnection
from noise.exceptions import NoiseValueError

from iris_security import AuthenticationError, RecordOpener, RecordSealer
from iris_security.symmetric import TwoMessages
from tests.unit.security.handshakes import BOTH_PATTERNS, KK, NN, STRANGER, Pattern, public

# The other implementation warns of ephemeral keys that a test sets.
pytestmark = pytest.mark.filterwarnings("ignore:One of ephemeral keypairs is already set:UserWarning")

# What the other implementation raises: a wrong tag comes through from the layer below.
REFUSALS = (InvalidTag, NoiseValueError)

PAYLOADS = [b"", b"hello", bytes(range(256)) * 200]


class Reference:
    """The other implementation, with the methods of `TwoMessages`."""

    def __init__(self, pattern: Pattern, *, initiator: bool) -> None:
        keys = pattern.ours if initiator else pattern.theirs
        self.noise = NoiseConnection.from_name(pattern.name)
        self.noise.set_prologue(keys["prologue"])
        if initiator:
            self.noise.set_as_initiator()
        else:
            self.noise.set_as_responder()
        if "psk" in keys:
            self.noise.set_psks(keys["psk"])
        else:
            self.noise.set_keypair_from_private_bytes(Keypair.STATIC, keys["static_private"])
            self.noise.set_keypair_from_public_bytes(Keypair.REMOTE_STATIC, keys["peer_static_public"])
        self.noise.set_keypair_from_private_bytes(Keypair.EPHEMERAL, keys["ephemeral_private"])
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


def sides(pattern: Pattern, *, we_initiate: bool, **changed: bytes) -> tuple[TwoMessages, Reference]:
    """Return our side and the other implementation as its peer."""
    make = pattern.initiator if we_initiate else pattern.responder
    return make(**changed), Reference(pattern, initiator=not we_initiate)


def shake_hands(our: TwoMessages, reference: Reference, *, we_initiate: bool, payload: bytes = b"") -> None:
    first, second = (our, reference) if we_initiate else (reference, our)
    assert second.read_message(first.write_message(payload)) == payload
    assert first.read_message(second.write_message(payload)) == payload


BOTH_ROLES = pytest.mark.parametrize("we_initiate", [True, False], ids=["initiator", "responder"])


@BOTH_PATTERNS
@BOTH_ROLES
@pytest.mark.parametrize("payload", PAYLOADS, ids=len)
def test_handshake(pattern: Pattern, we_initiate: bool, payload: bytes) -> None:
    our, reference = sides(pattern, we_initiate=we_initiate)
    shake_hands(our, reference, we_initiate=we_initiate, payload=payload)
    assert our.is_complete
    assert reference.is_complete
    assert our.handshake_hash == reference.handshake_hash


@BOTH_PATTERNS
@BOTH_ROLES
def test_records_both_ways(pattern: Pattern, we_initiate: bool) -> None:
    our, reference = sides(pattern, we_initiate=we_initiate)
    shake_hands(our, reference, we_initiate=we_initiate)
    keys = our.split()
    sealer, opener = RecordSealer(keys.send), RecordOpener(keys.receive)
    for payload in PAYLOADS * 3:
        assert reference.open(sealer.seal(payload)) == payload
        assert opener.open(reference.seal(payload)) == payload


@BOTH_ROLES
def test_records_over_a_rekey(we_initiate: bool) -> None:
    our, reference = sides(NN, we_initiate=we_initiate)
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


def readers(pattern: Pattern, number: int) -> tuple[Callable[[], TwoMessages], Callable[[], Reference], bytes]:
    """Return makers of two sides that both await message 1 or 2, and that message: with the same keys one message fits both."""

    def reference() -> Reference:
        side = Reference(pattern, initiator=number == 2)
        if number == 2:
            side.write_message(b"first")
        return side

    return (lambda: pattern.awaiting(number)[0]), reference, pattern.awaiting(number)[1]


@BOTH_PATTERNS
@pytest.mark.parametrize("number", [1, 2])
def test_both_refuse_each_changed_byte(pattern: Pattern, number: int) -> None:
    make_ours, make_reference, message = readers(pattern, number)
    assert make_ours().read_message(message) == make_reference().read_message(message)
    for at in range(len(message)):
        changed = message[:at] + bytes([message[at] ^ 1 << at % 8]) + message[at + 1 :]
        our, reference = make_ours(), make_reference()
        with pytest.raises(AuthenticationError):
            our.read_message(changed)
        with pytest.raises(REFUSALS):
            reference.read_message(changed)


@BOTH_PATTERNS
@pytest.mark.parametrize("number", [1, 2])
def test_both_refuse_each_truncation(pattern: Pattern, number: int) -> None:
    make_ours, make_reference, message = readers(pattern, number)
    for size in range(len(message)):
        our, reference = make_ours(), make_reference()
        with pytest.raises(AuthenticationError):
            our.read_message(message[:size])
        with pytest.raises((*REFUSALS, ValueError)):  # a key that is too short
            reference.read_message(message[:size])


@BOTH_ROLES
@pytest.mark.parametrize(
    ("pattern", "changed"),
    [
        pytest.param(NN, {"psk": bytes(range(32))}, id="another secret"),
        pytest.param(NN, {"prologue": b"IRIS"}, id="another prologue"),
        pytest.param(KK, {"prologue": b"IRIF"}, id="another prologue between clouds"),
        pytest.param(KK, {"static_private": STRANGER}, id="another key"),
        pytest.param(KK, {"peer_static_public": public(STRANGER)}, id="for another one"),
    ],
)
def test_both_refuse_other_arguments(pattern: Pattern, we_initiate: bool, changed: dict[str, bytes]) -> None:
    our, reference = sides(pattern, we_initiate=we_initiate, **changed)
    if we_initiate:
        with pytest.raises(REFUSALS):
            reference.read_message(our.write_message())
    else:
        with pytest.raises(AuthenticationError):
            our.read_message(reference.write_message())
