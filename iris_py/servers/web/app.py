"""The ASGI application of a web door: finds the operation, the client and its rights, and answers with problems.

No text of an error reaches a client, but those of :mod:`iris_py.doors.problems`.
"""

from __future__ import annotations

import asyncio
import time
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse

from iris_py.api.runtime import runtime_of
from iris_py.api.status import Health
from iris_py.doors.counts import DoorClusterCounts, DoorCounts, DoorStatistics
from iris_py.doors.grant_uses import GrantUseTable
from iris_py.doors.limits import RateLimits
from iris_py.doors.problems import DoorRefusal, problem_of
from iris_py.errors import IrisError
from iris_py.logs import EventLogger
from iris_py.metrics.metrics_text import MetricsText
from iris_py.metrics.prometheus import NodeCollector
from iris_py.servers.metrics import DoorCollector
from iris_py.servers.web.call import ClientCall, ClientGone
from iris_py.servers.web.dashboard.assets import Assets
from iris_py.servers.web.dashboard.door_page import DoorMonitor
from iris_py.servers.web.dashboard.findings_page import Examinations
from iris_py.servers.web.dashboard.watch import NetworkWatch
from iris_py.servers.web.openapi import describe_interface
from iris_py.servers.web.operations import Operations, json_response
from iris_py.servers.web.origins import Origins
from iris_py.servers.web.paths import PATHS, find_path
from iris_py.servers.web.sessions import Sessions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.types import Receive, Scope, Send

    from iris_py.api.node import Node
    from iris_py.doors.grant_uses import GrantUse
    from iris_py.doors.problems import Problem
    from iris_py.doors.rights import Grant
    from iris_py.doors.settings import DoorSettings
    from iris_py.servers.accepted import ConnectionFigures
    from iris_py.servers.web.paths import FoundPath
    from iris_py.servers.web.topic_streams import TopicStreams

__all__ = ["WebApp"]

logger = EventLogger("iris_py.servers")

