"""The description of a door's interface (OpenAPI 3.1), made from the structs of its answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

import iris_py
from iris_py.api.status import Health
from iris_py.doors.problems import PROBLEMS, Problem
from iris_py.doors.web.event_text import (
    ClosingEvent,
    ClosingEventLine,
    GapEvent,
    GapEventLine,
    MessageEvent,
    MessageEventLine,
    PositionEventLine,
)
from iris_py.doors.web.payload_text import PAYLOAD_FORMS
from iris_py.doors.web.window import WINDOW_POLICIES
from iris_py.servers.web.event_response import EVENT_MEDIA_TYPES
from iris_py.servers.web.operations import (
    NDJSON,
    PublishedMessages,
    Sent,
    SurveyAnswerLine,
    SurveyProblemLine,
    SurveySummaryLine,
)
from iris_py.servers.web.paths import PATHS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from iris_py.servers.web.paths import PathSpec

__all__ = ["describe_interface"]

_OCTETS: Final = "application/octet-stream"
_JSON: Final = "application/json"
_BYTES: Final = {"type": "string", "format": "binary"}


class OperationParameter(NamedTuple):
    """A parameter of an operation: a header, or a part of the query."""

    name: str
    place: str
    """``header`` or ``query``."""
    description: str
    schema: Mapping[str, Any]
    example: Sequence[str] = ()
    """Values of a required parameter for a first try; empty for an optional parameter."""


class Description(NamedTuple):
    """An operation, as described."""

    summary: str
    status: int
    answers: Mapping[str, Sequence[object]]
    """The kinds of objects in the answer, by media type: each line, or the data of each event, has one; empty for bytes."""
    name: str = ""
    """A name in the path for a first try; empty for a path without a name."""
    request: Sequence[str] = ()
    """The media types of the body; empty without a body."""
    parameters: Sequence[OperationParameter] = ()
    problems: Sequence[str] = ()
    """The problems of the operation, besides those of all operations."""


_TIMEOUT: Final = OperationParameter(
    "Iris-Timeout", "header", "Seconds to wait for the answer.", {"type": "number", "exclusiveMinimum": 0, "maximum": 60}
)
_OF_CLUSTERS: Final = ("no-members", "not-exported", "cloud-unavailable", "not-connected", "overloaded", "member-lost")
_OF_ALL: Final = (
    "invalid",
    "no-token",
    "token-malformed",
    "token-expired",
    "token-not-yet-valid",
    "token-of-other-network",
    "token-unknown-key",
    "token-bad-signature",
    "token-unknown-role",
    "token-revoked",
    "forbidden",
    "foreign-origin",
    "foreign-host",
    "too-many",
    "body-too-large",
    "message-too-large",
    "closing",
    "failed",
)

DESCRIPTIONS: Final[Mapping[str, Description]] = {
    "request": Description(
        "Send a request to a member of a cluster, and return its reply.",
        200,
        {_OCTETS: ()},
        "upper",
        request=(_OCTETS,),
        parameters=(
            _TIMEOUT,
            OperationParameter(
                "Idempotency-Key", "header", "Makes repeated requests one request to members.", {"type": "string"}
            ),
            OperationParameter("Iris-Prefer", "header", "A zone whose members are asked first.", {"type": "string"}),
            OperationParameter("Iris-Require", "header", "A zone outside of which no member is asked.", {"type": "string"}),
            OperationParameter("Iris-If-Full", "header", "If all members are full.", {"enum": ["wait", "fail"]}),
        ),
        problems=(*_OF_CLUSTERS, "timeout", "not-taken", "remote-error", "unreadable-reply"),
    ),
    "broadcast": Description(
        "Send a message to every member of a cluster.", 202, {_JSON: (Sent,)}, "upper", (_OCTETS,), problems=_OF_CLUSTERS
    ),
    "survey": Description(
        "Send a request to every member of a cluster: a line for each reply, and a summary.",
        200,
        {NDJSON: (SurveyAnswerLine, SurveySummaryLine, SurveyProblemLine)},
        "upper",
        (_OCTETS,),
        parameters=(
            _TIMEOUT,
            OperationParameter(
                "stop_after", "query", "The number of replies that ends the survey.", {"type": "integer", "minimum": 1}
            ),
            OperationParameter("as", "query", "The form of the replies in JSON.", {"enum": list(PAYLOAD_FORMS)}),
        ),
        problems=(*_OF_CLUSTERS, "timeout", "not-taken"),
    ),
    "publish": Description(
        "Publish a message to a topic; with lines of JSON, a message for each line.",
        202,
        {_JSON: (PublishedMessages,)},
        "notes.ann",
        (_OCTETS, NDJSON),
        problems=("not-exported", "cloud-unavailable", "overloaded", "member-lost", "timeout", "not-taken"),
    ),
    "events": Description(
        "Get the messages of topics as they come: server-sent events, or lines of JSON if `Accept` names them.",
        200,
        {
            EVENT_MEDIA_TYPES["sse"]: (MessageEvent, GapEvent, ClosingEvent),
            EVENT_MEDIA_TYPES["lines"]: (MessageEventLine, GapEventLine, ClosingEventLine, PositionEventLine),
        },
        parameters=(
            OperationParameter(
                "pattern",
                "query",
                "A pattern of topics; repeatable.",
                {"type": "array", "items": {"type": "string"}, "minItems": 1},
                ("notes.>",),
            ),
            OperationParameter("as", "query", "The form of the payloads in JSON.", {"enum": list(PAYLOAD_FORMS)}),
            OperationParameter("policy", "query", "For a client that is too slow.", {"enum": list(WINDOW_POLICIES)}),
            OperationParameter(
                "from", "query", "`last`: the newest message of each topic first, from histories.", {"enum": ["last"]}
            ),
            OperationParameter("Last-Event-ID", "header", "The cursor of a client that resumes.", {"type": "string"}),
        ),
        problems=("not-exported", "cloud-unavailable", "overloaded", "timeout", "not-taken"),
    ),
    "last": Description(
        "Get the newest message of a topic that has a history.",
        200,
        {_JSON: (MessageEventLine,)},
        "notes.ann",
        parameters=(OperationParameter("as", "query", "The form of the payload in JSON.", {"enum": list(PAYLOAD_FORMS)}),),
        problems=("no-message",),
    ),
    "healthz": Description("Tell whether the process works.", 200, {_JSON: (Health,)}, problems=("closing",)),
    "readyz": Description("Tell whether the door takes clients.", 200, {_JSON: (Health,)}, problems=("closing", "not-ready")),
    "metrics": Description("Get the metrics of the door and its node, in Prometheus' format.", 200, {"text/plain": ()}),
    "openapi": Description("Describe this interface.", 200, {_JSON: ()}),
}


def describe_interface() -> bytes:
    """Return the description of the interface, as JSON."""
    structs = [
        Problem,
        *dict.fromkeys(struct for each in DESCRIPTIONS.values() for structs in each.answers.values() for struct in structs),
    ]
    schemas, components = msgspec.json.schema_components(structs, ref_template="#/components/schemas/{name}")
    schema_of = dict(zip(structs, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for spec in PATHS:
        if spec.operation not in DESCRIPTIONS:
            continue  # for the dashboard alone
        described = _describe(spec, DESCRIPTIONS[spec.operation], schema_of)
        paths.setdefault(spec.path, {})[spec.method.lower()] = described
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "Iris web door",
                "version": iris_py.__version__,
                "description": "Requests, broadcasts and publications in a network of Iris, for programs that speak HTTP.",
            },
            "paths": paths,
            "components": {
                "schemas": components,
                "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}},
            },
        }
    )


def _describe(spec: PathSpec, described: Description, schema_of: Mapping[object, Mapping[str, Any]]) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = [
        {"name": each.name, "in": each.place, "description": each.description, "schema": each.schema}
        | ({"required": True, "example": each.example} if each.example else {})
        for each in described.parameters
    ]
    if described.name:
        named = {"name": "name", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        text = "The name; `name@cloud` for another cloud."
        parameters.insert(0, {**named, "description": text, "example": described.name})
    content_of = {
        media_type: {"schema": _schema_of_answer(media_type, structs, schema_of)}
        for media_type, structs in described.answers.items()
    }
    responses: dict[str, Any] = {str(described.status): {"description": described.summary, "content": content_of}}
    problems = described.problems if spec.is_public else (*described.problems, *_OF_ALL)
    for status in sorted({PROBLEMS[name].status for name in problems}):
        names = ", ".join(name for name in problems if PROBLEMS[name].status is status)
        content = {"application/problem+json": {"schema": schema_of[Problem]}}
        responses[str(status.value)] = {"description": f"Problems: {names}.", "content": content}
    operation: dict[str, Any] = {
        "operationId": spec.operation,
        "summary": described.summary,
        "parameters": parameters,
        "responses": responses,
        "security": [] if spec.is_public else [{"token": []}],
    }
    if described.request:
        operation["requestBody"] = {"content": {media: {"schema": _BYTES} for media in described.request}}
    return operation


def _schema_of_answer(
    media_type: str, structs: Sequence[object], schema_of: Mapping[object, Mapping[str, Any]]
) -> Mapping[str, Any]:
    """Return the schema of an answer; of each line, or of each event, if it has many."""
    schemas = [schema_of[struct] for struct in structs]
    if media_type == EVENT_MEDIA_TYPES["sse"]:
        schemas = [_schema_of_event(schema) for schema in schemas]
    if not schemas:
        return {} if media_type == _JSON else _BYTES
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}


def _schema_of_event(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema of a server-sent event with some data."""
    text = {"type": "string", "contentMediaType": _JSON, "contentSchema": data}
    return {
        "type": "object",
        "properties": {"event": {"type": "string"}, "id": {"type": "string"}, "data": text},
        "required": ["event", "data"],
    }
