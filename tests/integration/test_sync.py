"""The synchronous API on real sockets: every method, from several threads, and where it must not be used."""

from __future__ import annotations

import asyncio
import contextvars
import os
import sys
import threading
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import iris_py
import iris_py.sync as iris
from iris_py.api.topic import MANY_AT_ONCE
from iris_py.sync.background import Background, BlockingCall, background

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence
    from pathlib import Path

#: Only a failing test takes so long.
PATIENCE_S = 60.0


class Pair:
    """Two nodes of one network."""

    def __init__(self, first: iris.Node, second: iris.Node) -> None:
        self.first, self.second = first, second


@pytest.fixture
def pair(home: Path) -> Iterator[Pair]:
    with iris.connect(zone="eu/a") as first, iris.connect() as second:
        yield Pair(first, second)


class Notes(iris.Handler):
    """Keeps what it is told, and in which thread."""

    def __init__(self) -> None:
        self.threads: set[threading.Thread] = set()
        self.broadcasts: list[bytes] = []
        self.told = threading.Semaphore(0)

    def on_request(self, request: iris.Request) -> bytes:
        self.threads.add(threading.current_thread())
        if request.payload == b"fail":
            raise ValueError("as you wish")
        return b"re: " + request.payload

    def on_broadcast(self, message: iris.Message) -> None:
        self.threads.add(threading.current_thread())
        self.broadcasts.append(message.payload)
        self.told.release()


class Together(iris.Handler):
    """Answers what comes together, in a thread."""

    def on_requests(self, requests: Sequence[iris.Request]) -> Sequence[bytes | Exception]:
        assert threading.current_thread() is not threading.main_thread()
        return [ValueError("as you wish") if each.payload == b"fail" else each.payload.upper() for each in requests]


class Word(msgspec.Struct):
    """A request, and a publication."""

    text: str


LENGTHS = iris.Codec(Word, int)


class Lengths(iris.Handler[Word, int]):
    """Answers with values, in a thread."""

    def __init__(self) -> None:
        self.told: SimpleQueue[Word] = SimpleQueue()

    def on_request(self, request: iris.Request[Word]) -> int:
        return len(request.payload.text)

    def on_broadcast(self, message: iris.Message[Word]) -> None:
        self.told.put(message.payload)


class Echo(iris_py.Handler):
    """Runs in the event loop."""

    async def on_request(self, request: iris.Request) -> bytes:
        return request.payload


class Thread(iris.Handler):
    """Says in which thread it runs, and what it was asked."""

    def on_request(self, request: iris.Request) -> bytes:
        return threading.current_thread().name.encode() + request.payload


class TogetherWithTunnels(Together):
    """The same, and sends every message of a tunnel back."""

    def on_tunnel(self, tunnel: iris.Tunnel) -> None:
        for message in tunnel:
            tunnel.send(message)


@pytest.mark.parametrize("kind", [Together, TogetherWithTunnels])
def test_requests_are_answered_together(pair: Pair, kind: type[Together]) -> None:
    with pair.first.join("together", kind()):
        futures = {payload: pair.second.request_future("together", payload) for payload in (b"a", b"b", b"fail", b"c")}
        failed = futures.pop(b"fail")
        assert {payload: future.result(PATIENCE_S) for payload, future in futures.items()} == {
            b"a": b"A",
            b"b": b"B",
            b"c": b"C",
        }
        with pytest.raises(iris_py.RemoteError, match="ValueError: as you wish"):
            failed.result(PATIENCE_S)
        (answer,) = pair.second.survey("together", b"who")
        assert answer.payload == b"WHO"
        with pytest.raises(iris_py.RemoteError, match="ValueError: as you wish"):
            pair.second.request("together", b"fail")
        if kind is TogetherWithTunnels:
            with pair.second.tunnel("together") as tunnel:
                tunnel.send(b"back")
                assert tunnel.receive() == b"back"


def test_what_a_node_is(pair: Pair) -> None:
    assert (pair.first.zone, pair.first.network) == ("eu/a", "default")
    assert {node.id for node in pair.second.nodes()} == {pair.first.id, pair.second.id}
    assert pair.second.nodes()[0].address == pair.second.address
    assert pair.first.statistics().requests == 0


