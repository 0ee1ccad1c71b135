"""The checks of `iris doctor` on connections: seeds, other networks, datagrams, and dials from other nodes."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from iris_overlay.events import DialOutcome
from iris_py.doctor.check import Finding, fault, ok, skipped, warning
from iris_py.doctor.surroundings import SeedOutcome

if TYPE_CHECKING:
    from iris_py.doctor.check import Subject
    from iris_py.doctor.surroundings import Dialled, Reached, Seed

NOBODY: Final = "no other node is reached"

_DIALS: Final = {
    DialOutcome.ANOTHER: "another node answers there",
    DialOutcome.REFUSED: "refused: nobody listens there, or a firewall rejects connections",
    DialOutcome.SILENT: "silent: a firewall drops packets, or there is no route",
    DialOutcome.BROKEN: "the program that accepts the connection is not a node",
}
_SEED_ADVICE: Final = {
    SeedOutcome.UNKNOWN: "Correct the name, or the name server that this machine uses.",
    SeedOutcome.REFUSED: "Start a node there that listens on that address, or correct the port.",
    SeedOutcome.SILENT: "Let a firewall pass TCP and UDP to that port, or correct the address.",
    SeedOutcome.UNREACHABLE: "Correct the address, or the routes of this machine.",
    SeedOutcome.UNANSWERED: "Another program has that port, or the node stands still. Correct the address, or check that node.",
    SeedOutcome.UNREADY: "The node there stands still, or is very busy. Check it.",
}
_SEED_HINTS: Final = {SeedOutcome.UNKNOWN: "getent ahosts {host}", SeedOutcome.SILENT: "tracepath {host}"}


async def seeds(subject: Subject) -> Finding:
    """Check that a node answers at the address of every seed."""
    reached = await subject.surroundings.reached()
    bad = [seed for seed in reached.seeds if seed.outcome in _SEED_ADVICE]
    if not reached.seeds:
        return ok("none are configured")
    if not bad:
        well = sum(seed.outcome is SeedOutcome.REACHED for seed in reached.seeds)
        return ok(f"{well} of {len(reached.seeds)} reached")
    cause = "; ".join(f"{seed.address} {seed.outcome.value}{f' ({seed.detail})' if seed.detail else ''}" for seed in bad)
    meant: dict[str, list[str]] = {}
    for seed in bad:
        meant.setdefault(_SEED_ADVICE[seed.outcome], []).append(seed.address)
    if len(meant) == 1:
        (advice,) = meant
    else:
        advice = " ".join(f"For {', '.join(addresses)}: {text[0].lower()}{text[1:]}" for text, addresses in meant.items())
    hints = tuple(
        dict.fromkeys(
            _SEED_HINTS.get(seed.outcome, "nc -vz {host} {port}").format(
                host=seed.address.rpartition(":")[0].strip("[]"), port=seed.address.rpartition(":")[2]
            )
            for seed in bad
        )
    )
    if reached.peers:
        return warning(f"{cause}; other nodes are reached nevertheless", advice, *hints)
    return fault(cause, advice, *hints, is_blocking=True)


async def seed_secret(subject: Subject) -> Finding:
    """Check that every seed holds this network's secret."""
    reached = await subject.surroundings.reached()
    foreign = [seed for seed in reached.seeds if seed.outcome is SeedOutcome.FOREIGN]
    if foreign:
        detail = f" ({foreign[0].detail})" if foreign[0].detail else ""
        return fault(
            f"{', '.join(_addresses(foreign))} {'answers' if len(foreign) == 1 else 'answer'} and "
            f"{'does' if len(foreign) == 1 else 'do'} not hold the secret of this network{detail}",
            "Give both the same secret and the same network name; `iris keys list` shows the ids of secrets on each side.",
            "iris keys list",
            is_blocking=not reached.peers,
        )
    return ok("every seed that answers holds it" if reached.seeds else "there are no seeds")


async def other_network(subject: Subject) -> Finding:
    """Check for nodes of other networks; they are harmless if nodes of the own network are found."""
    reached = await subject.surroundings.reached()
    if not reached.strangers:
        return ok("none heard")
    hosts = ", ".join(reached.strangers)
    if reached.peers:
        return ok(f"heard from {hosts}; it has another secret, and does no harm")
    if subject.surroundings.settings().is_zero_configuration:
        return warning(
            f"nodes with another secret are heard from {hosts}, but no node of this user",
            "By default each user of a machine has a separate network. To share one, give both users the same secret "
            "with IRIS_SECRET_FILE.",
            is_blocking=True,
        )
    return fault(
        f"no node of this network is found, and nodes with another secret are heard from {hosts}",
        "If those nodes belong to your network, give this node their secret and network name; `iris keys list` shows ids "
        "on each side.",
        "iris keys list",
        is_blocking=True,
    )


