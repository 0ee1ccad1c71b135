"""One other cloud: the bundles to its gateways, what it lets this cloud use, and what this cloud lets it use."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from iris_py.federation.dials import Dials
from iris_py.federation.limits import Accounts, ByteLimits, RuleLimits
from iris_py.federation.lost import LostLines
from iris_py.federation.rules import USES_OF, RuleTable

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Sequence

    from iris_overlay.environment import Rng
    from iris_py.federation.bundle import Bundle
    from iris_py.federation.frames import Entry
    from iris_py.federation.rules import ExportRule, Kind, Offer
    from iris_py.federation.settings import CloudSettings

#: Rules of a neighbour whose limits are kept here: as many as its gateways together can have. Beyond, all begin anew.
IMPORT_LIMITS_MAX = 4096
#: Rules in catalogues that a neighbour may tell at once, and per second in the long run, over all its bundles; a pattern costs
#: some 0.1 ms. Too small: a cloud with many gateways and rules is shut out for a while after it has loaded its rules anew; too
#: large: one that tells them again and again takes a processor for as long.
CATALOGUE_BURST = 32_768
CATALOGUE_RULES_PER_S = 1024
#: Requests and channels for names that are not exported, which a neighbour may ask for at once, and per second in the long run,
#: over all its bundles; then its bundle ends. An honest gateway reads the catalogue and asks for such names only while a change
#: is on its way. Too small: a cloud is cut off when an export is removed under load; too large: a hostile neighbour tries
#: names, and costs a gateway its processor, for long.
REFUSALS_BURST = 4096
REFUSALS_PER_S = 64
#: Gateways of one cloud, and so bundles with it: beyond it further ones are turned away.
BUNDLES_MAX = 64


class _Allowance:
    """Actions that a neighbour may take in bursts, and at a steady rate in the long run.

    Args:
        burst: How many at once.
        per_s: How many per second in the long run.
        now: The time.
    """

    __slots__ = ("_at", "_burst", "_per_s", "_used")

    def __init__(self, burst: float, per_s: float, now: float) -> None:
        self._burst, self._per_s = burst, per_s
        self._used = 0.0
        self._at = now

    def take(self, count: float, now: float) -> bool:
        """Count some actions, if they are allowed now; returns whether they are."""
        passed_s, self._at = now - self._at, now
        self._used = max(0.0, self._used - passed_s * self._per_s)
        if self._used + count > self._burst:
            return False
        self._used += count
        return True


class Neighbour:
    """One other cloud.

    Args:
        alias: What we call it.
        settings: What the file says of it.
        bundles: How many bundles to have where this side dials.
        rng: The randomness of choices.
        now: The time.

    Attributes:
        bundles: Those with an authenticated connection 0, by id.
        offers: What each of them lets us use; of those that have said so.
        dials: The dials to it.
        was_usable: What was told last of :meth:`usable`.
        export_limits: Of each of our rules, by number.
        line_limits: Of all that passes.
        accounts: What has passed, by rule.
        lost: Lost lines that the neighbour had dialled.
        incoming: Its requests that run here.
    """

    def __init__(self, alias: str, settings: CloudSettings, bundles: int, rng: Rng, now: float) -> None:
        self.alias = alias
        self.settings = settings
        self.bundles: dict[bytes, Bundle] = {}
        self.offers: dict[Bundle, Offer] = {}
        self.was_usable: list[Bundle] = []
        self.export_limits: dict[int, RuleLimits] = {}
        self.line_limits = ByteLimits(settings.bytes_per_s, now)
        self.accounts = Accounts()
        self.lost = LostLines()
        self.incoming = 0
        self._import_limits: dict[tuple[int, str], RuleLimits] = {}
        self._rng = rng
        self._catalogues = _Allowance(CATALOGUE_BURST, CATALOGUE_RULES_PER_S, now)
        self._refusals = _Allowance(REFUSALS_BURST, REFUSALS_PER_S, now)
        self._exports: dict[int, ExportRule] = {}
        self._last_number = -1
        self._tables: dict[Kind, RuleTable[ExportRule]] = {}
        self.dials = Dials(settings.dial, bundles, rng, now)

    def change(self, settings: CloudSettings, bundles: int, now: float) -> None:
        """Take over what the file says anew; bundles that are there stay."""
        self.settings = settings
        self.line_limits.set_rate(settings.bytes_per_s, now)
        self.dials.change(settings.dial, bundles, now)

    def set_exports(self, rules: Sequence[ExportRule], now: float) -> None:
        """Use these rules for what it may use, from now on. Rules that stay keep their numbers, and what is counted.

        Numbers of rules that are gone are not given to others soon: what names one may be under way.
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
        """The rules for what it may use, with their numbers on the line."""
        return tuple(self._exports.values())

    def export_for(self, kind: Kind, name: str) -> ExportRule | None:
        """Return the rule that counts for a name outside: the most specific one, as here is now."""
        return self._tables[kind].find(name)

    def export_rule(self, number: int, name: str = "") -> ExportRule | None:
        """Return the rule by its number, if it is for this neighbour.

        Args:
            number: As the neighbour gives it.
            name: What it is to be used for, as that is outside. A neighbour must not choose another rule than the one that
                counts for the name, which may allow more. Empty if it is not for one name.
        """
        rule = self._exports.get(number)
        if rule is None or (name and self._tables[rule.kind].find(name) is not rule):
            return None
        return rule

    def limits_of(self, entry: Entry, now: float) -> RuleLimits:
        """Return the limits of a rule of the neighbour as its catalogue has them, which are those of all its gateways."""
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
        """Tell whether it may tell so many rules now."""
        return self._catalogues.take(rules, now)

    def admit_refusal(self, now: float) -> bool:
        """Tell whether it may ask once more for a name that is not exported to it."""
        return self._refusals.take(1, now)

    def note_offer(self, bundle: Bundle, offer: Offer) -> None:
        """One of its gateways has said what it lets us use."""
        self.offers[bundle] = offer
        self._import_limits.clear()

    def note_opened(self, bundle: Bundle) -> None:
        """Handle a new bundle: a lost line may be back."""
        is_new = all(other is bundle for other in self.with_gateway(bundle.gateway))
        self.lost.found(bundle.gateway, is_new=is_new)

    def note_ended(self, bundle: Bundle, reason: str, now: float) -> None:
        """A bundle has ended: it is missed if the other side dialled it, did not say that it leaves, and has no other one."""
        if not (bundle.is_initiator or bundle.is_going or any(self.with_gateway(bundle.gateway))):
            self.lost.add(bundle.gateway, bundle.address or bundle.host, reason, now)

    def exports_any(self, kind: Kind, pattern: str) -> bool | None:
        """Tell whether a gateway of it exports a name that a pattern matches; None while none has said anything."""
        return any(offer.has_any(kind, pattern) for offer in self.offers.values()) if self.offers else None

    def usable(self, now: float) -> list[Bundle]:
        """Return the bundles that new things may go over."""
        return [bundle for bundle in self.bundles.values() if bundle.is_usable(now)]

    def is_usable(self, now: float) -> bool:
        """Tell whether there is one."""
        return any(bundle.is_usable(now) for bundle in self.bundles.values())

    def why_unusable(self) -> str:
        """Return for people why no line is usable: the fault of each line, or of each failed dial."""
        bad = [f"{bundle.address or bundle.host} {_doubt(bundle)}" for bundle in self.bundles.values()]
        errors = {slot.address or slot.tried: slot.error for slot in self.dials.slots if slot.bundle is None and slot.error}
        bad += [f"{address}: {error}" for address, error in errors.items()]
        return "; ".join(bad) or ("it is being dialled" if self.dials.slots else "nobody there has dialled this gateway")

    def with_gateway(self, gateway: bytes) -> Iterator[Bundle]:
        """Return the bundles to one process of it."""
        return (bundle for bundle in self.bundles.values() if bundle.gateway == gateway)

    def choose(
        self, kind: int, name: str, allow: int, now: float, among: Container[Bundle] | None = None
    ) -> tuple[Bundle, Entry] | None:
        """Choose the way for a new use: of two random ways that have a rule for it, the one with the shorter wait.

        Args:
            kind: Of the rule.
            name: As it is exported.
            allow: Bits of which the rule has one.
            now: The time.
            among: The bundles that come into question; None for all.

        Returns:
            The bundle and the rule of its catalogue; None if there is none, whatever :meth:`is_usable` says.
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
        """Return its state, as plain values."""
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
    """Return why an unusable line gets nothing new."""
    if bundle.is_going:
        return "leaves"
    if not bundle.is_up:
        return "has not said yet what it exports"
    return "is silent" if bundle.health.is_suspect else "was silent, and has to prove itself"