def test_requests_and_their_errors(pair: Pair) -> None:
    notes = Notes()
    with pair.first.join("notes", notes) as membership:
        assert membership.cluster == "notes"
        assert pair.second.request("notes", b"hello") == b"re: hello"
        assert pair.first.request("notes", b"myself", timeout=PATIENCE_S, idempotent=True) == b"re: myself"
        with pytest.raises(iris_py.RemoteError, match="ValueError: as you wish"):
            pair.second.request("notes", b"fail")
        with pytest.raises(iris_py.ConfigurationError, match="timeout"):
            pair.second.request("notes", b"", timeout=-1)
        assert [member.id for member in pair.second.members("notes").wait()] == [pair.first.id]
        members = pair.second.members("notes")
        assert len(members) == 1
        assert next(iter(members)) in members
    with pytest.raises(iris_py.NoMembers):
        pair.second.request("notes", b"hello")
    assert notes.threads
    assert all(thread.daemon and thread is not threading.main_thread() for thread in notes.threads)


def test_every_kind_of_handler(pair: Pair) -> None:
    class InLoop(iris_py.Handler):
        async def on_request(self, request: iris.Request) -> bytes:
            return threading.current_thread().name.encode()

    async def in_loop(request: iris.Request) -> bytes:
        return threading.current_thread().name.encode()

    def anywhere(request: iris.Request) -> bytes:
        return threading.current_thread().name.encode()

    def later(request: iris.Request) -> object:
        return in_loop(request)

    handlers: dict[str, tuple[object, bool, str]] = {
        "async handler": (InLoop(), False, "iris-loop"),
        "async function": (in_loop, False, "iris-loop"),
        "function": (anywhere, False, "iris-handler"),
        "inline function": (anywhere, True, "iris-loop"),
        "function that returns a coroutine": (later, False, "iris-loop"),
    }
    for name, (handler, inline, thread) in handlers.items():
        with pair.first.join(name, handler, inline=inline):  # type: ignore[call-overload] # of each kind
            assert pair.second.request(name, b"").decode().startswith(thread), name
    with pytest.raises(iris_py.ConfigurationError):
        pair.first.join("nothing", None)  # type: ignore[call-overload] # a mistake
    with pytest.raises(iris_py.ConfigurationError):
        pair.first.join("nothing", anywhere, concurrency=0)


def test_a_handler_may_use_the_node(pair: Pair) -> None:
    with pair.first.join("end", lambda request: request.payload.upper()):

        def ask(request: iris.Request) -> bytes:
            return pair.second.request("end", request.payload)

        with pair.second.join("middle", ask):
            assert pair.first.request("middle", b"hello") == b"HELLO"


def test_a_handler_that_raises_stop_iteration_fails_the_request(pair: Pair) -> None:
    def stop(_request: iris.Request) -> bytes:
        raise StopIteration

    with pair.first.join("stop", stop), pytest.raises(iris_py.RemoteError, match="StopIteration"):
        pair.second.request("stop", b"", timeout=PATIENCE_S)


def test_handlers_run_side_by_side_up_to_their_concurrency(pair: Pair) -> None:
    both = threading.Barrier(2)

    def meet(_request: iris.Request) -> bytes:
        both.wait(PATIENCE_S)
        return b"met"

    with pair.first.join("meeting", meet):
        futures = [pair.second.request_future("meeting", b"", timeout=PATIENCE_S) for _ in range(2)]
        assert [future.result(PATIENCE_S) for future in futures] == [b"met", b"met"]


def test_the_context_of_the_caller_goes_along(pair: Pair) -> None:
    """Tracing depends on it: what a call sets is seen by whatever runs for it in the event loop, and in threads of that."""
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")

    async def look() -> str:
        in_thread: str = await background().in_thread(lambda _: variable.get(), None)
        return f"{variable.get()} {in_thread}"

    variable.set("set here")
    assert background().wait(look) == "set here set here"
    assert contextvars.Context().run(background().wait, look) == "unset unset"


def test_many_threads_share_a_node(pair: Pair) -> None:
    with pair.first.join("echo", lambda request: request.payload), ThreadPoolExecutor(16) as pool:
        questions = [str(number).encode() for number in range(400)]
        assert list(pool.map(lambda each: pair.second.request("echo", each, timeout=PATIENCE_S), questions)) == questions
        assert pair.second.statistics().replies == 400


