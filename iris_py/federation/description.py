"""Descriptions of a gateway's rules: as tables, as an explanation of one use, and as the difference of two settings.

`describe` returns the effective rules for ``iris gateway --check`` and for status. `explain` follows the path of a request to
another cloud without sending the request, for `iris federation explain` (docs/design.md 15.19); only nodes of the own cloud can
ask, so nothing is hidden. `diff` compares two settings for a reload.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from iris_py.federation.messages import CLUSTER
from iris_py.federation.rules import KINDS, USES, specificity
from iris_security import cloud_public_key_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from iris_py.federation.bundle import Bundle
    from iris_py.federation.core import FederationCore
    from iris_py.federation.messages import CatalogueEntry
    from iris_py.federation.neighbour import Neighbour
    from iris_py.federation.rules import ExportRule, ImportRule, ReceivedCatalogue
    from iris_py.federation.settings import CloudSettings, FederationSettings

    #: A rule, and the alias of the neighbour concerned.
    ExportFor: TypeAlias = tuple[str, ExportRule]
    ImportFor: TypeAlias = tuple[str, ImportRule]

#: Keys of ``[gateway]`` that apply only at the start of a gateway, not after a reload.
AT_START: Final = ("identity_file", "listen", "metrics", "congestion")


@dataclass(frozen=True, slots=True)
class Changes:
    """The difference between two settings.

    Rules with the same kind and the same exported names are the same rule, possibly with changed options.
    """

    gateway: tuple[str, ...] = ()
    """The changed keys of ``[gateway]``."""
    clouds_added: tuple[str, ...] = ()
    """New aliases."""
    clouds_removed: tuple[str, ...] = ()
    """Removed aliases: all links to these neighbours end."""
    clouds_changed: tuple[str, ...] = ()
    """Aliases with a changed address, limit or price."""
    keys_added: tuple[tuple[str, bytes], ...] = ()
    """New keys of existing neighbours, with their aliases."""
    keys_removed: tuple[tuple[str, bytes], ...] = ()
    """Removed keys of remaining neighbours: links authenticated with these keys end."""
    exports_added: tuple[ExportFor, ...] = ()
    """New exports."""
    exports_removed: tuple[ExportFor, ...] = ()
    """Removed exports, as the old rules."""
    exports_changed: tuple[ExportFor, ...] = ()
    """Exports with changed uses, limits or local names, as the new rules."""
    imports_added: tuple[ImportFor, ...] = ()
    """New imports."""
    imports_removed: tuple[ImportFor, ...] = ()
    """Removed imports, as the old rules."""
    imports_changed: tuple[ImportFor, ...] = ()
    """Imports with a changed local name or order of clouds, as the new rules."""

    def __bool__(self) -> bool:
        return any(getattr(self, each.name) for each in fields(self))

    @property
    def needs_restart(self) -> tuple[str, ...]:
        """The changed keys of ``[gateway]`` that apply only after a restart."""
        return tuple(key for key in self.gateway if key in AT_START)

    def summary(self) -> dict[str, object]:
        """Return the changes as JSON values, without the clouds' keys, for the log and the audit."""
        summary: dict[str, object] = {
            "gateway": list(self.gateway),
            "clouds_added": list(self.clouds_added),
            "clouds_removed": list(self.clouds_removed),
            "clouds_changed": list(self.clouds_changed),
            "keys_added": [alias for alias, _key in self.keys_added],
            "keys_removed": [alias for alias, _key in self.keys_removed],
            "exports_added": _names(self.exports_added),
            "exports_removed": _names(self.exports_removed),
            "exports_changed": _names(self.exports_changed),
            "imports_added": _names(self.imports_added),
            "imports_removed": _names(self.imports_removed),
            "imports_changed": _names(self.imports_changed),
        }
        return {key: value for key, value in summary.items() if value}


def diff(old: FederationSettings, new: FederationSettings) -> Changes:
    """Return the difference between two settings."""
    stayed = [alias for alias in new.clouds if alias in old.clouds]
    keys = [(alias, old.clouds[alias].keys, new.clouds[alias].keys) for alias in stayed]
    exports, old_exports = _exports_by_name(new), _exports_by_name(old)
    imports, old_imports = _imports_by_name(new), _imports_by_name(old)
    return Changes(
        gateway=tuple(
            each.name for each in fields(new.gateway) if getattr(old.gateway, each.name) != getattr(new.gateway, each.name)
        ),
        clouds_added=tuple(alias for alias in new.clouds if alias not in old.clouds),
        clouds_removed=tuple(alias for alias in old.clouds if alias not in new.clouds),
        clouds_changed=tuple(
            alias for alias in stayed if replace(old.clouds[alias], keys=()) != replace(new.clouds[alias], keys=())
        ),
        keys_added=tuple((alias, key) for alias, before, after in keys for key in after if key not in before),
        keys_removed=tuple((alias, key) for alias, before, after in keys for key in before if key not in after),
        exports_added=tuple((key[0], rule) for key, rule in exports.items() if key not in old_exports),
        exports_removed=tuple((key[0], rule) for key, rule in old_exports.items() if key not in exports),
        exports_changed=tuple(
            (key[0], rule)
            for key, rule in exports.items()
            if key in old_exports and _plain_export(rule) != _plain_export(old_exports[key])
        ),
        imports_added=tuple((key[0], rule) for key, rule in imports.items() if key not in old_imports),
        imports_removed=tuple((key[0], rule) for key, rule in old_imports.items() if key not in imports),
        imports_changed=tuple(
            (key[0], rule)
            for key, rule in imports.items()
            if key in old_imports and replace(rule, number=0) != replace(old_imports[key], number=0)
        ),
    )


