"""The web server of `iris demo --web`: a page, and below ``/iris`` a door, as in a web application of a user."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Mount, Route

import iris_py
import iris_py.web
from iris_py.cli.demo.web_market import CLUSTER, PRICES
from iris_py.doors.problems import DoorRefusal
from iris_py.doors.rights import Rights
from iris_py.servers.web.dashboard.assets import Assets
from iris_py.servers.web.listener import WebListener

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request


__all__ = ["CHAT", "open_page"]

#: The topic of the chat.
CHAT: Final = "chat.room"
#: The name of the page's visitor, and the rights: those of the page, and of the dashboard.
VISITOR: Final = "visitor"
RIGHTS: Final = Rights(request=(CLUSTER,), publish=(CHAT,), subscribe=(f"{PRICES}.>", CHAT), observe=True)
#: A free port, for another door may listen at the usual one.
SETTINGS: Final = f"""
[web]
listen = "127.0.0.1:0"
[histories]
"{CHAT}" = {{ seconds = 3600, last = true }}
"{PRICES}.>" = {{ seconds = 60, last = true }}
"""


@asynccontextmanager
async def open_page(node: iris_py.Node) -> AsyncIterator[str]:
    """Serve the page over a node; yield its link, which signs in a browser within 10 minutes.

    Raises:
        ConfigurationError: No address of this machine can be used.
    """
    policy = iris_py.web.Policy.from_text(SETTINGS)
    async with iris_py.web.door(node, policy) as door:
        assets = Assets(__package__)

        async def answer(request: Request) -> Response:
            name = request.path_params.get("name", "index.html")
            try:
                return assets.answer(name, request.headers.get("if-none-match", ""))
            except DoorRefusal:
                return Response(status_code=404)

        app = Starlette(routes=[Route("/", answer), Route("/static/{name}", answer), Mount("/iris", door.app)])
        listener = WebListener(app, policy.settings.web)
        await listener.listen()
        try:
            yield f"http://{listener.address}/#code={door.make_code(VISITOR, RIGHTS)}"
        finally:
            await door.close(timeout=0.0)  # ends the event streams
            await listener.close()
