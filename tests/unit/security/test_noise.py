"""Tests of security/iris_security/noise.py alone; test_symmetric.py has the tests of both patterns."""

from tests.unit.security.handshakes import NN


def test_pinned() -> None:
    psk = bytes.fromhex("4d8a592c67200379fe1c485458a5d36db560f38a16dec0276ca55cdbb8d846d8")
    one, two = NN.initiator(psk=psk, prologue=b"IRIS"), NN.responder(psk=psk, prologue=b"IRIS")
    first = one.write_message()
    two.read_message(first)
    second = two.write_message(b"hello")
    assert one.read_message(second) == b"hello"
    assert first.hex() == ("07a37cbc142093c8b755dc1b10e86cb426374ad16aa853ed0bdfc0b2b86d1c7c24bb9c0b6244704ee00157c3926d2047")
    assert second.hex() == (
        "ab9f2628c325c141e9fb2430f106850f62930bc3f0b12df39a9b84a49c7c1d12ec9e72fffc9924ce3c1188cbd0b3ebc975cbd0635d"
    )
    assert one.handshake_hash.hex() == "cfa78a4e17d8d2ac23d766c5f2beff5d496601cd403f71ac07974c7748963fe5"
    keys = one.split()
    assert keys.send.hex() == "ecc3466249f2c403e06ce0887c8411be72bd521bf91a65a710475fca4dac3ed9"
    assert keys.receive.hex() == "b750b62895c923c961b9663e94b101c48f5d8a037cc6236130f6f295cecfe0bf"
