"""Tests of iris_py/link/handshake.py."""

import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_py.link.handshake import (
    DEFAULT_OFFER,
    FORMAT,
    HANDSHAKE_BYTES_MAX,
    MAGIC,
    VERSION_MAX,
    LinkHandshake,
    NodeIntroduction,
    Offer,
    ProtocolError,
)
from iris_security import SIGNATURE_BYTES, AuthenticationError, Handshake, Identity, Keyring, Purpose, Secret, Suite

SECRET = Secret(bytes(range(32)))
KEYRING = Keyring(SECRET, network="test")
INITIATOR, RESPONDER = Identity(b"\x03" * 32), Identity(b"\x04" * 32)


def make(
    *, initiator: bool, keyring: Keyring = KEYRING, hello: bytes = b"hello", offer: Offer = DEFAULT_OFFER
) -> LinkHandshake:
    return LinkHandshake(
        initiator=initiator,
        keyring=keyring,
        identity=INITIATOR if initiator else RESPONDER,
        hello=hello,
        ephemeral_private=(b"\x01" if initiator else b"\x02") * 32,
        offer=offer,
    )


def first_message(keyring: Keyring = KEYRING) -> bytes:
    return b"".join(make(initiator=True, keyring=keyring).data_to_send())


def test_one_message_each_way() -> None:
    initiator, responder = make(initiator=True), make(initiator=False, hello=b"I am the responder")
    message = b"".join(initiator.data_to_send())
    assert responder.receive_data(memoryview(message)) == len(message)
    answer = b"".join(responder.data_to_send())
    assert initiator.receive_data(memoryview(answer)) == len(answer)
    assert initiator.peer_hello == b"I am the responder"
    assert initiator.peer_id == RESPONDER.node_id
    assert initiator.keys is not None
    assert responder.keys is not None
    assert initiator.keys.send == responder.keys.receive
    assert initiator.keys.receive == responder.keys.send
    assert initiator.link_id == responder.link_id
    assert not initiator.data_to_send()
    assert not responder.data_to_send()


def test_wire_format() -> None:
    message = first_message()
    assert message[:9] == b"IRIS\x01\x01\x01\x03\x01"  # format, versions 1 to 1, suites 1 and 2, suite 1 is preferred
    assert message[9:17] == KEYRING.primary.key_id
    assert struct.unpack(">H", message[17:19])[0] == len(message) - 19 == 32 + 16


def test_the_prologue_binds_what_was_said_in_clear() -> None:
    prologue = b"IRIS\x01\x01\x01\x03\x01" + KEYRING.primary.key_id + b"test"
    noise = Handshake(initiator=True, psk=KEYRING.primary.link_psk, prologue=prologue, ephemeral_private=b"\x01" * 32)
    assert first_message()[19:] == noise.write_message()


def test_nothing_is_said_in_clear() -> None:
    initiator, responder = make(initiator=True, hello=b"private-one"), make(initiator=False, hello=b"private-two")
    message = b"".join(initiator.data_to_send())
    responder.receive_data(memoryview(message))
    assert b"private" not in message + b"".join(responder.data_to_send())


@given(st.integers(0, 66))
def test_incomplete_uses_nothing(length: int) -> None:
    responder = make(initiator=False)
    assert responder.receive_data(memoryview(first_message()[:length])) == 0
    assert not responder.data_to_send()


def test_more_than_the_message_is_left() -> None:
    message = first_message()
    assert make(initiator=False).receive_data(memoryview(message + b"record")) == len(message)


def test_an_accepted_older_secret() -> None:
    newer = Keyring(Secret(b"n" * 32), network="test", accepted=[SECRET])
    responder = make(initiator=False, keyring=newer)
    responder.receive_data(memoryview(first_message()))
    assert responder.keys is not None
    with pytest.raises(ProtocolError):  # the other way round nobody knows the newer one
        make(initiator=False).receive_data(memoryview(first_message(newer)))


@pytest.mark.parametrize(
    "change",
    [
        lambda data: b"HTTP" + data[4:],
        lambda data: b"G",
        lambda data: data[:4] + b"\x02" + data[5:],
        lambda data: data[:9] + bytes(8) + data[17:],
        lambda data: data[:17] + struct.pack(">H", HANDSHAKE_BYTES_MAX + 1),
        lambda data: data[:17] + b"\xff\xff",
    ],
    ids=["magic", "first byte", "format", "key id", "length", "longest length"],
)
def test_not_a_node(change: Callable[[bytes], bytes]) -> None:
    responder = make(initiator=False)
    with pytest.raises(ProtocolError):
        responder.receive_data(memoryview(change(first_message())))
    assert not responder.data_to_send()


