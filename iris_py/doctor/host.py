"""Facts about the machine, read from the system for `iris doctor`: interfaces, limits, processor time, ports and directories.

This module changes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from iris_py.doctor.surroundings import Disk, Limits, Processor, State
from iris_py.files.remembered_peers import RememberedPeers
from iris_py.net.process import DESCRIPTORS_MAX, free_bytes_of
from iris_py.net.socket_probes import is_refused

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["Host", "PeersRead", "look_at_state"]

#: Minimum time of a measurement of processor time (seconds): the periods of a control group are 0.1 s. Too small: the result
#: is random.
WATCHED_S: Final = 1.0


class Host:
    """Reads the limits, ports and processor time of this machine.

    Args:
        root: The parent directory of ``proc`` and ``sys``; ``/`` except in tests.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._began_at = time.monotonic()
        self._before = self._processor_counts()

    # -- bounds

    def limits(self) -> Limits:
        """Return the limits of this process on descriptors and threads, and the numbers in use."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        allowed = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else max(soft, min(hard, DESCRIPTORS_MAX))
        used = self._count(self._root / "proc/self/fd")
        threads, threads_max, whose = self._threads()
        return Limits(used, allowed, threads, threads_max, whose)

    def _threads(self) -> tuple[int, int, str]:
        """Return the number of threads, the limit nearest to being reached, and the owner of the threads, such as a control
        group.
        """
        group = self._control_group()
        bound, used = self._number(group / "pids.max"), self._number(group / "pids.current")
        candidates = [(used, bound, f"the control group {group.name or 'of this system'}")] if bound and used else []
        soft = resource.getrlimit(resource.RLIMIT_NPROC)[0]
        if soft != resource.RLIM_INFINITY and os.geteuid() != 0:  # root has no such limit
            candidates.append((self._threads_of_user(), soft, "this user"))
        own = self._count(self._root / "proc/self/task")
        return max(candidates, key=lambda each: each[0] / each[1], default=(own, 0, "this process"))

    def _threads_of_user(self) -> int:
        count = 0
        for process in (self._root / "proc").glob("[0-9]*"):
            with contextlib.suppress(OSError, ValueError, KeyError):
                lines = (process / "status").read_text().splitlines()
                fields = dict(line.split(":", 1) for line in lines if ":" in line)
                if int(fields["Uid"].split()[0]) == os.getuid():
                    count += int(fields["Threads"])
        return count

    # -- ports

    def outgoing_ports(self, port: int) -> range | None:
        """Return the range of ports for outgoing connections if the given port is inside; None otherwise.

        Reserved ports (``net.ipv4.ip_local_reserved_ports``) are not assigned to connections.
        """
        directory = self._root / "proc/sys/net/ipv4"
        try:
            first, last = map(int, (directory / "ip_local_port_range").read_text().split())
            reserved = (directory / "ip_local_reserved_ports").read_text().strip()
            parts = [part.partition("-") for part in reserved.split(",") if part]
            if any(int(low) <= port <= int(high or low) for low, _, high in parts):
                return None
        except (OSError, ValueError):
            return None  # another system, or one that does not report it
        outgoing = range(first, last + 1)
        return outgoing if port in outgoing else None

    # -- processor time

    async def processor(self) -> Processor | None:
        """Return the fractions of processor time withheld since this object was made; wait until `WATCHED_S` have passed."""
        await asyncio.sleep(max(0.0, self._began_at + WATCHED_S - time.monotonic()))
        now = self._processor_counts()
        if not now:
            return None
        window_s = time.monotonic() - self._began_at
        throttled = self._share(now, "nr_throttled", "nr_periods")
        return Processor(throttled, self._share(now, "steal", "all"), window_s)

    def _share(self, now: dict[str, int], part: str, whole: str) -> float:
        part_by, whole_by = (now.get(name, 0) - self._before.get(name, 0) for name in (part, whole))
        return part_by / whole_by if whole_by > 0 else 0.0

    def _processor_counts(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        with contextlib.suppress(OSError, ValueError):
            for line in (self._control_group() / "cpu.stat").read_text().splitlines():
                name, _, number = line.partition(" ")
                counts[name] = int(number)
        with contextlib.suppress(OSError, ValueError, IndexError):
            first = (self._root / "proc/stat").read_text().splitlines()[0].split()[1:9]
            times = [int(number) for number in first]
            counts |= {"all": sum(times), "steal": times[7]}
        return counts

    def _control_group(self) -> Path:
        """Return the directory of this process's control group (cgroup version 2)."""
        base = self._root / "sys/fs/cgroup"
        with contextlib.suppress(OSError):
            for line in (self._root / "proc/self/cgroup").read_text().splitlines():
                if line.startswith("0::"):
                    below = base / line[3:].lstrip("/")
                    return below if below.is_dir() else base  # in a container the path may be that of the host
        return base

    @staticmethod
    def _number(path: Path) -> int:
        try:
            return int(path.read_text())
        except (OSError, ValueError):
            return 0  # "max", or missing

    @staticmethod
    def _count(directory: Path) -> int:
        try:
            return len(os.listdir(directory))
        except OSError:
            return 0