def _plain_export(rule: ExportRule) -> ExportRule:
    """Return an export without the parts irrelevant to one neighbour: its position and the other clouds."""
    return replace(rule, number=0, clouds=())


def _exports_by_name(settings: FederationSettings) -> Mapping[tuple[str, str, str], ExportRule]:
    return {(alias, rule.kind, rule.outside): rule for alias in settings.clouds for rule in settings.exports_to(alias)}


def _imports_by_name(settings: FederationSettings) -> Mapping[tuple[str, str, str], ImportRule]:
    return {(alias, rule.kind, rule.outside): rule for alias in settings.clouds for rule in settings.imports_from(alias)}


def _names(rules: Sequence[tuple[str, ExportRule]] | Sequence[tuple[str, ImportRule]]) -> list[str]:
    return [f"{rule.outside}@{alias}" for alias, rule in rules]


#: The uses that `explain` checks for a name: requests for a cluster, subscribe or publish for topics.
_MEANT: Final = {"cluster": frozenset(("request",)), "topic": frozenset(("subscribe", "publish"))}


def explain(core: FederationCore, alias: str, name: str, now: float, members: Mapping[Bundle, int | None]) -> dict[str, Any]:
    """Explain the path of a use of another cloud, as plain values.

    Args:
        name: The cluster or topic there.
        members: The member counts reported over each bundle; None before the report.

    Returns:
        ``goes``: whether the use would succeed now; ``reason``: the obstacle, or empty; ``imports``: the rules in the own file;
        ``ways``: the gateways of the other cloud with their entries and obstacles; ``dials``: the results of dials that have no
        connection now.
    """
    neighbour = core.lines.neighbours.get(alias)
    found: dict[str, Any] = {"goes": False, "reason": "", "imports": [], "ways": [], "dials": []}
    if neighbour is None:
        known = ", ".join(core.lines.neighbours) or "none"
        found["reason"] = f"this gateway has no [cloud.{alias}]; it knows: {known}"
        return found
    rules = [(kind, rule) for number, kind in KINDS.items() if (rule := core.import_rule(alias, number, name)) is not None]
    found["imports"] = [{"kind": kind, "outside": rule.outside, "local": rule.local, "line": rule.line} for kind, rule in rules]
    found["dials"] = [
        {"address": slot.address or slot.tried, "error": slot.error, "failures": slot.failures}
        for slot in neighbour.dials.slots
        if slot.bundle is None
    ]
    kinds = [kind for kind, _rule in rules] or ["cluster"]
    for kind in kinds:
        found["ways"] += [
            _way(neighbour, bundle, kind, name, now) | {"members": members.get(bundle)} for bundle in neighbour.bundles.values()
        ]
    if not rules:
        found["reason"] = f'no [[import]] from "{alias}" matches this name. Add one to the file of this gateway'
    else:
        found["goes"], found["reason"] = _judge(neighbour, found["ways"], found["dials"])
    return found


def _way(neighbour: Neighbour, bundle: Bundle, kind: str, name: str, now: float) -> dict[str, Any]:
    """Describe one gateway of the other cloud and its obstacle to the use."""
    offer = neighbour.offers.get(bundle)
    number = next(number for number, its in KINDS.items() if its == kind)
    entry = None if offer is None else offer.find(number, name)
    uses = [] if entry is None else [use for bit, use in enumerate(USES) if entry.allow & 1 << bit]
    obstacle = _obstacle(bundle, offer, entry, now)
    limited_s = 0.0
    if entry is not None and entry.kind == CLUSTER:
        limited_s = neighbour.limits_of(entry, now).wait_s(0, now)
    if not obstacle and not _MEANT[kind].intersection(uses):
        obstacle = f"its rule for {entry.pattern!r} allows only {', '.join(uses) or 'nothing'}" if entry is not None else ""
    if not obstacle and limited_s:
        obstacle = f"over its limits now: try again in {limited_s:.2g} s"
    return {
        "gateway": bundle.gateway.hex(),
        "address": bundle.address or bundle.host,
        "kind": kind,
        "pattern": "" if entry is None else entry.pattern,
        "uses": uses,
        "requests_per_s": 0.0 if entry is None else entry.requests_per_s,
        "in_flight": 0 if entry is None else entry.in_flight,
        "under_way": len(bundle.calls),
        "heard_s_ago": now - bundle.health.heard_at,
        "round_trip_s": bundle.health.round_trip_s,
        "obstacle": obstacle,
    }


