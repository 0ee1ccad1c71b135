"""TLS for the connections of a door (docs/design.md 17.24)."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Final

from iris_py.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_py.net.acceptor import AcceptedSocket

__all__ = ["Certificate", "establish"]

#: The protocol inside TLS of web doors, announced to the client (RFC 7301).
PROTOCOL_NAMES: Final = ("http/1.1",)


class Certificate:
    """The certificate of a server, read from files.

    Args:
        certificate_file: The path of the certificate chain (PEM).
        key_file: The path of the private key (PEM), not encrypted.
        protocol_names: The protocols inside TLS, announced to clients; empty for none.
        client_ca_file: The path of the certificates (PEM) that sign those of clients; empty to ask clients for none.

    Raises:
        ConfigurationError: A file is missing or unreadable, or the files do not belong together.

    Attributes:
        context: The settings of new connections, with TLS 1.2 as the oldest version.
    """

    def __init__(
        self,
        certificate_file: str,
        key_file: str,
        *,
        protocol_names: tuple[str, ...] = PROTOCOL_NAMES,
        client_ca_file: str = "",
    ) -> None:
        self._client_ca_file = client_ca_file
        self._protocol_names = protocol_names
        self._certificate_file = certificate_file
        self._key_file = key_file
        self.context = self._load()

    def reload(self) -> None:
        """Read the files again. After an error the previous certificate stays.

        Raises:
            ConfigurationError: As for the class.
        """
        self.context = self._load()

    def _load(self) -> ssl.SSLContext:
        for name, path in (("certificate_file", self._certificate_file), ("key_file", self._key_file)):
            try:
                with open(path, "rb"):
                    pass
            except OSError as exc:
                raise ConfigurationError(
                    f"{name}: cannot read {path}: {exc.strerror}. Give the path of a PEM file that the door may read."
                ) from exc
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self._protocol_names:
            context.set_alpn_protocols(list(self._protocol_names))
        try:
            context.load_cert_chain(self._certificate_file, self._key_file, password=_refuse_password)
        except ssl.SSLError as exc:
            raise ConfigurationError(
                f"certificate_file {self._certificate_file} and key_file {self._key_file} are no certificate with its key: "
                f"{exc.reason or exc}. Give a PEM file with the certificate chain, and a PEM file with its private key."
            ) from exc
        if self._client_ca_file:
            try:
                context.load_verify_locations(self._client_ca_file)
            except (OSError, ssl.SSLError) as exc:
                raise ConfigurationError(
                    f"client_ca_file {self._client_ca_file} has no certificates: {exc}. Give a PEM file with the certificates "
                    "of those who sign certificates of clients."
                ) from exc
            context.verify_mode = ssl.CERT_REQUIRED
        return context


async def establish(
    accepted: AcceptedSocket,
    make: Callable[[], asyncio.BaseProtocol],
    certificate: Certificate | None,
    *,
    handshake_s: float,
    shutdown_s: float,
) -> None:
    """Make the protocol of an accepted connection, after its TLS handshake.

    Args:
        accepted: The socket of the connection.
        make: Makes the protocol.
        certificate: The certificate; None without TLS.
        handshake_s: The longest handshake (seconds).
        shutdown_s: The longest wait for the client at the end of TLS (seconds).

    Raises:
        OSError: The handshake failed, or took too long.
    """
    loop = asyncio.get_running_loop()
    if certificate is None:
        await loop.connect_accepted_socket(make, accepted)
        return
    await loop.connect_accepted_socket(
        make,
        accepted,
        ssl=certificate.context,
        ssl_handshake_timeout=handshake_s,
        ssl_shutdown_timeout=shutdown_s,
    )


def _refuse_password() -> str:
    """Refuse an encrypted key, for which OpenSSL would ask on the terminal."""
    raise ConfigurationError(
        "key_file: the private key is encrypted. Give a key without a password, readable by the door alone."
    )