#: The kind of the door in its metrics.
KIND: Final = "web"
#: Time after which a client may look for the door again, or for another one (seconds).
CLOSING_RETRY_S: Final = 1.0
PROBLEM_JSON: Final = "application/problem+json"
EVENT_STREAM: Final = "text/event-stream"
_BEARER: Final = "bearer "
#: Operations that a closing door still answers: whoever would end a hung process asks for the first.
_WHILE_CLOSING: Final = frozenset(("healthz", "metrics"))
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
        connections: Returns the figures of the connections; None if another server has them.
        uses: The open uses of grants; None if no grant ends before its time.
        cluster: Returns the counts of the cluster of all doors.

    Attributes:
        sessions: The sessions of browsers.
    """

    def __init__(
        self,
        node: Node,
        settings: DoorSettings,
        streams: TopicStreams,
        verify: Callable[[str], Grant],
        connections: Callable[[], ConnectionFigures | None] = lambda: None,
        uses: GrantUseTable | None = None,
        cluster: Callable[[], DoorClusterCounts] = DoorClusterCounts,
    ) -> None:
        self._cluster = cluster
        self._uses = GrantUseTable() if uses is None else uses
        self.sessions = Sessions(verify)
        self._node = node
        self._streams = streams
        self._verify = verify
        self._connections = connections
        self._counts = DoorCounts(spec.operation for spec in PATHS)
        self._metrics: MetricsText | None = None
        self._is_closing = False
        self._rates = RateLimits(settings.web.limits.operations_per_s, settings.web.limits.burst)
        self.apply(settings)
        self._assets = Assets("iris_py.servers.web")
        door = DoorMonitor(lambda: self.statistics, streams, lambda: cluster().doors)
        self._watch = NetworkWatch(node, door, Examinations(node))
        self._description = describe_interface()
        operations = Operations(node, streams, self._uses)
        self._operations: Mapping[str, Callable[[ClientCall], Awaitable[Response]]] = {
            "request": operations.request,
            "broadcast": operations.broadcast,
            "survey": operations.survey,
            "publish": operations.publish,
            "events": operations.events,
            "last": operations.last,
            "watch": self._follow,
            "page": self._page,
            "examine": self._examine,
            "session": self._session,
            "metrics": self._write_metrics,
        }
        self._public: Mapping[str, Callable[[Request, str], Awaitable[Response]]] = {
            "sign-in": self.sessions.sign_in,
            "sign-out": self.sessions.sign_out,
            "openapi": self._describe,
            "healthz": self._tell_alive,
            "readyz": self._tell_ready,
            "dashboard": self._dashboard,
            "asset": self._asset,
        }

    @property
    def statistics(self) -> DoorStatistics:
        """The counts of the door."""
        counts, streams, connections = self._counts, self._streams.status, self._connections()
        return DoorStatistics(
            kind=KIND,
            connections=None if connections is None else connections.open,
            connections_refused={} if connections is None else connections.refused,
            operations=dict(counts.operations),
            problems=dict(counts.problems),
            streams=streams.streams,
            patterns=streams.patterns,
            subscriptions=streams.subscriptions,
            waiting_bytes=streams.waiting_bytes,
            received_messages=streams.received,
            sent_bytes=streams.sent_bytes,
            dropped_messages=streams.dropped,
            streams_ended={"no-progress": streams.stalled, "window-full": streams.cut},
            history_messages=streams.history_messages,
            history_bytes=streams.history_bytes,
            viewers=self._watch.viewers,
            others=len(self._cluster().doors),
            revocations=self._cluster().revocations,
        )

    def apply(self, settings: DoorSettings) -> None:
        """Use other settings from now on."""
        limits = settings.web.limits
        self._limits = limits
        self._origins = Origins(settings.web)
        self._rates.apply(limits.operations_per_s, limits.burst)

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
            return self._refuse(refusal.problem)
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
            if self._is_closing and spec.operation not in _WHILE_CLOSING:
                raise DoorRefusal("closing", retry_after_s=CLOSING_RETRY_S)
            if spec.is_public:
                self._counts.operations[spec.operation] += 1
                return await self._public[spec.operation](request, name)
            grant = self._verify(_token_of(request) or self.sessions.token_of(request))
            if (admit := request.scope.get("extensions", {}).get("iris.admitted")) is not None:
                admit()  # the connection counts no longer for its address
            if wait_s := self._rates.take(grant.subject, asyncio.get_running_loop().time()):
                raise DoorRefusal("too-many", retry_after_s=wait_s)
            self._counts.operations[spec.operation] += 1
            with self._uses.open_verified(grant) as use:
                return await self._operations[spec.operation](ClientCall(request, name, use, self._limits.body_bytes))
        except (DoorRefusal, IrisError) as exc:
            return self._refuse(problem_of(exc, tells_remote_errors=grant is not None and grant.sees_remote_errors))
        except ClientGone:
            raise
        except Exception as exc:
            logger.error("door_failed", "an operation of a client failed", error=exc)
            return self._refuse(problem_of(DoorRefusal("failed")))

    def _refuse(self, problem: Problem) -> Response:
        self._counts.problems[problem.name] += 1
        return _problem_response(problem)

    def _find(self, request: Request) -> FoundPath:
        root = request.scope.get("root_path", "").encode()
        raw_path: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
        found = find_path(raw_path.partition(b"?")[0].removeprefix(root))
        method = "GET" if request.method == "HEAD" else request.method
        if method not in found:
            raise DoorRefusal("unknown-method", field=", ".join(found))
        return found[method]

    # -- monitoring

    async def _tell_alive(self, _request: Request, _name: str) -> Response:
        """Answer that the process works: the event loop runs, since it runs this.

        Raises:
            DoorRefusal: The node has ended.
        """
        if runtime_of(self._node).driver.is_closed:
            raise DoorRefusal("closing")
        return json_response(Health(status="SERVING"))

    async def _tell_ready(self, _request: Request, _name: str) -> Response:
        """Answer whether the door is ready for clients, without the reasons, which name nodes and addresses.

        Raises:
            DoorRefusal: It is not.
        """
        if not (self._node.health().is_ready and self._streams.is_open):
            raise DoorRefusal("not-ready", retry_after_s=CLOSING_RETRY_S)
        return json_response(Health(status="SERVING"))

    async def _write_metrics(self, call: ClientCall) -> Response:
        """Answer with the metrics of the door and its node, for Prometheus."""
        _check_observer(call)
        if self._metrics is None:
            self._metrics = _metrics_of(self._node, lambda: self.statistics)
        text = self._metrics
        return Response(await call.unless_gone(text.read()), media_type=text.media_type)

    # -- the dashboard

    async def _follow(self, call: ClientCall) -> Response:
        """Answer with pages of the dashboard, each second, as server-sent events."""
        _check_observer(call)
        grant = call.grant

        def open_use(end: Callable[[str], None]) -> GrantUse:
            return self._uses.open(grant, attrgetter("observes"), end)

        events = self._watch.view(call.parameters("page"), grant.until - time.time(), open_use)
        return StreamingResponse(events, media_type=EVENT_STREAM, headers={"x-accel-buffering": "no"})

    async def _page(self, call: ClientCall) -> Response:
        """Answer with one page of the dashboard."""
        _check_observer(call)
        return Response(await call.unless_gone(self._watch.page(call.name)), media_type="application/json")

    async def _examine(self, call: ClientCall) -> Response:
        """Begin an examination of the network, and answer with the page of its findings so far."""
        _check_observer(call)
        await call.body()
        return Response(await call.unless_gone(self._watch.examine()), 202, media_type="application/json")

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


def _metrics_of(node: Node, read: Callable[[], DoorStatistics]) -> MetricsText:
    """Return the text of the metrics of a door and its node."""
    from prometheus_client import CollectorRegistry

    registry = CollectorRegistry()
    registry.register(NodeCollector(node))
    registry.register(DoorCollector(read))
    return MetricsText(registry)


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