def test_sealed_handlers_of_every_kind(pair: Pair) -> None:
    secret = iris_py.Secret(b"s" * 32)
    for handler in (Thread(), lambda request: request.payload, Echo(), Together()):
        with pair.first.join("vault", iris.Sealed(handler, secret)):
            assert pair.second.request("vault", b"X", seal=secret).endswith(b"X")
            assert pair.second.request_future("vault", b"Y", seal=iris.Seal(secret.text)).result().endswith(b"Y")
            assert [reply.payload[-1:] for reply in pair.second.survey("vault", b"Z", seal=secret)] == [b"Z"]
            with pytest.raises(iris.RemoteError, match="Pass seal="):
                pair.second.request("vault", b"x")
    with pytest.raises(iris.ConfigurationError, match="broadcasts are not sealed"):
        iris.Sealed(Notes(), secret)


def test_request_futures(pair: Pair) -> None:
    begun, ended = threading.Event(), threading.Event()

    class Stuck(iris_py.Handler):
        async def on_request(self, request: iris.Request) -> bytes:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
            return b""

    with pair.first.join("echo", lambda request: request.payload), pair.first.join("stuck", Stuck()):
        futures = [pair.second.request_future("echo", str(number).encode()) for number in range(100)]
        assert [future.result(PATIENCE_S) for future in futures] == [str(number).encode() for number in range(100)]
        stuck = pair.second.request_future("stuck", b"", timeout=1000)
        assert begun.wait(PATIENCE_S)
        assert stuck.cancel()
        assert ended.wait(PATIENCE_S)  # the handler is cancelled with it
        with pytest.raises(CancelledError):
            stuck.result()
        error = pair.second.request_future("nobody", b"").exception(PATIENCE_S)
        assert isinstance(error, iris_py.NoMembers)
        how: dict[str, Any] = {"idempotent": True, "timeout": 10 * PATIENCE_S, "wait_for_members": 0}
        error = pair.second.request_future("nobody", b"", **how).exception(PATIENCE_S)
        assert isinstance(error, iris_py.NoMembers)
        with pytest.raises(iris_py.NoMembers):
            pair.second.request("nobody", b"", **how)
        assert asyncio.run(await_future(pair.second)) == b"from an event loop"


async def await_future(node: iris.Node) -> bytes:
    return await asyncio.wrap_future(node.request_future("echo", b"from an event loop"))


def test_broadcasts(pair: Pair) -> None:
    notes = Notes()
    with pair.first.join("notes", notes):
        for number in range(20):
            assert pair.second.broadcast("notes", str(number).encode()) == 1
        for _ in range(20):
            assert notes.told.acquire(timeout=PATIENCE_S)
    assert notes.broadcasts == [str(number).encode() for number in range(20)]


def test_names_of_other_clouds_are_passed_through(pair: Pair) -> None:
    with pytest.raises(iris_py.CloudUnavailable) as tunnel, pair.first.tunnel("store@eu"):
        pass
    with pytest.raises(iris_py.CloudUnavailable) as survey:
        pair.first.survey("workers@eu", b"question").wait()
    assert (tunnel.value.cluster, survey.value.cluster) == ("store@eu", "workers@eu")
    with pytest.raises(iris_py.ConfigurationError, match="not a valid alias"):
        pair.first.survey("workers@", b"question")


def test_surveys(pair: Pair) -> None:
    class Shy(iris.Handler):
        def on_survey(self, request: iris.Request) -> bytes | None:
            return None

    with pair.first.join("notes", Notes()), pair.second.join("notes", Notes()):
        survey = pair.first.survey("notes", b"?", timeout=PATIENCE_S)
        assert sorted((reply.payload, reply.member.id) for reply in survey) == [
            (b"re: ?", each) for each in sorted([pair.first.id, pair.second.id])
        ]
        assert survey.answers.expected == 2
        answers = pair.first.survey("notes", b"fail", timeout=PATIENCE_S).wait()
        assert (len(answers), len(answers.failed)) == (0, 2)
        with pair.first.join("notes", Shy()):
            assert len(pair.second.survey("notes", b"?", timeout=PATIENCE_S, stop_after=1).wait()) == 1
    with pytest.raises(iris_py.NoMembers):
        pair.first.survey("notes", b"?").wait()
    with pytest.raises(iris_py.NoMembers):
        list(pair.first.survey("notes", b"?"))


