"""Network namespaces: made, entered, and removed."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterator

_CLONE_NEWNET = 0x40000000
_DIRECTORY = Path("/run/netns")
_NAMES_DIRECTORY = Path("/etc/netns")
_LIBRARY = ctypes.CDLL(None, use_errno=True)
#: The path of a user often lacks the folders of the system's tools.
_PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def tool(name: str) -> str:
    """Return the path of ``ip`` or ``nft``."""
    path = shutil.which(name, path=_PATH)
    if path is None:
        raise FileNotFoundError(f"{name} is missing: install the Debian packages iproute2 and nftables")
    return path


def run(*command: str, said: str | None = None) -> str:
    """Run a command of the system to its end and return what it says; when it fails, that becomes the error."""
    done = subprocess.run((tool(command[0]), *command[1:]), input=said, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


class Namespace:
    """A network namespace of its own name. It exists from the beginning of a ``with`` block to its end."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> Self:
        run("ip", "netns", "add", self.name)
        return self

    def __exit__(self, *_exc: object) -> None:
        run("ip", "netns", "delete", self.name)
        shutil.rmtree(_NAMES_DIRECTORY / self.name, ignore_errors=True)

    def configure(self, *commands: str) -> None:
        """Run commands of ``ip`` in here, for example ``link set lo up``."""
        run("ip", "-n", self.name, "-batch", "-", said="\n".join(commands))

    def filter(self, rules: str) -> str:
        """Give rules to ``nft`` in here; returns what it says."""
        return run("ip", "netns", "exec", self.name, tool("nft"), "-f", "-", said=rules + "\n")

    def use_name_server(self, address: str) -> None:
        """Let programs that ``ip netns exec`` starts in here look up names there alone (ip-netns(8))."""
        folder = _NAMES_DIRECTORY / self.name
        folder.mkdir(parents=True)
        (folder / "resolv.conf").write_text(f"nameserver {address}\noptions timeout:1 attempts:5\n")

    def use_hosts(self, hosts: dict[str, str]) -> None:
        """Let programs that ``ip netns exec`` starts in here find hosts at addresses, by name, beside ``localhost``."""
        folder = _NAMES_DIRECTORY / self.name
        folder.mkdir(parents=True, exist_ok=True)
        lines = [f"{address} {name}\n" for name, address in {"localhost": "127.0.0.1", **hosts}.items()]
        (folder / "hosts").write_text("".join(lines))

    def write(self, setting: str, value: str) -> None:
        """Set a kernel setting of this namespace, by its path below ``/proc/sys/net``."""
        with entered(self.name):
            Path(f"/proc/sys/net/{setting}").write_text(value)


@contextlib.contextmanager
def entered(name: str) -> Iterator[None]:
    """Let the calling thread be in a namespace: devices and sockets that it opens there stay there."""
    with contextlib.ExitStack() as stack:
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        stack.callback(os.close, home)
        there = os.open(_DIRECTORY / name, os.O_RDONLY)
        stack.callback(os.close, there)
        _enter(there)
        try:
            yield
        finally:
            _enter(home)


def _enter(descriptor: int) -> None:
    if _LIBRARY.setns(descriptor, _CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
