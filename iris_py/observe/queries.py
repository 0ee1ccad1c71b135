"""Questions about a node, and their answers: wire format, answering side, and asking side (docs/observe.md).

A question names parts of the :class:`~iris_py.observe.statistics.Statistics` of a node. An answer is a page of at most
``PAGE_BYTES``, and names the beginning of the next page. Fields with their defaults, most of a tree of counters, are left out,
so a page has some 60 clusters. Both sides ignore unknown parts and fields.

The desk of a node answers questions within its settings and a rate limit. All askers share a snapshot of the statistics, taken
at most four times a second; events are current. So a flood of questions costs a node at most ``ANSWERS_PER_S_MAX`` pages a
second, and a refusal for each further question.
"""

from __future__ import annotations

from functools import cache, partial
from math import inf
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from iris_py.observe.counts import count_in
from iris_py.observe.departures import Departure
from iris_py.observe.journal import EventRecord
from iris_py.observe.statistics import QuestionStatistics, Statistics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from iris_py.observe.journal import Journal, Observe

#: Size of one answer, before encryption. Too small: a node with many clusters is asked many times; too large: answers delay
#: other messages on the links of the ring.
PAGE_BYTES: Final = 16 * 1024
#: Pages that an asking node takes from another: half of the most for a node with 2,048 clusters and as many topics. The rest is
#: reported as left out.
PAGES_MAX: Final = 64
#: Largest number of parts in one question, and in an answer. Too small: a node does not answer a newer one, which knows more
#: parts and asks for all of them; too large: a question of 255 bytes for each part takes the place of other messages.
PARTS_MAX: Final = 32
#: Longest name of a part or cluster.
NAME_MAX: Final = 255
#: Bytes of an answer besides its parts.
_HEAD_BYTES: Final = 128

#: The parts that are maps from names, and the parts that are lists. Both may continue on the next page; other parts are whole.
_MAPS: Final = ("clusters", "topics", "shares", "far_requests")
_LISTS: Final = ("subscriptions", "peers", "events", "departures")
#: The parts that are a single struct.
_WHOLE: Final = ("counts", "interest", "tunnels", "links", "overlay", "security", "questions", "process", "histograms")
#: The names of all parts. ``counts`` are the numbers in ``Statistics`` itself, ``peers`` are ``links.each``, ``events`` are the
#: journal's, and ``departures`` the nodes that left or died.
PARTS: Final = (*_WHOLE, *_MAPS, *_LISTS)
#: The parts without names of clusters, topics, groups and peers: the answers of a node with ``observe = "counts"``.
NAMELESS_PARTS: Final = _WHOLE

_Name: TypeAlias = Annotated[str, Meta(max_length=NAME_MAX)]
_Version: TypeAlias = Annotated[int, Meta(ge=0, le=255)]


class NodeQuestion(msgspec.Struct, frozen=True, array_like=True):
    """A question for some statistics of a node."""

    parts: Annotated[tuple[_Name, ...], Meta(max_length=PARTS_MAX)] = ()
    """The parts, see ``PARTS``; none to ask only for :class:`About`."""
    cluster: _Name = ""
    """The only cluster of interest; empty for all. ``#`` and a group id in hexadecimal digits stand for a cluster with a hidden
    name.
    """
    after_part: _Name = ""
    """The last part of the page before; empty for the first page."""
    after_key: _Name = ""
    """The name or number of the last element of that part."""
    since: int = 0
    """The number of the last event known to the asking node."""


class About(msgspec.Struct, frozen=True):
    """The description of a node, part of every answer."""

    version: Annotated[str, Meta(max_length=64)] = ""
    """The version of Iris, with the commit as its local part if known."""
    unix_s: float = 0.0
    """The clock of the node: seconds since 1970."""
    uptime_s: float = 0.0
    """The age of the node at the snapshot, in seconds."""
    links: int = 0
    """Open links now."""
    clusters: int = 0
    """Served clusters now."""
    subscriptions: int = 0
    """Open subscriptions now."""
    network_size: int = 1
    """The approximate number of nodes in the network, as estimated by this node."""
    now_s: float = 0.0
    """The age of the node at the answer, in seconds; the snapshot of ``uptime_s`` may be older."""
    last_event: int = 0
    """The number of the last event; 0 before the first, or if not disclosed."""
    name: Annotated[str, Meta(max_length=64, pattern=r"\A[ -~]*\Z")] = ""
    """The label of the node; empty for none. Any node can take any label."""
    link_versions: tuple[_Version, _Version] = (0, 0)
    """The oldest and the newest link version of the node; zeros if unknown."""
    topic_version: _Version = 1
    """The version of the node's topics: nodes of different versions do not receive each other's publications. 1, of nodes that
    tell none, if unknown."""


