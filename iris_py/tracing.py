"""Traces by OpenTelemetry: a span on both sides of each pattern, in one trace (docs/tracing.md).

The caller's span travels as W3C trace context in the headers of the message, written by the program's propagators. A node
traces if OpenTelemetry was set up before it connects; see ``tracing=`` of :func:`iris_py.connect`. Names and attributes follow
OpenTelemetry's semantic conventions: of RPC for patterns with an answer, of messaging for the others.

This module imports OpenTelemetry only if the program did so, or asks for traces.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from iris_py.errors import ConfigurationError
from iris_py.extras import install_command
from iris_py.wire.headers import Headers, encode_headers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextvars import Token
    from types import TracebackType

    from opentelemetry.context import Context
    from opentelemetry.trace import Span, TracerProvider

    from iris_py.wire.headers import HeaderValue

__all__ = ["context_of"]

#: The setting ``tracing=``: whether a node makes spans, and with which provider; see :func:`find_tracing`.
TracingSetting: TypeAlias = "TracerProvider | bool | None"

_SYSTEM: Final = "iris"


class Traced(Protocol):
    """A received request, message or tunnel."""

    @property
    def headers(self) -> Mapping[str, HeaderValue]:
        """The headers that the sender has passed."""


def context_of(received: Traced) -> Context:
    """Return the trace context of a request, message or tunnel, as the parent of the program's own spans.

    Needed only for messages of an iterated subscription: handlers and callbacks already run in a span.

    Args:
        received: A :class:`~iris_py.Request`, :class:`~iris_py.Message` or :class:`~iris_py.Tunnel`.

    Returns:
        An OpenTelemetry context; empty if the sender did not trace.

    Raises:
        ConfigurationError: OpenTelemetry is not installed.
    """
    try:
        from opentelemetry import propagate
        from opentelemetry.context import Context
    except ImportError as exc:
        raise ConfigurationError(f"a trace context needs OpenTelemetry. Run: {install_command('otel')}") from exc
    # Only headers of type str: some propagators raise for other types.
    texts = {name: value for name, value in received.headers.items() if isinstance(value, str)}
    return propagate.extract(texts, Context())


class SenderSpan:
    """The span of a sender. Use ``with``, or call :meth:`end`.

    Attributes:
        headers: The headers to send: the program's headers, and the trace context of the span.
    """

    __slots__ = ("_span", "headers")

    def __init__(self, span: Span, headers: Headers) -> None:
        self._span = span
        self.headers = headers

    def end(self, error: BaseException | None = None) -> None:
        """End the span, with an error if one occurred."""
        if error is not None:
            _note(self._span, error)
        self._span.end()

    def __enter__(self) -> Headers:
        return self.headers

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end(exc)


class Handling:
    """The span of a receiver's handler: the current span within ``with``."""

    __slots__ = ("_context", "_span", "_token")

    def __init__(self, span: Span, context: Context) -> None:
        self._span = span
        self._context = context
        self._token: Token[Context] | None = None

    def __enter__(self) -> None:
        from opentelemetry.context import attach

        self._token = attach(self._context)

    def fail(self, error: Exception) -> None:
        """Mark the span as failed with an error that the handler has returned for the caller and not raised."""
        _note(self._span, error)

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        from opentelemetry.context import detach

        assert self._token is not None
        detach(self._token)
        if exc is not None:
            _note(self._span, exc)
        self._span.end()


