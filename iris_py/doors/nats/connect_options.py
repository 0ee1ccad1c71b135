"""The options of a client in ``CONNECT``: credentials, and wishes for the connection."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from iris_py.doors.nats.encoder import PROTOCOL
from iris_py.doors.nats.operations import ProtocolFault
from iris_py.doors.nats.users import ClientCredentials

__all__ = ["ConnectOptions", "read_options"]

_decode: Final = msgspec.json.Decoder(dict[str, Any] | None).decode


class ConnectOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options that a door reads, with the defaults of nats-server. A client without ``CONNECT`` has the defaults."""

    verbose: bool = True
    """Whether each operation is confirmed by ``+OK``."""
    pedantic: bool = True
    """Whether subjects of messages are checked with an error of their own."""
    echo: bool = True
    """Whether the client gets its own messages."""
    headers: bool = False
    """Whether the client reads headers."""
    no_responders: bool = False
    """Whether a request without a subscriber is answered at once."""
    protocol: int = 0
    """1 for a client that reads later ``INFO``."""
    name: str = ""
    lang: str = ""
    version: str = ""
    user: str = ""
    password: str = msgspec.field(default="", name="pass")
    auth_token: str = ""
    nkey: str = ""
    sig: str = ""
    """The signature of the nonce."""
    jwt: str = ""

    @property
    def credentials(self) -> ClientCredentials:
        """The credentials."""
        return ClientCredentials(self.user, self.password, self.auth_token, self.nkey, self.sig, self.jwt)


def read_options(text: bytes, earlier: ConnectOptions) -> ConnectOptions | ProtocolFault:
    """Read the options of ``CONNECT``.

    Names are compared without case and null is left out, as Go does.

    Args:
        text: A JSON object.
        earlier: The options before, which stay unless the object changes them.

    Returns:
        The options, or the error that ends the connection.
    """
    try:
        values = _decode(text) or {}
        found = {name.lower(): value for name, value in values.items() if value is not None}
        options = msgspec.convert({**msgspec.to_builtins(earlier), **found}, ConnectOptions)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return ProtocolFault.UNKNOWN_OPERATION
    if not 0 <= options.protocol <= PROTOCOL:
        return ProtocolFault.PROTOCOL
    if options.no_responders and not options.headers:
        return ProtocolFault.NO_HEADERS_FOR_RESPONDERS
    return options
