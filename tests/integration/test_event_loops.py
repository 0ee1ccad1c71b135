"""Every public object of asyncio refuses another event loop at once, in another thread and in its own, and nothing happens."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from io import BytesIO
from typing import TYPE_CHECKING, Any, Self

import pytest

import iris_py
import iris_py.gateway
import iris_py.metrics
from iris_py.api.bulk_requester import Asker
from iris_py.api.info import Member
from iris_py.gateway import open_gateway, reload_gateway
from iris_py.metrics import serve_status
from iris_security import AdministrationKey, Keyring, Secret
from tests.integration.clouds import Cloud
from tests.integration.conftest import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from iris_py.api.awaitable_context import Opening
    from tests.integration.conftest import Loops

SECRET = bytes(range(32))


def connect(*seeds: str) -> Opening[iris_py.Node]:
    return iris_py.connect(secret=SECRET, network="loops", listen="127.0.0.1:0", seeds=seeds, discovery=False)


class Echo(iris_py.Handler):
    """Answers everything, and notes what it has got."""

    def __init__(self) -> None:
        self.got: list[str] = []

    async def on_request(self, request: iris_py.Request) -> bytes:
        self.got.append("request")
        return request.payload

    async def on_survey(self, request: iris_py.Request) -> bytes:
        self.got.append("survey")
        return request.payload

    async def on_broadcast(self, message: iris_py.Message) -> None:
        self.got.append("broadcast")

    async def on_tunnel(self, tunnel: iris_py.Tunnel) -> None:
        async for _message in tunnel:
            self.got.append("message of a tunnel")


class Objects:
    """One of each public object, made in the running event loop.

    Attributes:
        heard: What has come to a subscription of another node.
    """

    def __init__(self, node: iris_py.Node, directory: Path) -> None:
        self.node = node
        self.handler = Echo()
        self.directory = directory
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        enter, node = self._stack.enter_async_context, self.node
        self.membership = await enter(node.join("c", self.handler))
        self.subscription = await enter(node.subscribe("t"))
        self.peer = await enter(connect(node.address))
        self.heard = await enter(self.peer.subscribe("far"))
        self.coded = await enter(node.subscribe("t", codec="json"))
        self.far = Cloud("far", self.directory)
        self.cloud = Cloud("here", self.directory)
        self.cloud.write(self.far, "")
        self.gateway = await enter(open_gateway(node, self.cloud.file))
        self.status = await enter(serve_status(node, "127.0.0.1:0"))
        self.tunnel = await enter(node.tunnel("c"))
        self.members = node.members("c")
        await self.members
        self.survey = node.survey("c", b"s")
        self.replies = aiter(node.survey("c", b"s"))
        self.asker: Asker[Any] = Asker(node, "c", 5.0, lambda _outcomes: None)
        self.openings: list[Opening[Any]] = []
        return self

    async def __aexit__(self, *_exc: object) -> None:
        for opening in self.openings:
            opening._opening.close()
        await self._stack.aclose()

    def opening(self) -> Opening[Any]:
        """Return a membership that is being opened, and was not awaited where it was made."""
        return self.openings.pop()


async def _enter(opening: Opening[Any]) -> object:
    async with opening as opened:
        return opened


async def _leave(a: Objects) -> None:
    """Leave the block of a membership that was opened in the own event loop."""
    opening = a.opening()
    opening._opening.close()
    opening._opened = a.membership
    await opening.__aexit__(None, None, None)


async def _all(iterator: Any) -> None:
    async for _each in iterator:
        break


KEY = AdministrationKey(b"a" * 32)

#: A use of each public method, by class.
USES: dict[str, Callable[[Objects], Any]] = {
    "Node.nodes": lambda a: a.node.nodes(),
    "Node.unreached_seeds": lambda a: a.node.unreached_seeds(),
    "Node.network_size": lambda a: a.node.network_size,
    "Node.health": lambda a: a.node.health(),
    "Node.join": lambda a: a.node.join("d", a.handler),
    "Node.members": lambda a: a.node.members("c"),
    "Node.clouds": lambda a: a.node.clouds(),
    "Node.close": lambda a: a.node.close(),
    "Node.request": lambda a: a.node.request("c", b"r", timeout=2),
    "Node.broadcast": lambda a: a.node.broadcast("c", b"b"),
    "Node.publish": lambda a: a.node.publish("far", b"1"),
    "Node.publish_many": lambda a: a.node.publish_many("far", [b"1", b"2"]),
    "Node.try_publish": lambda a: a.node.try_publish("far", b"1"),
    "Node.subscribe": lambda a: a.node.subscribe("t"),
    "Node.survey": lambda a: a.node.survey("c", b"s"),
    "Node.tunnel": lambda a: a.node.tunnel("c"),
    "Node.rekey": lambda a: a.node.rekey(Keyring(Secret(SECRET), network="loops")),
    "Node.reload_keys": lambda a: a.node.reload_keys(),
    "Node.rotation": lambda a: a.node.rotation(timeout=1),
    "Node.rotate_secret": lambda a: a.node.rotate_secret("add", KEY),
    "Node.statistics": lambda a: a.node.statistics(),
    "Node.recent_events": lambda a: a.node.recent_events(),
    "Node.events": lambda a: a.node.events(),
    "Node.ask_nodes": lambda a: a.node.ask_nodes(),
    "Node.find_route": lambda a: a.node.find_route("c"),
    "Node.trace": lambda a: a.node.trace("c"),
    "Members.total": lambda a: a.members.total,
    "Members.is_sample": lambda a: a.members.is_sample,
    "Members.__iter__": lambda a: list(a.members),
    "Members.__len__": lambda a: len(a.members),
    "Members.__contains__": lambda a: Member(id="", address="", zone="") in a.members,
    "Members.__await__": lambda a: a.members,
    "Membership.leave": lambda a: a.membership.leave(),
    "Subscription.__aiter__": lambda a: _all(a.subscription),
    "Subscription.__anext__": lambda a: anext(a.subscription),
    "Subscription.batches": lambda a: _all(a.subscription.batches()),
    "Subscription.close": lambda a: a.subscription.close(),
    "Subscription.leave": lambda a: a.subscription.leave(),
    "CodedSubscription.__aiter__": lambda a: _all(a.coded),
    "CodedSubscription.__anext__": lambda a: anext(a.coded),
    "CodedSubscription.batches": lambda a: _all(a.coded.batches()),
    "CodedSubscription.close": lambda a: a.coded.close(),
    "CodedSubscription.leave": lambda a: a.coded.leave(),
    "Survey.answers": lambda a: a.survey.answers,
    "Survey.cancel": lambda a: a.survey.cancel(),
    "Survey.__await__": lambda a: a.survey,
    "Survey.__aiter__": lambda a: aiter(a.survey),
    "SurveyReplies.__aiter__": lambda a: _all(a.replies),
    "SurveyReplies.__anext__": lambda a: anext(a.replies),
    "Tunnel.send": lambda a: a.tunnel.send(b"m"),
    "Tunnel.send_from": lambda a: a.tunnel.send_from(BytesIO(b"m")),
    "Tunnel.send_chunks": lambda a: a.tunnel.send_chunks([b"m"]),
    "Tunnel.end": lambda a: a.tunnel.end(),
    "Tunnel.receive": lambda a: a.tunnel.receive(),
    "Tunnel.receive_into": lambda a: a.tunnel.receive_into(BytesIO()),
    "Tunnel.receive_chunks": lambda a: _all(a.tunnel.receive_chunks()),
    "Tunnel.__aiter__": lambda a: _all(a.tunnel),
    "Tunnel.__anext__": lambda a: anext(a.tunnel),
    "Tunnel.close": lambda a: a.tunnel.close(),
    "Opening.__await__": lambda a: a.opening(),
    "Opening.__aenter__": lambda a: _enter(a.opening()),
    "Opening.__aexit__": _leave,
    "Gateway.close": lambda a: a.gateway.close(),
    "Gateway.reload": lambda a: a.gateway.reload(a.gateway.settings),
    "Gateway.reasons": lambda a: a.gateway.reasons(),
    "Gateway.explain": lambda a: a.gateway.explain("c@far"),
    "Gateway.status": lambda a: a.gateway.status(),
    "Gateway.unreached": lambda a: a.gateway.unreached(),
    "StatusServer.show": lambda a: a.status.show(a.node),
    "StatusServer.listen": lambda a: a.status.listen("127.0.0.1:0"),
    "StatusServer.close": lambda a: a.status.close(),
    "StatusServer.abort": lambda a: a.status.abort(),
    "StatusServer.health": lambda a: a.status.health(),
    "Asker.ask": lambda a: a.asker.ask([]),
    "Asker.cancel": lambda a: a.asker.cancel(),
    "open_gateway": lambda a: open_gateway(a.node, a.cloud.file),
    "reload_gateway": lambda a: reload_gateway(a.gateway, a.cloud.file),
    "serve_status": lambda a: serve_status(a.node, "127.0.0.1:0"),
}

#: Attributes that do not change, or are one value each: whoever reads them in another thread gets what is or was so.
READABLE = {
    "Gateway.public_text",
    "Membership.cluster",
    "Membership.is_leaving",
    "Node.address",
    "Node.id",
    "Node.max_message_bytes",
    "Node.name",
    "Node.network",
    "Node.port",
    "Node.zone",
    "StatusServer.address",
    *(
        f"{kind}.{name}"
        for kind in ("Subscription", "CodedSubscription")
        for name in ("dropped", "is_connected", "pattern", "policy", "queued_bytes", "queued_messages", "undecodable")
    ),
    *(f"Tunnel.{name}" for name in ("cloud", "cluster", "headers", "id", "member", "source")),
}

#: Methods with a public name by which a node tells its parts what has happened.
INTERNAL = {"handle_event", "handle_events", "handle_outcomes", "pseudonym_of", "receive_outcome"}

#: Public classes that belong to no event loop: values, bases of handlers and codecs, and a collector that asks the loop itself.
FREE = {
    "AdministrationKey",
    "Answers",
    "AppendReceipt",
    "Cloud",
    "CloudKey",
    "Codec",
    "Config",
    "EventRecord",
    "Handler",
    "Health",
    "HedgeAfter",
    "Keyring",
    "Member",
    "Message",
    "NodeCollector",
    "NodeName",
    "NodeReport",
    "NodeReports",
    "PartitionInfo",
    "Request",
    "Retry",
    "RotationStatus",
    "Route",
    "Seal",
    "Sealed",
    "Secret",
    "Statistics",
    "StreamInfo",
    "StreamRecord",
    "SurveyFailure",
    "SurveyReply",
    "Trace",
}

#: Classes without a node, which have a test of their own.
STREAMS = {"Stream", "StreamRecords", "StreamWriter", "Streams"}

SPECIAL = {"__aenter__", "__aexit__", "__aiter__", "__anext__", "__await__", "__contains__", "__iter__", "__len__"}


def public_classes() -> Iterator[type]:
    """Return the public classes that belong to an event loop, and those of what their methods return."""
    for module in (iris_py, iris_py.gateway, iris_py.metrics):
        for name in module.__all__:
            found = getattr(module, name)
            if inspect.isclass(found) and not issubclass(found, Exception) and name not in FREE | STREAMS:
                yield found
    from iris_py.api.awaitable_context import Opening
    from iris_py.api.coded import CodedSubscription
    from iris_py.api.survey import SurveyReplies

    yield from (CodedSubscription, Opening, SurveyReplies, Asker)


def public_methods() -> set[str]:
    """Return the names of all methods and properties of these classes."""
    found = set()
    for owner in public_classes():
        for base in owner.__mro__:
            if base.__module__.startswith("iris_py"):
                names = {name for name in vars(base) if not name.startswith("_")} | (SPECIAL & set(vars(base)))
                found |= {f"{owner.__name__}.{name}" for name in names - INTERNAL}
    return found


def test_each_public_method_has_a_use() -> None:
    functions = {"open_gateway", "reload_gateway", "serve_status"}
    assert public_methods() - READABLE == set(USES) - functions
    assert public_methods() >= READABLE


async def use(name: str, objects: Objects) -> str:
    """Use a method; return the text of its refusal, or what else came of it."""
    try:
        async with asyncio.timeout(20):
            result = USES[name](objects)
            if inspect.isawaitable(result):
                await result
    except iris_py.ConfigurationError as exc:
        return str(exc)
    except Exception as exc:
        return f"{type(exc).__name__}: {exc}"
    return "not refused"


async def use_all(objects: Objects) -> dict[str, str]:
    return {name: await use(name, objects) for name in USES}


async def prepare(objects: Objects) -> None:
    """Have everything in use."""
    await until(lambda: objects.handler.got == ["survey"], "the survey that was begun")
    objects.handler.got.clear()
    objects.openings = [objects.node.join("e", objects.handler) for _ in range(3)]
    await objects.node.publish("t", b"0")
    assert (await anext(objects.subscription)).payload == b"0"
    await objects.node.publish("far", b"0")
    assert (await anext(objects.heard)).payload == b"0"


async def begin(objects: Objects) -> None:
    """Begin what another thread could add to, or take from: a run of publications, a batch of messages, a list of pieces."""
    await objects.node.publish_many("t", [b"a", b"b"])
    assert (await anext(objects.subscription)).payload == b"a"
    await objects.tunnel.send(b"own")
    await objects.node.publish("far", b"own")
    assert objects.node._runtime.runs["far"].room > 0, "what is published now goes along with it"
    assert objects.tunnel._core.is_ready


async def check_unchanged(objects: Objects, *, has_begun: bool = False) -> None:
    """See that nothing of the uses was done, and that everything goes on."""
    node = objects.node
    await node.publish("far", b"last")
    await node.publish("t", b"last")
    await objects.tunnel.send(b"last")
    await objects.tunnel.end()
    assert await node.request("c", b"r") == b"r"
    for subscription, first in ((objects.subscription, b"b"), (objects.heard, b"own")):
        expected = [first, b"last"] if has_begun else [b"last"]
        assert [(await anext(subscription)).payload for _ in expected] == expected
    messages = ["message of a tunnel"] * (1 + has_begun)
    await until(lambda: len(objects.handler.got) > len(messages), "the own messages of the tunnel")
    assert sorted(objects.handler.got) == [*messages, "request"]
    assert not objects.membership.is_leaving
    assert len(node.statistics().subscriptions) == 2
    assert (await objects.survey).expected == 1
    assert [reply.payload async for reply in objects.replies] == [b"s"]


def test_another_thread_is_refused(loops: Loops, tmp_path: Path) -> None:
    outcomes: dict[str, str] = {}

    async def main() -> None:
        async with connect() as node, Objects(node, tmp_path) as objects:
            await prepare(objects)
            await begin(objects)
            # The event loop stands still meanwhile, in the middle of a turn in which all of it would be sent.
            other = threading.Thread(target=lambda: outcomes.update(asyncio.run(use_all(objects))), name="web")
            other.start()
            other.join()
            await check_unchanged(objects, has_begun=True)

    loops.run(main())
    assert {name for name, text in outcomes.items() if "belongs to the event loop of another thread, and 'web'" in text} == set(
        USES
    ), {name: text for name, text in outcomes.items() if "belongs" not in text}
    assert "asyncio.run_coroutine_threadsafe()" in outcomes["Node.request"]
    assert "iris_py.sync" in outcomes["Node.request"]
    assert outcomes["Tunnel.send"].startswith("this tunnel ")


def test_another_event_loop_of_the_same_thread_is_refused(home: Path, tmp_path: Path) -> None:
    with asyncio.Runner() as own, asyncio.Runner() as other:
        node = own.run(_open())
        objects = own.run(Objects(node, tmp_path).__aenter__())
        own.run(prepare(objects))
        outcomes = other.run(use_all(objects))
        own.run(check_unchanged(objects))
        own.run(objects.__aexit__())
        own.run(node.close())
    assert {name for name, text in outcomes.items() if "belongs to another event loop" in text} == set(USES), outcomes


def test_streams_refuse_another_event_loop(tmp_path: Path) -> None:
    async def append() -> tuple[iris_py.Streams, iris_py.Stream[bytes], iris_py.StreamWriter[bytes]]:
        streams = await iris_py.open_streams(tmp_path)
        stream = await streams.create_stream("notes")
        await stream.append(b"first")
        writer = stream.writer()
        await writer.append(b"second")
        return streams, stream, writer

    async def close(streams: iris_py.Streams, stream: iris_py.Stream[bytes]) -> None:
        assert [record.payload async for record in stream.read()] == [b"first", b"second"]
        await streams.close()

    with asyncio.Runner() as own, asyncio.Runner() as other:
        streams, stream, writer = own.run(append())
        uses: list[Callable[[], Any]] = [
            lambda: streams.create_stream("other"),
            streams.streams,
            lambda: streams.change_stream("notes", full="refuse"),
            lambda: streams.remove_stream("notes"),
            streams.close,
            lambda: stream.append(b"third"),
            stream.info,
            lambda: anext(stream.read()),
            lambda: stream.follow().take(),
            lambda: writer.append(b"third"),
            writer.flush,
        ]

        async def use_stream(call: Callable[[], Any]) -> None:
            if inspect.isawaitable(result := call()):
                await result

        for call in uses:
            with pytest.raises(iris_py.ConfigurationError, match="belongs to another event loop"):
                other.run(use_stream(call))
        own.run(writer.flush())
        own.run(close(streams, stream))


async def _open() -> iris_py.Node:
    return await connect()


def test_what_is_called_between_two_runs_of_the_own_event_loop_works(home: Path) -> None:
    async def resolve(awaitable: Any) -> Any:
        return await awaitable

    with asyncio.Runner() as runner:
        node = runner.run(_open())
        membership = runner.run(resolve(node.join("c", Echo())))
        assert node.health().is_ready
        assert len(node.members("c")) == 1
        assert runner.run(node.request("c", b"r")) == b"r"
        runner.run(membership.leave())
        runner.run(node.close())


def test_to_close_again_is_harmless_in_every_event_loop(home: Path) -> None:
    async def main() -> tuple[iris_py.Node, iris_py.Membership, iris_py.Subscription]:
        async with connect() as node, node.join("c", Echo()) as membership, node.subscribe("t") as subscription:
            pass
        return node, membership, subscription

    async def close_again() -> None:
        await subscription.close()
        await membership.leave()
        await node.close()

    node, membership, subscription = asyncio.run(main())
    asyncio.run(close_again())


def test_a_thread_without_an_event_loop_is_refused(home: Path) -> None:
    errors: list[str] = []

    def use_plainly(node: iris_py.Node) -> None:
        for call in (lambda: node.try_publish("t", b""), node.statistics, node.health, lambda: node.join("d", Echo())):
            with pytest.raises(iris_py.ConfigurationError) as caught:
                call()
            errors.append(str(caught.value))

    async def main() -> None:
        async with connect() as node:
            await asyncio.to_thread(use_plainly, node)

    asyncio.run(main())
    assert len(errors) == 4
    assert all("belongs to the event loop of another thread" in text for text in errors)


def test_what_is_constant_may_be_read_in_every_thread(home: Path, tmp_path: Path) -> None:
    def read(objects: Objects) -> dict[str, object]:
        owners = {
            "Gateway": objects.gateway,
            "Membership": objects.membership,
            "Node": objects.node,
            "StatusServer": objects.status,
            "Subscription": objects.subscription,
            "CodedSubscription": objects.coded,
            "Tunnel": objects.tunnel,
        }
        shown = {name: getattr(owners[name.split(".")[0]], name.split(".")[1]) for name in READABLE}
        return shown | {repr(each).split(" of ")[0]: None for each in (*owners.values(), objects.members, objects.survey)}

    async def main() -> None:
        async with connect() as node, Objects(node, tmp_path) as objects:
            assert await asyncio.to_thread(read, objects) == read(objects)

    asyncio.run(main())
