"""Remembered peers: one small file per live node of this user and machine (docs/design.md 5.6).

A node adds its file at the start of listening, and removes the file at the end. A killed node leaves its file behind; the first
node to dial it is refused and removes the file. So files may be stale, but every live node has one, and reading the files takes
no time, where waiting for a beacon (a datagram of other nodes) would end in a timeout.

No function raises for the state of the file system. Without a writable directory a node still finds others by beacons and
seeds, so the log has a single warning.
"""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING, Final

from iris_py.errors import ConfigurationError
from iris_py.logs import EventLogger
from iris_py.net.addresses import parse_address

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["REMEMBERED_MAX", "RememberedPeers"]

REMEMBERED_MAX: Final = 64  # addresses returned at once: any live node among them knows all others
FILE_BYTES_MAX: Final = 1024
ADDRESSES_PER_NODE_MAX: Final = 8
ATTEMPTS_MAX: Final = 3  # to add a file while others leave
FILES_SEEN_MAX: Final = 4096  # files read of a directory, which another program may have filled

_NODE_ID: Final = re.compile(r"[0-9a-f]{1,64}", re.ASCII)
_TAG: Final = re.compile(r"[0-9A-Za-z_-]{1,128}", re.ASCII)
_logger = EventLogger(__name__)


class RememberedPeers:
    """The files of the present and past nodes of a network on this machine, for this user.

    All calls do a few small operations on files, and never wait for another process.

    Attributes:
        malformed: The number of ignored files, without addresses or not plain files of this user.
        is_available: False from the first failure of the file system on; the log names the failure.
    """

    def __init__(self, state_directory: Path, network_tag: str, *, is_needed: bool = True) -> None:
        """Prepare without reading or writing.

        Args:
            state_directory: The user's state directory for Iris.
            network_tag: A name for the network that reveals nothing, such as a hash; letters, digits, ``_`` and ``-``.
            is_needed: Whether the log warns of an unusable directory. A node with a secret of its own has seeds or beacons, and
                often runs in a container without a writable directory: it only logs a detail.
        """
        if not _TAG.fullmatch(network_tag):
            raise ValueError(f"{network_tag!r} cannot name a directory")
        self._path = state_directory / "peers" / network_tag
        self._is_needed = is_needed
        # The ids of the nodes by returned address. Forgetting a dead node removes only files of these ids, not the file of a
        # new node at the same port.
        self._handed_out: dict[str, list[str]] = {}
        self.malformed = 0
        self.is_available = True

    def add(self, node_id: str, addresses: Iterable[str]) -> bool:
        """Write or renew the file of a node.

        Args:
            node_id: The node's id in hexadecimal.
            addresses: Its ``host:port`` addresses.

        Returns:
            Whether other nodes can now find the node here.
        """
        _check_node_id(node_id)
        lines = list(addresses)[:ADDRESSES_PER_NODE_MAX]
        content = "".join(f"{address}\n" for address in lines).encode()
        assert lines, "a node without an address cannot be remembered"
        assert len(content) <= FILE_BYTES_MAX, "an address is longer than any address"
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                directory = self._open(create=True)
                try:
                    _replace(directory, node_id, content)
                finally:
                    os.close(directory)
                return True
            except FileNotFoundError as exc:
                # The last other node left and removed the directory between its creation and its use here.
                if attempt == ATTEMPTS_MAX:
                    self._degrade("written", exc)
            except OSError as exc:
                self._degrade("written", exc)
                break
        return False

    def remove(self, node_id: str) -> None:
        """Remove the file of a node at its end, if it exists."""
        _check_node_id(node_id)
        try:
            directory = self._open(create=False)
            try:
                os.unlink(node_id, dir_fd=directory)
            finally:
                os.close(directory)
        except FileNotFoundError:
            return
        except OSError as exc:
            self._degrade("removed", exc)
            return
        try:
            self._path.rmdir()  # otherwise every past network would leave its directory
        except OSError:
            pass  # in use by other nodes

    def addresses(self) -> list[str]:
        """Return the addresses of the newest nodes first, without repetition, at most `REMEMBERED_MAX`.

        If all these addresses refuse connections and are forgotten, call again: older addresses may have been left out.
        """
        found: dict[str, None] = {}
        handed_out: dict[str, list[str]] = {}
        try:
            directory = self._open(create=False)
            try:
                for node_id in _newest_first(directory):
                    lines = self._read(directory, node_id)
                    for address in lines[: REMEMBERED_MAX - len(found)]:
                        found.setdefault(address)
                        handed_out.setdefault(address, []).append(node_id)
                    if len(found) >= REMEMBERED_MAX:
                        break
            finally:
                os.close(directory)
        except FileNotFoundError:
            pass  # not made yet
        except OSError as exc:
            self._degrade("read", exc)
        self._handed_out = handed_out
        return list(found)

    def forget(self, address: str) -> None:
        """Remove the files of the nodes at an address that has refused a dial: the nodes are dead."""
        for node_id in self._handed_out.pop(address, ()):
            self.remove(node_id)

    def _open(self, *, create: bool) -> int:
        """Open the directory of the files; raise unless it belongs to this user, is not writable by others, and is no link.

        All operations are relative to the returned descriptor, and so use the checked directory.
        """
        if create:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._path.mkdir(mode=0o700, exist_ok=True)
        directory = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        status = os.fstat(directory)
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o022:
            os.close(directory)
            raise PermissionError(0, "it belongs to another user, or others may write to it")
        return directory

    def _read(self, directory: int, node_id: str) -> list[str]:
        """Return the addresses in the file of a node; an empty list if no node wrote the file."""
        try:
            descriptor = os.open(node_id, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
        except FileNotFoundError:
            return []  # its node ended just now
        except OSError:
            self.malformed += 1  # a symbolic link, or unreadable
            return []
        try:
            status = os.fstat(descriptor)
            is_ours = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
            content = os.read(descriptor, FILE_BYTES_MAX + 1) if is_ours else b""
        finally:
            os.close(descriptor)
        lines = content.decode("latin-1").splitlines()
        is_sound = content.endswith(b"\n") and len(content) <= FILE_BYTES_MAX and len(lines) <= ADDRESSES_PER_NODE_MAX
        if not is_sound or not all(map(_is_address, lines)):
            self.malformed += 1
            return []
        return lines

    def _degrade(self, what: str, exc: OSError) -> None:
        if not self.is_available:
            return
        self.is_available = False
        path = str(self._path)
        if self._is_needed:
            _logger.warning(
                "remembered_unusable",
                "remembered peers in %s cannot be %s (%s): other nodes of this machine are found only by beacons and seeds. "
                "Make it a directory of yours, or set XDG_STATE_HOME to one.",
                path,
                what,
                exc.strerror,
                about=path,
                path=path,
            )
        else:
            _logger.info(
                "remembered_unused",
                "remembered peers in %s cannot be %s (%s): other nodes are found by beacons and seeds",
                path,
                what,
                exc.strerror,
                about=path,
                path=path,
            )


def _check_node_id(node_id: str) -> None:
    if not _NODE_ID.fullmatch(node_id):
        raise ValueError(f"{node_id!r} is not a node id in hexadecimal")


def _is_address(line: str) -> bool:
    try:
        parse_address(line, port_min=1)
    except ConfigurationError:
        return False
    return True


def _newest_first(directory: int) -> list[str]:
    """Return the names of the files of nodes, the last written first, and files of equal times by name."""
    dated: list[tuple[int, str]] = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if len(dated) == FILES_SEEN_MAX:
                break
            if _NODE_ID.fullmatch(entry.name):
                try:
                    dated.append((-entry.stat(follow_symlinks=False).st_mtime_ns, entry.name))
                except FileNotFoundError:
                    continue  # its node ended just now
    return [name for _, name in sorted(dated)]


def _replace(directory: int, name: str, content: bytes) -> None:
    """Write a whole file at once: a reader gets the old or the new content, never a part."""
    draft = f".{name}"
    try:
        os.unlink(draft, dir_fd=directory)  # left by an interrupted attempt
    except FileNotFoundError:
        pass
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(draft, flags, 0o600, dir_fd=directory), "wb") as file:
        file.write(content)
    os.replace(draft, name, src_dir_fd=directory, dst_dir_fd=directory)
