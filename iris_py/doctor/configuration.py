"""The checks of `iris doctor` on the configuration: settings, secrets, state directory, address to listen on, and seeds."""

from __future__ import annotations

import ipaddress
import shlex
from typing import TYPE_CHECKING

from iris_py.doctor.check import Finding, fault, ok, warning
from iris_py.doctor.surroundings import Listening
from iris_py.errors import ConfigurationError
from iris_py.files.secrets import Exposure
from iris_py.net.addresses import is_loopback, parse_address

if TYPE_CHECKING:
    from iris_py.doctor.check import Subject
    from iris_py.doctor.surroundings import Port


def split_error(error: ConfigurationError) -> tuple[str, str]:
    """Split the text of an error into the cause and its last sentence, the advice."""
    cause, dot, advice = str(error).rpartition(". ")
    return (cause, advice) if dot else (str(error), "Correct it.")


async def settings(subject: Subject) -> Finding:
    """Check that all settings can be read and have an effect."""
    try:
        config = subject.surroundings.settings()
    except ConfigurationError as exc:
        return fault(*split_error(exc), "iris config show", is_blocking=True)
    ignored = subject.surroundings.ignored()
    if ignored:
        return warning("; ".join(text.rstrip(".") for text in ignored), "Correct the name, or remove it.")
    where = f"zone {config.zone!r}, " if config.zone else ""
    return ok(f"network {config.network!r}, {where}listening on {config.listen}, {_count(len(config.seeds), 'seed')}")


async def secret_file(subject: Subject) -> Finding:
    """Check that other users can neither read nor write the files with secrets."""
    files = subject.surroundings.secret_files()
    for file in files:
        path = shlex.quote(str(file.path))
        if file.exposure is None:
            return ok(f"{file.path} cannot be read; the check `secret` says why")
        if file.exposure is Exposure.WRITABLE:
            return fault(
                f"other users can write {file.path}, and so choose the secret; nodes refuse to start with it",
                f"Run: chmod 600 {path}",
                f"chmod 600 {path}",
                is_blocking=True,
            )
        if file.exposure is Exposure.READABLE:
            return fault(
                f"every user of this machine can read the secret in {file.path}",
                f"Run: chmod 600 {path} (in Kubernetes: defaultMode: 0400), and make a new secret if others have read it.",
                f"chmod 600 {path}",
                "iris keys new",
            )
    mounted = [file for file in files if file.exposure is Exposure.MOUNTED]
    if mounted:
        return warning(
            f"{mounted[0].path} is mounted so that every user here can read it",
            "Mount it with mode 0400, in Kubernetes with defaultMode: 0400 and an fsGroup.",
        )
    return ok(
        f"{_count(len(files), 'file')} with secrets, readable only by this user" if files else "no secret is kept in a file"
    )


async def secret(subject: Subject) -> Finding:
    """Check that the secrets can be read and are valid."""
    try:
        origin = await subject.surroundings.secret_origin()
    except ConfigurationError as exc:
        return fault(*split_error(exc), "iris keys list", is_blocking=True)
    if not origin:
        return warning(
            "this user has no secret yet: no node of this user was ever started, and there is no network to examine",
            "Start one with `iris node` or `iris join`, or give the secret of a network as IRIS_SECRET_FILE.",
            "iris keys path",
            is_blocking=True,
        )
    return ok(f"from {origin}")


async def state(subject: Subject) -> Finding:
    """Check that nodes of this machine can remember each other in the state directory."""
    found = await subject.surroundings.state()
    settings = subject.surroundings.settings()
    path = shlex.quote(str(found.directory))
    consequence = "other nodes of this machine are found only by beacons and seeds"
    if found.directory is None and settings.administrator is None:
        return ok(f"this user has no home directory: {consequence}")
    if found.problem or found.directory is None:
        reason = f"{found.directory} cannot be used ({found.problem})" if found.problem else "this user has no home directory"
        if settings.administrator is not None:
            consequence += ", and the secrets of a rotation are not saved"
        is_needed = settings.administrator is not None or settings.is_zero_configuration
        return (fault if is_needed else warning)(
            f"{reason}: {consequence}",
            "Make it a directory of yours, or set XDG_STATE_HOME to one.",
            f"ls -ld {path}" if found.problem else "",
        )
    if found.stale:
        return warning(
            f"{found.stale} of {_count(found.remembered, 'remembered peer')} of this machine no longer listen",
            "Nodes that were killed leave these; the next one that starts removes them.",
            f"ls {path}/peers",
        )
    return ok(f"{found.directory}, {_count(found.remembered, 'remembered peer')}")


