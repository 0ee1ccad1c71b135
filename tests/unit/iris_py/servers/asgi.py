"""Asks an ASGI application without sockets."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Answer:
    """The answer of an application.

    Attributes:
        status: The status.
        headers: The headers, with lower-case names.
        content: The content.
    """

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.content = b""

    def json(self) -> Any:
        return msgspec.json.decode(self.content)

    @property
    def problem(self) -> str:
        """The name of the problem; empty if the answer is no problem."""
        if self.headers.get("content-type") != "application/problem+json":
            return ""
        return str(self.json()["type"]).rpartition("/")[2]


async def ask(
    app: Callable[..., Any],
    method: str,
    path: str,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
    *,
    gone: asyncio.Event | None = None,
    note: Callable[[bytes], object] | None = None,
) -> Answer:
    """Ask an application.

    Args:
        app: The application.
        method: The method.
        path: The raw path, with the query.
        body: The body, which comes in two parts.
        headers: The headers, besides ``Host``.
        gone: Set when the client closes its connection.
        note: Called with each part of the content.
    """
    raw, _mark, query = path.partition("?")
    given = {"host": "127.0.0.1:7480", **{name.lower(): value for name, value in (headers or {}).items()}}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": raw,
        "raw_path": raw.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 7480),
    }
    parts = [body[: len(body) // 2], body[len(body) // 2 :]]
    left = gone or asyncio.Event()
    answer = Answer()

    async def receive() -> dict[str, Any]:
        if parts:
            return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Mapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = {name.decode().lower(): value.decode() for name, value in message["headers"]}
        else:
            answer.content += message.get("body", b"")
            if note is not None:
                note(message.get("body", b""))

    await app(scope, receive, send)
    return answer
