"""The effective rules of a gateway as plain tables, for ``iris gateway --check`` and for status."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from iris_py.federation.rules import USES, specificity
from iris_security import cloud_public_key_text

if TYPE_CHECKING:
    from iris_py.federation.rules import ExportRule, ImportRule
    from iris_py.federation.settings import CloudSettings, FederationSettings


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