class AnswerPage(msgspec.Struct, frozen=True, array_like=True):
    """One page of an answer."""

    refused: _Name = ""
    """The reason for a refusal: ``busy`` or ``closed``; empty for an answer."""
    about: About = About()
    """The node."""
    parts: Annotated[dict[_Name, Any], Meta(max_length=PARTS_MAX)] = {}
    """The parts in the page: fields, names or elements, without default values."""
    next_part: _Name = ""
    """The part in which the next page begins; empty for the last page."""
    next_key: _Name = ""
    """The last element of the part in this page."""
    left_out: int = 0
    """Elements too large for any page."""


_ENCODER: Final = msgspec.msgpack.Encoder()
_QUESTIONS: Final = msgspec.msgpack.Decoder(NodeQuestion)
_ANSWERS: Final = msgspec.msgpack.Decoder(AnswerPage)
#: Errors of a malformed message. The decoder also lets through Python's errors for bad UTF-8 and for deep nesting.
_DECODE_ERRORS: Final = (msgspec.MsgspecError, ValueError, RecursionError)


def encode_question(question: NodeQuestion) -> bytes:
    """Encode a question."""
    return _ENCODER.encode(question)


def decode_question(data: bytes) -> NodeQuestion | None:
    """Decode a question; None if malformed."""
    try:
        return _QUESTIONS.decode(data)
    except _DECODE_ERRORS:
        return None


def encode_answer(answer: AnswerPage) -> bytes:
    """Encode an answer."""
    return _ENCODER.encode(answer)


def decode_answer(data: bytes) -> AnswerPage | None:
    """Decode an answer; None if malformed."""
    if len(data) > PAGE_BYTES:
        return None
    try:
        return _ANSWERS.decode(data)
    except _DECODE_ERRORS:
        return None


