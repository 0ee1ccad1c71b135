"""The node of an executor as its tasks use it, without Spark: a real node, real sockets, threads and forked processes."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import shutil
import signal
import sys
import tempfile
import threading
import types
import warnings
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import iris_py
import iris_py.sync as iris
from iris_py.connector import parts_of
from spark_connector import AgentLost, AgentUnavailable, LocalAgent, local_agent
from spark_connector.local import calls, client, connection, frames, server
from tests.spark.agents import Agent
from tests.spark.driving import until

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator


@pytest.fixture
def path() -> Iterator[Path]:
    """A place for a socket: the directories of pytest have longer names than one may have."""
    directory = tempfile.mkdtemp(prefix="iris-")
    Path(directory, "agent").mkdir(mode=0o700)
    yield Path(directory, "agent", "socket")
    shutil.rmtree(directory)


@pytest.fixture
def agent(path: Path) -> Iterator[Agent]:
    agent = Agent(path)
    yield agent
    agent.stop()


@pytest.fixture
def task(agent: Agent) -> Iterator[LocalAgent]:
    with LocalAgent(agent.path) as task:
        yield task


# -- what a task can do


def test_it_has_the_methods_of_a_node_with_their_arguments() -> None:
    def arguments(owner: type, name: str) -> list[tuple[str, object]]:
        return [(each.name, each.default) for each in inspect.signature(getattr(owner, name)).parameters.values()]

    # A task lives for seconds, has recent_events(), asks no other node, and is not the one that listens.
    not_there = {"join", "tunnel", "events", "ask_nodes", "find_route", "trace", "port"}
    left_out = not_there | {"close", "subscribe"}
    names = {name for name in vars(iris.Node) if not name.startswith("_")} - {
        "rekey",
        "reload_keys",
        "rotation",
        "rotate_secret",
    }  # the keys are the agent's
    assert {name for name in vars(LocalAgent) if not name.startswith("_")} == names - not_there
    for name in names - left_out:
        if callable(getattr(iris.Node, name)):
            assert arguments(LocalAgent, name) == arguments(iris.Node, name), name
    of_subscribe = [each for each in arguments(iris.Node, "subscribe") if each[0] not in ("callback", "inline")]
    assert arguments(LocalAgent, "subscribe") == of_subscribe


def test_it_says_what_the_node_is(agent: Agent, task: LocalAgent) -> None:
    node = agent.node
    assert (task.id, task.address, task.zone, task.network) == (node.id, node.address, "eu/a", "tests")
    assert task.name == node.name != ""
    assert task.max_message_bytes == node.max_message_bytes
    assert [member.id for member in task.nodes()] == [node.id]
    assert (task.network_size, task.unreached_seeds()) == agent.run(_network_of(agent)) == (1, {})
    assert task.nodes() == agent.run(_nodes(agent))
    assert task.clouds() == ()
    events = task.recent_events()
    assert events != ()
    assert agent.run(_recent_events(agent, 0))[: len(events)] == events  # a busy machine adds a stall meanwhile
    assert task.recent_events(events[0].number)[: len(events) - 1] == events[1:]
    assert task.health() == iris.Health(status="SERVING")
    assert task.health("echo") == agent.run(_health(agent, "echo"))
    unknown = task.health("nobody's")
    assert (unknown.status, unknown.is_ready, len(unknown.reasons)) == ("SERVICE_UNKNOWN", False, 1)
    assert str(agent.path) in repr(task)


def test_a_request_goes_with_all_its_options(agent: Agent, task: LocalAgent) -> None:
    assert task.request("echo", b"hello") == b"hello"
    assert task.request("echo", b"") == b""
    assert task.request("echo", bytearray(b"hello")) == b"hello"
    assert task.request("echo", memoryview(b"h.e.l.l.o")[::2]) == b"hello"
    assert task.request("echo", b"!", headers={"a": 1, "b": "two", "c": b"3"}) == b"a=1;b='two';c=b'3';!"
    assert task.request("echo", b"near", require="eu/a", prefer="eu/a") == b"near"
    assert task.request("echo", b"room", on_full="raise", idempotent=True, retry_failed=True) == b"room"
    assert task.request("echo", b"more", retry=iris.Retry(attempts=2, hedge_after="p95", on=("lost",))) == b"more"
    with pytest.raises(iris.RemoteError):
        task.request_future("fail", b"", retry=iris.Retry(on=("failed",))).result(60)
    with pytest.raises(iris.ConfigurationError, match=r"must be an iris_py\.Retry"):
        task.request("echo", b"", retry=3)  # type: ignore[call-overload] # that is the point
    for _ in range(2):
        task.request("echo", b"once", idempotent=True, key="the same")
    statistics = task.statistics()
    assert statistics.repeated == 1
    own = agent.run(_statistics(agent))
    assert type(statistics) is type(own)
    assert (statistics.requests, statistics.drops, statistics.clusters) == (own.requests, own.drops, own.clusters)


def test_clouds_of_the_agent_are_clouds_of_the_task() -> None:
    clouds = (
        iris.Cloud(alias="eu", is_up=True, gateways=2, round_trip_s=0.5),
        iris.Cloud(alias="us", is_up=False, gateways=0, round_trip_s=None),
    )
    returned = frames.reply_decoder.decode(frames.header_of(frames.CallReturned(clouds)))
    assert isinstance(returned, frames.CallReturned)
    assert msgspec.convert(returned.value, frames.METHODS["clouds"].result) == clouds


def test_a_publication_that_the_agent_holds_has_no_number_of_nodes() -> None:
    returned = frames.reply_decoder.decode(frames.header_of(frames.CallReturned(None)))
    assert isinstance(returned, frames.CallReturned)
    assert msgspec.convert(returned.value, frames.METHODS["try_publish"].result) is None


async def _network_of(agent: Agent) -> tuple[int, dict[str, str]]:
    return agent.node.network_size, dict(agent.node.unreached_seeds())


async def _nodes(agent: Agent) -> tuple[iris.Member, ...]:
    return agent.node.nodes()


async def _recent_events(agent: Agent, since: int) -> tuple[iris.EventRecord, ...]:
    return agent.node.recent_events(since)


async def _health(agent: Agent, cluster: str) -> iris.Health:
    return agent.node.health(cluster)


async def _statistics(agent: Agent) -> iris.Statistics:
    return agent.node.statistics()


def test_large_messages_pass(task: LocalAgent) -> None:
    payload = os.urandom(3_000_000)
    assert task.request("echo", payload) == payload


def test_it_tells_clusters_and_topics(agent: Agent, task: LocalAgent) -> None:
    assert task.broadcast("hold", b"all of you", headers={"a": 1}) == 1
    agent.wait_until("services.told == [b'all of you']")

    assert task.publish("news", b"nobody hears it") == 0
    with task.subscribe("news") as subscription:
        assert task.publish("news", b"one", headers={"n": 1}) == 1
        assert task.try_publish("news", b"two") == 1
        assert task.publish_many("news", iter([b"three", b"four"])) == 1
        one, two, three, four = (next(subscription) for _ in range(4))
    assert (three.payload, four.payload) == (b"three", b"four")
    assert task.publish_many("news", []) == 0
    assert (one.payload, one.topic, one.source, dict(one.headers)) == (b"one", "news", agent.node.id, {"n": 1})
    assert (two.payload, two.sequence) == (b"two", one.sequence + 1)


def test_it_sees_who_is_there(agent: Agent, task: LocalAgent) -> None:
    members = task.members("echo")
    (member,) = members.wait()
    assert (member.id, member.zone) == (agent.node.id, "eu/a")
    assert list(members) == [member]
    assert len(members) == 1
    assert member in members
    assert task.members("nobody").wait() == ()


def test_a_survey_collects_answers(agent: Agent, task: LocalAgent) -> None:
    answers = task.survey("echo", b"who?", headers={"h": 1}).wait()
    assert [(reply.payload, reply.member.id) for reply in answers] == [(b"h=1;who?", agent.node.id)]
    assert answers.is_complete
    assert [reply.payload for reply in task.survey("echo", b"again", stop_after=1)] == [b"again"]

    failed = task.survey("fail", b"no").wait()
    assert [(failure.type, failure.text) for failure in failed.failed] == [("LookupError", "no")]
    with pytest.raises(iris.NoMembers, match="nobody serves the cluster 'nobody'"):
        task.survey("nobody", b"").wait()


def test_what_a_task_seals_its_agent_opens_for_it(agent: Agent, task: LocalAgent) -> None:
    secret = iris.Secret.generate(os.urandom)

    async def join() -> None:
        await agent.node.join("vault", iris_py.Sealed(agent.services.echo, secret))

    agent.run(join())
    assert task.request("vault", b"hidden", seal=secret) == b"hidden"
    assert task.request_future("vault", b"later", seal=secret.text).result(20) == b"later"
    assert task.request("vault", b"named", seal=iris.Seal(secret, name="vault"), idempotent=True, key="a") == b"named"
    assert [reply.payload for reply in task.survey("vault", b"who?", seal=secret).wait()] == [b"who?"]
    with pytest.raises(iris.RemoteError, match="accept a request only once"):
        task.request("vault", b"open")
    with pytest.raises(iris.ConfigurationError, match="secret of a seal"):
        task.request("vault", b"hidden", seal="iris1.nonsense")


def test_a_survey_can_be_ended_early(agent: Agent, task: LocalAgent) -> None:
    survey = task.survey("hold", b"first", timeout=30)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(survey.wait)
        agent.wait_until("services.asked == [b'first']")
        until(lambda: survey.answers.missing_count == 1)  # the agent is asked before the task is told who is
        survey.cancel()  # in another thread
        assert waiting.result(20).missing_count == 1
    agent.wait_until("services.cancelled == [b'first']")

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(task.survey("hold", b"lost", timeout=30).wait)
        agent.wait_until("b'lost' in services.asked")
        task.close()  # as when the process ends
        with pytest.raises(AgentLost):
            waiting.result(20)
    agent.wait_until("b'lost' in services.cancelled")

    survey = task.survey("hold", b"second", timeout=30)
    replies = iter(survey)
    agent.loop.call_soon_threadsafe(agent.services.release.set)
    assert next(replies).payload == b"released second"
    assert survey.answers.expected == 1
    survey.cancel()
    assert next(replies, None) is None
    assert len(survey.wait()) == 0


def test_to_leave_the_loop_over_a_survey_ends_it(agent: Agent, task: LocalAgent) -> None:
    agent.run(_join_again(agent))
    for _ in task.survey("mixed", b"x", timeout=30):
        break
    gc.collect()
    agent.wait_until("services.cancelled == [b'x']")


async def _join_again(agent: Agent) -> None:
    await agent.node.join("mixed", agent.services.echo)
    await agent.node.join("mixed", agent.services)


# -- subscriptions


def test_a_subscription_gives_messages_in_batches_or_in_time(agent: Agent, task: LocalAgent) -> None:
    with task.subscribe("news.*") as subscription:
        assert subscription.take(timeout=0) == []
        for number in range(600):
            task.publish("news.x", b"%d" % number)
        assert (subscription.queued_messages, subscription.queued_bytes) == (600, 10 + 180 + 1500)
        batches = subscription.batches()
        first = next(batches)
        assert [message.payload for message in first] == [b"%d" % number for number in range(len(first))]
        assert len(first) == frames.TAKEN_MESSAGES_MAX
        rest = next(batches) + subscription.take(timeout=20)
        assert len(first) + len(rest) == 600
        assert (subscription.pattern, subscription.policy, dict(subscription.dropped)) == ("news.*", "drop_oldest", {})
        with pytest.raises(iris.ConfigurationError, match="timeout=-1"):
            subscription.take(timeout=-1)
    assert list(subscription) == []
    assert subscription.take() == []
    assert task.publish("news.x", b"gone") == 0


def test_a_subscription_passes_everything_of_a_message(agent: Agent, task: LocalAgent) -> None:
    sent = iris.Message(b"x", "ab" * 16, 7, "", "news", 3, {"a": 1}, "eu", has_unknown_gap=True)
    with task.subscribe("news") as subscription:
        agent.run(_receive(agent, sent))
        (message,) = subscription.take(timeout=20)
    assert msgspec.structs.asdict(message) == msgspec.structs.asdict(sent)


async def _receive(agent: Agent, message: iris.Message) -> None:
    (inbox,) = parts_of(agent.node).topics.inboxes.values()
    inbox.queue.put(message)
    inbox.handle_ready()


def test_a_slow_reader_loses_what_its_policy_says(agent: Agent, task: LocalAgent) -> None:
    with task.subscribe("news", queue_messages=10) as subscription:
        for number in range(100):
            task.publish("news", b"%d" % number)
        assert dict(subscription.dropped) == {"oldest": 90}
        assert [message.payload for message in subscription.take()] == [b"%d" % number for number in range(90, 100)]

    with task.subscribe("news", policy="disconnect", queue_messages=1) as subscription:
        for _ in range(3):
            task.publish("news", b"x")
        assert len(subscription.take()) == 1
        with pytest.raises(iris.SlowSubscriber) as caught:
            subscription.take()
        assert (caught.value.topic, caught.value.queue_messages) == ("news", 1)


def test_a_slow_reader_makes_publishers_wait_if_its_policy_says_so(agent: Agent, task: LocalAgent) -> None:
    with task.subscribe("news", policy="block", queue_messages=2) as subscription:
        sent = _publish_until_full(task)
        waiting = ThreadPoolExecutor(1).submit(task.publish, "news", b"last")
        received: list[iris.Message] = []
        while len(received) <= sent:
            received += subscription.take(timeout=20)
        assert waiting.result(20) == 1
        assert received[-1].payload == b"last"


def _publish_until_full(task: LocalAgent) -> int:
    for sent in range(100):
        try:
            task.try_publish("news", b"x")
        except iris.Overloaded:
            return sent
    raise AssertionError("a full subscription makes nobody wait")


def test_another_thread_can_end_a_subscription(task: LocalAgent) -> None:
    subscription = task.subscribe("news")
    with ThreadPoolExecutor(1) as threads:
        taken = threads.submit(list, subscription)
        subscription.close()
        assert taken.result(20) == []


def test_a_process_may_have_so_many_held_calls(task: LocalAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HELD_MAX", 1)
    with task.subscribe("news"), pytest.raises(iris.ConfigurationError, match="1 subscriptions and surveys"):
        task.subscribe("other")
    with pytest.raises(iris.NoMembers):
        task.survey("nobody", b"").wait()
    task.survey("echo", b"").wait()
    task.subscribe("other").close()


# -- errors


@pytest.mark.parametrize(
    "ask",
    [
        lambda node: node.request("nobody", b""),
        lambda node: node.request("echo", b"", require="us"),
        lambda node: node.request("fail", b"reason"),
        lambda node: node.request("hold", b"", timeout=0.05),
        lambda node: node.request("echo", bytes(2_000_000)),
        lambda node: node.broadcast("echo", bytes(2_000_000)),
        lambda node: node.request("echo", b"", timeout=-1),
        lambda node: node.request("echo", b"", timeout="soon"),
        lambda node: node.request("", b""),
        lambda node: node.request("echo", b"", key="without idempotent"),
        lambda node: node.request("echo", b"", on_full="sometimes"),
        lambda node: node.request("echo", b"", retry_failed=True),
        lambda node: node.request("echo", b"", headers={"no good name": 1}),
        lambda node: node.request("echo", b"", headers=5),
        lambda node: node.request("echo", "text"),
        lambda node: node.publish("not..a topic", b""),
        lambda node: node.try_publish("not..a topic", b""),
        lambda node: node.subscribe("a", policy="unknown"),
        lambda node: node.members(""),
        lambda node: node.survey("echo", b"", timeout=0),
    ],
)
def test_errors_are_those_of_the_node(path: Path, ask: Callable[[Any], Any]) -> None:
    agent = Agent(path, max_message_bytes=1_000_000)
    try:
        with LocalAgent(path) as task:
            with pytest.raises(Exception) as expected:  # noqa: PT011 - whatever it is
                agent.run(_await(agent, ask))
            with pytest.raises(type(expected.value)) as caught:
                _finish(ask(task))
            assert type(caught.value) is type(expected.value)
            assert str(caught.value) == str(expected.value)
            assert vars(caught.value) == vars(expected.value)
            assert task.request("echo", b"still there") == b"still there"
    finally:
        agent.stop()


async def _await(agent: Agent, ask: Callable[[iris_py.Node], Coroutine[Any, Any, object]]) -> object:
    result = ask(agent.node)
    return await result if inspect.isawaitable(result) else result


def _finish(result: object) -> None:
    if hasattr(result, "wait"):
        result.wait()


def test_errors_that_nobody_knows_are_errors_of_iris() -> None:
    class Special(iris.NoMembers):
        pass

    known = frames.error_of(frames.failed(Special("accounts", 2)))
    assert type(known) is iris.NoMembers
    assert known.cluster == "accounts"
    unknown = frames.error_of(frames.failed(KeyError("x")))
    assert type(unknown) is iris.IrisError
    assert str(unknown) == "the agent failed with KeyError: 'x'"
    assert str(frames.error_of(frames.CallFailed("FutureError", "of another release", {}))) == "of another release"
    assert "?" in str(frames.error_of(frames.failed(iris.IrisError("no text \ud800"))))


def test_arguments_that_cannot_be_sent_are_told(task: LocalAgent) -> None:
    with pytest.raises(iris.ConfigurationError, match="cannot be sent"):
        task.request("echo", b"", timeout=object())  # type: ignore[call-overload]
    with pytest.raises(iris.ConfigurationError, match="take 7"):
        task.request("echo", b"", idempotent=True, key="x" * 70_000)
    assert task.request("echo", b"x") == b"x"


def test_it_is_not_for_event_loops(task: LocalAgent) -> None:
    async def main() -> bytes:
        with pytest.raises(iris.ConfigurationError, match="event loop"):
            task.request("echo", b"")
        return await asyncio.wrap_future(task.request_future("echo", b"hello"))

    assert asyncio.run(main()) == b"hello"


# -- many at once


@pytest.fixture
def no_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody who waits look up by itself: it has to be woken."""
    monkeypatch.setattr(connection, "TICK_S", 1000.0)