@pytest.mark.parametrize(
    ("ours", "theirs", "chosen"),
    [
        (Offer(), Offer(), (1, Suite.AES_256_GCM)),
        (Offer(1, 3), Offer(2, 5), (3, Suite.AES_256_GCM)),
        (Offer(2, 5), Offer(1, 3), (3, Suite.AES_256_GCM)),
        (Offer(suites=frozenset({Suite.CHACHA20_POLY1305})), Offer(), (1, Suite.CHACHA20_POLY1305)),
        (Offer(preferred=Suite.CHACHA20_POLY1305), Offer(), (1, Suite.CHACHA20_POLY1305)),
        (Offer(), Offer(preferred=Suite.CHACHA20_POLY1305), (1, Suite.CHACHA20_POLY1305)),
        (Offer(preferred=Suite.CHACHA20_POLY1305), Offer(suites=frozenset({Suite.AES_256_GCM})), (1, Suite.AES_256_GCM)),
    ],
)
def test_the_newest_version_and_a_suite_that_both_speak_are_taken(
    ours: Offer, theirs: Offer, chosen: tuple[int, Suite]
) -> None:
    initiator, responder = make(initiator=True, offer=ours), make(initiator=False, offer=theirs)
    responder.receive_data(memoryview(b"".join(initiator.data_to_send())))
    initiator.receive_data(memoryview(b"".join(responder.data_to_send())))
    assert (initiator.version, initiator.suite) == (responder.version, responder.suite) == chosen


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (Offer(1, 1), Offer(2, 3)),
        (Offer(2, 3), Offer(1, 1)),
        (Offer(suites=frozenset({Suite.CHACHA20_POLY1305})), Offer(suites=frozenset({Suite.AES_256_GCM}))),
    ],
)
def test_who_speaks_nothing_that_the_other_does_hears_nothing(ours: Offer, theirs: Offer) -> None:
    responder = make(initiator=False, offer=theirs)
    with pytest.raises(ProtocolError, match=r"another version|other ciphers"):
        responder.receive_data(memoryview(b"".join(make(initiator=True, offer=ours).data_to_send())))
    assert not responder.data_to_send()


@pytest.mark.parametrize("position", range(5, 9), ids=["oldest", "newest", "suites", "preferred"])
@pytest.mark.parametrize("value", [0, 1, 2, 3, 255])
def test_who_is_between_cannot_take_back_what_was_offered(position: int, value: int) -> None:
    offer = Offer(1, 7, preferred=Suite.CHACHA20_POLY1305)
    initiator, responder = make(initiator=True, offer=offer), make(initiator=False, offer=Offer(1, 7))
    message = bytearray(b"".join(initiator.data_to_send()))
    is_changed = message[position] != value
    message[position] = value
    if is_changed:
        with pytest.raises(AuthenticationError):
            responder.receive_data(memoryview(bytes(message)))
        assert not responder.data_to_send()
    else:
        responder.receive_data(memoryview(bytes(message)))


@pytest.mark.parametrize("choice", [(2, 1), (0, 1), (1, 0), (1, 3)])
def test_a_choice_beyond_the_offer_is_refused(choice: tuple[int, int]) -> None:
    class Bold(Offer, frozen=True):
        """Chooses what was not offered."""

        def choose(self, *_offered: int) -> tuple[int, Suite]:
            return choice  # type: ignore[return-value]

    initiator, responder = make(initiator=True), make(initiator=False, offer=Bold())
    responder.receive_data(memoryview(b"".join(initiator.data_to_send())))
    with pytest.raises(ProtocolError, match="that were not offered"):
        initiator.receive_data(memoryview(b"".join(responder.data_to_send())))
    assert initiator.keys is None


@given(st.integers(19, 66), st.integers(1, 255))
def test_any_changed_byte(position: int, mask: int) -> None:
    message = bytearray(first_message())
    message[position] ^= mask
    responder = make(initiator=False)
    with pytest.raises(AuthenticationError):
        responder.receive_data(memoryview(bytes(message)))
    assert not responder.data_to_send()


@pytest.mark.parametrize("length", [0, 1, 47])
def test_too_short_a_noise_message(length: int) -> None:
    offered = (VERSION_MAX, VERSION_MAX, 3, Suite.AES_256_GCM)
    preamble = struct.pack(">4sBBBBB8sH", MAGIC, FORMAT, *offered, KEYRING.primary.key_id, length)
    with pytest.raises(AuthenticationError):
        make(initiator=False).receive_data(memoryview(preamble + bytes(length)))


def test_another_network_name() -> None:
    with pytest.raises(ProtocolError):
        make(initiator=False, keyring=Keyring(SECRET, network="other")).receive_data(memoryview(first_message()))