async def datagrams(subject: Subject) -> Finding:
    """Check that small UDP datagrams to other nodes come back."""
    reached = await subject.surroundings.reached()
    if not reached.peers:
        return skipped(NOBODY)
    echoes = await subject.surroundings.echoes()
    if not echoes.asked:
        return skipped("no node that is reached has a numeric address")
    if not echoes.small:
        port = subject.surroundings.settings().listen.rpartition(":")[2]
        return fault(
            f"links work, but none of {echoes.asked} nodes sends a datagram back: UDP is blocked, so deaths are detected late",
            "Open the ports that are open for TCP for UDP too, in both directions.",
            *((f"nft add rule inet filter input udp dport {port} accept",) if port != "0" else ()),
            is_blocking=True,
        )
    if len(echoes.small) < echoes.asked:
        return warning(
            f"{echoes.asked - len(echoes.small)} of {echoes.asked} nodes send no datagram back",
            "Check the firewalls of these nodes: " + ", ".join(_silent(reached, echoes.small)) + ".",
        )
    return ok(f"{echoes.asked} of {echoes.asked} nodes send them back")


async def large_datagrams(subject: Subject) -> Finding:
    """Check that UDP datagrams of the maximum size to other nodes come back."""
    reached = await subject.surroundings.reached()
    if not reached.peers:
        return skipped(NOBODY)
    echoes = await subject.surroundings.echoes()
    small = [each.mtu for each in subject.surroundings.interfaces() if not each.is_loopback]
    shown = f"; the smallest MTU here is {min(small)}" if small else ""
    lost = set(echoes.small) - set(echoes.large)
    if not echoes.small:
        return skipped("no datagram comes back at all")
    if len(lost) == len(echoes.small):
        return fault(
            f"small datagrams come back, but those of 1,200 bytes come back from none of {len(lost)} nodes{shown}: "
            "connections may hang, too",
            "Set the MTU of tunnels and interfaces to what the path carries, 1,280 or more, and let ICMP pass.",
            "ip -brief link",
            f"tracepath {_host_of(reached, next(iter(lost)))}",
        )
    if lost:
        return warning(
            f"datagrams of 1,200 bytes from {len(lost)} of {len(echoes.small)} nodes do not come back",
            "Check the MTU of the path there: " + ", ".join(_host_of(reached, peer) for peer in sorted(lost)[:3]) + ".",
            f"tracepath {_host_of(reached, next(iter(lost)))}",
        )
    return ok("1,200 bytes pass")


async def dial_back(subject: Subject) -> Finding:
    """Check that other nodes can dial this node's address."""
    reached = await subject.surroundings.reached()
    if not reached.peers:
        return skipped(NOBODY)
    found = await subject.surroundings.dialled()
    # If a node runs on the configured port and its address is advertised, that node answers.
    fine = {DialOutcome.REACHED} if found.is_own_port else {DialOutcome.REACHED, DialOutcome.ANOTHER}
    good = [address for address, outcome in found.outcomes if outcome in fine]
    bad = [(address, outcome) for address, outcome in found.outcomes if outcome not in fine]
    if not found.outcomes:
        return _explain_no_dial(found, reached)
    if not bad:
        return ok(f"{len(good)} of {len(good)} nodes reach {reached.address}")
    (address, outcome), _ = Counter(bad).most_common(1)[0]
    cause = f"{len(bad)} of {len(found.outcomes)} nodes that were asked cannot dial {address} ({_DIALS[outcome]})"
    advice = (
        "Let firewalls pass new TCP connections to that port, and listen on an address that the other nodes can route to. "
        "Behind NAT this node works through the links that it opens itself, at a higher cost."
    )
    hints = ("ip -brief address", "nft list ruleset")
    if good:
        return warning(cause, advice, *hints)
    if not found.is_own_port:
        return skipped(f"a node runs on the configured port, and a firewall may block the other port, which was tried: {cause}")
    return fault(cause, advice, *hints)


def _explain_no_dial(found: Dialled, reached: Reached) -> Finding:
    if found.mute:
        return fault(
            f"{found.mute} of {found.asked} nodes cannot dial {reached.address}: for them it means another machine",
            "Listen on an address that other machines reach, with --listen or IRIS_LISTEN.",
            "ip -brief address",
        )
    return skipped(f"none of the {found.asked} nodes that were asked to dial this one has reported the result in time")


def _addresses(seeds_: list[Seed]) -> list[str]:
    return [seed.address for seed in seeds_]


def _silent(reached: Reached, heard: tuple[str, ...]) -> list[str]:
    return [peer.address or peer.id[:8] for peer in reached.peers if peer.id not in heard][:3]


def _host_of(reached: Reached, peer_id: str) -> str:
    address = next((peer.address for peer in reached.peers if peer.id == peer_id), "")
    return address.rpartition(":")[0].strip("[]") or peer_id[:8]