@pytest.mark.usefixtures("no_ticks")
def test_many_threads_share_one_connection(agent: Agent, task: LocalAgent) -> None:
    def ask(thread: int) -> None:
        for number in range(30):
            payload = b"%d/%d" % (thread, number) * (1 + 3000 * (number % 2))
            assert task.request("echo", payload, timeout=30) == payload

    with ThreadPoolExecutor(32) as threads:
        list(threads.map(ask, range(32)))
    assert agent.node_server.connections == 1


@pytest.mark.usefixtures("no_ticks")
def test_who_reads_for_others_leaves_that_to_another_one(agent: Agent, task: LocalAgent) -> None:
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(task.request, "hold", b"first", timeout=2.0)  # a busy machine takes its time
        agent.wait_until("services.asked == [b'first']")
        second = threads.submit(task.request, "hold", b"second", timeout=30)
        with pytest.raises(iris.RequestTimeout):
            first.result(20)
        agent.loop.call_soon_threadsafe(agent.services.release.set)
        assert second.result(20) == b"released second"


@pytest.mark.usefixtures("no_ticks")
def test_futures_are_under_way_at_once(task: LocalAgent) -> None:
    futures = [task.request_future("echo", b"%d" % number) for number in range(3000)]
    assert [future.result(30) for future in futures] == [b"%d" % number for number in range(3000)]
    with pytest.raises(iris.NoMembers):
        task.request_future("nobody", b"").result(30)


