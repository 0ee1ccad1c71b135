"""One request of a client at a web door: its headers, parameters and body, checked."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any, Final, TypeVar

from iris_py.doors.problems import DoorRefusal

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

    from starlette.requests import Request

    from iris_py.doors.grant_uses import GrantUse

__all__ = ["ClientCall", "ClientGone"]

Result = TypeVar("Result")

#: Prefix of HTTP headers that become headers of the message.
HEADER_PREFIX: Final = "iris-header-"
#: The longest timeout that a client may ask for (seconds). Too large: connections are held for clients that are gone.
TIMEOUT_MAX_S: Final = 60.0


class ClientGone(Exception):
    """The client closed its connection before the answer."""


class ClientCall:
    """A request of a client, after the check of its token.

    Args:
        request: The request of HTTP.
        name: The name of the cluster or topic in the path; empty for none.
        use: The use of the client's grant.
        body_bytes: The largest body.

    Attributes:
        name: As passed.
        grant: The client and its rights.
    """

    def __init__(self, request: Request, name: str, use: GrantUse, body_bytes: int) -> None:
        self.name = name
        self.grant: Final = use.grant
        self._use = use
        self._request = request
        self._body_bytes = body_bytes

    def header(self, name: str) -> str:
        """Return a header; empty without the header."""
        return self._request.headers.get(name, "")

    def option(self, name: str) -> str:
        """Return a header that changes the operation; empty without the header.

        Raises:
            DoorRefusal: The header is empty, as from a variable that is not set: without it the operation would be another one.
        """
        value = self._request.headers.get(name)
        if value == "":
            raise DoorRefusal("invalid", field=name)
        return value or ""

    def parameter(self, name: str, default: str = "") -> str:
        """Return a parameter of the query; the default without the parameter."""
        return self._request.query_params.get(name, default)

    def parameters(self, name: str) -> list[str]:
        """Return all values of a parameter of the query."""
        return self._request.query_params.getlist(name)

    def timeout_s(self, default: float) -> float:
        """Return the timeout in the header ``Iris-Timeout`` (seconds).

        Raises:
            DoorRefusal: The header is no time from 0 to `TIMEOUT_MAX_S`.
        """
        text = self.option("Iris-Timeout")
        if not text:
            return default
        try:
            timeout = float(text)
        except ValueError:
            timeout = math.nan
        if not 0 < timeout <= TIMEOUT_MAX_S:
            raise DoorRefusal("invalid", field="Iris-Timeout")
        return timeout

    def whole_number(self, name: str) -> int | None:
        """Return a positive whole number in the query; None without the parameter.

        Raises:
            DoorRefusal: The parameter is another text.
        """
        text = self._request.query_params.get(name)
        if text is None:
            return None
        if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text)):
            raise DoorRefusal("invalid", field=name)
        return int(text)

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """Return a header with a fixed set of values; the first value without the header.

        Raises:
            DoorRefusal: The header has another value.
        """
        value = self.option(name) or choices[0]
        if value not in choices:
            raise DoorRefusal("invalid", field=name)
        return value

    def message_headers(self) -> Mapping[str, str] | None:
        """Return the headers of the message, from the headers ``Iris-Header-NAME``; None without any."""
        found = {
            name[len(HEADER_PREFIX) :]: value
            for name, value in self._request.headers.items()
            if name.startswith(HEADER_PREFIX) and len(name) > len(HEADER_PREFIX)
        }
        return found or None

    async def body(self) -> bytes:
        """Return the body.

        Raises:
            DoorRefusal: The body is too large.
            ClientGone: The client closed its connection.
        """
        from starlette.requests import ClientDisconnect

        parts: list[bytes] = []
        size = 0
        try:
            async for part in self._request.stream():
                size += len(part)
                if size > self._body_bytes:
                    raise DoorRefusal("body-too-large")
                parts.append(part)
        except ClientDisconnect:
            raise ClientGone from None
        return b"".join(parts)

    async def unless_gone(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Return the result of some work; cancel the work when the client closes the connection, or loses its grant.

        ClientCall it after :meth:`body`.

        Raises:
            ClientGone: The client closed its connection.
            DoorRefusal: The grant has ended; the work may have been done.
        """
        use = self._use
        if use.problem:
            work.close()
            use.check()
        task = asyncio.ensure_future(work)
        gone = asyncio.ensure_future(self.wait_until_gone())
        use.on_end = lambda _problem: gone.cancel()
        try:
            await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            if use.problem:
                raise DoorRefusal(use.problem, executed="maybe")
            raise ClientGone
        finally:
            use.on_end = None
            gone.cancel()
            if not task.done():
                task.cancel()
                await asyncio.wait((task,))

    async def wait_until_gone(self) -> None:
        """Return when the client has closed its connection. ClientCall it after :meth:`body`."""
        while (await self._request.receive())["type"] != "http.disconnect":
            pass
