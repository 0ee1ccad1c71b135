"""The effective rules of a gateway as plain tables, for ``iris gateway --check`` and for status.

The explanation of what would become of a use of another cloud, for `iris federation explain` (docs/design.md 15.19).

A gateway looks the way up as a request would go it, without sending anything, and tells each step. It is asked by a node of its
own cloud, so nothing here is hidden.

The difference between two settings of a gateway, for loading them anew while it runs.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from iris_py.federation.frames import CLUSTER
from iris_py.federation.rules import KINDS, USES, specificity
from iris_security import cloud_public_key_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from iris_py.federation.bundle import Bundle
    from iris_py.federation.core import FederationCore
    from iris_py.federation.frames import Entry
    from iris_py.federation.neighbour import Neighbour
    from iris_py.federation.rules import ExportRule, ImportRule, Offer
    from iris_py.federation.settings import CloudSettings, FederationSettings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from iris_py.federation.rules import ExportRule, ImportRule
    from iris_py.federation.settings import FederationSettings

    #: A rule, and the alias of the neighbour that it is for.
    ExportFor: TypeAlias = tuple[str, ExportRule]
    ImportFor: TypeAlias = tuple[str, ImportRule]

#: Keys of ``[gateway]`` that count when a gateway starts, and not when it loads its file anew.
AT_START: Final = ("identity_file", "listen", "metrics", "congestion")


@dataclass(frozen=True, slots=True)
class Changes:
    """The difference between two settings.

    A rule is the same one if it has the same kind and the same names outside; what else it says may change.
    """

    gateway: tuple[str, ...] = ()
    """The keys of ``[gateway]`` that have changed."""
    clouds_added: tuple[str, ...] = ()
    """New aliases."""
    clouds_removed: tuple[str, ...] = ()
    """Aliases that are gone: all links to these neighbours end."""
    clouds_changed: tuple[str, ...] = ()
    """Aliases whose addresses, limit or price have changed."""
    keys_added: tuple[tuple[str, bytes], ...] = ()
    """New keys of neighbours that were there, with their aliases."""
    keys_removed: tuple[tuple[str, bytes], ...] = ()
    """Keys that are gone of neighbours that stay: links whose other side has shown such a key end."""
    exports_added: tuple[ExportFor, ...] = ()
    """Exports that are new."""
    exports_removed: tuple[ExportFor, ...] = ()
    """Exports that are gone, each as the old rule."""
    exports_changed: tuple[ExportFor, ...] = ()
    """Exports of other uses, limits or local names, each as the new rule."""
    imports_added: tuple[ImportFor, ...] = ()
    """Imports that are new."""
    imports_removed: tuple[ImportFor, ...] = ()
    """Imports that are gone, each as the old rule."""
    imports_changed: tuple[ImportFor, ...] = ()
    """Imports under another local name, or in another order of clouds, each as the new rule."""

    def __bool__(self) -> bool:
        return any(getattr(self, each.name) for each in fields(self))

    @property
    def needs_restart(self) -> tuple[str, ...]:
        """The keys of ``[gateway]`` that have changed and count at the next start only."""
        return tuple(key for key in self.gateway if key in AT_START)

    def summary(self) -> dict[str, object]:
        """Return what has changed as JSON has it, without keys: for the log and the audit."""
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
    """Return what is different in new settings."""
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
    """Return an export without what does not matter to one of its neighbours: its place, and who else may use it."""
    return replace(rule, number=0, clouds=())


def _exports_by_name(settings: FederationSettings) -> Mapping[tuple[str, str, str], ExportRule]:
    return {(alias, rule.kind, rule.outside): rule for alias in settings.clouds for rule in settings.exports_to(alias)}


def _imports_by_name(settings: FederationSettings) -> Mapping[tuple[str, str, str], ImportRule]:
    return {(alias, rule.kind, rule.outside): rule for alias in settings.clouds for rule in settings.imports_from(alias)}


def _names(rules: Sequence[tuple[str, ExportRule]] | Sequence[tuple[str, ImportRule]]) -> list[str]:
    return [f"{rule.outside}@{alias}" for alias, rule in rules]


#: The uses by which a name is looked at: who asks for a cluster means requests, for topics one of both.
_MEANT: Final = {"cluster": frozenset(("request",)), "topic": frozenset(("subscribe", "publish"))}


def explain(core: FederationCore, alias: str, name: str, now: float, members: Mapping[Bundle, int | None]) -> dict[str, Any]:
    """Return what would become of a use, as plain values.

    Args:
        core: What is said to other clouds.
        alias: The cloud.
        name: The cluster or topic there.
        now: The time.
        members: How many members the cluster has, as the lines that were asked have told; None before they did.

    Returns:
        ``goes``: whether it would go now; ``reason``: why not, empty otherwise; ``imports``: the rules of the own file;
        ``ways``: the gateways of the other cloud, each with its entry and whether it would carry the use; ``dials``: what came
        of dials that have no connection now.
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
        found["reason"] = f'no [[import]] from "{alias}" is for this name: write one into the file of this gateway'
    else:
        found["goes"], found["reason"] = _judge(neighbour, found["ways"], found["dials"])
    return found


