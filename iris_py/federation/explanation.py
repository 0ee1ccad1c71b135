"""The explanation of what would become of a use of another cloud, for `iris federation explain` (docs/design.md 15.19).

A gateway looks the way up as a request would go it, without sending anything, and tells each step. It is asked by a node of its
own cloud, so nothing here is hidden.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from iris_py.federation.catalogue import KINDS
from iris_py.federation.frames import CLUSTER
from iris_py.federation.rules import USES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from iris_py.federation.bundle import Bundle
    from iris_py.federation.catalogue import Offer
    from iris_py.federation.core import FederationCore
    from iris_py.federation.frames import Entry
    from iris_py.federation.neighbour import Neighbour

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
