"""Problems that a door tells its clients (RFC 9457), from a table of its own.

No text of an Iris error reaches a client, because these are for operators, and name addresses and nodes. A problem says whether
the operation was executed.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from iris_py import errors

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["PROBLEMS", "DoorRefusal", "Executed", "Problem", "problem_of"]

#: Whether an operation was executed.
Executed: TypeAlias = Literal["no", "maybe", "yes"]
#: A key of `PROBLEMS`.
ProblemName: TypeAlias = str
#: The path of the pages about problems, before their names.
PROBLEM_PATH: Final = "/v1/problems/"
#: Characters of a handler's exception told to a client. Too small: the text is cut within its first line; too large: a client
#: gets a trace.
REMOTE_TEXT_MAX: Final = 500


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A problem, as told to a client in ``application/problem+json``."""

    type: str
    """The kind of the problem: a path below ``/v1/problems/``."""
    title: str
    """A sentence for people."""
    status: int
    """The status of HTTP."""
    executed: Executed
    """Whether the operation was executed."""
    retry_after_s: float | UnsetType = UNSET
    """Seconds after which the operation may succeed."""
    field: str | UnsetType = UNSET
    """The wrong header, parameter or place of the body."""
    remote_type: str | UnsetType = UNSET
    """The class of the handler's exception, if the client's rights include ``remote_errors``."""
    remote_text: str | UnsetType = UNSET
    """The text of the handler's exception, likewise."""

    @property
    def name(self) -> str:
        """The name in the table of problems."""
        return self.type.removeprefix(PROBLEM_PATH)


class ProblemKind(NamedTuple):
    """A row of the table of problems."""

    status: HTTPStatus
    executed: Executed
    title: str


#: The table of problems, by name.
PROBLEMS: Final[Mapping[str, ProblemKind]] = {
    "no-members": ProblemKind(HTTPStatus.SERVICE_UNAVAILABLE, "no", "No member serves this cluster now."),
    "not-exported": ProblemKind(HTTPStatus.SERVICE_UNAVAILABLE, "no", "The other cloud does not offer this name."),
    "cloud-unavailable": ProblemKind(HTTPStatus.SERVICE_UNAVAILABLE, "no", "The other cloud cannot be reached now."),
    "not-connected": ProblemKind(HTTPStatus.SERVICE_UNAVAILABLE, "no", "The door reaches no other node of its network."),
    "overloaded": ProblemKind(HTTPStatus.SERVICE_UNAVAILABLE, "no", "All members, or a subscriber, are full."),
    "member-lost": ProblemKind(HTTPStatus.BAD_GATEWAY, "maybe", "The member was lost while it held the request."),
    "timeout": ProblemKind(HTTPStatus.GATEWAY_TIMEOUT, "maybe", "No reply came in time."),
    "not-taken": ProblemKind(HTTPStatus.GATEWAY_TIMEOUT, "no", "No member took the request in time."),
    "remote-error": ProblemKind(HTTPStatus.INTERNAL_SERVER_ERROR, "yes", "The member failed on the request."),
    "unreadable-reply": ProblemKind(HTTPStatus.INTERNAL_SERVER_ERROR, "yes", "The reply cannot be read."),
    "message-too-large": ProblemKind(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "no", "The message is larger than members accept."),
    "invalid": ProblemKind(HTTPStatus.BAD_REQUEST, "no", "The request is malformed."),
    "not-ready": ProblemKind(HTTPStatus.SERVICE_UNAVAILABLE, "no", "This door is not ready: use another one."),
    "closing": ProblemKind(HTTPStatus.SERVICE_UNAVAILABLE, "no", "This door is closing: use another one."),
    "body-too-large": ProblemKind(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "no", "The body is larger than this door accepts."),
    "head-too-large": ProblemKind(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "no", "The head of the request is too large."),
    "too-slow": ProblemKind(HTTPStatus.REQUEST_TIMEOUT, "no", "The request did not arrive in time."),
    "no-token": ProblemKind(HTTPStatus.UNAUTHORIZED, "no", "No token was given."),
    "token-expired": ProblemKind(HTTPStatus.UNAUTHORIZED, "no", "The token has expired."),
    "token-not-yet-valid": ProblemKind(HTTPStatus.UNAUTHORIZED, "no", "The token is not valid yet."),
    "token-of-other-network": ProblemKind(HTTPStatus.UNAUTHORIZED, "no", "The token is for another network."),
    "token-unknown-key": ProblemKind(HTTPStatus.UNAUTHORIZED, "no", "The key of the token is not known here."),
    "token-bad-signature": ProblemKind(HTTPStatus.UNAUTHORIZED, "no", "The signature of the token is wrong."),
    "token-malformed": ProblemKind(HTTPStatus.UNAUTHORIZED, "no", "This is no token of this door."),
    "token-unknown-role": ProblemKind(HTTPStatus.UNAUTHORIZED, "no", "The role of the token does not exist here."),
    "token-revoked": ProblemKind(HTTPStatus.UNAUTHORIZED, "no", "The token was revoked."),
    "forbidden": ProblemKind(HTTPStatus.FORBIDDEN, "no", "No rule allows this."),
    "foreign-origin": ProblemKind(HTTPStatus.FORBIDDEN, "no", "Pages of this origin may not use the door."),
    "foreign-host": ProblemKind(HTTPStatus.MISDIRECTED_REQUEST, "no", "The door has another name."),
    "too-many": ProblemKind(HTTPStatus.TOO_MANY_REQUESTS, "no", "Too many operations, connections or subscriptions."),
    "window-full": ProblemKind(HTTPStatus.SERVICE_UNAVAILABLE, "no", "More events wait than the client wanted to keep."),
    "unknown-path": ProblemKind(HTTPStatus.NOT_FOUND, "no", "There is nothing at this path."),
    "no-message": ProblemKind(HTTPStatus.NOT_FOUND, "no", "The door has no message of this topic."),
    "unknown-method": ProblemKind(HTTPStatus.METHOD_NOT_ALLOWED, "no", "This path has other methods."),
    "failed": ProblemKind(HTTPStatus.INTERNAL_SERVER_ERROR, "maybe", "The door failed. Its log has the reason."),
}


