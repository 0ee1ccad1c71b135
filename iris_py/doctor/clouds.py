"""The checks of `iris doctor` on other clouds: whether gateways reach them, and the way to a name of another cloud."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from iris_py.doctor.check import Finding, FindingStatus, fault, names_of, ok, show_ago, show_node, skipped, warning
from iris_py.doctor.connectivity import NOBODY
from iris_py.doctor.machine import describe_room, is_short
from iris_py.errors import IrisError
from iris_py.federation.names import split

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iris_py.doctor.check import Subject
    from iris_py.doctor.surroundings import CloudStatus, FarDial, FarLine, Gateways, GatewayStatus, GoneGateway, WayOut, WayStep

#: Maximum number of cloud links, dials and rules named in a line of output.
NAMED_MAX: Final = 3

_STATUS: Final = "iris federation status"
_STARTING: Final = ("iris nodes --gone", "iris gateway federation.toml")
_REACH: Final = "Check that the gateways there run, and that firewalls pass TCP to those addresses."
_RULES: Final = "Ask the operators of that cloud for an export, or correct or remove the import."
_FILES: Final = "Give all gateways of a cloud the same rules, and reload each gateway (SIGHUP)."
_DIFFERENT: Final = "Tell the operators there: one of their gateways may have an old file."
_AUDIT: Final = "Make room on the disk of the audit. Meanwhile the gateway continues without the audit."
_GATEWAY: Final = "Check those gateways and their logs."


class _Found:
    """The faults and warnings found by a check, the faults first.

    Attributes:
        status: The worst status so far.
    """

    def __init__(self) -> None:
        self.status = FindingStatus.OK
        self._texts: dict[FindingStatus, list[str]] = {FindingStatus.FAULT: [], FindingStatus.WARNING: []}
        self._advice: dict[FindingStatus, dict[str, None]] = {FindingStatus.FAULT: {}, FindingStatus.WARNING: {}}

    def add(self, status: FindingStatus, cause: str, advice: str) -> None:
        self._texts[status].append(cause)
        self._advice[status][advice] = None
        if self.status is not FindingStatus.FAULT:
            self.status = status

    def finding(self, *hints: str) -> Finding:
        texts, advice = ([each for part in parts.values() for each in part] for parts in (self._texts, self._advice))
        return Finding(self.status, "; ".join(texts), " ".join(advice), hints)


async def clouds(subject: Subject) -> Finding:
    """Check the cloud links of this cloud's gateways to all configured clouds, and the gateways' audits."""
    reached = await subject.surroundings.reached()
    if not reached.peers:
        return skipped(NOBODY)
    try:
        asked = await subject.surroundings.gateways()
    except IrisError as exc:
        return skipped(f"the gateways could not be queried: {exc}")
    if not asked.gateways:
        if asked.missing:
            return Finding(
                FindingStatus.FAULT, f"none of {_count(asked.missing, 'gateway')} has answered", _GATEWAY, (_STATUS,)
            )
        return _look_without_gateways(asked)
    names = names_of(reached.peers)
    found, up = _Found(), []
    for alias in sorted({alias for gateway in asked.gateways for alias in gateway.clouds}):
        up += _look_at_cloud(found, alias, asked.gateways, names)
    if asked.missing:
        found.add(FindingStatus.WARNING, f"{_count(asked.missing, 'gateway')} did not answer", _GATEWAY)
    for gateway in asked.gateways:
        _look_at_audit(found, gateway, names)
    if found.status is not FindingStatus.OK:
        return found.finding(_STATUS, *_dialling(asked.gateways))
    return ok("; ".join([_count(len(asked.gateways), "gateway"), *up]))


def _look_without_gateways(asked: Gateways) -> Finding:
    """Return the finding for a network without gateways: whether the last one left or died, or nodes call other clouds."""
    if asked.last is not None:
        cause = f"no gateway runs in this network: {_describe_last(asked.last)}, so no other cloud is reached"
        if asked.last.has_left:
            return warning(cause, "Start a gateway, unless this cloud needs no other cloud any more.", *_STARTING)
        return fault(cause, "Check its machine and its log, and start it again.", *_STARTING)
    if asked.asked:
        cause = f"no gateway runs in this network, but nodes here use other clouds ({_some(asked.asked)})"
        return fault(cause, "Start a gateway, with its settings.", *_STARTING)
    return ok("no gateway runs in this network, and no node uses another cloud")


def _describe_last(last: GoneGateway) -> str:
    how = "left" if last.has_left else "died"
    reason = f" ({last.reason})" if last.reason and not last.has_left else ""
    return f"the last one, {show_node(last)}, {how} {show_ago(last.s_ago)}{reason}"


def _look_at_cloud(found: _Found, alias: str, gateways: Iterable[GatewayStatus], names: dict[str, str]) -> list[str]:
    """Record the faults of a cloud; return texts about a reached cloud, otherwise nothing."""
    views = {gateway.node: gateway.clouds[alias] for gateway in gateways if alias in gateway.clouds}
    ignorant = [_name(gateway.node, names) for gateway in gateways if alias not in gateway.clouds]
    up = {node: cloud for node, cloud in views.items() if cloud.is_up}
    if ignorant:
        found.add(FindingStatus.WARNING, f"{_some(ignorant)} has no [cloud.{alias}], but other gateways have", _FILES)
    if not up:
        why = _some(dict.fromkeys(reason for cloud in views.values() for reason in _obstacles(cloud)), "; ")
        where = "the only gateway" if len(views) == 1 else f"any of {len(views)} gateways"
        found.add(FindingStatus.FAULT, f"the cloud {alias!r} cannot be reached from {where}: {why}", _REACH)
        return []
    for node, cloud in views.items():
        name, bad = _name(node, names), _lost(cloud)
        if node not in up:
            found.add(
                FindingStatus.WARNING, f"{name} has no cloud link to {alias!r} ({_some(_obstacles(cloud), '; ')})", _REACH
            )
        elif bad:
            good = sum(_is_good(line) for line in cloud.bundles)
            what = f"{name} has {good} of {_count(good + len(bad), 'cloud link')} to {alias!r}"
            found.add(FindingStatus.WARNING, f"{what}: {_some(bad, '; ')}", _REACH)
    unmatched = {(each.kind, each.outside): each.line for cloud in up.values() for each in cloud.unmatched_imports}
    if unmatched:
        rules = [f"the {kind} {outside!r} (line {line})" for (kind, outside), line in unmatched.items()]
        found.add(FindingStatus.WARNING, f"{alias!r} exports nothing for the imports of {_some(rules)}", _RULES)
    lines = [line for cloud in up.values() for line in cloud.bundles if _is_good(line)]
    if len({line.catalogue_digest for line in lines if line.catalogue_digest}) > 1:
        found.add(FindingStatus.WARNING, f"the gateways of {alias!r} export different things to this cloud", _DIFFERENT)
    trips = [cloud.round_trip_s for cloud in up.values() if cloud.round_trip_s is not None]
    trip = f", round trip {min(trips) * 1000:.1f} ms" if trips else ""
    return [f"{alias!r} over {_count(len(lines), 'cloud link')}{trip}"]


def _look_at_audit(found: _Found, gateway: GatewayStatus, names: dict[str, str]) -> None:
    audit = gateway.audit
    what = f"{_name(gateway.node, names)} cannot write its audit {audit.file}"
    if audit.problem:
        found.add(FindingStatus.FAULT, f"{what} ({audit.problem}): {_count(audit.unwritten, 'record')} missing", _AUDIT)
    elif audit.file and audit.free_bytes is not None and is_short(audit.free_bytes):
        room = describe_room(audit.free_bytes)
        found.add(FindingStatus.WARNING, f"{_name(gateway.node, names)} has {room} left for its audit {audit.file}", _AUDIT)


async def way(subject: Subject, name: str) -> Finding:
    """Check the way to a name of another cloud: import, gateways, cloud links, exports there, and reported members."""
    try:
        there, alias = split(name)
    except ValueError as exc:
        return Finding(FindingStatus.FAULT, f"{exc}".rstrip("."), "Correct the name.")
    try:
        asked = await subject.surroundings.ways(name)
    except IrisError as exc:
        return skipped(f"the gateways could not be queried: {exc}")
    hint = f"iris federation explain {shlex.quote(name)}"
    if not asked.gateways:
        what = f"none of {_count(asked.missing, 'gateway')} has answered" if asked.missing else "no gateway runs here"
        if not asked.missing and (last := (await subject.surroundings.gateways()).last) is not None:
            what = f"{what}, {_describe_last(last)}"
        return fault(
            f"no request goes to {name!r}: {what}", "Start a gateway, with its settings.", "iris gateway federation.toml"
        )
    names = names_of((await subject.surroundings.reached()).peers)
    going = [gateway for gateway in asked.gateways if gateway.goes]
    found = _Found()
    for gateway in asked.gateways:
        if not gateway.goes:
            status = FindingStatus.WARNING if going else FindingStatus.FAULT
            found.add(status, f"{_name(gateway.node, names)} forwards nothing to {name!r}: {gateway.reason}", _advise(gateway))
    steps = [step for gateway in going for step in gateway.ways]
    bad = dict.fromkeys(f"{step.address}: {step.obstacle}" for step in steps if step.obstacle)
    if bad:
        found.add(
            FindingStatus.WARNING,
            f"{len(bad)} of {_count(len(steps), 'cloud link')} would carry no request: {_some(bad, '; ')}",
            _REACH,
        )
    told = [step.members for step in steps if step.members is not None]
    if told and not max(told):
        found.add(
            FindingStatus.FAULT, f"{alias!r} exports {there!r}, but nobody serves it there", "Ask its operators for a member."
        )
    if asked.missing:
        found.add(FindingStatus.WARNING, f"{_count(asked.missing, 'gateway')} did not answer", _GATEWAY)
    return ok(_describe_way(going, steps, told)) if found.status is FindingStatus.OK else found.finding(hint, _STATUS)


def _describe_way(going: list[WayOut], steps: list[WayStep], told: list[int]) -> str:
    trips = [step.round_trip_s for step in steps if step.round_trip_s is not None]
    trip = f", round trip {min(trips) * 1000:.1f} ms" if trips else ""
    members = f"{_count(max(told), 'member')} there" if told else "the number of members there is withheld"
    goes = f"{_count(len(going), 'gateway')} would forward a request over {_count(len(steps), 'cloud link')}{trip}"
    return f"{goes}; {members}; nothing was executed"


def _advise(gateway: WayOut) -> str:
    if not gateway.imports:
        return "Correct the file of that gateway."
    return _RULES if any("export" in step.obstacle or "rule" in step.obstacle for step in gateway.ways) else _REACH


def _is_good(line: FarLine) -> bool:
    return not line.is_suspect and not line.is_going


def _failing(cloud: CloudStatus) -> list[FarDial]:
    """Return the failing dials. A dial to a gateway with a cloud link is no failure."""
    return [dial for dial in cloud.dials if dial.error and not dial.is_up]


def _lost(cloud: CloudStatus) -> list[str]:
    """Return texts about the lost or failing cloud links, with the causes."""
    silent = [f"{line.address} is silent for {line.heard_s_ago:.0f} s" for line in cloud.bundles if line.is_suspect]
    errors = {dial.address: dial.error for dial in _failing(cloud)}
    gone = [f"one from {loss.address} ended {loss.s_ago:.0f} s ago ({loss.reason})" for loss in cloud.lost]
    return [*silent, *(f"{address}: {error}" for address, error in errors.items()), *gone]


def _obstacles(cloud: CloudStatus) -> list[str]:
    """Return the reasons why a gateway does not reach a cloud, as text."""
    going = [f"{line.address} leaves" for line in cloud.bundles if line.is_going and not line.is_suspect]
    waiting = "it is being dialled" if cloud.dials else "nobody there has dialled this cloud"
    return [*_lost(cloud), *going] or [waiting]


def _dialling(gateways: Iterable[GatewayStatus]) -> list[str]:
    """Return commands to test the addresses of failing dials."""
    dials = [dial for gateway in gateways for cloud in gateway.clouds.values() for dial in _failing(cloud)]
    addresses = [dial.address.rpartition(":") for dial in dials]
    return list(dict.fromkeys(f"nc -vz {shlex.quote(host.strip('[]'))} {shlex.quote(port)}" for host, _, port in addresses))[
        :NAMED_MAX
    ]


def _some(things: Iterable[str], separator: str = ", ") -> str:
    listed = list(things)
    more = f"{separator}{len(listed) - NAMED_MAX} more" if len(listed) > NAMED_MAX else ""
    return separator.join(listed[:NAMED_MAX]) + more


def _count(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def _name(node: str, names: dict[str, str]) -> str:
    return names.get(node, node[:8])
