"""The types that mypy and pyright infer for codecs and payloads. They read this file; nothing runs it (see typed_programs.py).

Each ``type: ignore`` marks a mistake that both have to report: an unused one is an error.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, assert_type

import msgspec
import pydantic

import iris_py as iris
import iris_py.sync
from spark_connector import local_agent

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence


class Get(msgspec.Struct, tag=True):
    id: int


class Put(msgspec.Struct, tag=True):
    name: str


class User(msgspec.Struct):
    id: int


@dataclass
class Point:
    x: float


class Model(pydantic.BaseModel):
    x: float


# -- making codecs

USERS = iris.Codec(Get | Put, User)
MAYBE = iris.Codec(Get, User | None)
assert_type(USERS, iris.Codec[Get | Put, User])
assert_type(MAYBE, iris.Codec[Get, User | None])
assert_type(iris.Codec(Get), iris.Codec[Get, Get])
assert_type(iris.Codec(Get | Put), iris.Codec[Get | Put, Get | Put])
assert_type(iris.Codec(Get, None), iris.Codec[Get, None])
assert_type(iris.Codec(list[int], dict[str, Get | Put]), iris.Codec[list[int], dict[str, Get | Put]])
assert_type(iris.Codec(Literal["on", "off"], bool), iris.Codec[Literal["on", "off"], bool])
assert_type(iris.Codec(Annotated[int, msgspec.Meta(ge=0)], Point), iris.Codec[int, Point])
assert_type(iris.Codec(Model | Point, Model, format="msgpack"), iris.Codec[Model | Point, Model])
assert_type(iris.Codec[Get | Put, User](Get | Put, User), iris.Codec[Get | Put, User])
ANNOTATED: iris.Codec[Get | Put, User] = iris.Codec(Get | Put, User)
iris.Codec(3)  # type: ignore[call-overload]
iris.Codec(Get, User, format="yaml")  # type: ignore[call-overload]


# -- asking


async def ask(node: iris.Node) -> None:
    assert_type(await node.request("users", Put("x"), codec=USERS), User)
    assert_type(await node.request("users", Get(1), codec=MAYBE), User | None)
    assert_type(await node.request("users", Get(1), codec=Get), Get)
    assert_type(await node.request("users", Get(1), codec=Get | Put), Get | Put)
    assert_type(await node.request("users", [1], codec=list[int]), list[int])
    assert_type(await node.request("users", {"id": 1}, codec="json"), Any)
    assert_type(await node.request("users", b"1"), bytes)
    print(await node.request("users", Get(1), codec=USERS))  # an object is expected, which a checker may take the reply for
    anything: object = await node.request("users", Get(1), codec=MAYBE)
    print(anything, await node.survey("users", Get(1), codec=USERS))
    assert_type((await node.survey("users", Put("x"), codec=USERS))[0].payload, User)
    assert_type((await node.survey("users", Get(1), codec=Get | Put))[0].payload, Get | Put)
    assert_type((await node.survey("users", b"1"))[0].payload, bytes)
    await node.request("users", User(1), codec=USERS)  # type: ignore[misc]
    await node.request("users", Get(1))  # type: ignore[call-overload]
    await node.request("users", b"", codec="yaml")  # type: ignore[call-overload]
    await node.broadcast("users", Get(1), codec=USERS)
    await node.broadcast("users", Get(1), codec=Get | Put)
    await node.broadcast("users", User(1), codec=USERS)  # type: ignore[misc]


def ask_in_threads(node: iris_py.sync.Node) -> None:
    assert_type(node.request("users", Put("x"), codec=USERS), User)
    assert_type(node.request("users", Get(1), codec=Get | Put), Get | Put)
    assert_type(node.request_future("users", Get(1), codec=MAYBE), Future[User | None])
    assert_type(node.request_future("users", Get(1), codec=Get | Put), Future[Get | Put])
    assert_type(node.survey("users", Get(1), codec=MAYBE), iris_py.sync.Survey[User | None])
    assert_type(node.survey("users", Get(1), codec=Get | None), iris_py.sync.Survey[Get | None])
    node.broadcast("users", Get(1), codec=Get | Put)


def ask_from_a_task() -> None:
    agent = local_agent()
    assert_type(agent.request("users", Put("x"), codec=USERS), User)
    assert_type(agent.request("users", Get(1), codec=User | None), User | None)
    assert_type(agent.request_future("users", Get(1), codec=User | None), Future[User | None])
    agent.publish("users", Get(1), codec=Get | Put)


# -- publishing and subscribing


async def publish(node: iris.Node) -> None:
    await node.publish("users", Get(1), codec=USERS)
    await node.publish("users", Get(1), codec=Get | Put)
    await node.publish("users", {"id": 1}, codec="json")
    await node.publish_many("users", [Get(1), Put("x")], codec=Get | Put)
    node.try_publish("users", Get(1), codec=Get | Put)
    await node.publish("users", User(1), codec=USERS)  # type: ignore[misc]
    await node.publish("users", Get(1))  # type: ignore[call-overload]
    assert_type(await node.subscribe("users"), iris.Subscription)
    assert_type(await node.subscribe("users", codec=USERS), iris.Subscription[Get | Put])
    assert_type(await node.subscribe("users", codec=Get | Put), iris.Subscription[Get | Put])
    assert_type(await node.subscribe("users", codec="json"), iris.Subscription[Any])

    async def take(message: iris.Message[Get | Put]) -> None: ...

    await node.subscribe("users", take, codec=USERS)
    await node.subscribe("users", take, codec=Get | Put)
    await node.subscribe("users", take)  # type: ignore[arg-type]


# -- serving


class Users(iris.Handler[Get | Put, User]):
    async def on_request(self, request: iris.Request[Get | Put]) -> User:
        return User(request.payload.id if isinstance(request.payload, Get) else 0)


class UsersInThreads(iris_py.sync.Handler[Get | Put, User]):
    def on_request(self, request: iris.Request[Get | Put]) -> User:
        return User(0)


class BytesLike(iris.Handler):
    async def on_request(self, request: iris.Request) -> bytearray:
        return bytearray(request.payload)

    async def on_requests(self, requests: Sequence[iris.Request]) -> Sequence[memoryview | Exception]:
        return [memoryview(each.payload) for each in requests]


class OnlyBytes(iris.Handler[bytes, bytes]):
    async def on_request(self, request: iris.Request) -> bytes:
        return request.payload


class BytesLikeInThreads(iris_py.sync.Handler):
    def on_request(self, request: iris.Request) -> memoryview:
        return memoryview(request.payload)


async def find(request: iris.Request[Get]) -> User | None:
    return User(request.payload.id)


async def echo(request: iris.Request[Get | Put]) -> Get | Put:
    return request.payload


def view(request: iris.Request) -> memoryview:
    return memoryview(request.payload)


async def serve(node: iris.Node) -> None:
    await node.join("users", Users(), codec=USERS)
    await node.join("users", find, codec=MAYBE)
    await node.join("users", echo, codec=Get | Put)
    await node.join("users", BytesLike())
    await node.join("users", OnlyBytes())
    await node.join("users", view)
    await node.join("users", lambda request: b"x" + request.payload)
    await node.join("users", iris.Sealed(find, "secret"), codec=MAYBE)
    await node.join("users", lambda request: request.payload["id"], codec="json")
    await node.join("users", Users())  # type: ignore[arg-type]
    await node.join("users", find, codec=USERS)  # type: ignore[arg-type]
    await node.join("users", find)  # type: ignore[arg-type]


def serve_in_threads(node: iris_py.sync.Node) -> None:
    node.join("users", UsersInThreads(), codec=USERS)
    node.join("users", Users(), codec=USERS)
    node.join("users", lambda request: request.payload, codec=Get | Put)
    node.join("users", BytesLikeInThreads())
    node.join("users", view)


# -- what is like bytes


async def send(node: iris.Node, array: bytearray, part: memoryview) -> None:
    await node.request("users", array)
    await node.request("users", part)
    await node.survey("users", part)
    await node.broadcast("users", array)
    await node.publish("users", part)
    await node.publish_many("users", [array, part])
    node.try_publish("users", array)
    async with node.tunnel("users") as tunnel:
        await tunnel.send(part)
        await tunnel.send_chunks([b"1", array, part])


def send_in_threads(node: iris_py.sync.Node, array: bytearray, part: memoryview) -> None:
    node.request("users", array)
    node.request_future("users", part)
    node.survey("users", part)
    node.publish("users", part)
    node.publish_many("users", [array, part])
    with node.tunnel("users") as tunnel:
        tunnel.send_chunks([b"1", array, part])


#: Handlers that are passed on to `join`.
FUNCTION: Callable[[iris.Request[Get]], Awaitable[User | None]] = find
