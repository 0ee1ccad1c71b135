"""One other cloud: the bundles to its gateways, its lost links, its catalogues, and the exports of the local cloud to it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from iris_py.federation.dials import Dials
from iris_py.federation.limits import Accounts, ByteLimits, RuleLimits
from iris_py.federation.rules import USES_OF, RuleTable

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Sequence

    from iris_overlay.environment import Rng
    from iris_py.federation.bundle import Bundle
    from iris_py.federation.messages import CatalogueEntry
    from iris_py.federation.rules import ExportRule, Kind, ReceivedCatalogue
    from iris_py.federation.settings import CloudSettings

#: Cached limits of a neighbour's rules: as many as its gateways can have together. A full cache is emptied.
IMPORT_LIMITS_MAX = 4096
#: Catalogue rules from a neighbour, at once and per second in the long run, over all bundles; a pattern costs some 0.1 ms. Too
#: small: a cloud with many gateways and rules is shut out for a while after a reload; too large: repeated catalogues occupy a
#: processor for this long.
CATALOGUE_BURST = 32_768
CATALOGUE_RULES_PER_S = 1024
#: Requests and channels of a neighbour for unexported names, at once and per second in the long run, over all bundles; beyond,
#: its bundle ends. An honest gateway reads the catalogue and asks for unexported names only while a change is on its way. Too
#: small: a cloud is cut off when an export is removed under load; too large: a hostile neighbour guesses names, and burdens a
#: processor, for long.
REFUSALS_BURST = 4096
REFUSALS_PER_S = 64
#: Bundles of one neighbour, one for each of its gateways; further gateways are refused.
BUNDLES_MAX = 64


#: Remembered lost links; beyond, the oldest is forgotten. Too small: the list is incomplete for a cloud with many gateways; too
#: large: a neighbour that reconnects with ever new ids costs memory.
LOST_MAX: Final = 16
#: Lifetime (seconds) of an entry. Too small: the loss is forgotten before an operator looks; too large: a gateway taken out of
#: service by force is missed for this long.
LOST_S: Final = 3600.0


class LostLines:
    """The cloud links of one neighbour that were lost and not replaced, for operators of the dialled gateway.

    A dialling gateway knows the number of wanted links, and sees failed dials. A dialled gateway knows only its past links. A
    restarted gateway has a new id, so the first link from a new gateway replaces the link lost first.
    """

    def __init__(self) -> None:
        self._lost: dict[bytes, tuple[str, str, float]] = {}  # by gateway: its address, the reason, and the time

    def add(self, gateway: bytes, address: str, reason: str, now: float) -> None:
        """Remember a lost link."""
        self._lost.pop(gateway, None)
        if len(self._lost) >= LOST_MAX:
            del self._lost[next(iter(self._lost))]
        self._lost[gateway] = address, reason, now

    def found(self, gateway: bytes, *, is_new: bool) -> None:
        """Forget the lost link that a new link replaces.

        Args:
            gateway: The peer gateway of the new link.
            is_new: Whether the gateway has no other link.
        """
        if self._lost.pop(gateway, None) is None and is_new and self._lost:
            del self._lost[next(iter(self._lost))]

    def status(self, now: float) -> list[dict[str, Any]]:
        """Return the lost links as plain values, the oldest loss first."""
        return [
            {"gateway": gateway.hex(), "address": address, "reason": reason, "s_ago": now - at}
            for gateway, (address, reason, at) in self._lost.items()
            if now - at <= LOST_S
        ]


class _ActionLimit:
    """A limit on a neighbour's actions: a burst at once, and a steady rate in the long run.

    Args:
        per_s: The rate per second in the long run.
    """

    __slots__ = ("_at", "_burst", "_per_s", "_used")

    def __init__(self, burst: float, per_s: float, now: float) -> None:
        self._burst, self._per_s = burst, per_s
        self._used = 0.0
        self._at = now

    def take(self, count: float, now: float) -> bool:
        """Count actions if allowed now; return whether they are."""
        passed_s, self._at = now - self._at, now
        self._used = max(0.0, self._used - passed_s * self._per_s)
        if self._used + count > self._burst:
            return False
        self._used += count
        return True


class Neighbour:
    """Another cloud, as known to a gateway: bundles (connections to gateways there), catalogues, exports and limits.

    Args:
        alias: The local name of the neighbour.
        settings: The neighbour's table in the settings file.

    Attributes:
        bundles: The bundles with an authenticated connection 0, by id.
        offers: The received catalogues, by bundle.
        dials: The dials to the neighbour.
        was_usable: The last reported result of :meth:`usable`.
        export_limits: The limits of local exports, by number.
        line_limits: The limits of the whole cloud link.
        accounts: The traffic by rule.
        lost: Lost links dialled by the neighbour.
        incoming: The number of the neighbour's requests that run here.
    """

    def __init__(self, alias: str, settings: CloudSettings, bundles: int, rng: Rng, now: float) -> None:
        self.alias = alias
        self.settings = settings
        self.bundles: dict[bytes, Bundle] = {}
        self.offers: dict[Bundle, ReceivedCatalogue] = {}
        self.was_usable: list[Bundle] = []
        self.export_limits: dict[int, RuleLimits] = {}
        self.line_limits = ByteLimits(settings.bytes_per_s, now)
        self.accounts = Accounts()
        self.lost = LostLines()
        self.incoming = 0
        self._import_limits: dict[tuple[int, str], RuleLimits] = {}
        self._rng = rng
        self._catalogues = _ActionLimit(CATALOGUE_BURST, CATALOGUE_RULES_PER_S, now)
        self._refusals = _ActionLimit(REFUSALS_BURST, REFUSALS_PER_S, now)
        self._exports: dict[int, ExportRule] = {}
        self._last_number = -1
        self._tables: dict[Kind, RuleTable[ExportRule]] = {}
        self.dials = Dials(settings.dial, bundles, rng, now)

    def change(self, settings: CloudSettings, bundles: int, now: float) -> None:
        """Apply a reloaded table of the settings file; existing bundles stay."""
        self.settings = settings
        self.line_limits.set_rate(settings.bytes_per_s, now)
        self.dials.change(settings.dial, bundles, now)

    def set_exports(self, rules: Sequence[ExportRule], now: float) -> None:
        """Replace the exports to the neighbour. Remaining rules keep their numbers and counts.

        Numbers of removed rules are not reused soon, because messages that refer to them may be under way.
        """
        numbers = {(rule.kind, rule.outside): number for number, rule in self._exports.items()}
        kept = {key: self.export_limits[number] for key, number in numbers.items()}
        self._exports = {}
        for rule in rules:
            number = numbers.get((rule.kind, rule.outside))
            while number is None:
                self._last_number = (self._last_number + 1) & 0xFFFF
                number = None if self._last_number in numbers.values() else self._last_number
            self._exports[number] = replace(rule, number=number)
        self._tables = {kind: RuleTable(rule for rule in self._exports.values() if rule.kind == kind) for kind in USES_OF}
        self.export_limits = {}
        for number, rule in self._exports.items():
            limits = kept.get((rule.kind, rule.outside))
            if limits is None:
                limits = RuleLimits.of_export(rule, now, self.line_limits)
            else:
                limits.change(rule, now)
            self.export_limits[number] = limits

    @property
    def exports(self) -> Sequence[ExportRule]:
        """The exports to the neighbour, with their numbers on the wire."""
        return tuple(self._exports.values())

    def export_for(self, kind: Kind, name: str) -> ExportRule | None:
        """Return the most specific current rule for an exported name."""
        return self._tables[kind].find(name)

    def export_rule(self, number: int, name: str = "") -> ExportRule | None:
        """Return the rule with a number, if exported to the neighbour.

        Args:
            number: The neighbour's number for the rule.
            name: The exported name to use. The number must be of the rule that applies to the name: another rule may allow
                more. Empty for a use without a single name.
        """
        rule = self._exports.get(number)
        if rule is None or (name and self._tables[rule.kind].find(name) is not rule):
            return None
        return rule

    def limits_of(self, entry: CatalogueEntry, now: float) -> RuleLimits:
        """Return the limits of a rule in the neighbour's catalogues, shared by all its gateways."""
        key = entry.kind, entry.pattern
        limits = self._import_limits.get(key)
        if limits is None:
            if len(self._import_limits) >= IMPORT_LIMITS_MAX:
                self._import_limits.clear()
            rate = entry.requests_per_s or None
            limits = self._import_limits[key] = RuleLimits(
                rate, entry.in_flight, line=self.line_limits, is_import=True, now=now
            )
        return limits

    def admit_catalogue(self, rules: int, now: float) -> bool:
        """Tell whether the neighbour may send a catalogue of ``rules`` rules now, and count the rules if so."""
        return self._catalogues.take(rules, now)

    def admit_refusal(self, now: float) -> bool:
        """Tell whether the neighbour may ask once more for an unexported name, and count the question if so."""
        return self._refusals.take(1, now)

    def note_offer(self, bundle: Bundle, offer: ReceivedCatalogue) -> None:
        """Store the catalogue of one of the neighbour's gateways."""
        self.offers[bundle] = offer
        self._import_limits.clear()

    def note_opened(self, bundle: Bundle) -> None:
        """Handle a new bundle, which may replace a lost link."""
        is_new = all(other is bundle for other in self.with_gateway(bundle.gateway))
        self.lost.found(bundle.gateway, is_new=is_new)

    def note_ended(self, bundle: Bundle, reason: str, now: float) -> None:
        """Note an ended bundle as lost, if dialled by a peer that did not announce its departure and has no other bundle."""
        if not (bundle.is_initiator or bundle.is_going or any(self.with_gateway(bundle.gateway))):
            self.lost.add(bundle.gateway, bundle.address or bundle.host, reason, now)

    def exports_any(self, kind: Kind, pattern: str) -> bool | None:
        """Tell whether any gateway exports a name that the pattern matches; None before the first catalogue."""
        return any(offer.has_any(kind, pattern) for offer in self.offers.values()) if self.offers else None

    def usable(self, now: float) -> list[Bundle]:
        """Return the bundles for new work."""
        return [bundle for bundle in self.bundles.values() if bundle.is_usable(now)]

    def is_usable(self, now: float) -> bool:
        """Tell whether any bundle can get new work."""
        return any(bundle.is_usable(now) for bundle in self.bundles.values())

    def is_left(self, now: float) -> bool:
        """Tell whether bundles work, but no bundle can get new work: the gateways leave in order."""
        going = any(bundle.is_up and bundle.is_going and bundle.health.is_sound(now) for bundle in self.bundles.values())
        return going and not self.is_usable(now)

    def why_unusable(self) -> str:
        """Return the faults of all links and failed dials, for people."""
        bad = [f"{bundle.address or bundle.host} {_doubt(bundle)}" for bundle in self.bundles.values()]
        errors = {slot.address or slot.tried: slot.error for slot in self.dials.slots if slot.bundle is None and slot.error}
        bad += [f"{address}: {error}" for address, error in errors.items()]
        return "; ".join(bad) or ("it is being dialled" if self.dials.slots else "nobody there has dialled this gateway")

    def with_gateway(self, gateway: bytes) -> Iterator[Bundle]:
        """Return the bundles to one process of the neighbour."""
        return (bundle for bundle in self.bundles.values() if bundle.gateway == gateway)

    def choose(
        self, kind: int, name: str, allow: int, now: float, among: Container[Bundle] | None = None
    ) -> tuple[Bundle, CatalogueEntry] | None:
        """Choose the bundle for a new use: of two random bundles with a rule for the use, the one with the shorter wait.

        Args:
            allow: Bits of uses, of which the rule must allow at least one.
            among: The candidate bundles; None for all.

        Returns:
            The bundle and its catalogue's entry; None without an entry, even if :meth:`is_usable`.
        """
        ways = [
            (bundle, entry)
            for bundle, offer in self.offers.items()
            if (among is None or bundle in among)
            and bundle.is_usable(now)
            and (entry := offer.find(kind, name, allow)) is not None
        ]
        if len(ways) == 1:
            return ways[0]
        if len(ways) > 2:  # power of two choices (Mitzenmacher 2001)
            first = self._rng.randrange(len(ways))
            second = (first + 1 + self._rng.randrange(len(ways) - 1)) % len(ways)
            ways = [ways[first], ways[second]]
        return min(ways, key=lambda way: way[0].load(), default=None)

    def status(self, now: float) -> dict[str, Any]:
        """Return the state of the neighbour, as plain values."""
        trips = [bundle.health.round_trip_s for bundle in self.bundles.values() if bundle.health.round_trip_s is not None]
        return {
            "is_up": self.is_usable(now),
            "round_trip_s": min(trips, default=None),
            "accounts": self.accounts.snapshot(self.settings.price_per_gb),
            "catalogues_differ": len({offer.digest for offer in self.offers.values()}) > 1,
            "queue_bytes": sum(bundle.queued_bytes for bundle in self.bundles.values()),
            "lost": self.lost.status(now),
            "dials": [
                {
                    "address": slot.address or slot.tried,
                    "error": slot.error,
                    "is_up": slot.bundle is not None,
                    "failures": slot.failures,
                }
                for slot in self.dials.slots
            ],
            "bundles": [
                {
                    "gateway": bundle.gateway.hex(),
                    "address": bundle.address or bundle.host,
                    "is_dialled": bundle.is_initiator,
                    "name": bundle.name,
                    "zone": bundle.zone,
                    "connections": sum(link is not None and link.is_open for link in bundle.links),
                    "is_usable": bundle.is_usable(now),
                    "is_suspect": bundle.health.is_suspect,
                    "is_going": bundle.is_going,
                    "heard_s_ago": now - bundle.health.heard_at,
                    "round_trip_s": bundle.health.round_trip_s,
                    "requests_out": len(bundle.calls),
                    "requests_in": len(bundle.incoming),
                    "channels": len(bundle.channel_ends()),
                    "catalogue_digest": self.offers[bundle].digest if bundle in self.offers else "",
                    "catalogue": [] if bundle.catalogue is None else [entry.pattern for entry in bundle.catalogue.entries],
                }
                for bundle in self.bundles.values()
            ],
        }


def _doubt(bundle: Bundle) -> str:
    """Return why an unusable link gets no new work."""
    if bundle.is_going:
        return "leaves"
    if not bundle.is_up:
        return "has not sent its exports yet"
    return "is silent" if bundle.health.is_suspect else "was silent, and must answer for a while first"