@pytest.mark.usefixtures("no_ticks")
def test_calls_and_futures_do_not_hold_each_other_up(agent: Agent, task: LocalAgent) -> None:
    held = task.request_future("hold", b"x", timeout=30)
    agent.wait_until("services.asked")
    assert task.request("echo", b"hello") == b"hello"
    called: Future[bytes] = Future()
    held.add_done_callback(lambda done: called.set_result(done.result()))
    agent.loop.call_soon_threadsafe(agent.services.release.set)
    assert called.result(30) == b"released x"


def test_to_cancel_a_future_cancels_the_request(agent: Agent, task: LocalAgent) -> None:
    future = task.request_future("hold", b"x", timeout=30)
    agent.wait_until("services.asked")
    assert future.cancel()
    agent.wait_until("services.cancelled == [b'x']")
    assert task.request("echo", b"hello") == b"hello"


def test_an_interrupt_ends_what_waits_and_what_it_waits_for(agent: Agent, task: LocalAgent) -> None:
    """Whether the thread that is interrupted reads or waits for another one that does."""
    for payload, is_led in ((b"a leader", False), (b"a follower", True)):
        others = [task.request_future("hold", b"other", timeout=30)] if is_led else []
        for _ in others:
            agent.wait_until("b'other' in services.asked")

        def waits(is_led: bool = is_led) -> bool:
            """Tell whether the request waits for its answer: an interrupt while it is sent ends the connection."""
            under_way = task._connect()
            return bool(under_way._followers) if is_led else under_way._leading.locked()

        def interrupt(payload: bytes = payload, waits: Callable[[], bool] = waits) -> None:
            agent.wait_until(f"{payload!r} in services.asked")
            until(waits)
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            task.request("hold", payload, timeout=30)
        thread.join(20)
        agent.wait_until(f"{payload!r} in services.cancelled")
        assert all(not other.done() for other in others)
        assert task.request("echo", b"hello") == b"hello"


