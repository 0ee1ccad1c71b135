"""The operations of clients on clusters and topics: requests, broadcasts, surveys and publications.

An operation checks the name, then the rights of the client, and then calls the node. Its errors become problems in
:mod:`iris_py.servers.web.app`.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Literal, TypeVar

import msgspec
from msgspec import UNSET, UnsetType
from starlette.responses import Response, StreamingResponse

from iris_py.defaults import REQUEST_TIMEOUT_S, SURVEY_TIMEOUT_S
from iris_py.doors.problems import DoorRefusal, Problem, problem_of
from iris_py.doors.web.event_router import StreamOptions
from iris_py.doors.web.event_text import EventForm
from iris_py.doors.web.payload_text import PAYLOAD_FORMS, PayloadForm, payload_text, single_line
from iris_py.doors.web.window import WINDOW_POLICIES
from iris_py.errors import IrisError
from iris_py.patterns.topic.names import parse_pattern, parse_topic
from iris_py.servers.web.event_response import EventResponse
from iris_py.wire.names import CLOUD_MARK, check_own_name
from iris_security.keyring import encode_name

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from iris_py.api.node import Node
    from iris_py.api.options import OnFull, RequestOptions
    from iris_py.api.survey import Survey, SurveyReply
    from iris_py.doors.grant_uses import GrantUseTable
    from iris_py.doors.rights import ClusterUse, Grant
    from iris_py.doors.web.event_text import EventFormat
    from iris_py.servers.web.call import ClientCall
    from iris_py.servers.web.topic_streams import TopicStreams

__all__ = [
    "Operations",
    "PublishedMessages",
    "Sent",
    "SurveyAnswerLine",
    "SurveyProblemLine",
    "SurveySummaryLine",
    "json_response",
]

Choice = TypeVar("Choice", bound=str)

#: Lines of one request that publishes many messages. Too small: a shell loop pays for a connection often; too large: a client
#: holds the memory of the door.
LINES_MAX: Final = 10_000
#: Bytes of a key of idempotence, with the subject before it.
KEY_BYTES_MAX: Final = 200
NDJSON: Final = "application/x-ndjson"
_BYTES: Final = "application/octet-stream"


class Sent(msgspec.Struct, frozen=True):
    """The answer to a broadcast."""

    members: int
    """Number of members that the message was sent to."""


class PublishedMessages(msgspec.Struct, frozen=True):
    """The answer to a publication."""

    nodes: int
    """Number of nodes that the message, or the last one of many, was sent to."""
    messages: int = 1
    """Number of messages."""


class SurveyAnswerLine(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="reply"):
    """The reply of a member to a survey. The payload has one of three forms."""

    json: msgspec.Raw | UnsetType = UNSET
    text: str | UnsetType = UNSET
    base64: str | UnsetType = UNSET


class SurveySummaryLine(msgspec.Struct, frozen=True, tag_field="kind", tag="summary"):
    """The last line of a survey: the members without a reply."""

    members: int
    """Number of members asked."""
    replies: int
    """Number of replies."""
    missing: int
    """Members without an answer in time."""
    failed: int
    """Members whose handler failed."""
    rejected: int
    """Members that were full; their handlers surely did not run."""
    declined: int
    """Members whose handler has nothing to say."""
    dropped: int
    """Replies dropped here, because too many waited."""


class SurveyProblemLine(msgspec.Struct, frozen=True, tag_field="kind", tag="problem"):
    """The last line of a survey that failed after its first reply."""

    problem: Problem


def json_response(value: object, status: int = 200, media_type: str = "application/json") -> Response:
    """Return a struct as an answer."""
    return Response(msgspec.json.encode(value), status, media_type=media_type)


class Operations:
    """Runs the operations of clients on a node.

    Args:
        node: The node of the door.
        streams: The event streams of the door.
        uses: The open uses of grants.
    """

    def __init__(self, node: Node, streams: TopicStreams, uses: GrantUseTable) -> None:
        self._node = node
        self._streams = streams
        self._uses = uses

    async def request(self, call: ClientCall) -> Response:
        """Send a request to a member of a cluster; the answer is the reply."""
        _check_cluster(call, "request")
        timeout = call.timeout_s(REQUEST_TIMEOUT_S)
        on_full: OnFull = "raise" if call.choice("Iris-If-Full", ("wait", "fail")) == "fail" else "wait"
        options: RequestOptions = {"timeout": timeout, "on_full": on_full, "headers": call.message_headers()}
        if key := call.option("Idempotency-Key"):
            options["key"] = _key_of(call.grant.subject, key)
            options["idempotent"] = True
        if prefer := call.option("Iris-Prefer"):
            options["prefer"] = prefer
        if require := call.option("Iris-Require"):
            options["require"] = require
        payload = await call.body()
        began = time.monotonic()
        reply = await call.unless_gone(self._node.request(call.name, payload, **options))
        seconds = f"{time.monotonic() - began:.6f}"
        return Response(reply, media_type=_BYTES, headers={"iris-seconds": seconds})

    async def broadcast(self, call: ClientCall) -> Response:
        """Send a message to every member of a cluster; the answer has their number."""
        _check_cluster(call, "broadcast")
        payload = await call.body()
        members = await call.unless_gone(self._node.broadcast(call.name, payload, headers=call.message_headers()))
        return json_response(Sent(members), 202)

    async def survey(self, call: ClientCall) -> Response:
        """Send a request to every member of a cluster; the answer is a line of JSON for each reply, and a summary."""
        _check_cluster(call, "survey")
        timeout, stop_after = call.timeout_s(SURVEY_TIMEOUT_S), call.whole_number("stop_after")
        form = _choice_of(call, "as", PAYLOAD_FORMS)
        payload, headers = await call.body(), call.message_headers()
        survey = self._node.survey(call.name, payload, timeout=timeout, stop_after=stop_after, headers=headers)
        replies = aiter(survey)
        # The first reply decides whether the answer is a problem.
        first = await call.unless_gone(_next_or_none(replies))
        lines = _survey_lines(survey, first, replies, form)
        return StreamingResponse(self._while_allowed(call.grant, survey, lines), media_type=NDJSON)

    async def _while_allowed(self, grant: Grant, survey: Survey[bytes], lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yield the lines of a survey; end the survey with a problem when the grant ends."""
        try:
            with self._uses.open(grant, on_end=lambda _problem: survey.cancel()) as use:
                async for line in lines:
                    if use.problem:
                        break
                    yield line
                use.check()
        except DoorRefusal as refusal:
            yield _line(SurveyProblemLine(DoorRefusal(refusal.name, executed="maybe").problem))

    async def publish(self, call: ClientCall) -> Response:
        """Publish a message, or with lines of JSON as many messages as lines; the answer has the number of nodes."""
        with _naming("name"):
            parse_topic(_without_cloud(call.name))
        if not call.grant.allows_topic("publish", call.name):
            raise DoorRefusal("forbidden", field="publish")
        payload, headers = await call.body(), call.message_headers()
        if call.header("content-type").partition(";")[0].strip().lower() != NDJSON:
            nodes = await call.unless_gone(self._node.publish(call.name, payload, headers=headers))
            return json_response(PublishedMessages(nodes), 202)
        lines = _lines_of(payload)
        nodes = await call.unless_gone(self._node.publish_many(call.name, lines, headers=headers))
        return json_response(PublishedMessages(nodes, len(lines)), 202)

    async def events(self, call: ClientCall) -> Response:
        """Answer with the messages of topics as they come: server-sent events, or lines of JSON."""
        patterns = call.parameters("pattern")
        if not patterns:
            raise DoorRefusal("invalid", field="pattern")
        for pattern in patterns:
            _check_pattern(call, pattern)
        event_format: EventFormat = "lines" if NDJSON in call.header("accept") else "sse"
        options = StreamOptions(
            EventForm(event_format, _choice_of(call, "as", PAYLOAD_FORMS)),
            _choice_of(call, "policy", WINDOW_POLICIES),
            call.header("last-event-id"),
            sends_last=_sends_last(call),
        )
        return EventResponse(await self._streams.open(patterns, call.grant, options), event_format)

    async def last(self, call: ClientCall) -> Response:
        """Answer with the newest message of a topic that has a history."""
        with _naming("name"):
            parse_topic(call.name)
        if not call.grant.allows_topic("subscribe", call.name):
            raise DoorRefusal("forbidden", field="subscribe")
        found = self._streams.last(call.name, _choice_of(call, "as", PAYLOAD_FORMS))
        if found is None:
            raise DoorRefusal("no-message")
        return Response(found, media_type="application/json")


