"""Tests of iris_py/federation/handshake.py."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_py.federation import handshake as module
from iris_py.federation.handshake import DEFAULT_OFFER, MAGIC, VERSION_MAX, FederationHandshake, GatewayIntroduction, pairs_of
from iris_py.link.config import LinkConfig
from iris_py.link.events import LinkClosed, LinkOpened, PeerIdentified
from iris_py.link.handshake import HANDSHAKE_BYTES_MAX, LinkHandshake, Offer, ProtocolError
from iris_py.link.lanes import BODY, CONTROL
from iris_py.link.link import NO_LINK, Link, LinkState
from iris_py.testing.cores.pair import End, LinkPair
from iris_security import AuthenticationError, CloudKey, Identity, Keyring, Secret, Suite, pair_id

US, EU, ASIA = (CloudKey(bytes((number,)) * 32) for number in (1, 2, 3))
CONFIG = LinkConfig()
GROUP = bytes(16)


def dialling(
    key: CloudKey = US,
    peer: CloudKey = EU,
    *,
    hello: bytes = b"from us",
    offer: Offer = DEFAULT_OFFER,
    ephemeral_private: bytes = b"\x11" * 32,
) -> FederationHandshake:
    return FederationHandshake(key=key, peer=peer.public, hello=hello, ephemeral_private=ephemeral_private, offer=offer)


def answering(
    key: CloudKey = EU, *allowed: CloudKey, hello: bytes = b"from eu", offer: Offer = DEFAULT_OFFER
) -> FederationHandshake:
    pairs = pairs_of([key], [each.public for each in allowed or (US,)])
    return FederationHandshake(pairs=pairs, hello=hello, ephemeral_private=b"\x12" * 32, offer=offer)


def first_message() -> bytes:
    return b"".join(dialling().data_to_send())


def shake(initiator: FederationHandshake, responder: FederationHandshake) -> None:
    responder.receive_data(memoryview(b"".join(initiator.data_to_send())))
    initiator.receive_data(memoryview(b"".join(responder.data_to_send())))


class TestMessages:
    def test_one_each_way(self) -> None:
        initiator, responder = dialling(), answering()
        assert (initiator.initiator, responder.initiator) == (True, False)
        shake(initiator, responder)
        assert initiator.keys is not None
        assert responder.keys is not None
        assert (initiator.keys.send, initiator.keys.receive) == (responder.keys.receive, responder.keys.send)
        assert initiator.link_id == responder.link_id
        assert (initiator.peer_id, initiator.peer_hello) == (EU.public, b"from eu")
        assert (initiator.version, responder.version) == (VERSION_MAX, VERSION_MAX)
        assert initiator.key_id == responder.key_id == pair_id(US.public, EU.public)

    def test_the_first_one_says_nothing_but_what_it_offers_and_the_pair(self) -> None:
        message = first_message()
        assert message[:19] == struct.pack(
            ">4sBBBBB8sH", MAGIC, 1, 1, 1, 3, Suite.AES_256_GCM, pair_id(US.public, EU.public), 48
        )
        assert len(message) == 19 + 48

    @pytest.mark.parametrize("preferred", [(one, other) for one in Suite for other in Suite])
    def test_chacha_is_taken_if_either_side_prefers_it(self, preferred: tuple[Suite, Suite]) -> None:
        initiator, responder = (
            dialling(offer=Offer(preferred=preferred[0])),
            answering(offer=Offer(preferred=preferred[1])),
        )
        shake(initiator, responder)
        assert initiator.suite is responder.suite is max(preferred)

    def test_the_pair_tells_which_of_many_clouds_it_is(self) -> None:
        initiator, responder = dialling(ASIA, EU), answering(EU, US, ASIA)
        shake(initiator, responder)
        assert responder.introduction.read_introduction(responder.link_id, b"hello") == (ASIA.public, b"hello")

    def test_an_own_key_that_is_changed_is_accepted_in_both_forms(self) -> None:
        new = CloudKey(b"\x20" * 32)
        pairs = pairs_of([EU, new], [US.public])
        for key in (EU, new):
            initiator = dialling(US, key)
            shake(initiator, FederationHandshake(pairs=pairs, hello=b"", ephemeral_private=b"\x12" * 32))
            assert initiator.peer_id == key.public
        assert pair_id(EU.public, new.public) not in pairs


class TestRefused:
    def test_a_pair_that_is_not_known_costs_no_curve_operation(self, monkeypatch: pytest.MonkeyPatch) -> None:
        message = b"".join(dialling(ASIA, EU).data_to_send())

        def multiply(**_: object) -> None:
            raise AssertionError("a stranger made us multiply points")

        monkeypatch.setattr(module, "KnownKeysHandshake", multiply)
        responder = answering(EU, US)
        with pytest.raises(ProtocolError, match="its key is not the key of a neighbour"):
            responder.receive_data(memoryview(message))
        assert not responder.data_to_send()

    def test_a_stranger_that_names_a_pair(self) -> None:
        message = b"".join(dialling(ASIA, EU).data_to_send())
        forged = message[:9] + pair_id(US.public, EU.public) + message[17:]
        responder = answering(EU, US)
        with pytest.raises(AuthenticationError):
            responder.receive_data(memoryview(forged))
        assert not responder.data_to_send()

    def test_our_own_key_at_the_other_side(self) -> None:
        with pytest.raises(ValueError, match="that of the own cloud"):
            dialling(US, US)
        preamble = struct.pack(">4sBBBBB8sH", MAGIC, 1, 1, 1, 3, 1, pair_id(US.public, US.public), 48)
        with pytest.raises(ProtocolError, match="the key of this cloud"):
            answering(US, EU).receive_data(memoryview(preamble + bytes(48)))

    def test_a_gateway_of_our_own_that_takes_us_for_the_neighbour(self) -> None:
        """The address of the neighbour leads to ourselves: the pair is known, and each side would be the other cloud."""
        with pytest.raises(AuthenticationError):
            answering(US, EU).receive_data(memoryview(first_message()))

    def test_a_point_of_low_order_as_a_key(self) -> None:
        with pytest.raises(ValueError, match="low order"):
            FederationHandshake(key=US, peer=bytes(32), hello=b"", ephemeral_private=b"\x11" * 32)

    @pytest.mark.parametrize(
        "changed",
        [
            b"IRIS" + first_message()[4:],
            b"IRIF\x02" + first_message()[5:],
            first_message()[:5] + b"\x02\x03" + first_message()[7:],
            first_message()[:7] + b"\x04" + first_message()[8:],
            first_message()[:17] + struct.pack(">H", HANDSHAKE_BYTES_MAX + 1),
            b"GET / HTTP/1.1\r\n\r\n",
        ],
        ids=["magic", "format", "versions", "suites", "length", "http"],
    )
    def test_what_is_no_first_message(self, changed: bytes) -> None:
        responder = answering()
        with pytest.raises((ProtocolError, AuthenticationError)):
            responder.receive_data(memoryview(changed))
        assert not responder.data_to_send()

    @pytest.mark.parametrize("is_of_initiator", [True, False])
    def test_each_changed_byte(self, is_of_initiator: bool) -> None:
        whole = dialling()
        first = b"".join(whole.data_to_send())
        responder = answering()
        responder.receive_data(memoryview(first))
        message = first if is_of_initiator else b"".join(responder.data_to_send())
        for at in range(len(message)):
            side = answering() if is_of_initiator else dialling()
            side.data_to_send()
            changed = bytearray(message)
            changed[at] ^= 1 << at % 8
            try:
                used = side.receive_data(memoryview(changed))
            except (ProtocolError, AuthenticationError):
                used = 0
            assert used == 0  # a length that is larger waits
            assert side.keys is None
            assert not side.data_to_send()

    def test_a_cloud_and_a_node_are_strangers_to_each_other(self) -> None:
        identity, keyring = Identity(b"i" * 32), Keyring(Secret(bytes(32)), network="test")
        node = LinkHandshake(initiator=False, keyring=keyring, identity=identity, hello=b"", ephemeral_private=b"e" * 32)
        with pytest.raises(ProtocolError):
            node.receive_data(memoryview(first_message()))

    @given(st.binary(max_size=200))
    def test_garbage_raises_what_is_documented_alone(self, data: bytes) -> None:
        for side in (dialling(), answering()):
            side.data_to_send()
            for prefix in (b"", first_message()[:19]):
                try:
                    used = side.receive_data(memoryview(prefix + data))
                except (ProtocolError, AuthenticationError):
                    used = 0
                assert used == 0
                assert side.keys is None
                assert not side.data_to_send()


def linked(initiator: FederationHandshake, responder: FederationHandshake) -> LinkPair:
    pair = LinkPair(Keyring(Secret(bytes(32)), network="test"))
    pair.initiator = End(Link(handshake=initiator, now=0.0, config=CONFIG))
    pair.responder = End(Link(handshake=responder, now=0.0, config=CONFIG))
    for end in (pair.initiator, pair.responder):
        end.link.shared.add(GROUP)
    return pair


class TestLinks:
    def test_each_side_is_told_the_cloud_and_the_hello_of_the_other(self) -> None:
        pair = linked(dialling(), answering())
        pair.drive()
        assert pair.initiator.events == [PeerIdentified(EU.public, b"from eu", NO_LINK), LinkOpened()]
        assert pair.responder.events == [PeerIdentified(US.public, b"from us", NO_LINK), LinkOpened()]

    def test_requests_and_control_messages_pass(self) -> None:
        pair = linked(dialling(), answering())
        pair.open()
        for end in (pair.initiator, pair.responder):
            end.link.send_control(b"control")
            end.link.send_body(GROUP, [b"re", b"quest"], 7, is_ordered=False)
        pair.drive()
        for end in (pair.initiator, pair.responder):
            assert [(kind, key, body) for kind, key, _, body in end.packets] == [
                (CONTROL, b"control", b""),
                (BODY, GROUP, b"request"),
            ]

    def test_no_key_outlives_the_handshake(self) -> None:
        """Forward secrecy: neither the ephemeral key nor the handshake that has it is anywhere in the link."""
        pair = linked(dialling(), answering())
        pair.open()
        for end in (pair.initiator, pair.responder):
            assert end.link._handshake is None
            kept = end.link._introduction
            assert isinstance(kept, GatewayIntroduction)
            assert {getattr(kept, name) for name in GatewayIntroduction.__slots__} <= {
                US.public,
                EU.public,
                b"from us",
                b"from eu",
            }

    def test_a_replayed_first_message_gets_no_further_than_the_handshake(self) -> None:
        first = first_message()
        responder = End(Link(handshake=answering(), now=0.0, config=CONFIG))
        responder.receive(first, 0.0)
        responder.take()
        assert responder.link.data_to_send(1 << 20)  # as to the true one
        responder.receive(struct.pack(">I", 40) + bytes(40), 0.0)
        responder.take()
        assert responder.link.state is LinkState.CLOSED
        (event,) = responder.events
        assert isinstance(event, LinkClosed)
        assert event.refused