@pytest.mark.usefixtures("no_ticks")
def test_an_agent_does_so_much_at_once(agent: Agent, task: LocalAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "IN_FLIGHT_MAX", 2)
    monkeypatch.setattr(client, "GRACE_S", 0.0)
    first, second = [task.request_future("hold", b"%d" % number, timeout=30) for number in range(2)]
    agent.wait_until("services.asked == [b'0', b'1']")
    with pytest.raises(AgentUnavailable, match="2 calls of this process were in progress"):
        task.request("hold", b"too late", timeout=0.01)
    with ThreadPoolExecutor(2) as threads:
        waiting = [threads.submit(task.request, "hold", b"later", timeout=30) for _ in range(2)]
        first.cancel()
        agent.wait_until("services.asked == [b'0', b'1', b'later']")
        agent.loop.call_soon_threadsafe(agent.services.release.set)
        assert second.result(30) == b"released 1"
        assert [each.result(30) for each in waiting] == [b"released later"] * 2


@pytest.mark.usefixtures("no_ticks")
def test_an_agent_holds_so_many_bytes(agent: Agent, task: LocalAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "IN_FLIGHT_BYTES_MAX", 1000)
    payloads = [b"%d" % number * 900 for number in range(10)]
    with ThreadPoolExecutor(5) as threads:
        asked = [threads.submit(task.request, "hold", payload, timeout=30) for payload in payloads]
        agent.wait_until("len(services.asked) == 1")
        assert task.request("echo", b"x" * 100) == b"x" * 100, "what fits is let in"
        agent.loop.call_soon_threadsafe(agent.services.release.set)
        assert [each.result(30) for each in asked] == [b"released " + payload for payload in payloads]
    assert task.request("echo", b"x" * 2000) == b"x" * 2000, "one is always let in"


