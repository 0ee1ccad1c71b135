"""The plan of a measurement: the options of `iris bench`, read and checked before anything starts.

Sizes on the command line: ``100``, ``1k``, ``64KiB``, ``2 MB``.

The machine that is measured: what it is, and how busy others keep it.
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

from iris_py.cli.version import version_of
from iris_py.errors import ConfigurationError
from iris_py.extras import DISTRIBUTION
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
    "Machine",
    "Payload",
    "Plan",
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
#: Of the first line of /proc/stat: the fields that are time in which a processor did something. Guests are in the first two.
_BUSY: Final = (0, 1, 2, 5, 6, 7)


class Machine(msgspec.Struct, kw_only=True):
    """The machine, and what runs on it."""

    processors: int
    """Processors that the measurement may use."""
    model: str
    """Their model; empty if the system does not say."""
    system: str
    python: str
    iris: str
    event_loop: str
    """The event loop of the processes, with its version: `uvloop` if it is installed, else `asyncio`."""
    cryptography: str
    """The version of the package that encrypts."""
    load_before: float
    """How many processes ran or waited for a processor on the average of the minute before."""
    others_cpu: float | None = None
    """Processors that others used during the measurement; None if the system does not say."""


def describe_machine() -> Machine:
    """Return what there is to be said before a measurement."""
    return Machine(
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
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def busy_s() -> float | None:
    """Return the time that all processors have spent on something since the start of the machine; None if it does not say."""
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


#: As iperf and dd have it: a letter alone is of 1,024, as with `i`; a letter with B is of 1,000.
_UNITS: Final = {
    "": 1,
    "b": 1,
    **{f"{letter}{end}": 1024**power for power, letter in enumerate("kmg", 1) for end in ("", "ib")},
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmg", 1)},
}
_FORM: Final = re.compile(r"(\d{1,18}(?:\.\d{1,18})?)\s*([a-z]*)", re.ASCII)


def parse_size(text: str, option: str) -> int:
    """Return how many bytes a size is.

    Args:
        text: A number and a unit: k, m and g or KiB, MiB and GiB are of 1,024, kB, MB and GB of 1,000; none is bytes.
        option: The option that it was given with, for errors.

    Raises:
        ConfigurationError: It is no size.
    """
    found = _FORM.fullmatch(text.strip().lower())
    if found is None or found[2] not in _UNITS:
        raise ConfigurationError(f"{option} {text!r} is no size. Write it as 100, 1k or 64KiB (of 1,024) or 64kB (of 1,000).")
    size = Fraction(found[1]) * _UNITS[found[2]]
    if size.denominator != 1:
        raise ConfigurationError(f"{option} {text!r} is no whole number of bytes. Give one, as {int(size)}.")
    return int(size)


def format_size(size: float) -> str:
    """Return a size for people: in the largest unit of 1,024 that it is a whole number of, or to three digits."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and (size % unit == 0 or size >= 100 * unit // 10):
            return f"{size / unit:.4g} {name}"
    return f"{size:,.0f} B"


