"""One run of `iris doctor`: all checks in order, each with a timeout. A check is skipped if a prerequisite has failed."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from iris_py.doctor import answers, clouds, cluster, configuration, connectivity, doors, machine, partition
from iris_py.doctor.check import DoctorCheck, skipped, warning
from iris_py.json_lines import Line
from iris_py.logs import EventLogger
from iris_py.wire.names import nearest_name
from iris_security.text_form import hide_secrets, refuse_secret

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence

    from iris_py.doctor.check import Finding, Subject

__all__ = [
    "CHECKS",
    "CLUSTER_CHECK",
    "NETWORK_CHECKS",
    "CheckLine",
    "DoctorSummary",
    "Examined",
    "choose",
    "examine",
    "line_of",
]

logger = EventLogger("iris_py")

#: The checks before the doctor's node can start, which examines the network.
_START: Final = ("config", "secret")
#: The checks before other nodes can be queried.
_PEERS: Final = (*_START, "discovery", "seeds", "seed-secret", "other-network")

#: All checks, in the order of execution: a check follows its prerequisites.
CHECKS: Final = (
    DoctorCheck("config", "the settings", configuration.settings),
    DoctorCheck("secret-file", "the permissions of secret files", configuration.secret_file, ("config",)),
    DoctorCheck("secret", "the secrets", configuration.secret, ("config", "secret-file"), limit_s=35.0),
    DoctorCheck("state", "the state directory", configuration.state, _START),
    DoctorCheck("port", "the port to listen on", configuration.port, _START, limit_s=15.0),
    DoctorCheck("listen", "the address to listen on", configuration.listen, ("config",)),
    DoctorCheck("discovery", "the discovery of other nodes", configuration.discovery, ("config",)),
    DoctorCheck("limits", "descriptors and threads", machine.limits),
    DoctorCheck("processor", "withheld processor time", machine.processor),
    DoctorCheck("disk", "free disk space", machine.disk, ("config",)),
    DoctorCheck("seeds", "dialling the seeds", connectivity.seeds, _START, limit_s=15.0),
    DoctorCheck("seed-secret", "the secret that seeds hold", connectivity.seed_secret, _START, limit_s=15.0),
    DoctorCheck("other-network", "other networks on this segment", connectivity.other_network, (*_START, "seed-secret"), 15.0),
    DoctorCheck("udp", "datagrams to other nodes and back", connectivity.datagrams, ("listen", *_PEERS)),
    DoctorCheck("mtu", "large datagrams to other nodes and back", connectivity.large_datagrams, ("listen", *_PEERS, "udp")),
    DoctorCheck("dial-back", "dials from other nodes", connectivity.dial_back, ("port", "listen", *_PEERS)),
    DoctorCheck("clock", "the clocks of other nodes", answers.clock, _PEERS),
    DoctorCheck("versions", "the versions of other nodes", answers.versions, _PEERS),
    DoctorCheck("generations", "the secret generations of other nodes", answers.generations, _PEERS),
    DoctorCheck("stalls", "stalled event loops", answers.stalls, _PEERS),
    DoctorCheck("ring", "the ring", answers.ring, _PEERS, limit_s=15.0),
    DoctorCheck("parts", "nodes that died together", partition.parts, _PEERS),
    DoctorCheck("clouds", "the cloud links", clouds.clouds, _PEERS, limit_s=15.0),
    DoctorCheck("doors", "the users of NATS doors", doors.doors, _PEERS, limit_s=30.0),
    DoctorCheck("cluster", "the members of the cluster", cluster.cluster, _PEERS, limit_s=15.0),
)


_NETWORK: Final = (
    "seeds",
    "udp",
    "dial-back",
    "clock",
    "versions",
    "generations",
    "stalls",
    "ring",
    "parts",
    "clouds",
    "doors",
)
#: The checks of the network alone, for a running node: what they need of the settings and the machine holds.
NETWORK_CHECKS: Final = tuple(
    replace(check, needs=tuple(need for need in check.needs if need in _NETWORK)) for check in CHECKS if check.name in _NETWORK
)
#: The check of one cluster, likewise.
CLUSTER_CHECK: Final = replace(CHECKS[-1], needs=())


class CheckLine(Line, tag="check"):
    """The finding of one check of `iris doctor`."""

    check: str
    """The name of the check, as for `--only`."""
    status: str
    """`ok`, `warning`, `FAULT` or `skipped`."""
    cause: str
    """The state; for a fault, the defect."""
    advice: str = ""
    """The remedy; empty if none is needed."""
    hints: tuple[str, ...] = ()
    """Commands that show details or apply the remedy."""
    because: str = ""
    """The check whose finding prevented this one; empty if it was executed."""
    seconds: float = 0.0
    """Duration of the check."""


class DoctorSummary(Line, tag="summary"):
    """The end of `iris doctor`: the number of checks by status."""

    ok: int
    warnings: int
    faults: int
    skipped: int


@dataclass(frozen=True, slots=True)
class Examined:
    """An executed or skipped check, and its finding."""

    check: DoctorCheck
    finding: Finding
    because: str = ""
    """The check whose finding prevented this one; empty if it was executed."""
    seconds: float = 0.0


def choose(only: Iterable[str], skip: Iterable[str], checks: Sequence[DoctorCheck] = CHECKS) -> frozenset[str]:
    """Return the names of the checks to report.

    Args:
        only: Names of checks; empty for all.
        skip: Names of checks to leave out.
        checks: All checks.

    Raises:
        ValueError: A check does not exist. The error does not repeat a secret.
    """
    names = [check.name for check in checks]
    chosen, left_out = list(only), set(skip)
    for name in (*chosen, *left_out):
        if name not in names:
            refuse_secret(name)
            raise ValueError(f"there is no check {name!r}. {nearest_name(name, names)}")
    return frozenset(name for name in (chosen or names) if name not in left_out)


async def examine(
    subject: Subject,
    chosen: Collection[str],
    tell: Callable[[DoctorCheck, int, int], None] = lambda _check, _number, _count: None,
    checks: Sequence[DoctorCheck] = CHECKS,
) -> AsyncIterator[Examined]:
    """Execute checks in order, and yield the findings.

    Prerequisites of a chosen check are executed as well, and reported only if they prevent the chosen check.

    Args:
        subject: The surroundings, and the cluster to check.
        chosen: The names of the checks to report.
        tell: Called before each check, with the check, its number, and the number of checks.
        checks: All checks, in order.
    """
    wanted = _with_needs(chosen, checks)
    made = [check for check in checks if check.name in wanted]
    blocked: dict[str, str] = {}  # by check: the check that prevents it
    for number, check in enumerate(made, 1):
        because = next((blocked[need] for need in check.needs if need in blocked), "")
        if because:
            blocked[check.name] = because
            if check.name in chosen:
                yield Examined(check, skipped(f"of `{because}`"), because)
            continue
        tell(check, number, len(made))
        began = time.perf_counter()
        finding = await _make(check, subject)
        if finding.is_blocking:
            blocked[check.name] = check.name
        if check.name in chosen or finding.is_blocking:
            yield Examined(check, finding, seconds=time.perf_counter() - began)


async def _make(check: DoctorCheck, subject: Subject) -> Finding:
    """Execute a check within a timeout. A timeout or a failure of the check becomes a finding, and other checks continue."""
    try:
        async with asyncio.timeout(check.limit_s):
            return await check.examine(subject)
    except TimeoutError:
        return warning(
            f"there was no result within {check.limit_s:g} s", "Try again; this machine or the network is very busy."
        )
    except Exception as exc:
        logger.debug("check_failed", "the check %s failed", check.name, error=exc, check=check.name)
        return warning(
            f"the check itself failed ({type(exc).__name__}: {exc})", "This is a bug in Iris; -vv shows where. Report it."
        )


def _with_needs(chosen: Collection[str], checks: Sequence[DoctorCheck]) -> set[str]:
    needs = {check.name: check.needs for check in checks}
    wanted: set[str] = set()
    waiting = deque(chosen)
    while waiting:
        name = waiting.popleft()
        if name not in wanted:
            wanted.add(name)
            waiting.extend(needs[name])
    return wanted


def line_of(examined: Examined) -> CheckLine:
    """Return the line of a check, without secrets."""
    finding = examined.finding
    return CheckLine(
        examined.check.name,
        str(finding.status),
        hide_secrets(finding.cause),
        hide_secrets(finding.advice),
        tuple(map(hide_secrets, finding.hints)),
        examined.because,
        round(examined.seconds, 3),
    )