def test_answers_that_nobody_reads_hold_up_no_writer(agent: Agent, task: LocalAgent) -> None:
    """The agent stops reading while its answers are not read: whoever writes must read, too."""
    connection = task._connect()
    asked = frames.header_of(frames.RequestCall("inflate", 5.0, False, None, None, None, None))
    for number, slow in enumerate(("written", "read")):  # as if their threads had been stopped
        connection._send(calls.AgentCall(number + 2**32), asked, b"4000000", None)
        agent.wait_until(f"any(connection._is_{slow}_slowly for connection in node_server._connections)")
    payload = bytes(4_000_000)
    assert task.request("echo", payload, timeout=30) == payload
    assert task._connect() is connection


# -- the ends


def test_what_is_under_way_is_cancelled_when_the_process_ends(agent: Agent) -> None:
    """SIGKILL: only the kernel tells the agent."""
    child = _fork(lambda: LocalAgent(agent.path).request("hold", b"x", timeout=30))
    agent.wait_until("services.asked == [b'x']")
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    agent.wait_until("services.cancelled == [b'x'] and node_server.connections == 0")


def test_subscriptions_end_with_the_connection(agent: Agent, task: LocalAgent) -> None:
    subscription = task.subscribe("news")
    assert task.publish("news", b"x") == 1
    task.close()
    with pytest.raises(AgentLost):
        subscription.take()
    subscription.close()
    agent.wait_until("node_server.connections == 0")
    while task.publish("news", b"x"):  # the node says so when everybody knows
        pass


