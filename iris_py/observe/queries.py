"""Questions about a node, and its answers: what travels, and what the asker makes of it (docs/observe.md).

A question names parts of the :class:`~iris_py.observe.statistics.Statistics` of a node. The answer is a page of at most
``PAGE_BYTES``, and says where the next one begins. It leaves out whatever has its default, which is most of a tree of counters,
and so a page has some 60 clusters. Parts and fields that a version does not know are ignored on both sides.

The desk of a node: it answers questions about the node, as far as its settings allow, and not too many of them.

All askers share one snapshot of the numbers, which is taken at most four times a second; events are those of the moment. So
a node pays for a flood of questions no more than ``ANSWERS_PER_S_MAX`` pages, and a refusal each for the rest.
"""

from __future__ import annotations

from functools import cache, partial
from math import inf
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from iris_py.observe.counts import count_in
from iris_py.observe.departures import Departure
from iris_py.observe.journal import EventRecord
from iris_py.observe.statistics import QuestionStatistics, Statistics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from iris_py.observe.journal import Journal

#: One answer, before it is sealed. Too small: a node with many clusters is asked many times; too large: answers hold up what
#: comes behind them on the links of the ring.
PAGE_BYTES: Final = 16 * 1024
#: Pages of one node that an asker takes: half of what a node with 2,048 clusters and as many topics may have to say. Beyond it
#: the rest is left out, and said to be.
PAGES_MAX: Final = 64
#: Parts in one question. There are fewer.
PARTS_MAX: Final = 16
#: Of the name of a part, or of a cluster.
NAME_MAX: Final = 255
#: Of what stands in an answer at the side of its payload.
_HEAD_BYTES: Final = 128

#: The parts that are maps from names, and those that are lists: they are cut where a page is full. Others are whole.
_MAPS: Final = ("clusters", "topics", "far_requests")
_LISTS: Final = ("subscriptions", "peers", "events", "departures")
#: The parts that are one struct.
_WHOLE: Final = ("counts", "tunnels", "links", "overlay", "security", "questions", "process", "histograms")
#: Every part that can be asked for. ``counts`` are the numbers that stand in ``Statistics`` itself, ``peers`` are
#: ``links.each``, ``events`` what the journal keeps, and ``departures`` the nodes that have left or died.
PARTS: Final = (*_WHOLE, *_MAPS, *_LISTS)
#: The parts that name no cluster, topic or peer: what a node tells whose setting is ``observe = "counts"``.
NAMELESS_PARTS: Final = _WHOLE

_Name: TypeAlias = Annotated[str, Meta(max_length=NAME_MAX)]
_Version: TypeAlias = Annotated[int, Meta(ge=0, le=255)]


class Question(msgspec.Struct, frozen=True, array_like=True):
    """Ask a node for some of its statistics."""

    parts: Annotated[tuple[_Name, ...], Meta(max_length=PARTS_MAX)] = ()
    """Which, see ``PARTS``; none for a mere sign of life."""
    cluster: _Name = ""
    """The only cluster that is of interest; empty for all. ``#`` and a group id in hexadecimal digits name one whose name is
    not told."""
    after_part: _Name = ""
    """The part in which the page before ended; empty for the first page."""
    after_key: _Name = ""
    """The name or number of the last thing that it had of that part."""
    since: int = 0
    """The number of the last event that the asker knows."""


class About(msgspec.Struct, frozen=True):
    """A node, as it is in each of its answers."""

    version: Annotated[str, Meta(max_length=64)] = ""
    """The version of Iris that it runs, with the commit as its local part where that is known."""
    unix_s: float = 0.0
    """Its clock: seconds since 1970."""
    uptime_s: float = 0.0
    """How long ago it was started, in seconds."""
    links: int = 0
    """Links that are open now."""
    clusters: int = 0
    """Clusters that it serves now."""
    subscriptions: int = 0
    """Subscriptions that are open now."""
    network_size: int = 1
    """About how many nodes the network has, as it sees that."""
    now_s: float = 0.0
    """How long ago it was started when it answered, in seconds; ``uptime_s`` is that of its numbers, which may be older."""
    last_event: int = 0
    """The number of its last event; 0 before the first, and if it does not say."""
    name: Annotated[str, Meta(max_length=64, pattern=r"\A[ -~]*\Z")] = ""
    """Its name; empty if it tells none. A label: any node can take any name."""
    link_versions: tuple[_Version, _Version] = (0, 0)
    """The oldest and the newest version of links that it speaks; zeros if it does not say."""


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """Tell some of what was asked: one page."""

    refused: _Name = ""
    """Why it is not told: ``busy`` or ``closed``; empty if it is."""
    about: About = About()
    """The node."""
    parts: Annotated[dict[_Name, Any], Meta(max_length=PARTS_MAX)] = {}
    """Of each part that was asked for and has begun: the fields, names or elements that fit, without those that have their
    defaults."""
    next_part: _Name = ""
    """The part in which the next page begins; empty if this is the last one."""
    next_key: _Name = ""
    """The last thing of that part that has been told."""
    left_out: int = 0
    """Things that are too large for any page."""


