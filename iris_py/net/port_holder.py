"""The process that holds a port: the first two messages of a link's handshake show whether it is a node of the same network.

The handshake proves that the other side holds the secret of the network; no link results.
"""

from __future__ import annotations

import asyncio
import enum
from typing import TYPE_CHECKING, Final, cast

import msgspec

from iris_py.link.handshake import HANDSHAKE_BYTES_MAX, LinkHandshake, ProtocolError
from iris_security import AuthenticationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_py.net.network import NetworkStack
    from iris_security import Identity, Keyring

__all__ = ["Credentials", "HolderKind", "PortHolder", "ask_holder"]

#: Length of an X25519 private key (RFC 7748).
EPHEMERAL_BYTES: Final = 32

#: Time for the process to answer (seconds). A node answers at once, unless its event loop stands still. Too small: a busy node
#: is taken for another program; too large: beside a server that waits for more data, the error comes this late.
ANSWER_S: Final = 2.0


class HolderKind(enum.Enum):
    """The kinds of processes on a port wanted by a node."""

    NODE = enum.auto()
    """A node of the same network."""
    OTHER = enum.auto()
    """Another program, or a node of another network."""
    NOBODY = enum.auto()
    """No listener."""
    UNSURE = enum.auto()
    """The connection ended silently, as with a node that is starting or ending, and with some other programs."""


class PortHolder(msgspec.Struct, frozen=True):
    """The process on a port wanted by a node, as identified by the answer."""

    answer: HolderKind
    """The kind of process."""
    node_id: bytes = b""
    """The id of a node of the same network; otherwise empty."""


class Credentials:
    """The keys with which a node identifies itself to the holder of a port.

    Args:
        keyring: The secrets of the network.
        identity: The key pair behind the node's id.
        entropy: The source of ephemeral keys.
    """

    __slots__ = ("entropy", "identity", "keyring")

    def __init__(self, keyring: Keyring, identity: Identity, entropy: Callable[[int], bytes]) -> None:
        self.keyring = keyring
        self.identity = identity
        self.entropy = entropy

    def handshake(self, attempt: int) -> LinkHandshake:
        """Return a new handshake as initiator. Each attempt uses the next generation of the network's secret."""
        generations = self.keyring.generations
        return LinkHandshake(
            initiator=True,
            keyring=self.keyring,
            identity=self.identity,
            hello=b"",
            ephemeral_private=self.entropy(EPHEMERAL_BYTES),
            generation=generations[attempt % len(generations)],
        )


async def ask_holder(network: NetworkStack, host: str, port: int, handshake: LinkHandshake) -> PortHolder:
    """Find out which kind of process listens at an address, by the first two messages of a link's handshake.

    Args:
        host: The address, or a host name.
        handshake: A new handshake of an initiator.
    """
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(ANSWER_S):
            knock = await network.dial(lambda: _Knock(handshake, loop.create_future()), host, port)
    except ConnectionRefusedError:
        return PortHolder(HolderKind.NOBODY)
    except OSError as exc:
        return PortHolder(HolderKind.OTHER if isinstance(exc, TimeoutError) else HolderKind.UNSURE)
    try:
        async with asyncio.timeout(ANSWER_S):
            return await knock.holder
    except TimeoutError:
        return PortHolder(HolderKind.OTHER)
    finally:
        knock.abort()


class _Knock(asyncio.BufferedProtocol):
    """The connection to the holder of a port, for the two messages of a handshake."""

    def __init__(self, handshake: LinkHandshake, holder: asyncio.Future[PortHolder]) -> None:
        self.holder = holder
        self._handshake = handshake
        self._buffer = memoryview(bytearray(HANDSHAKE_BYTES_MAX + 2))
        self._received = 0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are no subclass
        self._transport.writelines(self._handshake.data_to_send())

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer[self._received :]

    def buffer_updated(self, nbytes: int) -> None:
        self._received += nbytes
        if self.holder.done():
            self._received = 0
            return
        try:
            self._handshake.receive_data(self._buffer[: self._received])
        except (ProtocolError, AuthenticationError):
            self._tell(PortHolder(HolderKind.OTHER))
        else:
            if self._handshake.keys is not None:
                self._tell(PortHolder(HolderKind.NODE, self._handshake.peer_id))

    def connection_lost(self, exc: Exception | None) -> None:
        self._tell(PortHolder(HolderKind.UNSURE))

    def abort(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def _tell(self, holder: PortHolder) -> None:
        if not self.holder.done():
            self.holder.set_result(holder)