async def _next_or_none(replies: AsyncIterator[SurveyReply[bytes]]) -> SurveyReply[bytes] | None:
    return await anext(replies, None)


async def _survey_lines(
    survey: Survey[bytes],
    first: SurveyReply[bytes] | None,
    replies: AsyncIterator[SurveyReply[bytes]],
    form: PayloadForm,
) -> AsyncIterator[bytes]:
    """Yield the lines of a survey."""
    count = 0
    try:
        if first is not None:
            count = 1
            yield _line(SurveyAnswerLine(*payload_text(first.payload, form)))
            async for reply in replies:
                count += 1
                yield _line(SurveyAnswerLine(*payload_text(reply.payload, form)))
        answers = await survey
    except IrisError as exc:
        yield _line(SurveyProblemLine(problem_of(exc)))
        return
    yield _line(
        SurveySummaryLine(
            members=answers.expected,
            replies=count,
            missing=answers.missing_count,
            failed=len(answers.failed),
            rejected=len(answers.rejected),
            declined=len(answers.declined),
            dropped=answers.dropped,
        )
    )


def _line(struct: msgspec.Struct) -> bytes:
    return single_line(msgspec.json.encode(struct)) + b"\n"


def _choice_of(call: ClientCall, name: str, choices: tuple[Choice, ...]) -> Choice:
    """Return a parameter with a fixed set of values; the first value without the parameter.

    Raises:
        DoorRefusal: The parameter has another value.
    """
    given = call.parameter(name, choices[0])
    found = next((choice for choice in choices if choice == given), None)
    if found is None:
        raise DoorRefusal("invalid", field=name)
    return found


