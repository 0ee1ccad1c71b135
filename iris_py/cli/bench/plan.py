"""The plan of a measurement: the options of `iris bench`, parsed and checked before anything starts.

:func:`parse_size` reads sizes such as ``100``, ``1k``, ``64KiB`` or ``2 MB``. :class:`BenchMachine` describes the machine, and
the share of its processors that other programs use.
"""

from __future__ import annotations

import math
import os
import platform
import re
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from iris_py.errors import ConfigurationError
from iris_py.extras import DISTRIBUTION, version_of
from iris_py.net.addresses import parse_address
from iris_py.wire.packets import MESSAGE_BYTES_LIMIT

if TYPE_CHECKING:
    from iris_py.cli.settings import Settings

__all__ = [
    "CONCURRENCY",
    "CONCURRENCY_IN_RHYTHM",
    "CONCURRENCY_MAX",
    "PROCESSES_MAX",
    "RATE_MAX",
    "SECONDS_MAX",
    "BenchMachine",
    "BenchPlan",
    "Payload",
    "busy_s",
    "choose_concurrency",
    "describe_loop",
    "describe_machine",
    "format_size",
    "make_plan",
    "parse_size",
    "processor_count",
]

_MODEL: Final = re.compile(r"^(?:model name|Model)\s*:\s*(.+)$", re.MULTILINE)
#: The positions of busy times in the first line of /proc/stat. The first two include the time of virtual machines.
_BUSY: Final = (0, 1, 2, 5, 6, 7)


class BenchMachine(msgspec.Struct, kw_only=True):
    """The machine and the software of a measurement, for comparison with other measurements."""

    processors: int
    """Processors available to the measurement."""
    model: str
    """Model of the processors; empty if unknown."""
    system: str
    python: str
    iris: str
    event_loop: str
    """The event loop of the processes, with its version: `uvloop` if installed, else `asyncio`."""
    cryptography: str
    """The version of the package for encryption."""
    load_before: float
    """Mean number of processes that ran or waited for a processor in the minute before."""
    others_cpu: float | None = None
    """Processors used by other programs during the measurement; None if unknown."""