class PeersRead(RememberedPeers):
    """The file of remembered peers, for the doctor's node: the peers are only read."""

    def add(self, node_id: str, addresses: Iterable[str]) -> bool:
        """Do nothing, because the doctor's node must not be remembered."""
        return False

    def remove(self, node_id: str) -> None:
        """Do nothing: the file stays unchanged."""

    def forget(self, address: str) -> None:
        """Do nothing: the file stays unchanged."""


def look_at_disks(uses: Mapping[Path, str]) -> tuple[Disk, ...]:
    """Return the free room on the disks of directories, once for each disk. The call blocks.

    Args:
        uses: The use of each directory. A missing directory is on the disk of its parent.
    """
    found: dict[int, Disk] = {}
    for directory, use in uses.items():
        for path in (directory, *directory.parents):
            try:
                device, system = path.stat().st_dev, os.statvfs(path)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError:
                break  # reported by the check of the state directory, or of the secret
            if system.f_flag & os.ST_RDONLY:
                break  # read-only, such as a secret mounted by an orchestrator
            files = (system.f_ffree if os.geteuid() == 0 else system.f_favail) if system.f_files else None
            found.setdefault(device, Disk(str(path), use, free_bytes_of(system), files))
            break
    return tuple(found.values())


async def look_at_state(directory: Path | None, network_tag: str) -> State:
    """Return whether a node could use a state directory, and how many peers are remembered there."""
    if directory is None:
        return State(None)
    problem = _problem_of(directory, network_tag)
    if problem:
        return State(directory, problem)
    remembered = PeersRead(directory, network_tag).addresses()
    gone = await asyncio.gather(*(is_refused(address) for address in remembered))
    return State(directory, "", len(remembered), sum(gone))


def _problem_of(directory: Path, network_tag: str) -> str:
    """Return the reason why a node could not keep files in a directory; empty without one. A missing directory is no reason."""
    for path in (directory / "peers" / network_tag, directory / "peers", directory, *directory.parents):
        try:
            status = path.lstat() if path.name == network_tag else path.stat()
        except FileNotFoundError:
            continue
        except NotADirectoryError:
            continue  # a parent is not a directory, and is examined next
        except OSError as exc:
            return exc.strerror or str(exc)
        if not stat.S_ISDIR(status.st_mode):
            return f"{path} is not a directory"
        if not os.access(path, os.W_OK | os.X_OK):
            return f"{path}: {os.strerror(errno.EACCES)}"
        if path.name == network_tag and (status.st_uid != os.geteuid() or status.st_mode & 0o022):
            return f"{path} belongs to another user, or others may write to it"
        return ""
    return ""
