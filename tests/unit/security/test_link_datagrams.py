"""Tests of security/iris_security/link_datagrams.py."""

from __future__ import annotations

import hashlib
import hmac

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from iris_security import AuthenticationError, LinkDatagrams, ReplayError
from iris_security.datagram import DATAGRAM_BYTES_MAX
from iris_security.link_datagrams import OVERHEAD_BYTES, SIGNED_MAX, UNANSWERED_MAX, VERSION, sender_of

SECRET = bytes(range(32))
ALICE, BOB = bytes(range(16)), bytes(range(1, 17))


def ends(secret: bytes = SECRET) -> tuple[LinkDatagrams, LinkDatagrams]:
    """Return the ends of one link: that of the initiator, and that of the responder."""
    return LinkDatagrams(secret, initiator=True), LinkDatagrams(secret, initiator=False)


def refuse(end: LinkDatagrams, datagram: bytes) -> None:
    """Require a failure that is no replay: that would say that the datagram is authentic."""
    with pytest.raises(AuthenticationError) as raised:
        end.open(datagram)
    assert type(raised.value) is AuthenticationError
    assert raised.value.__cause__ is None


@pytest.mark.parametrize("payload", [b"", b"x", bytes(DATAGRAM_BYTES_MAX - OVERHEAD_BYTES)], ids=len)
def test_both_directions(payload: bytes) -> None:
    initiator, responder = ends()
    there = initiator.seal(ALICE, payload)
    assert responder.open(there) == payload
    back = responder.seal(BOB, payload)
    assert initiator.open(back) == payload
    assert (sender_of(there), sender_of(back)) == (ALICE, BOB)
    assert len(there) == len(payload) + OVERHEAD_BYTES


@pytest.mark.parametrize(("is_initiator", "info"), [(True, b"iris datagram initiator"), (False, b"iris datagram responder")])
def test_written_out_by_hand(is_initiator: bool, info: bytes) -> None:
    key = hmac.digest(hmac.digest(bytes(32), SECRET, hashlib.sha256), info + b"\x01", hashlib.sha256)
    end = ends()[0 if is_initiator else 1]
    for counter in range(3):
        header = b"\x02" + ALICE + counter.to_bytes(8, "big")
        assert end.seal(ALICE, b"payload") == header + AESGCM(key).encrypt(bytes(4) + header[17:], b"payload", header)


def test_a_datagram_is_opened_once() -> None:
    initiator, responder = ends()
    first, second = initiator.seal(ALICE, b"first"), initiator.seal(ALICE, b"second")
    assert responder.open(second) == b"second"
    assert responder.open(first) == b"first", "the network has changed the order"
    for datagram in (first, second):
        with pytest.raises(ReplayError):
            responder.open(datagram)


def test_no_end_takes_its_own_datagram_for_one_of_the_peer() -> None:
    for end in ends():
        refuse(end, end.seal(ALICE, b"payload"))


def test_a_datagram_is_of_one_link() -> None:
    initiator, _ = ends()
    _, other = ends(SECRET[::-1])
    refuse(other, initiator.seal(ALICE, b"payload"))


def test_any_changed_byte_is_noticed() -> None:
    initiator, responder = ends()
    datagram = initiator.seal(ALICE, b"payload")
    for at in range(len(datagram)):
        refuse(responder, datagram[:at] + bytes([datagram[at] ^ 1]) + datagram[at + 1 :])
    for length in range(len(datagram)):
        refuse(responder, datagram[:length])
    refuse(responder, datagram + bytes(DATAGRAM_BYTES_MAX))
    assert responder.open(datagram) == b"payload", "forgeries change nothing"


def test_other_datagrams_have_no_sender() -> None:
    whole = bytes([VERSION]) + bytes(OVERHEAD_BYTES - 1)
    assert sender_of(whole) == bytes(16)
    for datagram in (b"", whole[:-1], bytes([VERSION - 1]) + whole[1:], bytes([VERSION]) + bytes(DATAGRAM_BYTES_MAX)):
        assert sender_of(datagram) is None


def test_a_responder_signs_until_the_initiator_has_shown_its_keys() -> None:
    initiator, responder = ends()
    assert initiator.may_seal()
    assert not responder.may_seal()
    responder.open(initiator.seal(ALICE, b""))
    assert responder.may_seal()


def test_an_end_that_hears_nothing_signs_and_tries_again_at_times() -> None:
    initiator, responder = ends()

    def sent(count: int) -> list[bytes | None]:
        return [initiator.seal(ALICE, b"") if initiator.may_seal() else None for _ in range(count)]

    assert sum(each is not None for each in sent(UNANSWERED_MAX)) == UNANSWERED_MAX
    trials = []
    for _ in range(3):
        *signed, trial = sent(SIGNED_MAX + 1)
        assert signed == [None] * SIGNED_MAX
        assert trial is not None
        trials.append(trial)
    assert responder.open(trials[-1]) == b""
    initiator.open(responder.seal(BOB, b""))
    assert sum(each is not None for each in sent(UNANSWERED_MAX)) == UNANSWERED_MAX, "the peer has its keys still"


def test_keys_are_hidden() -> None:
    assert repr(ends()[0]) == "LinkDatagrams(initiator=True)"