def _way(neighbour: Neighbour, bundle: Bundle, kind: str, name: str, now: float) -> dict[str, Any]:
    """Return whether one gateway of the other cloud would carry it."""
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


def _obstacle(bundle: Bundle, offer: Offer | None, entry: Entry | None, now: float) -> str:
    if not bundle.is_up or offer is None:
        return "it has not said yet what it lets us use"
    if entry is None:
        return "it does not export this name to us"
    if bundle.is_going:
        return "it drains, and gets nothing new"
    if bundle.health.is_suspect:
        return f"nothing was heard of it for {now - bundle.health.heard_at:.1f} s, and it gets nothing new"
    return "" if bundle.health.is_sound(now) else "it was silent, and gets nothing new until it has been well for a while"


def _judge(neighbour: Neighbour, ways: list[dict[str, Any]], dials: list[dict[str, Any]]) -> tuple[bool, str]:
    """Return whether a use would go, and why not."""
    if any(not way["obstacle"] for way in ways):
        return True, ""
    if not ways:
        errors = "; ".join(f"{each['address']}: {each['error']}" for each in dials if each["error"])
        waits = "nobody has dialled us" if not neighbour.dials.slots else errors or "it is being dialled"
        return False, f"there is no connection to the cloud {neighbour.alias!r}: {waits}"
    return False, "; ".join(dict.fromkeys(f"gateway {way['gateway'][:8]}: {way['obstacle']}" for way in ways))


@dataclass(frozen=True, slots=True)
class RuleRow:
    """One rule, as it is for one neighbour."""

    kind: str
    """``cluster`` or ``topic``."""
    outside: str
    """The names on the line."""
    local: str
    """The names in the own cloud; of an import without local names, as its nodes write them: ``databases@eu``."""
    uses: str
    """The uses of an export; of an import that has local names, when they count."""
    limits: str
    """The limits that are set, and what else is."""
    line: int
    """The line of the file."""


@dataclass(frozen=True, slots=True)
class NeighbourDescription:
    """One neighbour, and the rules for it; of each kind those first that count before the others."""

    alias: str
    keys: tuple[str, ...]
    """Its public keys, as text."""
    links: str
    """The connections, in words."""
    exports: tuple[RuleRow, ...]
    imports: tuple[RuleRow, ...]


def describe(settings: FederationSettings) -> tuple[NeighbourDescription, ...]:
    """Return what may cross between the own cloud and each neighbour, in the order of the file."""
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
    """Return when a mapped import counts, and at which place of several clouds."""
    if not rule.local:
        return ""
    if rule.kind == "topic":
        return "republished"
    return f"stand-in {rule.clouds.index(alias) + 1} when {'none is here' if rule.when == 'absent' else 'all are full'}"
