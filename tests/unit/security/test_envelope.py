"""Tests of security/iris_security/envelope.py."""

import hashlib
import hmac

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from iris_security import (
    AuthenticationError,
    GroupKeys,
    GroupOpener,
    GroupSealer,
    KeyExhaustedError,
    Keyring,
    ReplayError,
    Secret,
    multicast_associated,
    unicast_associated,
)
from iris_security.aead import NONCE_BYTES, TAG_BYTES
from iris_security.envelope import EPOCH_MAX, EPOCH_MESSAGES_MAX
from iris_security.replay import REPLAY_WINDOW

KEYS = Keyring(Secret(bytes(range(32))), network="lab").cluster("render")
ALICE = bytes(range(16))
BOB = bytes(range(16, 32))
CAROL = bytes(range(32, 48))
TO_ALL = multicast_associated(KEYS.group_id, ALICE)

Packet = tuple[bytes, bytes]


def sender_key_by_hand(sender: bytes, epoch: int) -> bytes:
    extracted = hmac.new(sender, KEYS.key, hashlib.sha256).digest()
    return hmac.new(extracted, b"iris sender" + epoch.to_bytes(4, "big") + b"\x01", hashlib.sha256).digest()


def packets(count: int, *, sender: bytes = ALICE, epoch: int = 0, epoch_messages: int = EPOCH_MESSAGES_MAX) -> list[Packet]:
    sealer = GroupSealer(KEYS, sender, epoch, epoch_messages=epoch_messages)
    return [sealer.seal(b"body %d" % number, TO_ALL) for number in range(count)]


def accepts(opener: GroupOpener, packet: Packet, sender: bytes = ALICE) -> bool:
    try:
        opener.open(sender, *packet, TO_ALL)
    except ReplayError:
        return False
    return True


def refuse(opener: GroupOpener, sender: bytes, nonce: bytes, sealed: bytes, associated: bytes) -> None:
    """Require a failure that is no replay: that would say that the packet is authentic."""
    with pytest.raises(AuthenticationError) as raised:
        opener.open(sender, nonce, sealed, associated)
    assert type(raised.value) is AuthenticationError
    assert raised.value.__cause__ is None


class TestFormat:
    def test_pinned(self) -> None:
        sealer = GroupSealer(KEYS, ALICE, 7)
        sealer.seal(b"", b"")
        nonce, sealed = sealer.seal(b"hello", unicast_associated(KEYS.group_id, ALICE, BOB))
        assert nonce.hex() == "000000070000000000000001"
        assert sealed.hex() == "702dffe4dc60aa1101edc91e1f1a05af224888bfe6"

    def test_sealed_as_designed(self) -> None:
        for number, (nonce, sealed) in enumerate(packets(3, epoch=7)):
            assert nonce == (7).to_bytes(4, "big") + number.to_bytes(8, "big")
            assert sealed == AESGCM(sender_key_by_hand(ALICE, 7)).encrypt(nonce, b"body %d" % number, KEYS.group_id + ALICE)

    def test_associated_data(self) -> None:
        assert unicast_associated(KEYS.group_id, ALICE, BOB) == KEYS.group_id + ALICE + BOB
        assert multicast_associated(KEYS.group_id, ALICE) == KEYS.group_id + ALICE

    def test_associated_data_of_parts_with_another_size_is_refused(self) -> None:
        """Else a long sender id in a multicast could stand for a sender and a receiver."""
        with pytest.raises(ValueError, match="sender id"):
            multicast_associated(KEYS.group_id, ALICE + BOB)
        with pytest.raises(ValueError, match="sender id"):
            unicast_associated(KEYS.group_id, b"", BOB)
        with pytest.raises(ValueError, match="receiver id"):
            unicast_associated(KEYS.group_id, ALICE, b"")
        with pytest.raises(ValueError, match="group id"):
            unicast_associated(b"", ALICE, BOB)
        with pytest.raises(ValueError, match="group id"):
            multicast_associated(KEYS.group_id + b"x", ALICE)

    @given(st.binary(max_size=300), st.integers(0, EPOCH_MAX))
    def test_round_trip(self, body: bytes, epoch: int) -> None:
        nonce, sealed = GroupSealer(KEYS, ALICE, epoch).seal(body, TO_ALL)
        assert len(nonce) == NONCE_BYTES
        assert len(sealed) == len(body) + TAG_BYTES
        assert GroupOpener(KEYS).open(ALICE, nonce, sealed, TO_ALL) == body

    def test_any_buffer(self) -> None:
        nonce, sealed = GroupSealer(KEYS, ALICE).seal(memoryview(b"hello"), TO_ALL)
        opened = GroupOpener(KEYS).open(ALICE, nonce, memoryview(sealed), TO_ALL)
        assert opened == b"hello"
        assert type(opened) is bytes