def describe_machine() -> BenchMachine:
    """Return the description of this machine. Call before the load starts, because the load average is included."""
    return BenchMachine(
        processors=processor_count(),
        model=_model(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        python=f"{platform.python_implementation()} {platform.python_version()}",
        iris=version_of(DISTRIBUTION),
        event_loop="",
        cryptography=version_of("cryptography"),
        load_before=round(os.getloadavg()[0], 2),
    )


def describe_loop(package: str) -> str:
    """Return the name of an event loop, with its version."""
    return f"uvloop {version_of(package)}" if package == "uvloop" else "asyncio"


def processor_count() -> int:
    """Return the number of processors available to this process."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def busy_s() -> float | None:
    """Return the busy time of all processors since the start of the machine (seconds); None if unknown."""
    try:
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
        return sum(int(fields[index]) for index in _BUSY) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


def _model() -> str:
    try:
        found = _MODEL.search(Path("/proc/cpuinfo").read_text())
    except OSError:
        return platform.processor()
    return found[1].strip() if found else platform.processor()


#: As in iperf and dd: a letter alone means powers of 1,024, as with `i`; a letter with B means powers of 1,000.
_UNITS: Final = {
    "": 1,
    "b": 1,
    **{f"{letter}{end}": 1024**power for power, letter in enumerate("kmg", 1) for end in ("", "ib")},
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmg", 1)},
}
_FORM: Final = re.compile(r"(\d{1,18}(?:\.\d{1,18})?)\s*([a-z]*)", re.ASCII)


def parse_size(text: str, option: str) -> int:
    """Parse the text of a size; return bytes.

    Args:
        text: A number and a unit: k, m and g or KiB, MiB and GiB are powers of 1,024; kB, MB and GB of 1,000; without a unit,
            bytes.
        option: The name of the option, for errors.

    Raises:
        ConfigurationError: The text is not a size.
    """
    found = _FORM.fullmatch(text.strip().lower())
    if found is None or found[2] not in _UNITS:
        raise ConfigurationError(
            f"{option} {text!r} is not a size. Write it as 100, as 1k or 64KiB (units of 1,024), or as 64kB (units of 1,000)."
        )
    size = Fraction(found[1]) * _UNITS[found[2]]
    if size.denominator != 1:
        raise ConfigurationError(f"{option} {text!r} is not a whole number of bytes. Give a whole number, such as {int(size)}.")
    return int(size)


def format_size(size: float) -> str:
    """Return a size as text: a whole number of the largest possible binary unit, otherwise three digits."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and (size % unit == 0 or size >= 100 * unit // 10):
            return f"{size / unit:.4g} {name}"
    return f"{size:,.0f} B"


#: Maximum number of processes with one role. Each is an interpreter of some 40 MB.
PROCESSES_MAX: Final = 64
#: Requests in flight by default: in a closed loop enough to keep members busy; with a rhythm enough for a member that hangs for
#: a tenth of a second at 10,000 requests per second.
CONCURRENCY: Final = 64
CONCURRENCY_IN_RHYTHM: Final = 1024
#: Maximum number of operations in flight; further requests would wait in the node.
CONCURRENCY_MAX: Final = 65_536
#: Maximum duration of a measurement: a day. For longer times, monitor a running network.
SECONDS_MAX: Final = 86_400.0
#: Maximum rate of operations per second, over all processes; one process begins at most some 10,000.
RATE_MAX: Final = 10_000_000.0
#: Nanoseconds per second.
_NS: Final = 1_000_000_000


@dataclass(frozen=True, kw_only=True)
class BenchPlan:
    """The options of one measurement, of requests, topics, tunnels or joins."""

    settings: Settings
    against: str | None = None
    """The name in the network of the settings; None for a private network."""
    payload: bytes = b""
    reply: bytes | None = None
    """The reply of members of a private network; None to echo the request."""
    seconds: float = 5.0
    warm_up_s: float = 0.5
    concurrency: int = 1
    """Operations in flight, over all processes."""
    processes: int = 1
    """Number of processes that generate load."""
    receivers: int = 1
    """Number of receiving processes, in a private network."""
    rate: float | None = None
    """Operations to begin per second, over all processes."""
    timeout_s: float = 5.0
    policy: str = "block"
    network: str = ""
    """With `against`: the name of the network."""
    as_json: bool = False
    path: Path | None = None

    @property
    def interval_ns(self) -> int:
        """Time between the operations of one process; 0 without a rate."""
        return 0 if self.rate is None else math.ceil(_NS * self.processes / self.rate)

    def offset_ns(self, number: int) -> int:
        """Return the delay of a process's first operation, by the number of the process: so the processes alternate."""
        return self.interval_ns * number // self.processes

    def callers(self, number: int) -> int:
        """Return the number of operations in flight in one process, by the number of the process."""
        return self.concurrency // self.processes + (number < self.concurrency % self.processes)


def make_plan(
    settings: Settings,
    *,
    against: str | None,
    receivers: int | None,
    receivers_option: str,
    **options: Any,  # noqa: ANN401 - those of `BenchPlan`
) -> BenchPlan:
    """Make the plan of a measurement, and check that the options fit together.

    Args:
        settings: The settings of the node.
        against: The option `--against`.
        receivers: Number of receiving processes in a private network; None if not given.
        receivers_option: The name of the option for `receivers`, for errors.
        options: All other options, named as the fields of `BenchPlan`.

    Raises:
        ConfigurationError: The options contradict each other.
    """
    network = ""
    if against is not None:
        if receivers is not None:
            raise ConfigurationError(
                f"{receivers_option} starts processes of a private network, but --against uses a running network. Leave "
                "one out."
            )
        config = settings.load()
        network = config.network
        if parse_address(config.listen)[1] != 0 and not config.is_port_shared:
            raise ConfigurationError(
                f"the processes of the measurement cannot all listen on {config.listen}. Give --listen with the port 0."
            )
    plan = BenchPlan(settings=settings, against=against, network=network, receivers=receivers or 1, **options)
    if plan.concurrency < plan.processes:
        raise ConfigurationError(
            f"--concurrency {plan.concurrency} is less than one for each of {plan.processes} processes. Give at least as many."
        )
    return plan


def choose_concurrency(given: int | None, *, rate: float | None, processes: int) -> int:
    """Return the number of operations in flight: the given one, or the default. A rate makes the number an upper bound."""
    return given if given is not None else max(processes, CONCURRENCY if rate is None else CONCURRENCY_IN_RHYTHM)


@dataclass(frozen=True, kw_only=True)
class Payload:
    """The options that determine the bytes to send: a size, or a file."""

    size: str | None
    """The option `--size`; None if not given."""
    default: str
    """The default size."""
    path: Path | None = None
    """The option `--input`."""
    bytes_min: int = 0
    bytes_max: int = MESSAGE_BYTES_LIMIT
    advice: str = "Give less"
    """The advice for larger payloads."""

    def read(self, settings: Settings, against: str | None) -> bytes:
        """Return the bytes to send: a fixed pattern of the given size, or the content of the file.

        Args:
            settings: The settings of the node, whose limit applies with `--against`.
            against: The option `--against`.

        Raises:
            ConfigurationError: The size is too large, too small or invalid, or the file cannot be read.
        """
        limit = MESSAGE_BYTES_LIMIT if against is None else settings.load().max_message_bytes
        bytes_max = min(self.bytes_max, limit)
        if self.path is None:
            text = self.default if self.size is None else self.size
            size = parse_size(text, "--size")
            self._check(f"--size {text}", size, bytes_max)
            return (bytes(range(256)) * (size // 256 + 1))[:size]
        if self.size is not None:
            raise ConfigurationError("--size and --input are both given, but only one can set the payload. Leave one out.")
        try:
            with self.path.open("rb") as file:
                content = file.read(bytes_max + 1)
        except OSError as exc:
            raise ConfigurationError(f"--input: {self.path} cannot be read: {exc.strerror}. Correct the path.") from exc
        self._check(f"--input {self.path}", len(content), bytes_max)
        return content

    def _check(self, what: str, size: int, bytes_max: int) -> None:
        if size > bytes_max:
            can_be_more = bytes_max < self.bytes_max
            more = f", or raise max_message_bytes with IRIS_MAX_MESSAGE_BYTES (at most {MESSAGE_BYTES_LIMIT})" * can_be_more
            raise ConfigurationError(
                f"{what} is more than {bytes_max} bytes ({format_size(bytes_max)}), the limit of a message here. "
                f"{self.advice}{more}."
            )
        if size < self.bytes_min:
            raise ConfigurationError(
                f"{what} is less than {self.bytes_min} bytes, the size of the time in it. Give a larger size."
            )
