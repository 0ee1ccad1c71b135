"""The checks of the network: seeds, other networks, datagrams, and dials from other nodes."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from iris_overlay.events import DialOutcome
from iris_py.cli.doctor.check import Finding, fault, ok, skipped, warning
from iris_py.cli.doctor.surroundings import SeedOutcome

if TYPE_CHECKING:
    from iris_py.cli.doctor.check import Subject
    from iris_py.cli.doctor.surroundings import Dialled, Reached, Seed

NOBODY: Final = "no other node is reached"

_DIALS: Final = {
    DialOutcome.ANOTHER: "another node answers there",
    DialOutcome.REFUSED: "refused: nobody listens there, or a firewall says so",
    DialOutcome.SILENT: "silent: a firewall swallows it, or no way leads there",
    DialOutcome.BROKEN: "something takes the connection that is no node",
}
_SEED_ADVICE: Final = {
    SeedOutcome.UNKNOWN: "Correct the name, or the name server that this machine asks.",
    SeedOutcome.REFUSED: "Start a node there that listens on that address, or correct the port.",
    SeedOutcome.SILENT: "Let a firewall pass TCP and UDP to that port, or correct the address.",
    SeedOutcome.UNREACHABLE: "Correct the address, or the routes of this machine.",
    SeedOutcome.UNANSWERED: "Something else has that port: correct the address. Or the node there stands still.",
    SeedOutcome.UNREADY: "The node there stands still, or is very busy: look at it.",
}
_SEED_HINTS: Final = {SeedOutcome.UNKNOWN: "getent ahosts {host}", SeedOutcome.SILENT: "tracepath {host}"}


async def seeds(subject: Subject) -> Finding:
    """Check the dials to the seeds."""
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
        return warning(f"{cause}; other nodes are reached all the same", advice, *hints)
    return fault(cause, advice, *hints, is_blocking=True)


async def seed_secret(subject: Subject) -> Finding:
    """Check for seeds with another secret."""
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
    """Check for other networks, which matter only if the own network is not found."""
    reached = await subject.surroundings.reached()
    if not reached.strangers:
        return ok("none is heard")
    hosts = ", ".join(reached.strangers)
    if reached.peers:
        return ok(f"heard from {hosts}; it has another secret, and disturbs nobody")
    if subject.surroundings.settings().is_zero_configuration:
        return warning(
            f"nodes with another secret are heard from {hosts}, and none of this user's",
            "Two users of one machine are two networks. To be one, give both the same secret as IRIS_SECRET_FILE.",
            is_blocking=True,
        )
    return fault(
        f"no node of this network is found, and nodes with another secret are heard from {hosts}",
        "If those are meant to be yours, give this one their secret and network name; `iris keys list` shows ids on each side.",
        "iris keys list",
        is_blocking=True,
    )


async def datagrams(subject: Subject) -> Finding:
    """Check that small datagrams come back."""
    reached = await subject.surroundings.reached()
    if not reached.peers:
        return skipped(NOBODY)
    echoes = await subject.surroundings.echoes()
    if not echoes.asked:
        return skipped("no node that is reached has a numeric address")
    if not echoes.small:
        port = subject.surroundings.settings().listen.rpartition(":")[2]
        return fault(
            f"links work, and none of {echoes.asked} nodes sends a datagram back: UDP does not pass, deaths are noticed late",
            "Let firewalls pass UDP in both directions on the ports that they pass TCP on.",
            *((f"nft add rule inet filter input udp dport {port} accept",) if port != "0" else ()),
            is_blocking=True,
        )
    if len(echoes.small) < echoes.asked:
        return warning(
            f"{echoes.asked - len(echoes.small)} of {echoes.asked} nodes send no datagram back",
            "Look at the firewalls of those: " + ", ".join(_silent(reached, echoes.small)) + ".",
        )
    return ok(f"{echoes.asked} of {echoes.asked} nodes send them back")


async def large_datagrams(subject: Subject) -> Finding:
    """Check that datagrams of full size come back."""
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
            f"small datagrams come back, those of 1,200 bytes from none of {len(lost)} nodes{shown}: connections may hang, too",
            "Set the MTU of tunnels and interfaces to what the path carries, 1,280 or more, and let ICMP pass.",
            "ip -brief link",
            f"tracepath {_host_of(reached, next(iter(lost)))}",
        )
    if lost:
        return warning(
            f"datagrams of 1,200 bytes from {len(lost)} of {len(echoes.small)} nodes do not come back",
            "Look at the MTU of the way there: " + ", ".join(_host_of(reached, peer) for peer in sorted(lost)[:3]) + ".",
            f"tracepath {_host_of(reached, next(iter(lost)))}",
        )
    return ok("1,200 bytes pass")


async def dial_back(subject: Subject) -> Finding:
    """Check that other nodes can dial this node."""
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
        "Let firewalls pass new TCP connections to that port, and listen on an address that the others have a way to; "
        "behind an address translator this node works through links that it opens itself, and costs more."
    )
    hints = ("ip -brief address", "nft list ruleset")
    if good:
        return warning(cause, advice, *hints)
    if not found.is_own_port:
        return skipped(f"a node runs on the configured port, and a firewall may close the other one that was tried: {cause}")
    return fault(cause, advice, *hints)


def _explain_no_dial(found: Dialled, reached: Reached) -> Finding:
    if found.mute:
        return fault(
            f"{found.mute} of {found.asked} nodes cannot dial {reached.address}: it means another machine there",
            "Listen on an address that other machines reach, with --listen or IRIS_LISTEN.",
            "ip -brief address",
        )
    return skipped(f"none of {found.asked} nodes that were asked to dial this one has said in time what came of it")


def _addresses(seeds_: list[Seed]) -> list[str]:
    return [seed.address for seed in seeds_]


def _silent(reached: Reached, heard: tuple[str, ...]) -> list[str]:
    return [peer.address or peer.id[:8] for peer in reached.peers if peer.id not in heard][:3]


def _host_of(reached: Reached, peer_id: str) -> str:
    address = next((peer.address for peer in reached.peers if peer.id == peer_id), "")
    return address.rpartition(":")[0].strip("[]") or peer_id[:8]