class TestSealer:
    def test_senders_and_epochs_have_keys_of_their_own(self) -> None:
        """One nonce, one body: only the key differs."""
        sealed = {
            AESGCM(sender_key_by_hand(sender, epoch)).encrypt(bytes(12), b"", b"")
            for sender in (ALICE, BOB)
            for epoch in (0, 1)
        }
        assert len(sealed) == 4
        assert packets(1)[0][1] != packets(1, sender=BOB)[0][1]

    def test_it_moves_on_to_the_next_epoch(self) -> None:
        nonces = [nonce for nonce, _ in packets(5, epoch=8, epoch_messages=2)]
        assert nonces == [
            epoch.to_bytes(4, "big") + counter.to_bytes(8, "big")
            for epoch, counter in [(8, 0), (8, 1), (9, 0), (9, 1), (10, 0)]
        ]
        opener = GroupOpener(KEYS)
        assert all(accepts(opener, packet) for packet in packets(5, epoch_messages=2))

    def test_an_epoch_may_be_of_one_body(self) -> None:
        nonces = [nonce for nonce, _ in packets(3, epoch=8, epoch_messages=1)]
        assert nonces == [number.to_bytes(4, "big") + bytes(8) for number in (8, 9, 10)]

    def test_the_epoch_reached_tells_where_another_sealer_may_start(self) -> None:
        sealer = GroupSealer(KEYS, ALICE, 8, epoch_messages=2)
        reached = []
        for _ in range(5):
            sealer.seal(b"", b"")
            reached.append(sealer.epoch)
        assert reached == [8, 8, 9, 9, 10]

    def test_the_usual_epoch_is_bounded(self) -> None:
        """Nobody waits for a million bodies, so the test sets the counter forward."""
        sealer = GroupSealer(KEYS, ALICE)
        sealer._counter = EPOCH_MESSAGES_MAX - 1
        assert sealer.seal(b"", b"")[0] == bytes(4) + (EPOCH_MESSAGES_MAX - 1).to_bytes(8, "big")
        assert sealer.seal(b"", b"")[0] == bytes(3) + b"\x01" + bytes(8)

    def test_the_bytes_of_an_epoch_are_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A body may have 64 MiB, so a bound on their number says little."""
        monkeypatch.setattr("iris_security.envelope.EPOCH_BODIES_BYTES_MAX", 10)
        sealer, opener = GroupSealer(KEYS, ALICE), GroupOpener(KEYS)
        epochs = []
        for size in (6, 4, 1, 9, 1, 10):
            nonce, sealed = sealer.seal(bytes(size), TO_ALL)
            assert opener.open(ALICE, nonce, sealed, TO_ALL) == bytes(size)
            epochs.append(sealer.epoch)
        assert epochs == [0, 0, 1, 1, 2, 3]

    def test_the_last_epoch_ends_in_an_error(self) -> None:
        sealer = GroupSealer(KEYS, ALICE, EPOCH_MAX, epoch_messages=2)
        sealer.seal(b"", b"")
        assert sealer.seal(b"", b"")[0] == b"\xff" * 4 + bytes(7) + b"\x01"
        for _ in range(2):
            with pytest.raises(KeyExhaustedError):
                sealer.seal(b"", b"")

    def test_wrong_arguments(self) -> None:
        with pytest.raises(ValueError, match="sender id"):
            GroupSealer(KEYS, b"alice")
        for epoch in (-1, EPOCH_MAX + 1):
            with pytest.raises(ValueError, match="an epoch is"):
                GroupSealer(KEYS, ALICE, epoch)
        for messages in (0, EPOCH_MESSAGES_MAX + 1):
            with pytest.raises(ValueError, match="bodies"):
                GroupSealer(KEYS, ALICE, epoch_messages=messages)
        with pytest.raises(ValueError, match="at least 1"):
            GroupOpener(KEYS, senders_max=0)

    def test_a_nonce_is_not_used_again_after_a_wrong_argument(self) -> None:
        sealer = GroupSealer(KEYS, ALICE)
        with pytest.raises(TypeError):
            sealer.seal("text", TO_ALL)  # type: ignore[arg-type]
        assert sealer.seal(b"", TO_ALL)[0] == bytes(11) + b"\x01"


class TestRefused:
    def test_unicast_to_another_receiver(self) -> None:
        nonce, sealed = GroupSealer(KEYS, ALICE).seal(b"for bob", unicast_associated(KEYS.group_id, ALICE, BOB))
        refuse(GroupOpener(KEYS), ALICE, nonce, sealed, unicast_associated(KEYS.group_id, ALICE, CAROL))
        refuse(GroupOpener(KEYS), ALICE, nonce, sealed, TO_ALL)
        assert GroupOpener(KEYS).open(ALICE, nonce, sealed, unicast_associated(KEYS.group_id, ALICE, BOB)) == b"for bob"

    def test_multicast_as_unicast(self) -> None:
        refuse(GroupOpener(KEYS), ALICE, *packets(1)[0], unicast_associated(KEYS.group_id, ALICE, BOB))

    def test_another_sender(self) -> None:
        nonce, sealed = packets(1)[0]
        refuse(GroupOpener(KEYS), BOB, nonce, sealed, TO_ALL)
        refuse(GroupOpener(KEYS), BOB, nonce, sealed, multicast_associated(KEYS.group_id, BOB))
        refuse(GroupOpener(KEYS), b"", nonce, sealed, TO_ALL)

    def test_another_group(self) -> None:
        nonce, sealed = packets(1)[0]
        refuse(GroupOpener(GroupKeys(bytes(32), KEYS.permit_seed)), ALICE, nonce, sealed, TO_ALL)
        refuse(GroupOpener(KEYS), ALICE, nonce, sealed, multicast_associated(bytes(16), ALICE))

    def test_each_changed_bit(self) -> None:
        nonce, sealed = packets(1)[0]
        packet = nonce + sealed
        opener = GroupOpener(KEYS)
        for bit in range(8 * len(packet)):
            changed = bytearray(packet)
            changed[bit // 8] ^= 1 << bit % 8
            refuse(opener, ALICE, bytes(changed[:NONCE_BYTES]), bytes(changed[NONCE_BYTES:]), TO_ALL)
        assert accepts(opener, (nonce, sealed))

    def test_each_truncation(self) -> None:
        nonce, sealed = packets(1)[0]
        opener = GroupOpener(KEYS)
        for size in range(len(sealed)):
            refuse(opener, ALICE, nonce, sealed[:size], TO_ALL)
        for size in range(len(nonce)):
            refuse(opener, ALICE, nonce[:size], sealed, TO_ALL)

    def test_a_nonce_of_another_size(self) -> None:
        """AES-GCM itself would take it."""
        nonce = bytes(16)
        refuse(GroupOpener(KEYS), ALICE, nonce, AESGCM(sender_key_by_hand(ALICE, 0)).encrypt(nonce, b"", TO_ALL), TO_ALL)


class TestReplay:
    sealed = packets(1101)

    @given(st.lists(st.integers(0, 1100), max_size=60))
    def test_each_body_opens_once(self, order: list[int]) -> None:
        opener = GroupOpener(KEYS)
        seen: set[int] = set()
        for number in order:
            fresh = number not in seen and number > max(seen, default=-1) - REPLAY_WINDOW
            assert accepts(opener, self.sealed[number]) is fresh
            if fresh:
                seen.add(number)

    def test_senders_have_windows_of_their_own(self) -> None:
        opener = GroupOpener(KEYS)
        for sender in (ALICE, BOB, CAROL):
            assert accepts(opener, packets(1, sender=sender)[0], sender)
        for sender in (ALICE, BOB, CAROL):
            assert not accepts(opener, packets(1, sender=sender)[0], sender)

    def test_a_forger_moves_no_window(self) -> None:
        opener = GroupOpener(KEYS)
        assert accepts(opener, self.sealed[0])
        refuse(opener, ALICE, bytes(4) + b"\xff" * 8, self.sealed[1][1], TO_ALL)  # far ahead
        refuse(opener, ALICE, b"\xff" * 12, self.sealed[1][1], TO_ALL)  # in the last epoch
        refuse(opener, ALICE, self.sealed[1][0], bytes(40), TO_ALL)  # exactly the next one
        refuse(opener, ALICE, self.sealed[0][0], bytes(40), TO_ALL)  # one that was seen: not told that it was
        assert accepts(opener, self.sealed[1])
        assert not accepts(opener, self.sealed[0])

    def test_a_forger_is_not_remembered(self) -> None:
        opener = GroupOpener(KEYS, senders_max=1)
        assert accepts(opener, self.sealed[0])
        for number in range(100):
            refuse(opener, number.to_bytes(16, "big"), bytes(12), bytes(40), TO_ALL)
        assert not accepts(opener, self.sealed[0])
        assert list(opener._senders) == [ALICE]


class TestEpochs:
    def test_a_body_overtaken_by_the_next_epoch_opens(self) -> None:
        sealed = packets(6, epoch_messages=3)
        opener = GroupOpener(KEYS)
        assert [accepts(opener, sealed[number]) for number in (0, 3, 2, 4, 1)] == [True] * 5
        assert not any(accepts(opener, packet) for packet in sealed[:5])
        assert accepts(opener, sealed[5])

    def test_the_same_counter_in_two_epochs_is_two_bodies(self) -> None:
        opener = GroupOpener(KEYS)
        assert accepts(opener, packets(1, epoch=0)[0])
        assert accepts(opener, packets(1, epoch=1)[0])

    def test_an_epoch_whose_window_is_gone_is_refused(self) -> None:
        opener = GroupOpener(KEYS)
        assert [accepts(opener, packets(1, epoch=epoch)[0]) for epoch in (0, 1, 2)] == [True] * 3
        assert not accepts(opener, packets(1, epoch=0)[0])
        # The two that are kept are still told apart.
        assert [accepts(opener, packets(2, epoch=epoch)[1]) for epoch in (1, 2)] == [True] * 2

    def test_an_older_epoch_never_seen_is_refused(self) -> None:
        opener = GroupOpener(KEYS)
        assert accepts(opener, packets(1, epoch=5)[0])
        assert not accepts(opener, packets(1, epoch=4)[0])
        assert accepts(opener, packets(1, epoch=9)[0])
        assert not accepts(opener, packets(1, epoch=7)[0])
        assert accepts(opener, packets(2, epoch=5)[1])

    def test_a_refused_epoch_changes_nothing(self) -> None:
        opener = GroupOpener(KEYS)
        accepts(opener, packets(1, epoch=5)[0])
        accepts(opener, packets(1, epoch=4)[0])
        assert not accepts(opener, packets(1, epoch=5)[0])
        assert accepts(opener, packets(2, epoch=5)[1])

    def test_epochs_compare_as_numbers(self) -> None:
        opener = GroupOpener(KEYS)
        assert [accepts(opener, packets(1, epoch=epoch)[0]) for epoch in (255, 256, 65536)] == [True] * 3

    @given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=40))
    def test_no_order_opens_a_body_twice(self, order: list[tuple[int, int]]) -> None:
        opener = GroupOpener(KEYS)
        opened: set[tuple[int, int]] = set()
        epochs: list[int] = []  # what the opener keeps: at most two, the newest last
        for epoch, counter in order:
            expected = (epoch, counter) not in opened and (epoch in epochs or not epochs or epoch > epochs[-1])
            assert accepts(opener, packets(4, epoch=epoch)[counter]) is expected
            if expected:
                opened.add((epoch, counter))
                if epoch not in epochs:
                    epochs = [*epochs, epoch][-2:]


class TestBound:
    SENDERS = tuple(number.to_bytes(16, "big") for number in range(4))

    def test_the_one_silent_the_longest_is_forgotten(self) -> None:
        opener = GroupOpener(KEYS, senders_max=3)
        first = {sender: packets(2, sender=sender) for sender in self.SENDERS}
        for sender in self.SENDERS[:3]:
            assert accepts(opener, first[sender][0], sender)
        # The first one speaks again, so the second is now the oldest.
        assert accepts(opener, first[self.SENDERS[0]][1], self.SENDERS[0])
        assert accepts(opener, first[self.SENDERS[3]][0], self.SENDERS[3])
        assert list(opener._senders) == [self.SENDERS[number] for number in (2, 0, 3)]
        assert not accepts(opener, first[self.SENDERS[0]][0], self.SENDERS[0])

    def test_many_senders_and_epochs_stay_within_the_bound(self) -> None:
        opener = GroupOpener(KEYS, senders_max=3)
        for epoch in range(3):
            for sender in self.SENDERS:
                accepts(opener, packets(1, sender=sender, epoch=epoch)[0], sender)
                assert len(opener._senders) <= 3


def test_keys_stay_out_of_the_text() -> None:
    for side in (GroupSealer(KEYS, ALICE), GroupOpener(KEYS)):
        assert KEYS.key.hex() not in repr(side)
        assert repr(KEYS.key)[2:-1] not in repr(side)