def test_a_lost_agent_is_told_and_its_successor_found(agent: Agent, task: LocalAgent) -> None:
    held = task.request_future("hold", b"future", timeout=30)
    with ThreadPoolExecutor(2) as threads:
        calls = [threads.submit(task.request, "hold", b"%d" % number, timeout=30) for number in range(2)]
        agent.wait_until("len(services.asked) == 3")
        agent.stop()
        for lost in (held, *calls):
            with pytest.raises(AgentLost, match="call again") as caught:
                lost.result(20)
            assert caught.value.path == str(agent.path)
    assert not agent.path.exists()

    successor = Agent(agent.path)
    try:
        assert task.request("echo", b"hello") == b"hello"
        assert task.id == successor.node.id
    finally:
        successor.stop()


def test_who_the_node_is_is_said_of_the_successor(agent: Agent, task: LocalAgent) -> None:
    """A task of a later job may be in the same process, and ask for the id first."""
    assert task.id == agent.node.id
    agent.stop()
    successor = Agent(agent.path)
    try:
        assert task.id == successor.node.id
    finally:
        successor.stop()


def test_a_successor_is_found_by_who_saw_nothing_of_the_end(agent: Agent, task: LocalAgent) -> None:
    """Nobody reads while nobody asks, so the end is seen by the next call, of which the old agent knows nothing."""
    asks: list[Callable[[], bytes]] = [
        lambda: task.request("echo", b"x"),
        lambda: task.request_future("echo", b"x").result(20),
    ]
    for ask in asks:
        assert ask() == b"x"
        agent.stop()
        agent = Agent(agent.path)
    try:
        assert task.request("echo", b"y") == b"y"
        assert task.id == agent.node.id
    finally:
        agent.stop()


