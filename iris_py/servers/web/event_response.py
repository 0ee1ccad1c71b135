"""The answer of HTTP that carries an event stream, as a plain ASGI program.

Starlette's `StreamingResponse` needs two tasks and a task group for each client. This answer needs the task of the request,
and a task for the end of the connection.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from iris_py.doors.web.event_text import EventFormat
    from iris_py.servers.web.topic_streams import TopicStream

__all__ = ["EVENT_MEDIA_TYPES", "EventResponse"]

#: The media type of each format.
EVENT_MEDIA_TYPES: Final[dict[EventFormat, str]] = {"sse": "text/event-stream", "lines": "application/x-ndjson"}


class EventResponse(Response):
    """An answer with the events of a client. It closes the stream at the end of the connection.

    Args:
        stream: The stream.
        event_format: The format of its events.
    """

    def __init__(self, stream: TopicStream, event_format: EventFormat) -> None:
        self._stream = stream
        self.status_code = 200
        self.media_type = EVENT_MEDIA_TYPES[event_format]
        self.background = None
        # Proxies neither keep nor gather the events.
        self.init_headers({"cache-control": "no-store", "x-accel-buffering": "no"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events until the stream or the connection ends."""
        stream = self._stream
        stream.writer = scope.get("extensions", {}).get("iris.writer")
        if scope["method"] == "HEAD":
            stream.close()
        watcher = asyncio.create_task(self._wait_until_gone(receive))
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            async for content in stream:
                await send({"type": "http.response.body", "body": content, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            stream.close()
            watcher.cancel()

    async def _wait_until_gone(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._stream.close()