def _obstacle(bundle: Bundle, offer: ReceivedCatalogue | None, entry: CatalogueEntry | None, now: float) -> str:
    if not bundle.is_up or offer is None:
        return "it has not sent its exports yet"
    if entry is None:
        return "it does not export this name to this cloud"
    if bundle.is_going:
        return "it is draining, and gets nothing new"
    if bundle.health.is_suspect:
        return f"nothing was heard from it for {now - bundle.health.heard_at:.1f} s, and it gets nothing new"
    return "" if bundle.health.is_sound(now) else "it was silent, and gets nothing new until it has answered for a while"


def _judge(neighbour: Neighbour, ways: list[dict[str, Any]], dials: list[dict[str, Any]]) -> tuple[bool, str]:
    """Return whether a use of another cloud would succeed now, and the obstacle if not."""
    if any(not way["obstacle"] for way in ways):
        return True, ""
    if not ways:
        errors = "; ".join(f"{each['address']}: {each['error']}" for each in dials if each["error"])
        waits = "no gateway there has dialled this one" if not neighbour.dials.slots else errors or "it is being dialled"
        return False, f"there is no connection to the cloud {neighbour.alias!r}: {waits}"
    return False, "; ".join(dict.fromkeys(f"gateway {way['gateway'][:8]}: {way['obstacle']}" for way in ways))


@dataclass(frozen=True, slots=True)
class RuleRow:
    """One rule, as seen by one neighbour."""

    kind: str
    """``cluster`` or ``topic``."""
    outside: str
    """The exported names."""
    local: str
    """The names in the local cloud; for an import without local names, the form ``databases@eu``."""
    uses: str
    """The uses of an export; for an import with local names, when the import applies."""
    limits: str
    """The limits and other options."""
    line: int
    """The line of the file."""


@dataclass(frozen=True, slots=True)
class NeighbourDescription:
    """One neighbour and its rules, sorted by kind and precedence."""

    alias: str
    keys: tuple[str, ...]
    """The public keys, as text."""
    links: str
    """The connections, in words."""
    exports: tuple[RuleRow, ...]
    imports: tuple[RuleRow, ...]


def describe(settings: FederationSettings) -> tuple[NeighbourDescription, ...]:
    """Return the rules for each neighbour, in the order of the file."""
    return tuple(_describe_neighbour(settings, cloud) for cloud in settings.clouds.values())


def _describe_neighbour(settings: FederationSettings, cloud: CloudSettings) -> NeighbourDescription:
    exports = sorted(settings.exports_to(cloud.alias), key=_order)
    imports = sorted(settings.imports_from(cloud.alias), key=_order)
    return NeighbourDescription(
        alias=cloud.alias,
        keys=tuple(map(cloud_public_key_text, cloud.keys)),
        links=_describe_links(settings, cloud),
        exports=tuple(
            RuleRow(
                kind=rule.kind,
                outside=rule.outside,
                local=rule.local,
                uses=", ".join(use for use in USES if use in rule.allow),
                limits=_describe_limits(rule),
                line=rule.line,
            )
            for rule in exports
        ),
        imports=tuple(
            RuleRow(
                kind=rule.kind,
                outside=rule.outside,
                local=rule.local or f"{rule.outside}@{cloud.alias}",
                uses=_describe_place(rule, cloud.alias),
                limits="",
                line=rule.line,
            )
            for rule in imports
        ),
    )


def _order(rule: ExportRule | ImportRule) -> tuple[str, tuple[int, int, int], str]:
    return rule.kind, specificity(rule.outside_tokens), rule.outside


def _describe_links(settings: FederationSettings, cloud: CloudSettings) -> str:
    ways = [f"dials {address}" for address in cloud.dial]
    if settings.gateway.listen is not None:
        ways.append(f"is dialled at {settings.gateway.listen}")
    if cloud.bytes_per_s is not None:
        ways.append(f"{cloud.bytes_per_s:,} bytes/s" if cloud.bytes_per_s else "nothing passes (bytes_per_s = 0)")
    return "; ".join(ways)


def _describe_limits(rule: ExportRule) -> str:
    limits: list[str] = []
    if rule.kind == "cluster":
        if rule.requests_per_s is not None:
            limits.append(f"{rule.requests_per_s:,} requests/s")
        limits.append(f"{rule.in_flight:,} in flight")
        if "tunnel" in rule.allow:
            limits.append(f"{rule.tunnels:,} tunnels")
    elif "subscribe" in rule.allow:
        limits.append(f"{rule.subscriptions:,} subscriptions")
    if rule.bytes_per_s is not None:
        limits.append(f"{rule.bytes_per_s:,} bytes/s")
    limits += [name for name, is_set in (("block", rule.block), ("trace", rule.trace)) if is_set]
    if rule.audit == "all":
        limits.append("audit of all")
    return ", ".join(limits)


def _describe_place(rule: ImportRule, alias: str) -> str:
    """Describe when an import with a local name applies, and the place of its cloud among several."""
    if not rule.local:
        return ""
    if rule.kind == "topic":
        return "republished"
    return f"stand-in {rule.clouds.index(alias) + 1} when {'none is here' if rule.when == 'absent' else 'all are full'}"