def lean(value: object) -> object:
    """Convert a tree of structs to maps and lists, without the fields that have their defaults."""
    if isinstance(value, msgspec.Struct):
        fields = ((name, default, getattr(value, name)) for name, default in _defaults(type(value)))
        return {name: lean(found) for name, default, found in fields if found != default}
    if isinstance(value, dict):
        return {key: lean(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [lean(each) for each in value]
    return value


def _lean_event(event: EventRecord) -> dict[str, object]:
    """Convert an event as :func:`lean` does, in a third of the time, because events come by the hundred."""
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
    question: NodeQuestion,
    statistics: Statistics,
    about: About,
    events: Sequence[EventRecord] = (),
    departures: Sequence[Departure] = (),
) -> AnswerPage:
    """Return the page of a node's answer at which the question asks to continue, by default the first.

    Args:
        question: The question, with permitted parts only.
        statistics: The statistics of the node, with permitted names only.
        about: The node.
        events: The requested events in the form for other nodes, the oldest first.
        departures: The nodes that left or died, the oldest first.
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
            if size > PAGE_BYTES // 2:  # No real element is this large, and the following ones count as much.
                left_out += 1
                last = key
                continue
            if size > room:
                if told:
                    parts[part] = told
                return AnswerPage("", about, parts, part, last, left_out)
            room -= size
            last = key
            if isinstance(told, list):
                told.append(msgspec.Raw(data))
            else:
                told[key] = msgspec.Raw(data)
        parts[part] = told
        room -= len(part) + 5
    return AnswerPage("", about, parts, left_out=left_out)


def events_after(question: NodeQuestion) -> int | None:
    """Return the number of the last event before the page in question; None if the question wants no events."""
    if "events" not in question.parts:
        return None
    after = question.after_key if question.after_part == "events" else ""
    return max(question.since, int(after) if after.isdecimal() else 0)


def _things(
    part: str,
    question: NodeQuestion,
    statistics: Statistics,
    kept: tuple[Sequence[EventRecord], Sequence[Departure]],
    after: str,
) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the key of each element of a part behind ``after``, with a function that makes the element.

    The caller makes only the elements that fit on the page.
    """
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


#: The fields of ``Statistics`` that belong to the part ``counts``.
_COUNTS: Final = frozenset(Statistics.__struct_fields__) - {*PARTS}


class Pages:
    """Joins the pages of one node's answer, on the asking side.

    Attributes:
        about: The node, from the last page.
        left_out: Elements left out: too large for a page, or after the last page taken.
        taken: The number of pages taken.
        is_complete: Whether no page is left to ask for.
    """

    def __init__(self, question: NodeQuestion) -> None:
        self.about = About()
        self.left_out = 0
        self.taken = 0
        self.is_complete = False
        self._question = question
        self._parts: dict[str, Any] = {}

    @property
    def question(self) -> NodeQuestion:
        """The question for the next page."""
        return self._question

    def take(self, answer: AnswerPage) -> None:
        """Add the node's next page."""
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
        """Return the statistics in the answer; None if malformed. Parts not asked for have defaults."""
        parts = dict(self._parts)
        for name in ("events", "departures"):
            parts.pop(name, None)
        counts, links, peers = parts.pop("counts", {}), parts.pop("links", {}), parts.pop("peers", [])
        return _convert({**counts, **parts, "links": {**links, "each": peers}}, Statistics)

    def departures(self) -> tuple[Departure, ...] | None:
        """Return the departures (nodes that left or died) in the answer; None if malformed."""
        return _convert(self._parts.get("departures", []), tuple[Departure, ...])

    def tells(self, part: str) -> bool:
        """Tell whether the answer has a part. The node may not know the part, or may hide it."""
        return part in self._parts

    def events(self) -> tuple[EventRecord, ...] | None:
        """Return the events in the answer; None if malformed."""
        return _convert(self._parts.get("events", []), tuple[EventRecord, ...])


_T = TypeVar("_T")


def _convert(value: object, kind: type[_T]) -> _T | None:
    try:
        return msgspec.convert(value, kind)
    except _DECODE_ERRORS:
        return None


#: Answers within a second; further questions are refused, and counted. Too small: several operators hinder each other. Too
#: large: an endless asker costs a node more than 1 % of a core, at half a millisecond each.
ANSWERS_PER_S_MAX: Final = 20
#: Time for which a snapshot of the statistics answers all questions (seconds). Too small: each asking node costs a snapshot,
#: some 0.4 ms; too large: rates between two answers are of different times than stated.
SNAPSHOT_S: Final = 0.25

#: Reasons for refusals.
BUSY: Final = "busy"
CLOSED: Final = "closed"


class Desk:
    """Answers other nodes' questions about this node, within its settings and a rate limit.

    Args:
        observe: The node's setting ``observe``.
        take_statistics: Takes the statistics of the node.
        journal: The events of the node.
        hide: Returns the name of a cluster for answers: the name itself, or a replacement if it is secret.
        version: The version of Iris.
        link_versions: The oldest and the newest link version of the node.
        name: The label of the node; empty for none.
        topic_version: The version of the node's topics.

    Attributes:
        answered: The number of answered questions.
        refused: The number of refused questions, by reason.
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
        topic_version: int = 1,
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
        self._topic_version = topic_version
        self._statistics = Statistics()
        self._taken_at = -inf
        self._second_began = -inf
        self._answered_then = 0

    def statistics(self) -> QuestionStatistics:
        """Return how many questions were answered and refused."""
        return QuestionStatistics(answered=self.answered, refused=dict(self.refused))

    def answer(self, data: bytes, now: float, unix_s: float) -> bytes | None:
        """Answer an encoded question; return None if the question is malformed.

        Args:
            data: The question.
            now: The monotonic time (seconds).
            unix_s: The same time as seconds since 1970.
        """
        question = decode_question(data)
        if question is None:
            return None
        refusal = self._refusal(now)
        if refusal:
            count_in(self.refused, refusal)
            return encode_answer(AnswerPage(refusal))
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
            topic_version=self._topic_version,
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
