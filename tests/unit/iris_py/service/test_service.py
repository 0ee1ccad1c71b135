"""A service on nodes of a virtual network: what its functions are given, the order of hooks, and what becomes of failures."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator  # noqa: TC003 - they are read at run time, as those of programs
from typing import TYPE_CHECKING, Any, NewType, cast

import msgspec
import pytest

import iris_py as iris
import iris_py.sync
from iris_py.errors import ConfigurationError, NoMembers, RemoteError
from iris_py.service import Service
from iris_py.service.service import HOOKS_MIN_S, STOP_S
from iris_py.testing import VirtualNetwork, run

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from decimal import Decimal

SECRET, OTHER = iris.Secret(bytes(32)), iris.Secret(bytes([1] * 32))
VAULT = iris.Seal(OTHER, name="vault")  # the second of two generations


class Find(msgspec.Struct):
    id: int


class User(msgspec.Struct):
    name: str


USERS = iris.Codec(Find, User)


class Pool:
    def __init__(self, name: str = "pool") -> None:
        self.name = name


Reads = NewType("Reads", Pool)


def on_two(use: Callable[[VirtualNetwork, iris.Node, iris.Node], Awaitable[None]]) -> None:
    """Run something on a network of a node that serves and one that asks."""

    async def main() -> None:
        async with VirtualNetwork() as network:
            await use(network, *await network.connect_many(2))

    run(main())


def simple() -> Service:
    """Return a service that has a handler."""
    service = Service()
    service.handler("echo")(lambda request: request.payload)
    return service


def test_it_serves_and_consumes_with_the_codecs_of_annotations() -> None:
    service, taken = Service(), list[Any]()

    @service.on_startup
    async def open_pool(node: iris.Node) -> Pool:
        return Pool(node.id)

    @service.handler("users")
    async def find(find: Find, pool: Pool, node: iris.Node) -> User:
        await node.publish("found.user", b"%d" % find.id)
        return User(pool.name)

    @service.handler("packed", format="msgpack", concurrency=3)
    def packed(find: Find) -> User:
        return User(str(find.id))

    @service.handler("coded", codec="json")
    async def coded(request: iris.Request[Any]) -> Any:
        return request.payload["id"]

    @service.consumer("found.*")
    async def note(message: iris.Message, pool: Pool) -> None:
        taken.append((message.topic, message.payload, pool.name))

    @service.consumer("orders.>")
    def order(order: Find) -> None:
        taken.append(order)

    async def use(network: VirtualNetwork, member: iris.Node, caller: iris.Node) -> None:
        async with service.running(member) as running:
            assert running.reasons() == ()
            assert await caller.request("users", Find(7), codec=USERS) == User(member.id)
            assert await caller.request("packed", Find(8), codec=iris.Codec(Find, User, format="msgpack")) == User("8")
            assert await caller.request("coded", {"id": 9}, codec="json") == 9
            await caller.publish("orders.new", Find(1), codec=Find)
            await caller.publish("orders.new", b"none")
            await caller.publish("orders.new", Find(2), codec=Find)
            await network.until(lambda: len(taken) == 3)
        with pytest.raises(NoMembers):
            await caller.request("users", Find(7), codec=USERS)
        await caller.publish("orders.new", Find(3), codec=Find)
        await network.advance(1.0)

    on_two(use)
    assert [each for each in taken if isinstance(each, Find)] == [Find(1), Find(2)]
    ((topic, payload, name),) = [each for each in taken if isinstance(each, tuple)]
    assert (topic, payload, len(name)) == ("found.user", b"7", 32)
    assert repr(service) == "<Service that serves 'users', 'packed' and 'coded', consumes 'found.*' and 'orders.>'>"


def test_handlers_may_be_classes_objects_and_sealed() -> None:
    service = Service()

    @service.on_startup
    def open_pool() -> Pool:
        return Pool()

    @service.handler("class")
    class Users(iris.Handler[Find, User]):
        def __init__(self, pool: Pool) -> None:
            self.pool = pool

        async def on_request(self, request: iris.Request[Find]) -> User:
            return User(f"{self.pool.name} {request.payload.id}")

    class Echo(iris.Handler):
        async def on_request(self, request: iris.Request) -> bytes:
            return request.payload

    async def sealed(find: Find, pool: Pool) -> User:
        return User(pool.name)

    service.handler("object")(Echo())
    service.handler("sealed")(iris.Sealed(sealed, SECRET))
    service.handler("sealed class", seal=iris.Seal([SECRET, OTHER], name="vault"))(Users)

    async def use(_network: VirtualNetwork, member: iris.Node, caller: iris.Node) -> None:
        async with service.running(member):
            assert await caller.request("class", Find(7), codec=USERS) == User("pool 7")
            assert await caller.request("object", b"echo") == b"echo"
            assert await caller.request("sealed", Find(7), codec=USERS, seal=SECRET) == User("pool")
            assert await caller.request("sealed class", Find(8), codec=USERS, seal=VAULT) == User("pool 8")
            with pytest.raises(RemoteError):
                await caller.request("sealed", Find(7), codec=USERS)

    on_two(use)


def test_hooks_run_in_their_order_and_back_while_the_node_is_open() -> None:
    service, seen = simple(), list[str]()

    @service.on_startup
    async def first(node: iris.Node) -> AsyncIterator[Pool]:
        assert not [name async for name in node_clusters(node)]
        seen.append("first")
        yield Pool("first")
        seen.append("first ends")

    @service.on_shutdown
    async def between(pool: Pool, node: iris.Node) -> None:
        await node.publish("bye", pool.name.encode())
        seen.append("between")

    @service.on_startup
    def second(pool: Pool) -> Iterator[Reads]:
        seen.append(f"second of {pool.name}")
        yield Reads(pool)
        seen.append("second ends")

    @service.on_startup
    def third(reads: Reads) -> None:
        seen.append(f"third of {reads.name}")

    @service.handler("slow")
    async def slow(request: iris.Request) -> bytes:
        await asyncio.sleep(10.0)
        seen.append("answered")
        return b"done"

    async def node_clusters(node: iris.Node) -> AsyncIterator[str]:
        for cluster in ("echo", "slow"):
            if len(await node.members(cluster)):
                yield cluster

    async def use(_network: VirtualNetwork, member: iris.Node, caller: iris.Node) -> None:
        async with caller.subscribe("bye") as byes:
            async with service.running(member):
                seen.append("serves")
                asking = asyncio.create_task(caller.request("slow", b"", timeout=60))
                await asyncio.sleep(1.0)
            assert await asking == b"done"
            assert (await anext(byes)).payload == b"first"

    on_two(use)
    starts = ["first", "second of first", "third of first"]
    assert seen == [*starts, "serves", "answered", "second ends", "between", "first ends"]


def test_a_start_up_hook_that_fails_ends_what_has_begun_and_nothing_is_joined() -> None:
    service, seen = simple(), list[str]()

    @service.on_startup
    async def first() -> AsyncIterator[None]:
        yield
        seen.append("first ends")

    @service.on_shutdown
    def closes() -> None:
        seen.append("closes")

    @service.on_startup
    async def fails() -> Pool:
        raise ConnectionRefusedError("no database")

    @service.on_shutdown
    def closes_what_failed() -> None:
        seen.append("never")

    @service.on_startup
    def never() -> None:
        seen.append("never")

    async def use(_network: VirtualNetwork, member: iris.Node, caller: iris.Node) -> None:
        running = service.running(member)
        with pytest.raises(ConnectionRefusedError, match="no database") as caught:
            async with running:
                pass
        name = f"the start-up hook {__name__}.{fails.__qualname__}"
        assert caught.value.__notes__ == [f"It was raised by {name}."]
        assert running.failed_hook == name
        assert running.reasons() == ("the service is starting",)
        with pytest.raises(NoMembers):
            await caller.request("echo", b"")

    on_two(use)
    assert seen == ["closes", "first ends"]


def test_a_start_that_is_cancelled_ends_what_has_begun() -> None:
    service, seen = simple(), list[str]()

    @service.on_startup
    async def first() -> AsyncIterator[None]:
        yield
        seen.append("first ends")

    @service.on_startup
    async def hangs() -> None:
        await asyncio.get_running_loop().create_future()

    async def use(_network: VirtualNetwork, member: iris.Node, _caller: iris.Node) -> None:
        running = service.running(member)
        starting = asyncio.ensure_future(running.__aenter__())
        await asyncio.sleep(1.0)
        assert running.reasons() == (f"the start-up hook {__name__}.{hangs.__qualname__} runs",)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert running.failed_hook == ""

    on_two(use)
    assert seen == ["first ends"]


def test_shut_down_hooks_that_fail_are_logged_and_the_others_run(caplog: pytest.LogCaptureFixture) -> None:
    def failing() -> tuple[Service, list[str]]:
        service, seen = simple(), list[str]()

        @service.on_shutdown
        def last() -> None:
            seen.append("last")

        @service.on_shutdown
        async def second() -> None:
            raise ValueError("second")

        @service.on_startup
        async def twice() -> AsyncIterator[None]:
            yield
            yield

        return service, seen

    async def use(_network: VirtualNetwork, member: iris.Node, caller: iris.Node) -> None:
        service, seen = failing()
        with pytest.raises(RuntimeError, match="yielded twice"):
            async with service.running(member):
                assert await caller.request("echo", b"1") == b"1"
        assert seen == ["last"]
        service, seen = failing()
        with pytest.raises(KeyError, match="of the block"):
            async with service.running(member):
                raise KeyError("of the block")
        assert seen == ["last"]

    on_two(use)
    events = [record.iris["event"] for record in caplog.records if record.levelno >= logging.ERROR]  # type: ignore[attr-defined]
    assert events == ["hook_failed"] * 4
    assert "second failed: ValueError: second" in caplog.text


def test_shut_down_hooks_have_a_bounded_time(caplog: pytest.LogCaptureFixture) -> None:
    service, seen = simple(), list[str]()

    @service.on_shutdown
    async def last() -> None:
        try:
            await asyncio.sleep(0)
            seen.append("last has time")
        except asyncio.CancelledError:
            seen.append("last is cancelled")
            raise

    @service.on_shutdown
    async def hangs() -> None:
        await asyncio.get_running_loop().create_future()

    @service.handler("deaf")
    async def deaf(request: iris.Request) -> bytes:
        await asyncio.sleep(25.0)
        return b""

    async def use(_network: VirtualNetwork, member: iris.Node, caller: iris.Node) -> None:
        loop = asyncio.get_running_loop()
        running = service.running(member)
        await running.__aenter__()
        asking = asyncio.create_task(caller.request("deaf", b"", timeout=600))
        await asyncio.sleep(1.0)
        began = loop.time()
        with pytest.raises(TimeoutError):
            await running.__aexit__(None, None, None)
        assert STOP_S - 1 <= loop.time() - began <= STOP_S + 1
        assert running.failed_hook.endswith("hangs")
        assert await asking == b""

    on_two(use)
    assert seen == ["last is cancelled"]
    assert "hangs was cancelled: the shut-down hooks have not ended within" in caplog.text
    assert HOOKS_MIN_S < STOP_S


def test_what_is_left_when_a_cluster_cannot_be_joined_is_ended() -> None:
    service, seen = Service(), list[str]()
    service.handler("echo")(lambda request: request.payload)
    service.handler("wrong", concurrency=0)(lambda request: request.payload)
    service.consumer("topic")(lambda message: None)
    service.on_shutdown(lambda: seen.append("closed"))

    async def use(_network: VirtualNetwork, member: iris.Node, caller: iris.Node) -> None:
        with pytest.raises(ConfigurationError, match="concurrency=0 must be a whole number"):
            async with service.running(member):
                pass
        with pytest.raises(NoMembers):
            await caller.request("echo", b"")
        assert await caller.publish("topic", b"") == 0

    on_two(use)
    assert seen == ["closed"]


def test_a_service_runs_on_several_nodes_each_with_resources_of_its_own() -> None:
    service, made = Service(), list[Pool]()

    @service.on_startup
    def open_pool() -> Pool:
        made.append(Pool())
        return made[-1]

    @service.handler("who")
    def who(request: bytes, pool: Pool) -> bytes:
        return b"%d" % made.index(pool)

    async def use(network: VirtualNetwork, first: iris.Node, caller: iris.Node) -> None:
        second = await network.connect()
        async with service.running(first), service.running(second):
            assert {await caller.request("who", b"") for _ in range(30)} == {b"0", b"1"}

    on_two(use)
    assert len(made) == 2


def test_the_weight_of_a_node_is_multiplied_with_that_of_a_handler() -> None:
    service = simple()
    service.handler("heavy", weight=2.0)(lambda request: request.payload)

    async def use(_network: VirtualNetwork, member: iris.Node, _caller: iris.Node) -> None:
        async with service.running(member, weight=0.5) as running:
            assert [each._registration.weight for each in running._memberships] == [0.5, 1.0]

    on_two(use)


# -- resources


async def bare() -> Any:
    return Pool()


async def of_dict() -> dict[str, int]:
    return {}


async def of_text() -> str:
    return ""


async def unresolved() -> Decimal:
    raise NotImplementedError


async def pool() -> Pool:
    return Pool()


async def pools() -> AsyncIterator[Pool]:
    yield Pool()


async def later(reads: Reads) -> None: ...


REFUSED = [
    ([of_dict], r"of_dict cannot be served: it returns a dict\[str, int\], and too many parameters have this type"),
    ([of_text], "it returns a str, and too many parameters have this type. Return an object of a class of your own"),
    ([unresolved], "its result is annotated Decimal, which cannot be read"),
    ([pool, pools], r"pools cannot be served: \S+\.pool returns a Pool, too.*typing\.NewType"),
    (
        [later],
        "its parameter 'reads' is annotated Reads, and no value for it is known. A start-up hook can take the node",
    ),
]


@pytest.mark.parametrize(("hooks", "text"), REFUSED)
def test_results_of_hooks_that_are_no_resources_are_refused(hooks: list[Callable[..., Any]], text: str) -> None:
    service = simple()
    for hook in hooks:
        service.on_startup(hook)
    with pytest.raises(ConfigurationError, match=text):
        service.check()


def test_a_resource_has_to_be_annotated() -> None:
    service = simple()
    service.on_startup(bare)

    async def use(_network: VirtualNetwork, member: iris.Node, _caller: iris.Node) -> None:
        with pytest.raises(
            ConfigurationError, match="bare cannot be served: it returned a Pool, but this type is not in its annotation"
        ):
            async with service.running(member):
                pass

    on_two(use)


# -- registering


class NoHandler:
    pass


def generator(request: bytes) -> Iterator[bytes]:
    yield request


def test_what_cannot_be_registered_is_refused_at_once() -> None:
    service, wrong = simple(), cast("Any", generator)
    with pytest.raises(ConfigurationError, match=r'Write @service\.handler\("NAME"\)'):
        service.handler(wrong)
    with pytest.raises(ConfigurationError, match=r'Write @service\.consumer\("PATTERN"\)'):
        service.consumer(wrong)
    with pytest.raises(ConfigurationError, match="has a handler for the cluster 'echo' already"):
        service.handler("echo")
    with pytest.raises(ConfigurationError, match="a name must be a non-empty string"):
        service.handler("")
    with pytest.raises(ConfigurationError, match="names 'users' of the cloud 'eu'"):
        service.handler("users@eu")
    with pytest.raises(ConfigurationError, match="continues after '>'"):
        service.consumer("a.>.b")
    with pytest.raises(ConfigurationError, match="NoHandler cannot be served: it is a class, but not a subclass"):
        service.handler("class")(NoHandler)
    for register in (service.handler("generator"), service.consumer("generator"), service.on_shutdown):
        with pytest.raises(ConfigurationError, match="generator cannot be served: it is a generator"):
            register(wrong)
    for register in (service.handler("number"), service.consumer("number"), service.on_startup, service.on_shutdown):
        with pytest.raises(ConfigurationError, match="must be a function, not 7"):
            register(cast("Any", 7))
    with pytest.raises(ConfigurationError, match="neither a handler nor a consumer"):
        Service().check()
    service.check()


def test_a_function_stays_what_it_is() -> None:
    service = Service()

    @service.handler("users")
    async def find(find: Find, pool: Pool) -> User:
        return User(f"{pool.name} {find.id}")

    assert asyncio.run(find(Find(7), Pool())) == User("pool 7")
    with pytest.raises(ConfigurationError, match="its parameter 'pool' is annotated Pool"):
        service.check()
