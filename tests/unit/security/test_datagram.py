"""Tests of security/iris_security/datagram.py."""

import hashlib
import hmac

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from iris_security import (
    AuthenticationError,
    DatagramOpener,
    DatagramSealer,
    Identity,
    KeyExhaustedError,
    Keyring,
    Purpose,
    ReplayError,
    Secret,
)
from iris_security.datagram import DATAGRAM_BYTES_MAX, DATAGRAMS_MAX, OVERHEAD_BYTES, PAYLOAD_BYTES_MAX, VERSION
from iris_security.replay import REPLAY_WINDOW

SECRET = Secret(bytes(range(32)))
RING = Keyring(SECRET, network="lab")
ALICE, BOB = Identity(bytes(range(32))), Identity(bytes(range(1, 33)))


def datagrams(count: int, *, sender: Identity = ALICE, ring: Keyring = RING) -> list[bytes]:
    sealer = DatagramSealer(ring.primary, sender)
    return [sealer.seal(b"payload %d" % number) for number in range(count)]


def forge(header: bytes, payload: bytes = b"", signer: Identity = ALICE) -> bytes:
    """Seal under any header, as whoever holds the secret of the network can, with a key derived by hand."""
    extracted = hmac.new(header[9:25], RING.primary.datagram_key, hashlib.sha256).digest()
    key = hmac.new(extracted, b"iris datagram sender\x01", hashlib.sha256).digest()
    return header + AESGCM(key).encrypt(
        bytes(4) + header[25:33], signer.sign(Purpose.DATAGRAM, header + payload) + payload, header
    )


def accepts(opener: DatagramOpener, datagram: bytes) -> bool:
    try:
        opener.open(datagram)
    except ReplayError:
        return False
    return True


def refuse(opener: DatagramOpener, datagram: bytes) -> None:
    """Require a failure that is no replay: that would say that the datagram is authentic."""
    with pytest.raises(AuthenticationError) as raised:
        opener.open(datagram)
    assert type(raised.value) is AuthenticationError
    assert raised.value.__cause__ is None


class TestFormat:
    def test_pinned(self) -> None:
        sealer = DatagramSealer(RING.primary, ALICE)
        sealer.seal(b"")
        assert sealer.seal(b"hello").hex() == (
            "01aa71c7d4690434b0acd6577c2cb1a760c71259449a7410160000000000000001852a8d2466a88c0aa353c8f8f80e5d85dd360a021c09a0ed0406"
            "71be5aab66b680cbdb43b71e5a5c1ae107e0150b3dd90fcb52f775c8ec3850add392fd0482fa64984461870a74264a17e1792581eb55c2086e9773"
            "921e0f74c0fd659cef22fde3d616f1cc34510806182866d4f789ddd98825efae"
        )

    def test_sealed_as_designed(self) -> None:
        for number, datagram in enumerate(datagrams(3)):
            header = b"\x01" + RING.primary.key_id + ALICE.node_id + number.to_bytes(8, "big")
            assert datagram == forge(header, b"payload %d" % number)

    @given(st.binary(max_size=PAYLOAD_BYTES_MAX))
    def test_round_trip(self, payload: bytes) -> None:
        datagram = DatagramSealer(RING.primary, ALICE).seal(payload)
        assert len(datagram) == len(payload) + OVERHEAD_BYTES
        assert DatagramOpener(RING).open(datagram) == (ALICE.node_id, payload)

    def test_one_of_another_network_is_foreign(self) -> None:
        ours, theirs = (Keyring(Secret(bytes([number]) * 32)) for number in (1, 2))
        opener, sender = DatagramOpener(ours), ALICE
        datagram = DatagramSealer(theirs.primary, sender).seal(b"beacon")
        assert opener.is_foreign(datagram)
        assert not opener.is_foreign(DatagramSealer(ours.primary, sender).seal(b"beacon"))
        assert opener.is_foreign(datagram[:OVERHEAD_BYTES])
        assert not opener.is_foreign(datagram[: OVERHEAD_BYTES - 1])
        assert not opener.is_foreign(bytes([VERSION + 1]) + datagram[1:])
        assert opener.is_foreign(datagram.ljust(DATAGRAM_BYTES_MAX))
        assert not opener.is_foreign(datagram.ljust(DATAGRAM_BYTES_MAX + 1))

    def test_the_largest(self) -> None:
        sealer = DatagramSealer(RING.primary, ALICE)
        datagram = sealer.seal(bytes(PAYLOAD_BYTES_MAX))
        assert len(datagram) == DATAGRAM_BYTES_MAX == 1200
        assert DatagramOpener(RING).open(datagram) == (ALICE.node_id, bytes(PAYLOAD_BYTES_MAX))
        with pytest.raises(ValueError, match="at most 1055 bytes"):
            sealer.seal(bytes(PAYLOAD_BYTES_MAX + 1))

    def test_wrong_arguments(self) -> None:
        with pytest.raises(ValueError, match="at least 1"):
            DatagramOpener(RING, senders_max=0)

    def test_the_last_counter(self) -> None:
        """Nobody waits for 2^32 datagrams, so the test sets the counter forward."""
        sealer = DatagramSealer(RING.primary, ALICE)
        sealer._counter = DATAGRAMS_MAX - 1
        assert accepts(DatagramOpener(RING), sealer.seal(b""))
        for _ in range(2):
            with pytest.raises(KeyExhaustedError):
                sealer.seal(b"")