def test_to_leave_the_loop_ends_the_survey(pair: Pair) -> None:
    ended = threading.Event()

    class Stuck(iris_py.Handler):
        async def on_request(self, request: iris.Request) -> bytes:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
            return b""

    with pair.first.join("mixed", Stuck()), pair.second.join("mixed", Notes()):
        for reply in pair.first.survey("mixed", b"?", timeout=1000):
            assert reply.payload == b"re: ?"
            break
        assert ended.wait(PATIENCE_S)
        ended.clear()
        replies = iter(pair.first.survey("mixed", b"?", timeout=1000))
        next(replies)
        with pytest.raises(KeyboardInterrupt) as interrupt:  # whose traceback keeps alive what the loop held
            replies.throw(KeyboardInterrupt)  # type: ignore[attr-defined] # it is a generator
        assert ended.wait(PATIENCE_S)
        assert interrupt.tb is not None
        ended.clear()
        survey = pair.first.survey("mixed", b"?", timeout=1000)
        next(iter(survey))
        survey.cancel()
        assert survey.wait().missing_count == 1
        assert ended.wait(PATIENCE_S)


def test_subscriptions_one_by_one_in_batches_and_without_waiting_for_ever(pair: Pair) -> None:
    with pair.first.subscribe("news.>", policy="drop_newest", queue_messages=1000) as news:
        assert (news.pattern, news.policy, news.dropped) == ("news.>", "drop_newest", {})
        assert news.take(timeout=0.0) == []
        for number in range(600):
            assert pair.second.publish("news.sport", str(number).encode()) == 1
        received = [next(news).payload for _ in range(300)]
        for batch in news.batches():
            assert batch
            received += [message.payload for message in batch]
            if len(received) == 600:
                break
        assert received == [str(number).encode() for number in range(600)]
        assert (news.queued_messages, news.queued_bytes) == (0, 0)
        assert pair.second.try_publish("news.sport", b"one") == 1
        assert [message.payload for message in news.take(timeout=PATIENCE_S)] == [b"one"]
        assert news.take(timeout=0.01) == []
    assert list(news) == []
    assert list(news.batches()) == []
    assert news.take() == []


def test_many_are_published_in_order_and_made_in_the_thread_that_publishes(pair: Pair) -> None:
    with pair.first.subscribe("news") as news:
        count = MANY_AT_ONCE + 100
        threads = set()

        def make() -> Iterator[bytes]:
            for number in range(count):
                threads.add(threading.current_thread())
                yield b"%d" % number

        assert pair.second.publish_many("news", make()) == 1
        assert threads == {threading.current_thread()}
        assert [next(news).payload for _ in range(count)] == [b"%d" % number for number in range(count)]
        assert pair.second.publish_many("news", []) == 0


def test_what_a_loop_has_taken_counts_as_waiting(pair: Pair) -> None:
    with pair.first.subscribe("news") as news:
        for _ in range(10):
            pair.first.publish("news", b"12345")
        assert (news.queued_messages, news.queued_bytes) == (10, 50)
        next(news)
        assert (news.queued_messages, news.queued_bytes) == (9, 45)
        assert "9 messages" in repr(news)
        pair.first.publish("news", b"12345")
        assert len(news.take()) == 10  # what was taken, and what came since


def test_a_loop_takes_no_more_at_once_than_it_may(pair: Pair) -> None:
    with pair.first.subscribe("news", queue_messages=400) as news:
        for _ in range(300):
            pair.first.publish("news", b"small")
        next(news)
        assert len(news._taken) == 99, "a quarter of what the queue may hold"
        news.take()
        for _ in range(3):
            pair.first.publish("news", bytes(700_000))
        next(news)
        assert len(news._taken) == 1


def share_of(pair: Pair) -> tuple[int, int, int]:
    """Return the messages of the first node for the only group that are taken, outstanding and lost."""
    (share,) = pair.first.statistics().shares.values()
    return share.taken, share.outstanding, share.lost


