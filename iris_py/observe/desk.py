"""The desk of a node: it answers questions about the node, as far as its settings allow, and not too many of them.

All askers share one snapshot of the numbers, which is taken at most four times a second; events are those of the moment. So
a node pays for a flood of questions no more than ``ANSWERS_PER_S_MAX`` pages, and a refusal each for the rest.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from iris_py.observe.answers import (
    NAMELESS_PARTS,
    About,
    Answer,
    decode_question,
    encode_answer,
    events_after,
    take_page,
)
from iris_py.observe.counts import count_in
from iris_py.observe.statistics import QuestionStatistics, Statistics

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_py.observe.journal import Journal

#: What a node tells others of itself: everything; numbers without the names of clusters, topics and peers; nothing.
Observe: TypeAlias = Literal["all", "counts", "none"]

#: Answers within a second; further questions are refused, and counted. Too small: several who look at a network at once hinder
#: each other. Too large: whoever asks without end costs a node more than 1 % of a core, at half a millisecond each.
ANSWERS_PER_S_MAX: Final = 20
#: How long a snapshot is good for (seconds). Too small: each asker costs one, of some 0.4 ms; too large: rates that are
#: reckoned from two answers are of another time than they say.
SNAPSHOT_S: Final = 0.25

#: Why a question is refused.
BUSY: Final = "busy"
CLOSED: Final = "closed"


class Desk:
    """Answers questions about one node.

    Args:
        observe: What may be told.
        take_statistics: Takes the numbers of the node.
        journal: Has its events.
        hide: Returns what to call a cluster: its name, or what stands for it if that is not to be told.
        version: The version of Iris.
        link_versions: The oldest and the newest version of links that the node speaks.
        name: What the node calls itself; empty to tell nobody.

    Attributes:
        answered: Questions that were answered.
        refused: Questions that were not, by reason.
    """

    def __init__(
        self,
        observe: Observe,
        take_statistics: Callable[[], Statistics],
        journal: Journal,
        hide: Callable[[str], str],
        version: str,
        link_versions: tuple[int, int] = (0, 0),
        name: str = "",
    ) -> None:
        self.answered = 0
        self.refused: dict[str, int] = {}
        self._observe = observe
        self._take_statistics = take_statistics
        self._journal = journal
        self._hide = hide
        self._version = version
        self._link_versions = link_versions
        self._name = name
        self._statistics = Statistics()
        self._taken_at = -inf
        self._second_began = -inf
        self._answered_then = 0

    def statistics(self) -> QuestionStatistics:
        """Return how many questions there were."""
        return QuestionStatistics(answered=self.answered, refused=dict(self.refused))

    def answer(self, data: bytes, now: float, unix_s: float) -> bytes | None:
        """Answer a question; None if it is none.

        Args:
            data: The question.
            now: The time.
            unix_s: The same as seconds since 1970.
        """
        question = decode_question(data)
        if question is None:
            return None
        refusal = self._refusal(now)
        if refusal:
            count_in(self.refused, refusal)
            return encode_answer(Answer(refusal))
        self.answered += 1
        self._answered_then += 1
        statistics = self._snapshot(now)
        if self._observe == "counts":
            question = msgspec.structs.replace(question, parts=tuple(part for part in question.parts if part in NAMELESS_PARTS))
        about = About(
            version=self._version,
            unix_s=unix_s,
            uptime_s=statistics.uptime_s,
            links=statistics.links.open,
            clusters=sum(each.service is not None and each.service.handlers > 0 for each in statistics.clusters.values()),
            subscriptions=len(statistics.subscriptions),
            network_size=statistics.overlay.size_estimate,
            now_s=now - self._journal.started_at,
            last_event=self._journal.last,
            name=self._name,
            link_versions=self._link_versions,
        )
        after = events_after(question)
        events = () if after is None else self._journal.told_since(after)
        return encode_answer(take_page(question, statistics, about, events, self._journal.departures.all()))

    def _refusal(self, now: float) -> str:
        if self._observe == "none":
            return CLOSED
        if now - self._second_began >= 1.0:
            self._second_began, self._answered_then = now, 0
        return BUSY if self._answered_then >= ANSWERS_PER_S_MAX else ""

    def _snapshot(self, now: float) -> Statistics:
        if now - self._taken_at >= SNAPSHOT_S:
            taken = self._take_statistics()
            clusters = {self._hide(name): each for name, each in taken.clusters.items()}
            self._statistics = msgspec.structs.replace(taken, clusters=clusters)
            self._taken_at = now
        return self._statistics