def test_an_agent_that_closes_its_node_is_lost(agent: Agent, task: LocalAgent) -> None:
    assert task.request("echo", b"x") == b"x"
    agent.run(agent.node.close(timeout=1))
    with pytest.raises(AgentLost, match="being closed"):
        task.request("echo", b"x")
    with pytest.raises(AgentLost, match="being closed"):
        task.request_future("echo", b"x").result(20)


def test_an_agent_that_stands_still_is_not_waited_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "GRACE_S", 0.05)
    agent = Agent(path)
    stuck = threading.Event()
    try:
        with LocalAgent(path) as task:
            assert task.request("echo", b"x") == b"x"
            agent.loop.call_soon_threadsafe(stuck.wait)
            with pytest.raises(AgentLost, match=r"no answer within 0\.1 s"):
                task.request("echo", b"x", timeout=0.05)
            stuck.set()
            assert task.request("echo", b"y", timeout=20) == b"y"
    finally:
        stuck.set()
        agent.stop()


def test_a_task_waits_for_an_agent_that_is_not_there_yet(path: Path) -> None:
    with ThreadPoolExecutor(1) as threads, LocalAgent(path, timeout=30) as task:
        reply = threads.submit(task.request, "echo", b"hello", timeout=20)
        agent = Agent(path)
        try:
            assert reply.result(20) == b"hello"
        finally:
            agent.stop()


def test_without_an_agent_a_task_is_told(path: Path) -> None:
    with pytest.raises(AgentUnavailable, match=r"there is no socket .*ExecutorCluster") as caught:
        LocalAgent(path, timeout=0.01).request("echo", b"")
    assert caught.value.path == str(path)
    with pytest.raises(AgentUnavailable):
        LocalAgent(path).request_future("echo", b"", timeout=0.01)


def test_a_forked_process_has_a_connection_of_its_own(agent: Agent, task: LocalAgent) -> None:
    subscription = task.subscribe("news")
    assert task.request("echo", b"parent") == b"parent"

    def child() -> None:
        assert task.request("echo", b"child") == b"child"
        with pytest.raises(AgentLost):
            subscription.take()
        assert task.request_future("echo", b"future").result(20) == b"future"

    pid = _fork(child)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert task.publish("news", b"to the parent") == 1
    assert next(subscription).payload == b"to the parent"
    agent.wait_until("node_server.connections == 1")