def wait_for_share(pair: Pair, taken: int, outstanding: int, lost: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while share_of(pair) != (taken, outstanding, lost):
        assert time.monotonic() < deadline, share_of(pair)
        time.sleep(0.005)


def test_messages_taken_for_a_thread_that_it_did_not_get_are_lost_to_the_group(pair: Pair) -> None:
    with pair.second.subscribe("news", group="g") as news:
        for _ in range(30):
            assert pair.first.publish("news", b"") == 1
        while news.queued_messages < 30:
            time.sleep(0.005)
        has_one, may_go_on = threading.Event(), threading.Event()

        def read() -> None:
            next(news)
            has_one.set()
            assert may_go_on.wait(PATIENCE_S)

        reader = threading.Thread(target=read)
        reader.start()
        assert has_one.wait(PATIENCE_S)
        assert 0 < len(news._taken) < 29, "some wait for the thread, and some in the queue"
        wait_for_share(pair, 0, 30, 0)
        news.close()
        wait_for_share(pair, 1, 0, 29)
        may_go_on.set()
        reader.join(PATIENCE_S)


def test_each_message_comes_to_one_of_the_threads_that_share_a_subscription(pair: Pair) -> None:
    count = 500
    received: list[bytes] = []
    done = threading.Event()
    with pair.first.subscribe("news") as news:

        def read() -> None:
            for message in news:
                received.append(message.payload)
                if len(received) == count:
                    done.set()

        readers = [threading.Thread(target=read, daemon=True) for _ in range(4)]
        for reader in readers:
            reader.start()
        for number in range(count):
            pair.second.publish("news", str(number).encode())
        assert done.wait(PATIENCE_S)
        news.close()
        for reader in readers:
            reader.join(PATIENCE_S)
            assert not reader.is_alive()
    assert sorted(received) == sorted(str(number).encode() for number in range(count))


def test_callbacks_run_in_a_thread_one_at_a_time_and_may_use_the_node(pair: Pair) -> None:
    received: list[tuple[bytes, bool]] = []
    done = threading.Event()

    def take(message: iris.Message) -> None:
        is_known = pair.first.request("echo", b"x") == b"x"
        received.append((message.payload, is_known and threading.current_thread().daemon))
        if len(received) == 50:
            done.set()

    with pair.first.join("echo", lambda request: request.payload), pair.first.subscribe("news", take):
        for number in range(50):
            pair.second.publish("news", str(number).encode())
        assert done.wait(PATIENCE_S)
    assert received == [(str(number).encode(), True) for number in range(50)]


def test_a_callback_may_close_its_own_subscription(pair: Pair) -> None:
    closed = threading.Event()
    received: list[bytes] = []

    def take(message: iris.Message) -> None:
        received.append(message.payload)
        news.close(timeout=1000)  # it does not wait for this callback to end
        closed.set()

    news = pair.first.subscribe("news", take)
    pair.second.publish("news", b"one")
    assert closed.wait(PATIENCE_S)
    news.close(timeout=PATIENCE_S)  # somebody else does
    assert pair.second.publish("news", b"two") == 0
    assert received == [b"one"]


def test_an_async_callback_runs_in_the_event_loop(pair: Pair) -> None:
    done = threading.Event()
    names: list[str] = []

    async def take(_message: iris.Message) -> None:
        names.append(threading.current_thread().name)
        done.set()

    with pair.first.subscribe("news", take):
        pair.first.publish("news", b"")
        assert done.wait(PATIENCE_S)
    assert names == ["iris-loop"]
    with pytest.raises(iris_py.ConfigurationError):
        pair.first.subscribe("news", 7)  # type: ignore[call-overload] # a mistake


def test_closing_ends_what_other_threads_wait_for(pair: Pair) -> None:
    errors: list[BaseException] = []
    news = pair.first.subscribe("news")
    begun = threading.Barrier(3)

    def serve(_request: iris.Request) -> bytes:
        begun.wait(PATIENCE_S)
        gate.wait(PATIENCE_S)
        return b""

    def wait_with(function: Callable[[], object]) -> None:
        try:
            function()
        except BaseException as exc:
            errors.append(exc)

    def read() -> None:
        begun.wait(PATIENCE_S)
        next(news)

    gate = threading.Event()
    pair.second.join("stuck", serve)
    waits = (read, lambda: pair.first.request("stuck", b"", timeout=1000))
    threads = [threading.Thread(target=wait_with, args=[each], daemon=True) for each in waits]
    for thread in threads:
        thread.start()
    begun.wait(PATIENCE_S)
    pair.first.close()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert [type(error) for error in errors] == [iris_py.NodeClosed, iris_py.NodeClosed]
    gate.set()
    pair.first.close()  # harmless
    for use in (lambda: pair.first.publish("a", b""), lambda: pair.first.survey("a", b"")):
        with pytest.raises(iris_py.NodeClosed):
            use()


def test_it_refuses_to_wait_in_an_event_loop(pair: Pair) -> None:
    async def use() -> None:
        for function in (
            lambda: pair.first.request("a", b""),
            pair.first.nodes,
            iris.connect,
            pair.first.close,
            lambda: pair.first.subscribe("a"),
        ):
            with pytest.raises(iris_py.ConfigurationError, match="event loop of this thread"):
                function()
        assert await asyncio.to_thread(pair.first.request, "echo", b"by a thread") == b"by a thread"

    with pair.first.join("echo", lambda request: request.payload):
        asyncio.run(use())


def test_a_handler_in_the_event_loop_is_refused_too(pair: Pair) -> None:
    """It would wait for itself."""

    def ask(_request: iris.Request) -> bytes:
        return pair.first.request("ask", b"")

    with pair.first.join("ask", ask, inline=True), pytest.raises(iris_py.RemoteError) as caught:
        pair.second.request("ask", b"", timeout=PATIENCE_S)
    assert caught.value.type == "ConfigurationError"


def test_wrong_settings_start_nothing(home: Path) -> None:
    with pytest.raises(iris_py.ConfigurationError):
        iris.connect(listen="nonsense")
    with pytest.raises(iris_py.ConfigurationError):
        iris.connect(secret="iris1.nonsense")


def test_the_loop_is_asyncios_where_uvloop_is_missing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)  # importing it fails
    loop = Background()
    try:
        assert isinstance(loop.loop, asyncio.BaseEventLoop)
        assert loop.wait(asyncio.sleep, 0, "slept") == "slept"
    finally:
        loop.shut_down()
    assert loop.loop.is_closed()
    assert loop.is_gone
    with pytest.raises(iris_py.NodeClosed):
        loop.call(len, ())


