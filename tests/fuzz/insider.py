"""An insider: a node that holds the secret, keeps to the link and to Noise, and says whatever it likes in them.

Everything that it hears it reads as strictly as an honest node would, and remembers ids of requests and tunnels.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import msgspec

from iris_overlay.groups.messages import decode_group_message
from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_overlay.peers.dial_back import DIAL_BACK, PACKET
from iris_overlay.ring.messages import Direct, Returned, Routed, RoutedKind, decode_ring_message, signed_part
from iris_py.link.config import LinkConfig
from iris_py.link.handshake import LinkHandshake
from iris_py.link.lanes import BODY, CONTROL, MULTICAST, SHARE, TUNNEL_SEALED, UNICAST
from iris_py.link.link import NO_LINK, Link, LinkState
from iris_py.patterns.tunnel.end import FROM_MEMBER, OPEN, prologue_of
from iris_py.testing.cores.pair import End
from iris_py.wire import packets
from iris_py.wire.headers import decode_headers
from iris_security import (
    AuthenticationError,
    GroupOpener,
    GroupSealer,
    Handshake,
    Identity,
    Purpose,
    RecordOpener,
    RecordSealer,
    multicast_associated,
    unicast_associated,
    verify_signature,
)

if TYPE_CHECKING:
    from iris_security import GroupKeys, Keyring

ACCEPT: Final = struct.Struct(">Q8s")
#: Ids that an insider has heard and may answer to.
HEARD_MAX: Final = 64


class Tunnel:
    """A tunnel of an insider: the ciphers of both directions, and the id that its chunks carry."""

    def __init__(self, handshake: Handshake, chunks_id: int) -> None:
        keys = handshake.split()
        self.sealer = RecordSealer(keys.send)
        self.opener = RecordOpener(keys.receive)
        self.chunks_id = chunks_id


class Insider:
    """A node that an honest one has a link to.

    Args:
        number: Of its key pair.
        keyring: The secrets.
        groups: The keys of the groups that it speaks in.
        honest: The id of the honest node.
        now: The time.

    Attributes:
        info: The insider, as it describes itself.
        end: Its end of the link.
        heard: Ids of requests and surveys that came from the honest node.
        tunnels: Those that are open, by the id that the honest node's chunks carry.
    """

    def __init__(self, number: int, keyring: Keyring, groups: list[GroupKeys], honest: NodeId, now: float) -> None:
        self.identity = Identity(bytes((number,)) * 32)
        self.info = NodeInfo(NodeId(self.identity.node_id), (f"198.51.100.{number}:7000",))
        self.heard: list[int] = []
        self.tunnels: dict[int, Tunnel] = {}
        self._offered: dict[int, Handshake] = {}
        self._honest = honest
        self._keys = {keys.group_id: keys for keys in groups}
        self._openers = {keys.group_id: GroupOpener(keys) for keys in groups}
        self._sealers = {keys.group_id: GroupSealer(keys, self.info.id, 1) for keys in groups}
        self._cast_sealers = {keys.group_id: GroupSealer(keys, self.info.id, 1 << 31) for keys in groups}
        self._keyring = keyring
        self._realm = keyring.realm().group_id
        self._dials = 0
        self.end = self.dial(now)

    # -- the link

    def dial(self, now: float) -> End:
        """Open another link; the caller gives the honest node its end."""
        self._dials += 1
        handshake = LinkHandshake(
            initiator=True,
            keyring=self._keyring,
            identity=self.identity,
            hello=msgspec.msgpack.encode(self.info),
            ephemeral_private=self._dials.to_bytes(31, "big") + self.info.id[:1],
        )
        self.end = End(Link(handshake=handshake, now=now, config=LinkConfig()))
        self.tunnels.clear()
        self._offered.clear()
        return self.end

    def take(self, now: float) -> None:
        """Read what has come over the link."""
        self.end.take()
        link = self.end.link
        if link.state is LinkState.IDENTIFIED:
            link.confirm(now)
            self.end.take()
        packets_received, self.end.packets = self.end.packets, []
        for packet in packets_received:
            self._read(packet)

    def _read(self, packet: tuple[int, bytes, bytes, bytes]) -> None:
        kind, group, nonce, sealed = packet
        if kind == CONTROL:
            self.read_ring(group)
        elif kind == TUNNEL_SEALED:
            tunnel = self.tunnels.get(int.from_bytes(group, "big"))
            if tunnel is not None:
                tunnel.opener.open(sealed)
        elif kind == SHARE:
            self.end.link.proofs.receive_share(sealed, self._keys.get(group))
        elif kind == BODY:
            assert group in self.end.link.shared, "a body that only the record seals, and nobody has proved anything"
            self.read_body(group, sealed)
        elif kind in (UNICAST, MULTICAST) and group in self._openers:
            if kind == UNICAST or group == self._realm:  # publications are sealed for one receiver each
                associated = unicast_associated(group, self._honest, self.info.id)
            else:
                associated = multicast_associated(group, self._honest)
            self.read_body(group, self._openers[group].open(self._honest, nonce, sealed, associated))

    def read_ring(self, data: bytes) -> None:
        """Read a message of the overlay as any node would, which raises if it is none."""
        message = decode_ring_message(data)
        if isinstance(message, Direct):
            if message.source.id == self._honest and message.payload[:1] not in (PACKET, DIAL_BACK):
                decode_group_message(message.payload)
        elif isinstance(message, Routed | Returned) and self._is_of_honest(message):
            if isinstance(message, Returned) or message.kind is RoutedKind.RELAY:
                self.read_ring(message.payload)
            elif message.kind is RoutedKind.PAYLOAD and message.payload[:1] not in (PACKET, DIAL_BACK):
                decode_group_message(message.payload)

    def _is_of_honest(self, message: Routed | Returned) -> bool:
        """Tell whether the honest node has said a message, and does not only pass it on."""
        try:
            return verify_signature(Purpose.OVERLAY, signed_part(message), message.signature) == self._honest
        except AuthenticationError:
            return False

    def read_body(self, group: bytes, body: bytes) -> None:
        """Read the messages of a body, which has to be whole."""
        offset = 0
        while offset < len(body):
            kind, flags, head_bytes, length, id_, _argument = packets.MESSAGE.unpack_from(body, offset)
            start = offset + packets.MESSAGE_BYTES + head_bytes
            offset = start + length
            assert offset <= len(body), "a message longer than its body"
            assert 0 < kind < packets.KINDS
            payload = body[start:offset]
            if kind in packets.WITH_HEADERS and head_bytes:
                assert decode_headers(body[start - head_bytes : start]) is not None
            if kind in packets.PUBLICATIONS and flags & packets.RUN:
                assert packets.decode_run(body, start, offset) is not None
            if kind in packets.AWAITED:
                self.heard = [*self.heard[1 - HEARD_MAX :], id_]
            if kind == packets.TUNNEL_OPEN:
                self._accept(group, id_, payload)
            elif kind == packets.TUNNEL_ACCEPT and id_ in self._offered:
                handshake = self._offered.pop(id_)
                handshake.read_message(payload[ACCEPT.size :])
                self.tunnels[id_ | FROM_MEMBER] = Tunnel(handshake, id_)

    # -- what it says

    def seal(self, group: bytes, body: bytes, *, is_multicast: bool) -> tuple[int, bytes, bytes]:
        """Return the kind of a packet for the honest node, its nonce, and its sealed body."""
        mine = self.info.id
        kind = MULTICAST if is_multicast else UNICAST
        associated = multicast_associated(group, mine) if is_multicast else unicast_associated(group, mine, self._honest)
        return kind, *self._sealers[group].seal(body, associated)

    def seal_cast(self, group: bytes, body: bytes) -> tuple[bytes, bytes]:
        """Return the nonce and the sealed body of what goes down the tree of a group."""
        return self._cast_sealers[group].seal(body, multicast_associated(group, self.info.id) + b"cast")

    def send_body(self, group: bytes, body: bytes, now: float, *, is_multicast: bool = False) -> None:
        """Send messages over the link; where both have proved to hold the key of the group, in either form."""
        self.end.link.proofs.offer(self._keys[group])
        if group in self.end.link.shared and len(body) % 2:
            self.end.link.wake(now)
            self.end.link.send_body(group, [body], len(body), is_ordered=is_multicast)
            return
        kind, nonce, sealed = self.seal(group, body, is_multicast=is_multicast)
        self.end.link.wake(now)
        self.end.link.send_packet(kind, group, nonce, sealed)

    def signed(self, message: Routed | Returned) -> Routed | Returned:
        """Return a message of the ring with its signature."""
        return msgspec.structs.replace(message, signature=self.sign(signed_part(message)))

    def sign(self, data: bytes) -> bytes:
        """Sign for the overlay."""
        return self.identity.sign(Purpose.OVERLAY, data)

    def permit(self, group: bytes, data: bytes) -> bytes:
        """Return a permit of a group; nothing where it has no keys."""
        keys = self._keys.get(group)
        return b"" if keys is None else keys.permit(data)

    def attributes(self, group: bytes, weight: bytes = b"") -> bytes:
        """Return what a member registers with."""
        return self._keys[group].proof(self.info.id, weight) + weight

    def offer(self, group: bytes, tunnel_id: int, window_bytes: int) -> bytes:
        """Return the payload of a TUNNEL_OPEN; a tunnel follows if the honest node accepts."""
        handshake = self._noise(group, self.info.id, self._honest, tunnel_id, initiator=True)
        self._offered[tunnel_id] = handshake
        return OPEN.pack(window_bytes) + handshake.write_message()

    def _accept(self, group: bytes, tunnel_id: int, payload: bytes) -> None:
        handshake = self._noise(group, self._honest, self.info.id, tunnel_id, initiator=False)
        handshake.read_message(payload[OPEN.size :])
        link = self.end.link
        answer = ACCEPT.pack(1 << 20, link.id if link.is_open else NO_LINK) + handshake.write_message()
        self.tunnels[tunnel_id] = Tunnel(handshake, tunnel_id | FROM_MEMBER)
        body = packets.MESSAGE.pack(packets.TUNNEL_ACCEPT, 0, 0, len(answer), tunnel_id, 0) + answer
        kind, nonce, sealed = self.seal(group, body, is_multicast=False)
        link.send_packet(kind, group, nonce, sealed)

    def _noise(self, group: bytes, caller: bytes, member: bytes, tunnel_id: int, *, initiator: bool) -> Handshake:
        psk = self._keys[group].tunnel_psk()
        private = tunnel_id.to_bytes(8, "big") + b"e" * 24
        # The prologue takes no more of the group than its id.
        prologue = prologue_of(_Named(group), caller, member, tunnel_id)  # type: ignore[arg-type]
        return Handshake(initiator=initiator, psk=psk, prologue=prologue, ephemeral_private=private)


class _Named:
    def __init__(self, id: bytes) -> None:  # noqa: A002 - as of a group
        self.id = id
