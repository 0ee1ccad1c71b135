"""The web application: its own login, its page, and a door, by which browsers follow the notes of their users.

Start it with a port: `python app.py 8000`.
"""

import contextlib
import re
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

import iris_py as iris
import iris_py.web

FOLDER = Path(__file__).parent
NAME = re.compile("[a-z]{1,20}")


@contextlib.asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    policy = iris_py.web.Policy.from_file(FOLDER / "door.toml")
    async with iris.connect(name="app") as node, iris_py.web.door(node, policy) as door:
        app.state.node, app.state.door = node, door
        app.mount("/iris", door.app)
        yield


async def show_page(_request: Request) -> Response:
    return FileResponse(FOLDER / "static" / "index.html")


async def log_in(request: Request) -> Response:
    """Log in by a name alone: an example. Your application has its own login, and the rest stays as it is."""
    name = str((await request.json()).get("name"))
    if not NAME.fullmatch(name):
        raise HTTPException(400, "a name has 1 to 20 letters from a to z")
    answer = JSONResponse({"name": name})
    answer.set_cookie("user", name, httponly=True, samesite="strict")
    return answer


def user_of(request: Request) -> str:
    name = request.cookies.get("user", "")
    if not NAME.fullmatch(name):
        raise HTTPException(401, "log in first")
    return name


async def make_token(request: Request) -> Response:
    """Answer with a token for the door, with the rights of a user."""
    user = user_of(request)
    token = request.app.state.door.make_token(user, role="viewer")
    return JSONResponse({"user": user, "token": token}, headers={"Cache-Control": "no-store"})


async def read_notes(request: Request) -> Response:
    """Answer with the last notes of the user, which the job has."""
    try:
        notes = await request.app.state.node.request("notes", user_of(request).encode(), timeout=5, idempotent=True)
    except iris.IrisError as error:
        raise HTTPException(503, "the job does not answer") from error
    return Response(notes, media_type="application/json")


app = Starlette(
    lifespan=lifespan,
    routes=[
        Route("/", show_page),
        Route("/login", log_in, methods=["POST"]),
        Route("/token", make_token, methods=["POST"]),
        Route("/notes", read_notes),
        Mount("/static", StaticFiles(directory=FOLDER / "static")),
    ],
)


class Server(uvicorn.Server):
    """Closes the door at first, because event streams do not end by themselves, and uvicorn waits for all answers."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await app.state.door.close(timeout=2)
        await super().shutdown(sockets)


if __name__ == "__main__":
    Server(uvicorn.Config(app, port=int(sys.argv[1]), log_level="warning")).run()