class Tracing:
    """Makes the spans of one node.

    Args:
        provider: Provides the tracer.
        count_drop: Counts trace contexts that could not be sent.
        name: The label of the node, an attribute of each span; empty for none.
    """

    def __init__(self, provider: TracerProvider, count_drop: Callable[[str], object], name: str = "") -> None:
        from opentelemetry import propagate, trace

        self._trace = trace
        self._propagate = propagate
        self._tracer = provider.get_tracer("iris_py")
        self._count_drop = count_drop
        self._own: dict[str, str | int] = {"iris.node.name": name} if name else {}

    # -- senders

    def call(self, operation: str, cluster: str, headers: Headers) -> SenderSpan:
        """Begin the span of a caller: of a ``request``, a ``survey``, or for a ``tunnel``."""
        method = f"{cluster}/{operation}"
        attributes = {"rpc.system.name": _SYSTEM, "rpc.method": method, **self._own}
        return self._call(self._tracer.start_span(method, kind=self._trace.SpanKind.CLIENT, attributes=attributes), headers)

    def send(self, operation: str, name: str, headers: Headers, size: int) -> SenderSpan:
        """Begin the span of a sender without an answer: of a ``broadcast`` to a cluster, or ``publish`` to a topic."""
        attributes = _messaging(operation, "send", name, size) | self._own
        kind = self._trace.SpanKind.PRODUCER
        return self._call(self._tracer.start_span(f"{operation} {name}", kind=kind, attributes=attributes), headers)

    def _call(self, span: Span, headers: Headers) -> SenderSpan:
        carrier: dict[str, str] = {}
        self._propagate.inject(carrier, self._trace.set_span_in_context(span))
        if not carrier:
            return SenderSpan(span, headers)
        try:
            # The carrier comes last: headers that a program passes on from a request hold the context of another span.
            return SenderSpan(span, encode_headers({**headers, **carrier}, is_internal=True))
        except ConfigurationError:  # all headers together are too large; those of the application alone are not
            self._count_drop("trace_context")
            return SenderSpan(span, headers)

    # -- receivers

    def serve(self, operation: str, cluster: str, source: str, received: Traced) -> Handling:
        """Make the span of a handler with an answer; see :meth:`call`."""
        method = f"{cluster}/{operation}"
        attributes = {"rpc.system.name": _SYSTEM, "rpc.method": method, "iris.source": source, **self._own}
        context = context_of(received)
        span = self._tracer.start_span(method, context, self._trace.SpanKind.SERVER, attributes)
        return Handling(span, self._trace.set_span_in_context(span, context))

    def process(self, name: str, source: str, received: Traced, size: int, pattern: str = "") -> Handling:
        """Make the span of a handler or callback without an answer; see :meth:`send`.

        Args:
            name: The cluster or the topic.
            source: The sender.
            received: The message.
            size: The size of the payload in bytes.
            pattern: The subscribed pattern; empty for a broadcast.
        """
        attributes = _messaging("process", "process", name, size) | self._own
        attributes["iris.source"] = source
        if pattern:
            attributes["messaging.destination.subscription.name"] = pattern
        context = context_of(received)
        span = self._tracer.start_span(f"process {name}", context, self._trace.SpanKind.CONSUMER, attributes)
        return Handling(span, self._trace.set_span_in_context(span, context))


def find_tracing(setting: TracingSetting, count_drop: Callable[[str], object], name: str = "") -> Tracing | None:
    """Return the tracing of a node; None if the node does not trace.

    Args:
        setting: A provider of tracers; True for the program's provider, which may be set up later; None for the program's
            provider if already set up; False for no spans.
        count_drop: Counts trace contexts that could not be sent.
        name: The label of the node; empty for none.

    Raises:
        ConfigurationError: OpenTelemetry is asked for, and not installed.
    """
    if setting is False or (setting is None and sys.modules.get("opentelemetry.trace") is None):
        return None  # a program that has not imported OpenTelemetry has not set it up
    try:
        from opentelemetry import trace
    except ImportError as exc:
        raise ConfigurationError(f"tracing={setting!r} needs OpenTelemetry. Run: {install_command('otel')}") from exc
    if setting is not None and setting is not True:
        return Tracing(setting, count_drop, name)
    provider = trace.get_tracer_provider()
    is_idle = isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider)
    if setting is None and (is_idle or isinstance(provider.get_tracer("iris_py"), trace.NoOpTracer)):
        return None
    return Tracing(provider, count_drop, name)


def _messaging(operation: str, type_: str, name: str, size: int) -> dict[str, str | int]:
    return {
        "messaging.system": _SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": type_,
        "messaging.destination.name": name,
        "messaging.message.body.size": size,
    }


def _note(span: Span, error: BaseException) -> None:
    """Record the error that ended an operation; cancellation is no error."""
    if not isinstance(error, Exception | SystemExit | KeyboardInterrupt):
        span.set_attribute("iris.cancelled", True)
        return
    from opentelemetry.trace import StatusCode

    span.set_attribute("error.type", type(error).__qualname__)
    span.record_exception(error)
    span.set_status(StatusCode.ERROR, str(error))