def _fork(function: Callable[[], object]) -> int:
    with warnings.catch_warnings(action="ignore"):  # this process has threads, and the child uses none of them
        pid = os.fork()
    if not pid:
        status = 1
        try:
            function()
            status = 0
        finally:
            os._exit(status)
    return pid


# -- where it is


def test_outside_of_a_task_there_is_no_agent() -> None:
    with pytest.raises(iris.ConfigurationError, match="only for Spark tasks, but this is not a task"):
        local_agent()


def test_a_task_finds_the_agent_of_its_executor(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark import TaskContext

    module = types.SimpleNamespace(agent_directory=lambda: agent.path.parent)
    monkeypatch.setitem(sys.modules, "spark_connector.executors.agent_files", module)
    monkeypatch.setattr(TaskContext, "get", lambda: object())

    found = local_agent(timeout=20)

    assert found.request("echo", b"hello") == b"hello"
    assert local_agent() is found
    with pytest.raises(iris.ConfigurationError, match="timeout=0"):
        local_agent(timeout=0)
    found.close()
    agent.stop()
    with pytest.raises(AgentUnavailable):
        local_agent(timeout=0.01)


def test_the_agent_must_be_of_the_same_user(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    with pytest.raises(AgentUnavailable, match=r"belongs to user \d+, and this process to 4711"):
        LocalAgent(agent.path).nodes()


# -- values in place of bytes


class Ask(msgspec.Struct):
    """A question."""

    symbol: str


QUOTES = iris.Codec(Ask, dict[str, float])


def test_payloads_may_be_values_which_the_task_encodes_and_decodes(agent: Agent, task: LocalAgent) -> None:
    echo = iris.Codec(Ask)
    assert task.request("echo", Ask("X"), codec=echo) == Ask("X")
    assert task.request("echo", [1, None], codec="msgpack") == [1, None]
    assert task.request_future("echo", Ask("X"), codec=Ask).result(60) == Ask("X")
    answers = task.survey("echo", Ask("Y"), codec=Ask).wait()
    assert [reply.payload for reply in answers] == [Ask("Y")]
    assert [reply.payload for reply in task.survey("echo", Ask("Y"), codec=echo)] == [Ask("Y")]
    assert task.broadcast("hold", Ask("Z"), codec=Ask) == 1
    agent.wait_until("""services.told == [b'{"symbol":"Z"}']""")


def test_what_does_not_fit_is_an_error_at_the_task(task: LocalAgent) -> None:
    wrong: Any = {"symbol": "X"}
    for call in (task.request, task.request_future, task.survey, task.broadcast, task.publish, task.try_publish):
        with pytest.raises(iris.EncodeError, match="for 'echo' cannot be encoded"):
            call("echo", wrong, codec=QUOTES)
    with pytest.raises(iris.DecodeError, match="a node for 'echo' does not fit"):
        task.request("echo", Ask("X"), codec=QUOTES)
    with pytest.raises(iris.DecodeError, match="a node for 'echo' does not fit"):
        task.request_future("echo", Ask("X"), codec=QUOTES).result(60)
    answers = task.survey("echo", Ask("X"), codec=QUOTES).wait()
    assert (len(answers), [failure.type for failure in answers.failed]) == (0, ["DecodeError"])


def test_a_subscription_leaves_out_what_does_not_fit(agent: Agent, task: LocalAgent) -> None:
    with task.subscribe("quotes", codec=Ask) as subscription:
        task.publish("quotes", b"junk")
        assert task.publish_many("quotes", [Ask("A"), Ask("B")], codec=QUOTES) == 1
        assert next(subscription).payload == Ask("A")
        assert next(subscription).payload == Ask("B")
        task.publish("quotes", b"more junk")
        assert task.try_publish("quotes", Ask("C"), codec=Ask) == 1
        taken: list[iris.Message[Ask]] = []
        while not taken:
            taken = subscription.take(timeout=60)
        assert [message.payload for message in taken] == [Ask("C")]
        assert dict(subscription.dropped) == {"undecodable": 2}
        assert subscription.undecodable is not None
        assert subscription.undecodable.member == agent.node.id
        task.publish("quotes", b"junk")
        assert subscription.take(timeout=0.2) == []
        assert dict(subscription.dropped) == {"undecodable": 3}