_ENCODER: Final = msgspec.msgpack.Encoder()
_QUESTIONS: Final = msgspec.msgpack.Decoder(Question)
_ANSWERS: Final = msgspec.msgpack.Decoder(Answer)
#: The decoder lets through what Python raises for bad UTF-8 and for deep nesting, too.
_DECODE_ERRORS: Final = (msgspec.MsgspecError, ValueError, RecursionError)


def encode_question(question: Question) -> bytes:
    """Write a question."""
    return _ENCODER.encode(question)


def decode_question(data: bytes) -> Question | None:
    """Read a question; None if it is none."""
    try:
        return _QUESTIONS.decode(data)
    except _DECODE_ERRORS:
        return None


def encode_answer(answer: Answer) -> bytes:
    """Write an answer."""
    return _ENCODER.encode(answer)


def decode_answer(data: bytes) -> Answer | None:
    """Read an answer; None if it is none."""
    if len(data) > PAGE_BYTES:
        return None
    try:
        return _ANSWERS.decode(data)
    except _DECODE_ERRORS:
        return None


def lean(value: object) -> object:
    """Return a tree of structs as maps and lists, without the fields that have their defaults."""
    if isinstance(value, msgspec.Struct):
        fields = ((name, default, getattr(value, name)) for name, default in _defaults(type(value)))
        return {name: lean(found) for name, default, found in fields if found != default}
    if isinstance(value, dict):
        return {key: lean(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [lean(each) for each in value]
    return value


def _lean_event(event: EventRecord) -> dict[str, object]:
    """Return the same as ``lean`` of an event, in a third of the time: they come by the hundred."""
    return {name: found for name, default in _defaults(EventRecord) if (found := getattr(event, name)) != default}


@cache
def _defaults(kind: type[msgspec.Struct]) -> list[tuple[str, object]]:
    found = []
    for field in msgspec.structs.fields(kind):
        default = field.default
        if default is msgspec.NODEFAULT and field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        found.append((field.name, default))
    return found


def take_page(
    question: Question,
    statistics: Statistics,
    about: About,
    events: Sequence[EventRecord] = (),
    departures: Sequence[Departure] = (),
) -> Answer:
    """Return one page of what a node has to say.

    Args:
        question: What was asked, of parts that may be told.
        statistics: The numbers of the node, with the names that may be told.
        about: The node.
        events: Those that were asked for with this page, the oldest first, as they may be told.
        departures: The nodes that have left or died, the oldest first.
    """
    parts: dict[str, Any] = {}
    room = PAGE_BYTES - _HEAD_BYTES - len(_ENCODER.encode(about))
    known = [part for part in dict.fromkeys(question.parts) if part in PARTS]
    if question.after_part in known:
        known = known[known.index(question.after_part) :]
    left_out = 0
    for part in known:
        after = question.after_key if part == question.after_part else ""
        told: dict[str, Any] | list[Any] = [] if part in _LISTS else {}
        last = after
        for key, make in _things(part, question, statistics, (events, departures), after):
            data = _ENCODER.encode(make())
            size = len(data) + len(key.encode()) + 5
            if size > PAGE_BYTES // 2:  # Nobody has such a thing, or it is a mistake: what is behind it counts as much.
                left_out += 1
                last = key
                continue
            if size > room:
                if told:
                    parts[part] = told
                return Answer("", about, parts, part, last, left_out)
            room -= size
            last = key
            if isinstance(told, list):
                told.append(msgspec.Raw(data))
            else:
                told[key] = msgspec.Raw(data)
        parts[part] = told
        room -= len(part) + 5
    return Answer("", about, parts, left_out=left_out)


def events_after(question: Question) -> int | None:
    """Return the number of the event after which a page begins; None if it has no events."""
    if "events" not in question.parts:
        return None
    after = question.after_key if question.after_part == "events" else ""
    return max(question.since, int(after) if after.isdecimal() else 0)


def _things(
    part: str,
    question: Question,
    statistics: Statistics,
    kept: tuple[Sequence[EventRecord], Sequence[Departure]],
    after: str,
) -> Iterator[tuple[str, Callable[[], object]]]:
    """Return the keys of the things of a part behind one, and what makes each: only what fits is made."""
    if part in _MAPS:
        named: dict[str, Any] = getattr(statistics, part)
        if part == "clusters" and question.cluster:
            named = {name: each for name, each in named.items() if name == question.cluster}
        for name in sorted(name for name in named if name > after):
            yield name, partial(lean, named[name])
    elif part == "events":
        for event in kept[0]:
            yield str(event.number), partial(_lean_event, event)
    elif part in _LISTS:
        listed: Sequence[Any] = statistics.subscriptions
        if part != "subscriptions":
            listed = statistics.links.each if part == "peers" else kept[1]
        first = int(after) + 1 if after.isdecimal() else 0
        for index, each in enumerate(listed[first:], first):
            yield str(index), partial(lean, each)
    else:
        whole: msgspec.Struct = statistics if part == "counts" else getattr(statistics, part)
        names = [name for name, default in _defaults(type(whole)) if getattr(whole, name) != default]
        if part == "counts":
            names = [name for name in names if name in _COUNTS]
        elif part == "links":
            names = [name for name in names if name != "each"]
        for name in sorted(name for name in names if name > after):
            yield name, partial(lean, getattr(whole, name))


#: The fields of ``Statistics`` itself that are no parts.
_COUNTS: Final = frozenset(Statistics.__struct_fields__) - {*PARTS}


class Pages:
    """The answers of one node, page by page.

    Attributes:
        about: The node, as the last page has it.
        left_out: Things that were left out: too large for a page, or behind the last page that is taken.
        taken: How many pages were taken.
        is_complete: Whether there is no other page to ask for.
    """

    def __init__(self, question: Question) -> None:
        self.about = About()
        self.left_out = 0
        self.taken = 0
        self.is_complete = False
        self._question = question
        self._parts: dict[str, Any] = {}

    @property
    def question(self) -> Question:
        """The question for the next page."""
        return self._question

    def take(self, answer: Answer) -> None:
        """Take a page."""
        self.about = answer.about
        self.left_out += max(0, min(answer.left_out, 1 << 32))
        self.taken += 1
        for name, told in answer.parts.items():
            if name in _LISTS:
                if isinstance(told, list):
                    self._parts.setdefault(name, []).extend(told)
            elif isinstance(told, dict):
                self._parts.setdefault(name, {}).update(told)
        self.is_complete = not answer.next_part or self.taken >= PAGES_MAX
        if answer.next_part and self.is_complete:
            self.left_out += 1
        self._question = msgspec.structs.replace(
            self._question, after_part=answer.next_part[:NAME_MAX], after_key=answer.next_key[:NAME_MAX]
        )

    def statistics(self) -> Statistics | None:
        """Return the numbers of the node; None if the answer is malformed. Parts that nobody asked for have their defaults."""
        parts = dict(self._parts)
        for name in ("events", "departures"):
            parts.pop(name, None)
        counts, links, peers = parts.pop("counts", {}), parts.pop("links", {}), parts.pop("peers", [])
        return _convert({**counts, **parts, "links": {**links, "each": peers}}, Statistics)

    def departures(self) -> tuple[Departure, ...] | None:
        """Return the nodes that have left or died, as the node has seen it; None if the answer is malformed."""
        return _convert(self._parts.get("departures", []), tuple[Departure, ...])

    def tells(self, part: str) -> bool:
        """Whether the node has told of a part: it need not know it, or may keep it to itself."""
        return part in self._parts

    def events(self) -> tuple[EventRecord, ...] | None:
        """Return the events of the node; None if the answer is malformed."""
        return _convert(self._parts.get("events", []), tuple[EventRecord, ...])


_T = TypeVar("_T")


def _convert(value: object, kind: type[_T]) -> _T | None:
    try:
        return msgspec.convert(value, kind)
    except _DECODE_ERRORS:
        return None


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