async def port(subject: Subject) -> Finding:
    """Check that a node could listen on the configured port, with TCP and with UDP."""
    config = subject.surroundings.settings()
    listen, found = config.listen, await subject.surroundings.port()
    number = listen.rpartition(":")[2]
    if found.listener is Listening.OURS:
        beside = "takes another port" if config.is_port_shared else "cannot start with this --listen"
        return _place_port(number, found, f"a node of this network listens on {listen}; a second program {beside}")
    errors = {"TCP": found.tcp_error, "UDP": found.udp_error}
    bad = {kind: error for kind, error in errors.items() if error}
    if bad:
        what = " and ".join(f"{kind}: {error}" for kind, error in bad.items())
        both = "" if len(bad) == 2 else f"; {'UDP' if 'TCP' in bad else 'TCP'} alone is free, and a node needs both"
        return fault(
            f"a node cannot listen on {listen} ({what}{both})",
            "End the program that has the port, or choose another address with --listen or IRIS_LISTEN.",
            *(f"ss -l{'t' if kind == 'TCP' else 'u'}np 'sport = :{number}'" for kind in bad),
            is_blocking=True,
        )
    return _place_port(number, found, f"{listen} is free for TCP and UDP" if number != "0" else "any free port")


def _place_port(number: str, found: Port, state: str) -> Finding:
    """Return the finding for a free port: a warning if the system may give the port to an outgoing connection."""
    if found.outgoing is None:
        return ok(state)
    first, last = found.outgoing[0], found.outgoing[-1]
    return warning(
        f"{state}. The system gives ports {first} to {last} to outgoing connections: one may have {number} when a node starts",
        f"Choose a port outside of that range, or reserve {number} (net.ipv4.ip_local_reserved_ports).",
        "sysctl net.ipv4.ip_local_port_range net.ipv4.ip_local_reserved_ports",
    )


async def listen(subject: Subject) -> Finding:
    """Check that other nodes, above all on the seeds' machines, could dial the advertised address."""
    config = subject.surroundings.settings()
    host, _ = parse_address(config.listen)
    if not is_loopback(host):
        try:
            told = await subject.surroundings.told()
        except ConfigurationError as exc:
            return fault(*split_error(exc), "ip -brief address", is_blocking=True)
        return ok(f"{config.listen}; other nodes are told to dial {' or '.join(each.removesuffix(':0') for each in told)}")
    distant = [seed for seed in config.seeds if not await _is_here(subject, seed)]
    if distant:
        return fault(
            f"this node listens on {config.listen}, which other machines cannot reach, but the seed {distant[0]} is on "
            "another machine",
            "Listen on an address of this machine that they reach, with --listen or IRIS_LISTEN, such as 0.0.0.0:7400.",
            "ip -brief address",
            is_blocking=True,
        )
    return ok(f"{config.listen}, for this machine alone" + (", as are the seeds" if config.seeds else ""))


async def discovery(subject: Subject) -> Finding:
    """Check that the settings offer a way to find other nodes: seeds, beacons (multicast), or nodes of this machine."""
    config = subject.surroundings.settings()
    ways = []
    if config.seeds:
        ways.append(_count(len(config.seeds), "seed"))
    if config.discovery and await subject.surroundings.hears_itself():
        ways.append("beacons")
    if config.discovery and is_loopback(parse_address(config.listen)[0]):
        ways.append("the nodes remembered on this machine")
    if ways:
        return ok(", ".join(ways))
    why = f"multicast does not pass on {config.listen}" if config.discovery else "discovery is switched off"
    return fault(
        f"there are no seeds, and {why}: this node finds no other node",
        "Name a node or two that usually run with --seed or IRIS_SEEDS.",
        "ip -brief link",
        "nft list ruleset",
        is_blocking=True,
    )


async def _is_here(subject: Subject, seed: str) -> bool:
    """Return whether a seed is on this machine. An unknown host name counts as local: another check reports the name."""
    found = await subject.surroundings.resolve(parse_address(seed)[0])
    own = {str(each.ip) for interface in subject.surroundings.interfaces() for each in interface.addresses}
    return all(ipaddress.ip_address(address).is_loopback or address in own for address in found)


def _count(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'s' * (number != 1)}"