#: Processes of one side. Each is an interpreter of some 40 MB.
PROCESSES_MAX: Final = 64
#: Requests under way at once: of a closed loop enough that a member is never without one, and with a rhythm so many that a
#: member that stands still for a tenth of a second at 10,000 requests a second holds nobody up.
CONCURRENCY: Final = 64
CONCURRENCY_IN_RHYTHM: Final = 1024
#: More are of no use: what a node has under way besides waits in it.
CONCURRENCY_MAX: Final = 65_536
#: A day; whoever wants to see more of it watches a network that runs.
SECONDS_MAX: Final = 86_400.0
#: Operations per second; a process begins some 10,000 at most.
RATE_MAX: Final = 10_000_000.0
#: Between operations of one process.
_NS: Final = 1_000_000_000


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A measurement, whatever of."""

    settings: Settings
    against: str | None = None
    """The name in the network of the settings; None for a private network."""
    payload: bytes = b""
    reply: bytes | None = None
    """The reply of members of a private network; None for what they are sent."""
    seconds: float = 5.0
    warm_up_s: float = 0.5
    concurrency: int = 1
    """Operations under way at once, of all processes."""
    processes: int = 1
    """Processes that make load."""
    receivers: int = 1
    """Processes that receive it, in a private network."""
    rate: float | None = None
    """Operations that are to begin per second, of all processes."""
    timeout_s: float = 5.0
    policy: str = "block"
    network: str = ""
    """With `against`: the name of the network."""
    as_json: bool = False
    path: Path | None = None

    @property
    def interval_ns(self) -> int:
        """From one operation of a process to its next one; 0 without a rate."""
        return 0 if self.rate is None else math.ceil(_NS * self.processes / self.rate)

    def offset_ns(self, number: int) -> int:
        """Return by how much a process begins later than the first, so that all take turns."""
        return self.interval_ns * number // self.processes

    def callers(self, number: int) -> int:
        """Return how many operations a process has under way at once."""
        return self.concurrency // self.processes + (number < self.concurrency % self.processes)


def make_plan(
    settings: Settings,
    *,
    against: str | None,
    receivers: int | None,
    receivers_option: str,
    **options: Any,  # noqa: ANN401 - those of `Plan`
) -> Plan:
    """Make a plan, and check what does not go together.

    Args:
        settings: The settings of the node.
        against: The option `--against`.
        receivers: How many processes of a private network receive; None if that was not said.
        receivers_option: The option that says so.
        options: All others, by the names of the fields of `Plan`.

    Raises:
        ConfigurationError: Something makes no sense.
    """
    network = ""
    if against is not None:
        if receivers is not None:
            raise ConfigurationError(
                f"{receivers_option} starts processes of a private network, and --against asks those that run. Leave one out."
            )
        config = settings.load()
        network = config.network
        if parse_address(config.listen)[1] != 0 and not config.is_port_shared:
            raise ConfigurationError(
                f"the processes of the measurement cannot all listen on {config.listen}. Give --listen with the port 0."
            )
    plan = Plan(settings=settings, against=against, network=network, receivers=receivers or 1, **options)
    if plan.concurrency < plan.processes:
        raise ConfigurationError(
            f"--concurrency {plan.concurrency} is less than one for each of {plan.processes} processes. Give at least as many."
        )
    return plan


def choose_concurrency(given: int | None, *, rate: float | None, processes: int) -> int:
    """Return how many operations are under way at once if nobody has said so: with a rate it is only a bound."""
    return given if given is not None else max(processes, CONCURRENCY if rate is None else CONCURRENCY_IN_RHYTHM)


@dataclass(frozen=True, kw_only=True)
class Payload:
    """The bytes that are sent again and again, as the options say them."""

    size: str | None
    """The option `--size`; None if it was not given."""
    default: str
    """The size in that case."""
    path: Path | None = None
    """The option `--input`."""
    bytes_min: int = 0
    bytes_max: int = MESSAGE_BYTES_LIMIT
    advice: str = "Give less"
    """The advice to whoever gives more."""

    def read(self, settings: Settings, against: str | None) -> bytes:
        """Return it.

        Args:
            settings: The settings of the node, whose limit counts with `--against`.
            against: The option of that name.

        Raises:
            ConfigurationError: It is too large, too small or no size, or the file cannot be read.
        """
        limit = MESSAGE_BYTES_LIMIT if against is None else settings.load().max_message_bytes
        bytes_max = min(self.bytes_max, limit)
        if self.path is None:
            text = self.default if self.size is None else self.size
            size = parse_size(text, "--size")
            self._check(f"--size {text}", size, bytes_max)
            return (bytes(range(256)) * (size // 256 + 1))[:size]
        if self.size is not None:
            raise ConfigurationError("--size and --input are both given, and each says what is sent. Leave one out.")
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
                f"{what} is more than {bytes_max} bytes ({format_size(bytes_max)}), the most that a message may have here. "
                f"{self.advice}{more}."
            )
        if size < self.bytes_min:
            raise ConfigurationError(f"{what} is less than the {self.bytes_min} bytes that the time in it takes. Give more.")
