"""Signatures of functions of a service: what each parameter is given, what goes over the wire, and what is refused."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable  # noqa: TC003 - they are read at run time, as those of programs
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NewType

import msgspec
import pydantic
import pytest

import iris_py as iris
import iris_py.sync
from iris_py.errors import ConfigurationError, DecodeError, EncodeError
from iris_py.patterns.messages import Request
from iris_py.service.handler_calls import class_codec, plan_construction, plan_consumer, plan_handler, plan_hook

if TYPE_CHECKING:
    from collections.abc import Callable
    from decimal import Decimal


class Find(msgspec.Struct):
    id: int


class User(msgspec.Struct):
    name: str


@dataclass
class Point:
    x: float


class Model(pydantic.BaseModel):
    x: int


class Pool:
    pass


class Other:
    pass


Reads = NewType("Reads", Pool)

NODE, THREADED = object(), object()
POOL, READS = Pool(), Pool()
VALUES: dict[Any, Any] = {iris.Node: NODE, iris_py.sync.Node: THREADED, Pool: POOL, Reads: READS}
RESOURCES = [Pool, Reads]


def called(function: Callable[..., Any], payload: bytes) -> Any:
    """Return the reply of a function to a request, as bytes, through its codec."""
    call = plan_handler(function, RESOURCES)
    value: Any = payload if call.codec is None else call.codec.decode_request(payload)
    reply = call.bind(VALUES)(Request(value, None, None))  # type: ignore[arg-type]
    if call.is_async:
        with pytest.raises(StopIteration) as stopped:  # it awaits nothing
            reply.send(None)
        reply = stopped.value.value
    return reply if call.codec is None else call.codec.encode_reply(reply)


# -- payloads


async def struct(request: Find) -> User:
    return User(f"user {request.id}")


async def maybe(request: Find) -> User | None:
    return User("one") if request.id else None


def data_class(request: Point) -> Point:
    return Point(request.x + 1)


def model(request: Model) -> Model:
    return Model(x=request.x + 1)


def plain_types(request: list[int]) -> dict[str, int]:
    return {"sum": sum(request)}


def limited(request: Annotated[int, msgspec.Meta(ge=0)]) -> int:
    return request


def nothing(request: Find) -> None:
    pass


def anything(request: Find) -> Any:
    return {"id": request.id}


def later(request: Find) -> Awaitable[int]:
    raise NotImplementedError


async def whole(request: iris.Request[Find]) -> str:
    assert isinstance(request, iris.Request)
    return str(request.payload.id)


def payload_alone(request: bytes) -> bytes:
    return request.upper()


def out_only(request: iris.Request) -> Point:
    return Point(float(len(request.payload)))


def in_only(request: Find) -> bytes:
    return b"%d" % request.id


@pytest.mark.parametrize(
    ("function", "payload", "reply"),
    [
        (struct, b'{"id": 7}', b'{"name":"user 7"}'),
        (maybe, b'{"id": 0}', b"null"),
        (data_class, b'{"x": 1.5}', b'{"x":2.5}'),
        (model, b'{"x": 1}', b'{"x":2}'),
        (plain_types, b"[1, 2]", b'{"sum":3}'),
        (limited, b"5", b"5"),
        (nothing, b'{"id": 7}', b"null"),
        (anything, b'{"id": 7}', b'{"id":7}'),
        (whole, b'{"id": 7}', b'"7"'),
        (payload_alone, b"abc", b"ABC"),
        (out_only, b"no JSON", b'{"x":7.0}'),
        (in_only, b'{"id": 7}', b"7"),
    ],
)
def test_annotations_say_what_goes_over_the_wire(function: Callable[..., Any], payload: bytes, reply: bytes) -> None:
    assert called(function, payload) == reply


def test_what_does_not_fit_the_annotation_is_refused() -> None:
    codec = plan_handler(limited, []).codec
    assert codec is not None
    with pytest.raises(DecodeError, match=">= 0"):
        codec.decode_request(b"-1")
    codec = plan_handler(struct, []).codec
    assert codec is not None
    with pytest.raises(EncodeError, match="not User"):
        codec.encode_reply(Find(1))
    assert plan_handler(later, []).codec is not None


def test_the_format_is_chosen_beside_the_function() -> None:
    codec = plan_handler(struct, [], format="msgpack").codec
    assert codec is not None
    assert codec.decode_request(msgspec.msgpack.encode(Find(7))) == Find(7)


def test_a_codec_that_is_given_counts_and_the_annotation_says_whether_the_request_is_wanted() -> None:
    given = iris.Codec(Find, str)
    for function, payload in ((struct, Find), (whole, iris.Request), (lambda request: request, iris.Request)):
        call = plan_handler(function, [], codec=given)
        assert call.codec is given
        assert call.is_whole == (payload is iris.Request)


# -- functions without annotations that say anything stay as they are


def unannotated(request, times=1):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    return request.payload * times


def named(request: Request) -> bytearray | memoryview | None:
    return bytearray(request.payload)


def several(*requests, **options):  # type: ignore[no-untyped-def]  # noqa: ANN002, ANN003, ANN201
    (request,) = requests
    return request.payload


def loose(request: Any) -> Any:
    return request.payload


class Callable_:
    def __call__(self, request: iris.Request) -> bytes:
        return request.payload

    def method(self, request: iris.Request) -> bytes:
        return request.payload


@pytest.mark.parametrize(
    "function",
    [
        unannotated,
        named,
        several,
        loose,
        Callable_(),
        Callable_().method,
        lambda request: request.payload,
        functools.partial(unannotated, times=1),
        functools.wraps(named)(lambda *args: named(*args)),
    ],
)
def test_functions_of_a_request_and_bytes_are_called_as_they_are(function: Callable[..., Any]) -> None:
    call = plan_handler(function, RESOURCES)
    assert call.codec is None
    assert call.bind(VALUES) is function


def test_a_function_of_c_code_is_taken_for_one_of_a_request() -> None:
    assert plan_handler(max, []).is_whole


@pytest.mark.parametrize("annotation", ["Request", "iris.Request", "iris_py.Request"])
def test_a_request_may_be_imported_for_type_checkers_alone(annotation: str) -> None:
    names: dict[str, Any] = {}
    exec(f"from __future__ import annotations\ndef answer(request: {annotation}) -> bytes:\n    return b''", names)
    assert plan_handler(names["answer"], []).bind(VALUES) is names["answer"]


# -- the node, and resources


async def with_node(request: Find, node: iris.Node) -> bool:
    return node is NODE


async def node_first(node: iris.Node, request: Find) -> bool:
    return node is NODE and request == Find(7)


def in_thread(request: Find, node: iris_py.sync.Node) -> bool:
    return node is THREADED


async def with_pools(request: Find, *, pool: Pool, reads: Reads, tries: int = 3) -> bool:
    return pool is POOL and reads is READS and tries == 3


async def optional_node(request: Find, node: iris.Node | None = None) -> bool:
    return node is NODE


async def annotated_pool(request: Find, pool: Annotated[Pool, "of this process"]) -> bool:
    return pool is POOL


async def request_by_name(*, request: Find, pool: Pool) -> bool:
    return request == Find(7) and pool is POOL


async def no_such_resource(request: Find, other: Other | None = None) -> bool:
    return other is None


@pytest.mark.parametrize(
    "function",
    [with_node, node_first, in_thread, with_pools, optional_node, annotated_pool, request_by_name, no_such_resource],
)
def test_parameters_are_given_the_node_and_resources_by_their_types(function: Callable[..., Any]) -> None:
    assert called(function, b'{"id": 7}') == b"true"


def test_a_plain_function_in_the_event_loop_is_given_the_node_of_the_loop() -> None:
    def inline(request: bytes, node: iris.Node) -> bytes:
        return request

    assert plan_handler(inline, [], inline=True).given == (("node", iris.Node),)


def test_consumers_take_a_message_or_its_payload() -> None:
    async def typed(click: Find, pool: Pool) -> None: ...
    async def whole(message: iris.Message[Find]) -> int: ...  # type: ignore[empty-body]
    def untyped(message) -> None: ...  # type: ignore[no-untyped-def]  # noqa: ANN001

    assert plan_consumer(typed, RESOURCES).codec is not None
    assert not plan_consumer(typed, RESOURCES).is_whole
    assert plan_consumer(whole, RESOURCES).is_whole
    assert plan_consumer(untyped, RESOURCES).codec is None
    assert plan_consumer(untyped, RESOURCES).bind(VALUES) is untyped


# -- classes


class Plain(iris.Handler):
    pass


class Users(iris.Handler[Find, User]):
    def __init__(self, pool: Pool, node: iris.Node, tries: int = 3) -> None:
        self.given = pool, node, tries


class More(Users):
    pass


class InThreads(iris_py.sync.Handler[Find, bytes]):
    def __init__(self, node: iris_py.sync.Node) -> None:
        self.node = node


class Needy(iris.Handler):
    def __init__(self, name: str) -> None: ...


def test_classes_are_made_with_the_node_and_resources() -> None:
    assert plan_construction(Users, RESOURCES).bind(VALUES)().given == (POOL, NODE, 3)
    assert plan_construction(InThreads, []).bind(VALUES)().node is THREADED
    assert isinstance(plan_construction(Plain, []).bind(VALUES)(), Plain)
    with pytest.raises(
        ConfigurationError, match=r"test_handler_calls\.Needy cannot be served: its parameter 'name' is annotated str"
    ):
        plan_construction(Needy, [])


def test_the_base_of_a_class_names_its_codec() -> None:
    assert class_codec(Plain, "json") is None
    assert class_codec(iris.Handler, "json") is None
    for kind in (Users, More):
        codec = class_codec(kind, "json")
        assert codec is not None
        assert codec.decode_request(b'{"id": 7}') == Find(7)
        assert codec.encode_reply(User("a")) == b'{"name":"a"}'
    codec = class_codec(InThreads, "json")
    assert codec is not None
    assert codec.encode_reply(b"as it is") == b"as it is"

    class Odd(iris.Handler[Other, bytes]):
        pass

    with pytest.raises(ConfigurationError, match=r"Odd cannot be served: no codec can be made of the class Other"):
        class_codec(Odd, "json")


# -- what is refused


async def none() -> bytes: ...  # type: ignore[empty-body]
async def only_node(node: iris.Node) -> bytes: ...  # type: ignore[empty-body]
async def two(request: Find, pool: Other) -> User: ...  # type: ignore[empty-body]
async def two_requests(find: Find, point: Point) -> User: ...  # type: ignore[empty-body]
async def bare_and_more(request, other) -> bytes: ...  # type: ignore[no-untyped-def, empty-body]  # noqa: ANN001
async def foreign(request: Other) -> bytes: ...  # type: ignore[empty-body]
async def foreign_reply(request: Find) -> Other: ...  # type: ignore[empty-body]
async def silent(request: Find):  # type: ignore[no-untyped-def]  # noqa: ANN201
    pass


async def unresolved(request: Decimal) -> bytes: ...  # type: ignore[empty-body]
async def unresolved_reply(request: Find) -> Decimal: ...  # type: ignore[empty-body]
async def unresolved_extra(request: Find, amount: Decimal) -> bytes: ...  # type: ignore[empty-body]
async def of_message(request: iris.Message) -> bytes: ...  # type: ignore[empty-body]
async def of_array(request: bytearray) -> bytes: ...  # type: ignore[empty-body]
async def wrong_node(request: Find, node: iris_py.sync.Node) -> bytes: ...  # type: ignore[empty-body]
def wrong_node_in_thread(request: Find, node: iris.Node) -> bytes: ...  # type: ignore[empty-body]
async def positional(node: iris.Node, /, request: Find) -> bytes: ...  # type: ignore[empty-body]
async def behind(pool: Pool, request: Find) -> bytes: ...  # type: ignore[empty-body]


REFUSED = [
    (none, "it has no parameter for the request. A handler has one parameter for the request: an iris_py.Request, bytes"),
    (only_node, "it has no parameter for the request"),
    (two, "its parameter 'pool' is annotated Other, and no value for it is known. A handler has one parameter"),
    (two_requests, "its parameter 'point' is annotated Point, and no value for it is known"),
    (bare_and_more, "its parameter 'other' has no annotation, and no value for it is known"),
    (foreign, "its parameter 'request' is annotated Other, and no codec can be made of the class Other"),
    (foreign, "If it is a resource, let a start-up hook return it"),
    (foreign_reply, "its result is annotated Other, and no codec can be made of the class Other"),
    (silent, "its return type is not annotated. Annotate it: `-> bytes` for bytes, or any type for which a codec can be made"),
    (unresolved, "its parameter 'request' is annotated Decimal, which cannot be read when the program runs: name 'Decimal'"),
    (unresolved_reply, "its result is annotated Decimal, which cannot be read when the program runs"),
    (unresolved_extra, "its parameter 'amount' is annotated Decimal, which cannot be read when the program runs"),
    (of_message, "its parameter 'request' is an iris_py.Message. Handlers of clusters take an iris_py.Request"),
    (of_array, "its parameter 'request' is annotated bytearray. Payloads arrive as bytes"),
    (wrong_node, "its parameter 'node' is an iris_py.sync.Node, whose methods would stop the event loop"),
    (wrong_node_in_thread, "its parameter 'node' is an iris_py.Node, which cannot be used in the thread"),
    (positional, "its parameter 'node' is positional-only"),
]


@pytest.mark.parametrize(("function", "text"), REFUSED)
def test_unknown_signatures_are_refused_with_what_would_work(function: Callable[..., Any], text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        plan_handler(function, [])
    assert str(caught.value).startswith(f"{__name__}.{function.__name__} cannot be served: ")
    assert text in str(caught.value)


def test_a_resource_of_no_hook_is_unknown() -> None:
    assert plan_handler(behind, RESOURCES).given == (("pool", Pool),)
    with pytest.raises(ConfigurationError, match="its parameter 'pool' is annotated Pool"):
        plan_handler(behind, [])


def test_consumers_and_hooks_are_refused_likewise() -> None:
    async def of_request(message: iris.Request) -> None: ...
    async def empty() -> None: ...
    async def hook(pool: Other) -> None: ...
    async def generator(node: iris_py.sync.Node) -> AsyncIterator[None]:
        yield

    with pytest.raises(ConfigurationError, match=r"is an iris_py\.Request\. .* consumers of topics an iris_py\.Message"):
        plan_consumer(of_request, [])
    with pytest.raises(ConfigurationError, match=r"it has no parameter for the message\. A consumer has one"):
        plan_consumer(empty, [])
    with pytest.raises(ConfigurationError, match=r"'pool' is annotated Other.*A start-up hook can take the node"):
        plan_hook(hook, [Pool], what="a start-up hook")
    with pytest.raises(ConfigurationError, match="would stop the event loop"):
        plan_hook(generator, [], what="a start-up hook")