def test_what_was_opened_for_nobody_is_closed_again(home: Path) -> None:
    """An interrupt may come when the node is there and before the caller has it."""
    begun = threading.Event()
    opened: list[iris_py.Node] = []

    async def connect() -> iris_py.Node:
        opened.append(await iris_py.connect())
        return opened[-1]

    async def connect_though_cancelled() -> iris_py.Node:
        try:
            begun.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass
        return await connect()

    def wait_until_closed() -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not opened or loop._nodes or any(files for _, _, files in os.walk(home / "state")):
            assert time.monotonic() < deadline
            time.sleep(0.005)
        opened.clear()

    loop = Background()
    try:
        call = BlockingCall(lambda: loop.keep(connect), loop._discard)
        loop.soon(lambda: loop._begin(call))
        assert call.ended.acquire(timeout=PATIENCE_S)
        loop.soon(call.give_up)
        wait_until_closed()
        call = BlockingCall(lambda: loop.keep(connect_though_cancelled), loop._discard)
        loop.soon(lambda: loop._begin(call))
        assert begun.wait(PATIENCE_S)
        loop.soon(call.give_up)
        wait_until_closed()
    finally:
        loop.shut_down()


class Mirror(iris.Handler):
    """Sends every message back; fails if it is told to."""

    def on_tunnel(self, tunnel: iris.Tunnel) -> None:
        for message in tunnel:
            if message == b"fail":
                raise ValueError("as you wish")
            tunnel.send(message)


