"""A small network with a door that everything is allowed at: prints its address and a token, until it is ended."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import sys
import time
from typing import TYPE_CHECKING, Final

import msgspec

import iris_py as iris
from iris_py.api.runtime import runtime_of
from iris_py.doors.rights import Rights
from iris_py.doors.settings import parse_settings
from iris_py.servers.tokens import TOKEN_ID_BYTES, make_token
from iris_py.servers.web.door import open_door

if TYPE_CHECKING:
    from iris_py.api.node import Node

#: Limits for one client that asks without a pause.
SETTINGS: Final = """
[web]
listen = "127.0.0.1:0"
[web.limits]
operations_per_s = 100000
burst = 100000
connections_per_address = 10000
connections_per_subject = 10000
[histories]
"notes.>" = {seconds = 60, last = true}
"""
RIGHTS: Final = Rights(
    request=("*",), survey=("*",), broadcast=("*",), publish=(">",), subscribe=(">",), observe=True, remote_errors=True
)
#: One of each form, and texts that break lines or are no UTF-8.
PAYLOADS: Final = (b'{"a": [1, 2.5, null]}', b"plain", "\u2028\r\n".encode(), b"\xff\x00", b"", b'"\\ud800"', b"[" * 1000)
PAUSE_S: Final = 0.01


class Upper(iris.Handler):
    """Answers in capitals; each seventh request fails."""

    def __init__(self) -> None:
        self._calls = 0

    async def on_request(self, request: iris.Request) -> bytes:
        self._calls += 1
        if not self._calls % 7:
            raise ValueError("seven")
        return request.payload.upper()

    async def on_broadcast(self, message: iris.Message) -> None:
        pass


async def publish(node: Node) -> None:
    """Publish to the topics that the description has as examples."""
    number = 0
    while True:
        number += 1
        with contextlib.suppress(iris.IrisError):
            await node.publish("notes.ann", PAYLOADS[number % len(PAYLOADS)], headers={"n": number, "b": b"\xff"})
        await asyncio.sleep(PAUSE_S)


async def main() -> None:
    async with contextlib.AsyncExitStack() as stack:
        node = await stack.enter_async_context(iris.connect(network="web", listen="127.0.0.1:0"))
        member = await stack.enter_async_context(iris.connect(network="web", listen="127.0.0.1:0", seeds=[node.address]))
        await stack.enter_async_context(member.join("upper", Upper()))
        door = await stack.enter_async_context(open_door(node, parse_settings(SETTINGS, "door.toml")))
        token = make_token(
            runtime_of(node).keyring.primary,
            subject="ann",
            lifetime_s=3600,
            rights=RIGHTS,
            now=time.time(),
            token_id=secrets.token_hex(TOKEN_ID_BYTES),
        )
        publishing = asyncio.create_task(publish(member))
        print(msgspec.json.encode({"url": door.url, "token": token}).decode(), flush=True)
        with contextlib.suppress(asyncio.CancelledError):
            await iris.until_stopped()
        publishing.cancel()


if __name__ == "__main__":
    sys.exit(iris.run(main()))