def _check_pattern(call: ClientCall, pattern: str) -> None:
    """Refuse an invalid or forbidden pattern.

    Raises:
        DoorRefusal: The pattern is refused.
    """
    with _naming("pattern"):
        parse_pattern(_without_cloud(pattern))
    if not call.grant.allows_topic("subscribe", pattern):
        raise DoorRefusal("forbidden", field="subscribe")


def _sends_last(call: ClientCall) -> bool:
    """Return whether an event stream begins with the newest message of each topic, by the parameter ``from``.

    Raises:
        DoorRefusal: The parameter has another value than ``last``.
    """
    given = call.parameters("from")
    if given not in ([], ["last"]):
        raise DoorRefusal("invalid", field="from")
    return bool(given)


def _check_cluster(call: ClientCall, use: ClusterUse) -> None:
    """Refuse an invalid or forbidden name.

    Raises:
        DoorRefusal: The name is refused.
    """
    with _naming("name"):
        own = _without_cloud(call.name)
        encode_name(own)
        check_own_name(own)
    if not call.grant.allows_cluster(use, call.name):
        raise DoorRefusal("forbidden", field=use)


def _without_cloud(name: str) -> str:
    own, mark, cloud = name.rpartition(CLOUD_MARK)
    if mark and not cloud:
        raise ValueError("no cloud")
    return own if mark else name


@contextmanager
def _naming(field: Literal["name", "pattern"]) -> Iterator[None]:
    """Turn an error about a name into a refusal without its text."""
    try:
        yield
    except ValueError:
        raise DoorRefusal("invalid", field=field) from None


def _key_of(subject: str, key: str) -> str:
    """Return the key of idempotence of a client's request: clients cannot repeat the requests of others."""
    if len(key.encode()) > KEY_BYTES_MAX:
        raise DoorRefusal("invalid", field="Idempotency-Key")
    return f"{subject}:{key}"


def _lines_of(content: bytes) -> list[bytes]:
    """Return the lines of a body of JSON lines, each checked.

    Raises:
        DoorRefusal: A line is no JSON, or there are no or too many lines; the field has the number of the line, from 1.
    """
    lines = [line for line in content.split(b"\n") if line.strip()]
    if not lines:
        raise DoorRefusal("invalid", field="body")
    if len(lines) > LINES_MAX:
        raise DoorRefusal("body-too-large", field=f"line {LINES_MAX + 1}")
    for number, line in enumerate(lines, 1):
        try:
            msgspec.json.decode(line, type=msgspec.Raw)
        except msgspec.DecodeError:
            raise DoorRefusal("invalid", field=f"line {number}") from None
    return lines