class TestRefused:
    def test_each_changed_bit(self) -> None:
        datagram = datagrams(1)[0]
        opener = DatagramOpener(RING)
        for bit in range(8 * len(datagram)):
            changed = bytearray(datagram)
            changed[bit // 8] ^= 1 << bit % 8
            refuse(opener, bytes(changed))
        assert accepts(opener, datagram)

    def test_each_changed_bit_of_a_known_sender(self) -> None:
        first, second = datagrams(2)
        opener = DatagramOpener(RING)
        opener.open(first)
        for bit in range(8 * len(second)):
            changed = bytearray(second)
            changed[bit // 8] ^= 1 << bit % 8
            refuse(opener, bytes(changed))
        assert accepts(opener, second)

    def test_each_truncation_and_extension(self) -> None:
        datagram = datagrams(1)[0]
        opener = DatagramOpener(RING)
        for wrong in [datagram[:size] for size in range(len(datagram))] + [datagram + b"\0"]:
            refuse(opener, wrong)

    @given(st.binary(max_size=1300))
    def test_any_bytes(self, datagram: bytes) -> None:
        refuse(DatagramOpener(RING), datagram)

    def test_too_large_even_if_authentic(self) -> None:
        header = datagrams(1)[0][:33]
        assert accepts(DatagramOpener(RING), forge(header, bytes(PAYLOAD_BYTES_MAX)))
        refuse(DatagramOpener(RING), forge(header, bytes(PAYLOAD_BYTES_MAX + 1)))

    def test_another_version_even_if_authentic(self) -> None:
        header = datagrams(1)[0][:33]
        assert accepts(DatagramOpener(RING), forge(header))
        refuse(DatagramOpener(RING), forge(b"\x02" + header[1:]))

    def test_another_network(self) -> None:
        refuse(DatagramOpener(Keyring(SECRET, network="elsewhere")), datagrams(1)[0])
        refuse(DatagramOpener(Keyring(Secret(bytes(32)), network="lab")), datagrams(1)[0])

    def test_another_sender(self) -> None:
        datagram = datagrams(1)[0]
        refuse(DatagramOpener(RING), datagram[:9] + BOB.node_id + datagram[25:])

    def test_an_insider_cannot_speak_for_another_node(self) -> None:
        """It holds the secret of the network, so it can derive the key of every sender."""
        opener = DatagramOpener(RING)
        header = datagrams(1)[0][:33]
        last = header[:25] + (DATAGRAMS_MAX - 1).to_bytes(8, "big")
        for forged in (forge(header, b"dead", BOB), forge(last, b"dead", BOB)):
            refuse(opener, forged)
        for datagram in datagrams(2):  # nor use up the numbers of its window
            assert accepts(opener, datagram)

    def test_what_was_signed_is_for_one_header(self) -> None:
        first, second = (datagrams(2)[number][:33] for number in (0, 1))
        signature = ALICE.sign(Purpose.DATAGRAM, first + b"payload")

        class Repeating(Identity):
            __slots__ = ()

            def sign(self, purpose: Purpose, data: bytes) -> bytes:
                return signature

        assert accepts(DatagramOpener(RING), forge(first, b"payload", Repeating(bytes(32))))
        refuse(DatagramOpener(RING), forge(second, b"payload", Repeating(bytes(32))))


class TestGenerations:
    OLD = Keyring(Secret(bytes(32)), network="lab")
    ROTATED = Keyring(SECRET, network="lab", accepted=[Secret(bytes(32))])

    def test_an_accepted_generation_opens(self) -> None:
        opener = DatagramOpener(self.ROTATED)
        assert accepts(opener, datagrams(1, ring=self.OLD)[0])
        assert accepts(opener, datagrams(1, ring=self.ROTATED)[0])

    def test_generations_have_windows_of_their_own(self) -> None:
        opener = DatagramOpener(self.ROTATED)
        for ring in (self.OLD, self.ROTATED):
            assert accepts(opener, datagrams(1, ring=ring)[0])
            assert not accepts(opener, datagrams(1, ring=ring)[0])

    def test_a_retired_generation_opens_no_more_and_is_forgotten(self) -> None:
        opener = DatagramOpener(self.ROTATED)
        early, late = datagrams(2, ring=self.OLD)
        assert accepts(opener, early)
        opener.rekey(Keyring(SECRET, network="lab"))
        assert not opener._senders
        with pytest.raises(AuthenticationError):
            opener.open(late)
        assert accepts(opener, datagrams(1, ring=self.ROTATED)[0])


class TestReplay:
    sealed = datagrams(1101)

    @given(st.lists(st.integers(0, 1100), max_size=60))
    def test_each_datagram_opens_once(self, order: list[int]) -> None:
        opener = DatagramOpener(RING)
        seen: set[int] = set()
        for number in order:
            fresh = number not in seen and number > max(seen, default=-1) - REPLAY_WINDOW
            assert accepts(opener, self.sealed[number]) is fresh
            if fresh:
                seen.add(number)

    def test_a_forger_moves_no_window(self) -> None:
        opener = DatagramOpener(RING)
        assert accepts(opener, self.sealed[0])
        refuse(opener, self.sealed[1][:25] + b"\xff" * 8 + self.sealed[1][33:])
        refuse(opener, self.sealed[1][:33] + bytes(140))
        assert accepts(opener, self.sealed[1])
        assert not accepts(opener, self.sealed[0])

    def test_a_forger_is_not_remembered(self) -> None:
        opener = DatagramOpener(RING, senders_max=1)
        assert accepts(opener, self.sealed[0])
        for number in range(100):
            refuse(opener, self.sealed[0][:9] + (1000 + number).to_bytes(16, "big") + self.sealed[0][25:])
        assert len(opener._senders) == 1
        assert not accepts(opener, self.sealed[0])

    def test_the_one_silent_the_longest_is_forgotten(self) -> None:
        senders = [Identity(number.to_bytes(32, "big")) for number in range(4)]
        sealed = [datagrams(2, sender=sender) for sender in senders]
        opener = DatagramOpener(RING, senders_max=3)
        for number in range(3):
            assert accepts(opener, sealed[number][0])
        assert accepts(opener, sealed[0][1])
        assert accepts(opener, sealed[3][0])
        assert list(opener._senders) == [RING.primary.key_id + senders[number].node_id for number in (2, 0, 3)]
        assert not accepts(opener, sealed[0][0])


def test_keys_stay_out_of_the_text() -> None:
    key = RING.primary.datagram_key
    for side in (DatagramSealer(RING.primary, ALICE), DatagramOpener(RING)):
        assert key.hex() not in repr(side)
        assert repr(key)[2:-1] not in repr(side)