def test_tunnels(pair: Pair, tmp_path: Path) -> None:
    large = bytes(range(256)) * 20_000
    (tmp_path / "source").write_bytes(large)
    with pair.second.join("mirror", Mirror()), pair.first.tunnel("mirror", timeout=PATIENCE_S) as tunnel:
        assert (tunnel.cluster, tunnel.member, tunnel.source) == ("mirror", pair.second.id, pair.first.id)
        assert tunnel.id in repr(tunnel)
        tunnel.send(b"one")
        assert tunnel.receive() == b"one"
        # What makes the chunks runs in a thread, where this API may be used.
        assert tunnel.send_chunks(pair.first.id[:each].encode() for each in (1, 2)) == 3
        assert len(tunnel.receive()) == 3
        with (tmp_path / "source").open("rb") as source, (tmp_path / "copy").open("wb") as copy:
            assert tunnel.send_from(source) == len(large)
            assert tunnel.receive_into(copy) == len(large)
        assert (tmp_path / "copy").read_bytes() == large
        tunnel.send(large)
        assert b"".join(tunnel.receive_chunks()) == large
        tunnel.send(large)
        for chunk in tunnel.receive_chunks():
            assert large.startswith(chunk)
            break
        tunnel.send(b"last")
        tunnel.end()
        assert list(tunnel) == [b"last"]
        with pytest.raises(iris.TunnelClosed):
            tunnel.receive()


def test_a_tunnel_breaks_with_what_was_raised(pair: Pair) -> None:
    with pair.second.join("mirror", Mirror()), pair.second.join("notes", Notes()):
        tunnel = pair.first.tunnel("mirror")
        tunnel.send(b"fail")
        with pytest.raises(iris.TunnelBroken, match="ValueError: as you wish"):
            tunnel.receive()
        with pytest.raises(iris.NoMembers, match="serves tunnels"):
            pair.first.tunnel("notes")
        with pytest.raises(ZeroDivisionError), pair.first.tunnel("mirror") as broken:
            broken.send(bytes(1 // 0))
        with pytest.raises(iris.TunnelBroken, match="this side aborted it"):
            broken.receive()


async def _count_later(request: iris.Request[Word]) -> int:
    return len(request.payload.text) + 1


def _later(request: iris.Request[Word]) -> Awaitable[int]:
    return _count_later(request)


def test_payloads_may_be_values(pair: Pair) -> None:
    handler = Lengths()
    pair.first.join("lengths", handler, codec=LENGTHS)
    pair.first.join("functions", lambda request: len(request.payload.text), codec=LENGTHS)
    pair.first.join("later", _later, codec=LENGTHS)
    for cluster, count in (("lengths", 3), ("functions", 3), ("later", 4)):
        assert pair.second.request(cluster, Word("abc"), codec=LENGTHS) == count
        assert pair.second.request_future(cluster, Word("abc"), codec=LENGTHS).result(PATIENCE_S) == count
        assert [reply.payload for reply in pair.second.survey(cluster, Word("abc"), codec=LENGTHS).wait()] == [count]
        with pytest.raises(iris.RemoteError, match="was not executed: Expected `str`, got `int`"):
            pair.second.request(cluster, {"text": 1}, codec="json")
    assert pair.second.broadcast("lengths", Word("all"), codec=LENGTHS) == 1
    assert handler.told.get(timeout=PATIENCE_S) == Word("all")
    with pytest.raises(iris.EncodeError):
        pair.second.request_future("lengths", Word(object()), codec=LENGTHS).result(PATIENCE_S)  # type: ignore[arg-type]


def test_a_subscription_to_values_leaves_out_what_does_not_fit(pair: Pair) -> None:
    called: SimpleQueue[str] = SimpleQueue()
    pair.first.subscribe("words", lambda message: called.put(message.payload.text), codec=Word)
    with pair.first.subscribe("words", codec=LENGTHS) as words:
        assert pair.second.publish("words", b"junk") == 1
        pair.second.publish("words", Word("a"), codec=Word)
        pair.second.publish_many("words", [Word("b"), Word("c")], codec=LENGTHS)
        assert next(words).payload == Word("a")
        pair.second.publish("words", b"junk")
        pair.second.try_publish("words", {"text": "d"}, codec="json")
        taken: list[str] = []
        while len(taken) < 3:
            taken += [message.payload.text for message in words.take(timeout=PATIENCE_S)]
        assert taken == ["b", "c", "d"]
        assert dict(words.dropped) == {"undecodable": 2}
        error = words.undecodable
        assert error is not None
        assert (error.topic, error.member, error.payload) == ("words", pair.second.id, b"junk")
        pair.second.publish("words", b"junk")
        assert words.take(timeout=0.2) == []
        pair.second.publish("words", Word("end"), codec=Word)
        assert [message.payload.text for message in next(words.batches())] == ["end"]
    assert [called.get(timeout=PATIENCE_S) for _ in range(5)] == ["a", "b", "c", "d", "end"]
