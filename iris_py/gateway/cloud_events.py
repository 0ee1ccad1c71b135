"""The federation's events in the journal of a gateway's node, for `iris monitor` and `iris top`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_py.federation.events import BundleChanged, CloudChanged, OffersChanged

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from iris_py.federation.bundle import Bundle
    from iris_py.federation.events import FederationEvent
    from iris_py.federation.neighbour import Neighbour
    from iris_py.observe.journal import Journal

__all__ = ["CloudEvents"]


class CloudEvents:
    """Notes cloud links, clouds and catalogues in the journal of a node.

    Args:
        neighbours: The other clouds by alias; the owner changes the mapping.
        clock: Returns the time of the node.
    """

    def __init__(self, journal: Journal, neighbours: Mapping[str, Neighbour], clock: Callable[[], float]) -> None:
        self._journal = journal
        self._neighbours = neighbours
        self._clock = clock
        self._versions: dict[Bundle, int] = {}  # of the catalogues noted, or known at the opening

    def handle(self, event: FederationEvent) -> None:
        """Note an event of the federation core, if relevant."""
        self._journal.now = self._clock()
        if isinstance(event, CloudChanged):
            kind = "cloud_up" if event.is_usable else "cloud_down"
            self._journal.note(kind, name=event.alias, detail=event.reason)
        elif isinstance(event, BundleChanged):
            bundle = event.bundle
            address = bundle.address or bundle.host
            if event.reason:
                self._versions.pop(bundle, None)
                self._journal.note("line_lost", address, name=bundle.alias, detail=f"{address}: {event.reason}")
            else:
                self._journal.note("line_opened", address, name=bundle.alias, detail=address)
        elif isinstance(event, OffersChanged):
            self._note_catalogues(event.alias)

    def _note_catalogues(self, alias: str) -> None:
        neighbour = self._neighbours.get(alias)
        for bundle, offer in ({} if neighbour is None else neighbour.offers).items():
            before = self._versions.get(bundle)
            self._versions[bundle] = offer.version
            if before is not None and before != offer.version:
                address = bundle.address or bundle.host
                count = len(offer.entries)
                detail = f"{address}: version {offer.version}, {count} rule{'s' * (count != 1)}"
                self._journal.note("catalogue_changed", address, name=alias, detail=detail)