class DoorRefusal(Exception):
    """An operation that the door itself refuses.

    Args:
        name: A key of `PROBLEMS`.
        retry_after_s: Seconds after which the operation may succeed; None if unknown.
        field: The wrong header, parameter or place of the body; empty for none.
        executed: Whether the operation was executed; None as the table says.
    """

    def __init__(
        self, name: ProblemName, *, retry_after_s: float | None = None, field: str = "", executed: Executed | None = None
    ) -> None:
        self.name = name
        self.executed = executed
        self.retry_after_s = retry_after_s
        self.field = field
        super().__init__(name)

    def __str__(self) -> str:
        return PROBLEMS[self.name].title

    @property
    def problem(self) -> Problem:
        """The problem as told to the client."""
        retry = UNSET if self.retry_after_s is None else round(self.retry_after_s, 3)
        executed = self.executed or PROBLEMS[self.name].executed
        return _problem(self.name, retry_after_s=retry, field=self.field or UNSET, executed=executed)


#: The names of problems by class of error, the special classes first.
_NAMES: Final[tuple[tuple[type[BaseException], str], ...]] = (
    (errors.CloudUnavailable, "cloud-unavailable"),
    (errors.NotExported, "not-exported"),
    (errors.NoMembers, "no-members"),
    (errors.NotConnected, "not-connected"),
    (errors.Overloaded, "overloaded"),
    (errors.RequestTimeout, "timeout"),
    (errors.MemberLost, "member-lost"),
    (errors.RemoteError, "remote-error"),
    (errors.DecodeError, "unreadable-reply"),
    (errors.MessageTooLarge, "message-too-large"),
    (errors.NodeClosed, "closing"),
    (errors.EncodeError, "invalid"),
    (errors.ConfigurationError, "invalid"),
)
#: Time after which a client may repeat an operation that met full members (seconds).
OVERLOADED_RETRY_S: Final = 1.0


def problem_of(error: BaseException, *, tells_remote_errors: bool = False) -> Problem:
    """Return the problem that a client is told for an error of an operation.

    Args:
        error: The error.
        tells_remote_errors: Whether the client's rights include ``remote_errors``.
    """
    if isinstance(error, DoorRefusal):
        return error.problem
    name = next((name for kind, name in _NAMES if isinstance(error, kind)), "failed")
    if isinstance(error, errors.RequestTimeout) and not error.member and not error.gateway:
        name = "not-taken"
    if isinstance(error, errors.Overloaded):
        retry = OVERLOADED_RETRY_S if error.retry_after_s is None else error.retry_after_s
        return _problem(name, retry_after_s=retry)
    if isinstance(error, errors.RemoteError) and tells_remote_errors:
        return _problem(name, remote_type=error.type, remote_text=error.text[:REMOTE_TEXT_MAX])
    return _problem(name)


def _problem(name: str, **fields: object) -> Problem:
    kind = PROBLEMS[name]
    found = Problem(type=PROBLEM_PATH + name, title=kind.title, status=kind.status, executed=kind.executed)
    return msgspec.structs.replace(found, **fields) if fields else found
