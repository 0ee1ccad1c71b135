"""The ASGI application of a web door: finds the operation, the client and its rights, and answers with problems.

No text of an error reaches a client, but those of :mod:`iris_py.doors.problems`.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse

from iris_py.doors.limits import RateLimits
from iris_py.doors.problems import DoorRefusal, problem_of
from iris_py.errors import IrisError
from iris_py.logs import EventLogger
from iris_py.servers.web.call import ClientCall, ClientGone
from iris_py.servers.web.dashboard.assets import Assets
from iris_py.servers.web.dashboard.watch import NetworkWatch
from iris_py.servers.web.openapi import describe_interface
from iris_py.servers.web.operations import Operations, json_response
from iris_py.servers.web.origins import Origins
from iris_py.servers.web.paths import find_path
from iris_py.servers.web.sessions import Sessions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.types import Receive, Scope, Send

    from iris_py.api.node import Node
    from iris_py.doors.problems import Problem
    from iris_py.doors.rights import Grant
    from iris_py.doors.settings import DoorSettings
    from iris_py.servers.web.paths import PathSpec
    from iris_py.servers.web.topic_streams import TopicStreams

__all__ = ["WebApp"]

logger = EventLogger("iris_py.servers")

#: Time after which a client may look for the door again, or for another one (seconds).
CLOSING_RETRY_S: Final = 1.0
PROBLEM_JSON: Final = "application/problem+json"
EVENT_STREAM: Final = "text/event-stream"
_BEARER: Final = "bearer "
#: On every answer: nobody keeps it, nobody guesses its type, no page of another site frames it.
_HEADERS: Final[Mapping[str, str]] = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}


class WebApp:
    """The ASGI application of a door.

    Args:
        node: The node of the door.
        settings: The settings.
        streams: The event streams, which the owner opens and closes.
        verify: Returns the client of a token and its rights, or raises a `DoorRefusal`.

    Attributes:
        sessions: The sessions of browsers.
    """

    def __init__(
        self,
        node: Node,
        settings: DoorSettings,
        streams: TopicStreams,
        verify: Callable[[str], Grant],
    ) -> None:
        self.sessions = Sessions(verify)
        self._verify = verify
        self._is_closing = False
        self.apply(settings)
        self._assets = Assets("iris_py.servers.web")
        self._watch = NetworkWatch(node)
        self._description = describe_interface()
        operations = Operations(node, streams)
        self._operations: Mapping[str, Callable[[ClientCall], Awaitable[Response]]] = {
            "request": operations.request,
            "broadcast": operations.broadcast,
            "survey": operations.survey,
            "publish": operations.publish,
            "events": operations.events,
            "last": operations.last,
            "watch": self._follow,
            "page": self._page,
            "session": self._session,
        }
        self._public: Mapping[str, Callable[[Request, str], Awaitable[Response]]] = {
            "sign-in": self.sessions.sign_in,
            "sign-out": self.sessions.sign_out,
            "openapi": self._describe,
            "dashboard": self._dashboard,
            "asset": self._asset,
        }

    def apply(self, settings: DoorSettings) -> None:
        """Use other settings from now on."""
        limits = settings.web.limits
        self._limits = limits
        self._origins = Origins(settings.web)
        self._rates = RateLimits(limits.operations_per_s, limits.burst)

    def drain(self) -> None:
        """Refuse further operations, and end event streams; other operations under way go on. Harmless if repeated."""
        self._is_closing = True
        self._watch.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request (ASGI 3); connections that are not HTTP are refused."""
        if scope["type"] == "lifespan":
            raise RuntimeError("the door has no lifespan: open it with `async with`")
        if scope["type"] != "http":
            await receive()
            await send({"type": "websocket.close", "code": 1003})
            return
        request = Request(scope, receive)
        try:
            response = await self._answer(request)
        except ClientGone:
            return
        for name, value in _HEADERS.items():
            response.headers.setdefault(name, value)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        origin = request.headers.get("origin", "")
        try:
            is_foreign = self._origins.check(request.headers.get("host", ""), origin, request.url.scheme)
        except DoorRefusal as refusal:
            return _problem_response(refusal.problem)
        if request.method == "OPTIONS":
            wanted = request.headers.get("access-control-request-headers", "")
            return Response(status_code=204, headers=self._origins.preflight(origin, wanted) if is_foreign else None)
        response = await self._perform(request)
        if is_foreign:
            response.headers.update(self._origins.headers_for(origin))
        return response

    async def _perform(self, request: Request) -> Response:
        """Run the operation of a request, and turn its errors into problems."""
        grant: Grant | None = None
        try:
            if self._is_closing:
                raise DoorRefusal("closing", retry_after_s=CLOSING_RETRY_S)
            spec, name = self._find(request)
            if spec.is_public:
                return await self._public[spec.operation](request, name)
            grant = self._verify(_token_of(request) or self.sessions.token_of(request))
            if (admit := request.scope.get("extensions", {}).get("iris.admitted")) is not None:
                admit()  # the connection counts no longer for its address
            if wait_s := self._rates.take(grant.subject, asyncio.get_running_loop().time()):
                raise DoorRefusal("too-many", retry_after_s=wait_s)
            call = ClientCall(request, name, grant, self._limits.body_bytes)
            return await self._operations[spec.operation](call)
        except (DoorRefusal, IrisError) as exc:
            return _problem_response(problem_of(exc, tells_remote_errors=grant is not None and grant.sees_remote_errors))
        except ClientGone:
            raise
        except Exception as exc:
            logger.error("door_failed", "an operation of a client failed", error=exc)
            return _problem_response(problem_of(DoorRefusal("failed")))

    def _find(self, request: Request) -> tuple[PathSpec, str]:
        root = request.scope.get("root_path", "").encode()
        raw_path: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
        specs, name = find_path(raw_path.partition(b"?")[0].removeprefix(root))
        method = "GET" if request.method == "HEAD" else request.method
        if method not in specs:
            raise DoorRefusal("unknown-method", field=", ".join(specs))
        return specs[method], name

    # -- the dashboard

    async def _follow(self, call: ClientCall) -> Response:
        """Answer with pages of the dashboard, each second, as server-sent events."""
        _check_observer(call)
        events = self._watch.view(call.parameters("page"), call.grant.until - time.time())
        return StreamingResponse(events, media_type=EVENT_STREAM, headers={"x-accel-buffering": "no"})

    async def _page(self, call: ClientCall) -> Response:
        """Answer with one page of the dashboard."""
        _check_observer(call)
        return Response(await call.unless_gone(self._watch.page(call.name)), media_type="application/json")

    async def _session(self, call: ClientCall) -> Response:
        """Answer with the client of the token."""
        return json_response({"subject": call.grant.subject, "observes": call.grant.observes, "until": call.grant.until})

    async def _describe(self, _request: Request, _name: str) -> Response:
        return Response(self._description, media_type="application/json")

    async def _dashboard(self, request: Request, _name: str) -> Response:
        root = request.scope.get("root_path", "")
        if root and not request.scope["path"].endswith("/"):
            return RedirectResponse(f"{root}/", status_code=308)  # for the relative links of the page
        return self._assets.answer("index.html", request.headers.get("if-none-match", ""))

    async def _asset(self, request: Request, name: str) -> Response:
        return self._assets.answer(name, request.headers.get("if-none-match", ""))


def _check_observer(call: ClientCall) -> None:
    """Refuse a client that may not look at the network.

    Raises:
        DoorRefusal: It may not.
    """
    if not call.grant.observes:
        raise DoorRefusal("forbidden", field="observe")


def _token_of(request: Request) -> str:
    """Return the token in the header ``Authorization``; empty without one.

    Raises:
        DoorRefusal: The header has no bearer token.
    """
    header = request.headers.get("authorization", "")
    if header and not header.lower().startswith(_BEARER):
        raise DoorRefusal("token-malformed")
    return header[len(_BEARER) :].strip()


def _problem_response(problem: Problem) -> Response:
    response = json_response(problem, problem.status, PROBLEM_JSON)
    if isinstance(problem.retry_after_s, float):
        response.headers["retry-after"] = str(max(1, round(problem.retry_after_s + 0.5)))
    if problem.status == 401:
        response.headers["www-authenticate"] = "Bearer"
    if problem.status == 405 and isinstance(problem.field, str):
        response.headers["allow"] = problem.field
    return response
