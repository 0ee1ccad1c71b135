"""Tests of security/iris_security/noise_kk.py alone; test_symmetric.py has the tests of both patterns."""

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from iris_security.symmetric import DH_KEY_BYTES
from tests.unit.security.handshakes import EPHEMERALS, KK, LOW_ORDER, STATICS, dh, public


def test_the_stolen_key_of_a_side_does_not_show_another_one_to_it() -> None:
    """A thief of the responder's private key can forge message 1, and cannot read the answer."""
    forger, two = KK.script(), KK.responder()
    assert two.read_message(forger.message(public(EPHEMERALS[0]), *KK.firsts)) == b""
    answer = two.write_message(b"hello")
    ephemeral, sealed = answer[:DH_KEY_BYTES], answer[DH_KEY_BYTES:]
    # In place of the initiator's key, which the thief does not have.
    forger.mix_message(ephemeral, dh(*EPHEMERALS), dh(STATICS[1], EPHEMERALS[1]))
    with pytest.raises(InvalidTag):
        AESGCM(forger.key).decrypt(bytes(12), sealed, forger.hash)


@pytest.mark.parametrize("point", LOW_ORDER, ids=lambda point: point.hex()[:8])
def test_a_point_of_low_order_as_the_key_of_the_peer(point: bytes) -> None:
    with pytest.raises(ValueError, match="low order"):
        KK.initiator(peer_static_public=point)
