"""The ASGI application of a web door: finds the operation, the client and its rights, and answers with problems.

No text of an error reaches a client, but those of :mod:`iris_py.doors.problems`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import Response

from iris_py.doors.problems import Refusal, problem_of
from iris_py.doors.rates import RateLimits
from iris_py.errors import IrisError
from iris_py.logs import EventLogger
from iris_py.servers.web.call import Call, ClientGone
from iris_py.servers.web.openapi import describe_interface
from iris_py.servers.web.operations import Operations, json_response
from iris_py.servers.web.origins import Origins
from iris_py.servers.web.paths import find_path

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.types import Receive, Scope, Send

    from iris_py.api.node import Node
    from iris_py.doors.problems import Problem
    from iris_py.doors.rights import Grant
    from iris_py.doors.settings import DoorSettings
    from iris_py.servers.web.paths import PathSpec

__all__ = ["WebApp"]

logger = EventLogger("iris_py.servers")

PROBLEM_JSON: Final = "application/problem+json"
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
        verify: Returns the client of a token and its rights, or raises a `Refusal`.
        admitted: Called with the scope of a request that has a valid token.
    """

    def __init__(
        self,
        node: Node,
        settings: DoorSettings,
        verify: Callable[[str], Grant],
        admitted: Callable[[Scope], None] | None = None,
    ) -> None:
        limits = settings.web.limits
        self._verify = verify
        self._admitted = admitted
        self._limits = limits
        self._origins = Origins(settings.web)
        self._rates = RateLimits(limits.operations_per_s, limits.burst)
        operations = Operations(node)
        self._operations: Mapping[str, Callable[[Call], Awaitable[Response]]] = {
            "request": operations.request,
            "broadcast": operations.broadcast,
            "survey": operations.survey,
            "publish": operations.publish,
        }
        self._description = describe_interface()

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
        except Refusal as refusal:
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
            spec, name = self._find(request)
            if spec.is_public:
                return Response(self._description, media_type="application/json")
            grant = self._verify(_token_of(request))
            if self._admitted is not None:
                self._admitted(request.scope)
            if wait_s := self._rates.take(grant.subject, time.monotonic()):
                raise Refusal("too-many", retry_after_s=wait_s)
            call = Call(request, name, grant, self._limits.body_bytes)
            return await self._operations[spec.operation](call)
        except (Refusal, IrisError) as exc:
            return _problem_response(problem_of(exc, tells_remote_errors=grant is not None and grant.sees_remote_errors))
        except ClientGone:
            raise
        except Exception as exc:
            logger.error("door_failed", "an operation of a client failed", error=exc)
            return _problem_response(problem_of(Refusal("failed")))

    def _find(self, request: Request) -> tuple[PathSpec, str]:
        root = request.scope.get("root_path", "").encode()
        raw_path: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
        specs, name = find_path(raw_path.partition(b"?")[0].removeprefix(root))
        method = "GET" if request.method == "HEAD" else request.method
        if method not in specs:
            raise Refusal("unknown-method", field=", ".join(specs))
        return specs[method], name


def _token_of(request: Request) -> str:
    header = request.headers.get("authorization", "")
    if not header:
        raise Refusal("no-token")
    if not header.lower().startswith(_BEARER):
        raise Refusal("token-malformed")
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