def test_the_network_name_is_bound_even_under_the_same_key_id() -> None:
    """The prologue holds it: whoever forges the preamble of another network gains nothing."""
    other = Keyring(SECRET, network="other")
    message = first_message(other)
    forged = message[:9] + KEYRING.primary.key_id + message[17:]
    with pytest.raises(AuthenticationError):
        make(initiator=False).receive_data(memoryview(forged))


def test_an_oversized_answer() -> None:
    with pytest.raises(ProtocolError):
        make(initiator=True).receive_data(memoryview(struct.pack(">H", HANDSHAKE_BYTES_MAX + 1)))


def test_the_largest_answer_is_waited_for() -> None:
    assert make(initiator=True).receive_data(memoryview(struct.pack(">H", HANDSHAKE_BYTES_MAX))) == 0


@given(st.binary(max_size=200))
def test_garbage_raises_only_what_is_documented(data: bytes) -> None:
    for initiator in (True, False):
        for prefix in (b"", first_message()[:19]):
            handshake = make(initiator=initiator)
            handshake.data_to_send()
            try:
                used = handshake.receive_data(memoryview(prefix + data))
            except (ProtocolError, AuthenticationError):
                used = 0
            assert used == 0
            assert handshake.keys is None
            assert not handshake.data_to_send()


# -- who it is


class Claiming(Identity):
    """Signs as another identity does not: with the public key of that one, and our own private key."""

    __slots__ = ("claimed",)

    def __init__(self, seed: bytes, claimed: Identity) -> None:
        super().__init__(seed)
        self.claimed = claimed

    def sign(self, purpose: Purpose, data: bytes) -> bytes:
        return self.claimed.public_key + super().sign(purpose, data)[len(self.public_key) :]


class Repeating(Identity):
    """Says again what another node has signed in another handshake."""

    __slots__ = ("recorded",)

    def __init__(self, recorded: bytes) -> None:
        super().__init__(bytes(32))
        self.recorded = recorded

    def sign(self, purpose: Purpose, data: bytes) -> bytes:
        return self.recorded


def shake(initiator: LinkHandshake, responder: LinkHandshake) -> None:
    responder.receive_data(memoryview(b"".join(initiator.data_to_send())))
    initiator.receive_data(memoryview(b"".join(responder.data_to_send())))


def hostile_responder(identity: Identity) -> LinkHandshake:
    return LinkHandshake(initiator=False, keyring=KEYRING, identity=identity, hello=b"hello", ephemeral_private=b"\x05" * 32)


def test_a_responder_cannot_be_another_node() -> None:
    initiator = make(initiator=True)
    with pytest.raises(AuthenticationError):
        shake(initiator, hostile_responder(Claiming(b"\x06" * 32, RESPONDER)))
    assert initiator.keys is None
    assert not initiator.peer_id


def test_what_a_responder_signed_is_of_no_use_in_another_handshake() -> None:
    signed: list[bytes] = []

    class Recording(Identity):
        __slots__ = ()

        def sign(self, purpose: Purpose, data: bytes) -> bytes:
            signed.append(super().sign(purpose, data))
            return signed[-1]

    shake(make(initiator=True), hostile_responder(Recording(b"\x04" * 32)))
    other = LinkHandshake(initiator=True, keyring=KEYRING, identity=INITIATOR, hello=b"hello", ephemeral_private=b"\x07" * 32)
    with pytest.raises(AuthenticationError):
        shake(other, hostile_responder(Repeating(*signed)))
    assert other.keys is None


@pytest.mark.parametrize("signature", [b"", bytes(SIGNATURE_BYTES - 1), bytes(SIGNATURE_BYTES), b"\xff" * SIGNATURE_BYTES])
def test_what_is_no_signature(signature: bytes) -> None:
    with pytest.raises(AuthenticationError):
        shake(make(initiator=True), hostile_responder(Repeating(signature)))
    with pytest.raises(AuthenticationError):
        NodeIntroduction(RESPONDER, b"").read_introduction(b"h" * 32, signature)


def test_an_initiator_introduces_itself_for_one_handshake() -> None:
    said = make(initiator=True).introduction.introduce(b"h" * 32)
    reader = make(initiator=False).introduction
    assert reader.read_introduction(b"h" * 32, said) == (INITIATOR.node_id, b"hello")
    with pytest.raises(AuthenticationError):
        reader.read_introduction(b"g" * 32, said)
    with pytest.raises(AuthenticationError):  # what a responder has signed is no introduction
        reader.read_introduction(b"h" * 32, RESPONDER.sign(Purpose.RESPONDER, b"h" * 32) + b"hello")
