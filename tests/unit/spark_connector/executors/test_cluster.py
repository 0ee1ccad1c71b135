"""Tests of spark_connector/executors/cluster.py: the driver's side, beside agents and an application of this file."""

from __future__ import annotations

import json
import pickle
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import pytest

import iris_py
from iris_py import ConfigurationError, MessageTooLarge, NodeClosed, NoMembers, RemoteError
from spark_connector import Network
from spark_connector.errors import ExecutorsMissing, UpdateFailed
from spark_connector.executors import cluster as module
from spark_connector.executors.cluster import NAME_BYTES_MAX, Executor, ExecutorCluster
from spark_connector.executors.orders import BYE, GREET, TOKEN_BYTES, UPDATE, agent_key, control_name, open_order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from spark_connector.executors.reconciler import ReconcilerCallbacks

TOKEN = bytes(range(TOKEN_BYTES))


class Agent:
    """The agent of one executor.

    Attributes:
        generation: Of the handler that it runs.
        asked: The orders that it got: (order, generation).
        refuses: The generations that it cannot load.
        is_silent: Whether it answers nothing.
        is_gone: Whether it is no member any more.
    """

    def __init__(self, executor: str) -> None:
        self.executor, self.id, self.node = executor, f"agent-{executor}", f"node-{executor}"
        self.generation = 1
        self.asked: list[tuple[bytes, int]] = []
        self.blobs: list[bytes] = []
        self.refuses: set[int] = set()
        self.is_silent = self.is_gone = False
        self.after: Callable[[], None] = lambda: None

    def row(self) -> dict[str, Any]:
        """Return what a task tells of it."""
        return {"executor": self.executor, "node": self.node, "agent": self.id, "host": "h", "pid": 7}

    def take(self, cluster: str, sealed: bytes) -> bytes:
        order, generation, content = open_order(agent_key(TOKEN, self.id), self.node, sealed)
        self.asked.append((order, generation))
        if self.is_gone:
            raise NoMembers(cluster, 1)
        if self.is_silent:
            raise iris_py.RequestTimeout(cluster, 1.0, None)
        if order == UPDATE:
            if generation in self.refuses:
                raise RemoteError(cluster, self.node, "AgentFailed", f"generation {generation} cannot be loaded")
            self.generation = generation
            self.blobs.append(content)
        said = json.dumps({"generation": self.generation}).encode()
        self.after()
        return said


class FakeNode:
    """The node of the driver."""

    network, address, max_message_bytes = "n", "h:1", 100_000

    def __init__(self) -> None:
        self.agents: dict[str, Agent] = {}
        self.cluster: ExecutorCluster | None = None
        self.calls: list[tuple[str, str]] = []
        self.closed = 0

    def _control(self, agent: Agent) -> str:
        assert self.cluster is not None
        return control_name(self.cluster.name, agent.executor, self.cluster._instance)

    def request_future(self, name: str, sealed: bytes, *, timeout: float, idempotent: bool) -> Future[bytes]:
        assert timeout > 0
        future: Future[bytes] = Future()
        (agent,) = [agent for agent in self.agents.values() if self._control(agent) == name]
        try:
            future.set_result(agent.take(name, sealed))
        except iris_py.IrisError as exc:
            future.set_exception(exc)
        assert idempotent == (agent.asked[-1][0] != BYE)
        return future

    def members(self, name: str) -> list[View]:
        return [View(agent) for agent in self.agents.values() if self._control(agent) == name]

    def request(self, name: str, payload: bytes, **_more: object) -> bytes:
        self.calls.append(("request", name))
        return payload

    def broadcast(self, name: str, payload: bytes, **_more: object) -> int:
        self.calls.append(("broadcast", name))
        return 1

    def close(self, *, timeout: float) -> None:
        self.closed += 1


class View:
    """One member in a live view: it has no id any more when it is gone."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    @property
    def id(self) -> str:
        return "" if self._agent.is_gone else self._agent.node


class FakeApplication:
    """The application, and the executors that Spark has."""

    id, idle_s = "app-1", None
    live: list[str] = []  # noqa: RUF012 - each test sets its own
    gone: set[str] = set()  # noqa: RUF012

    def __init__(self, _spark: object) -> None:
        self.live, self.gone = [], set()

    def executors(self) -> list[str]:
        return self.live

    def leaving(self, executors: Iterable[str]) -> set[str]:
        return self.gone.intersection(executors)


class FakeReconciler:
    """Looks when a test says so, and does at once what it is given to do."""

    def __init__(
        self, _application: object, _group: str, _poll: float, callbacks: ReconcilerCallbacks, *, retry_s_max: float
    ) -> None:
        self.callbacks = callbacks
        self.is_started = self.is_stopped = False
        self.hurried = 0

    def start(self) -> None:
        self.is_started = True

    def stop(self) -> None:
        self.is_stopped = True

    def hurry(self) -> None:
        self.hurried += 1

    def submit(self, function: Callable[..., object], *arguments: object) -> None:
        function(*arguments)

    def reasons(self, executors: Iterable[str]) -> dict[str, str]:
        return dict.fromkeys(executors, "no agent yet")


class Driver:
    """A cluster of executors, and everything that it uses."""

    def __init__(self, agents: int = 2) -> None:
        self.node = FakeNode()
        self.cluster = self.node.cluster = ExecutorCluster(None, "c", answer_one, node=self.node, network=Network())  # type: ignore[arg-type]
        self.application: Any = self.cluster._application
        self.reconciler: Any = self.cluster._reconciler
        for number in range(agents):
            assert self.come(str(number)) is None

    def come(self, executor: str, **changes: Any) -> str | None:
        """Let an executor come, and its agent be found; returns why it is no member."""
        agent = self.node.agents[executor] = Agent(executor)
        for name, value in changes.items():
            setattr(agent, name, value)
        self.application.live.append(executor)
        return self.find(agent.row())

    def find(self, row: Mapping[str, Any]) -> str | None:
        reason: str | None = self.reconciler.callbacks.found(row)
        return reason

    def look(self) -> None:
        self.reconciler.callbacks.looked()

    def newcomers_get(self) -> tuple[int, bytes]:
        """Return what a task gives to an executor that comes now: the generation, and the handler."""
        token, order = pickle.loads(pickle.dumps((self.cluster._token, self.cluster._order)))
        assert token == TOKEN
        return order.generation, order.blob

    def generations(self) -> dict[str, int]:
        return {key: executor.generation for key, executor in self.cluster.members.items()}


def answer_one(_request: iris_py.Request) -> bytes:
    return b"one"


def answer_two(_request: iris_py.Request) -> bytes:
    return b"two"


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(module, "Application", FakeApplication)
    monkeypatch.setattr(module, "Reconciler", FakeReconciler)
    monkeypatch.setattr(module, "_token_of", lambda _application: TOKEN)
    monkeypatch.setattr(module, "RETRY_S", 0.0)
    monkeypatch.setattr(module, "LOOK_INTERVAL_S", 0.001)
    yield
    for cluster in list(module._open.values()):
        cluster.close()


pytestmark = pytest.mark.usefixtures("fakes")


# -- members


def test_an_agent_is_a_member_once_it_was_greeted_and_as_long_as_it_is_in_the_network() -> None:
    driver = Driver()
    assert driver.reconciler.is_started
    assert driver.cluster.members == {key: Executor(id=key, host="h", pid=7, node=f"node-{key}", generation=1) for key in "01"}
    assert [agent.asked for agent in driver.node.agents.values()] == [[(GREET, 1)], [(GREET, 1)]]
    driver.node.agents["0"].is_gone = True
    assert set(driver.cluster.members) == {"1"}


def test_who_cannot_be_asked_is_no_member_and_the_reason_is_said() -> None:
    driver = Driver(0)
    reason = driver.come("9", is_silent=True)
    assert reason is not None
    assert "process 7 at h" in reason
    assert "h:1" in reason
    assert driver.cluster.members == {}
    driver.node.agents["9"].is_silent = False
    assert driver.find(driver.node.agents["9"].row()) is None
    assert set(driver.cluster.members) == {"9"}


def test_one_executor_is_asked_by_its_id_and_any_by_the_name() -> None:
    driver = Driver()
    cluster = driver.cluster
    cluster.request(b"x")
    cluster.request(b"x", to="1")
    cluster.request(b"x", to=cluster.members["0"])
    cluster.broadcast(b"x")
    assert driver.node.calls == [("request", "c"), ("request", "c.1"), ("request", "c.0"), ("broadcast", "c")]


def test_who_died_and_left_spark_is_forgotten() -> None:
    driver = Driver()
    driver.node.agents["0"].is_gone = True
    driver.look()
    assert set(driver.cluster._entries) == {"0", "1"}  # Spark has it still
    driver.application.live.remove("0")
    driver.look()
    assert set(driver.cluster._entries) == {"1"}


# -- waiting


def test_it_waits_for_all_executors_that_spark_has_and_is_not_removing() -> None:
    driver = Driver()
    assert set(driver.cluster.wait(timeout=1.0)) == {"0", "1"}
    driver.application.live.append("2")
    with pytest.raises(ExecutorsMissing, match="no agent yet"):
        driver.cluster.wait(timeout=0.01)
    assert set(driver.cluster.wait(2, timeout=0.01)) == {"0", "1"}
    driver.application.gone.add("2")
    assert set(driver.cluster.wait(timeout=0.01)) == {"0", "1"}


def test_no_executor_at_all_is_none_too_few() -> None:
    driver = Driver(0)
    with pytest.raises(ExecutorsMissing):
        driver.cluster.wait(timeout=0.01)
    assert driver.cluster.wait(0, timeout=0.01) == {}
    driver.cluster.close()
    with pytest.raises(NodeClosed):
        driver.cluster.wait(timeout=1.0)


# -- handlers


def test_an_update_is_done_when_every_member_runs_it_and_newcomers_get_it() -> None:
    driver = Driver()
    assert driver.cluster.update(answer_two) == 2
    assert driver.generations() == {"0": 2, "1": 2}
    generation, blob = driver.newcomers_get()
    assert (generation, driver.cluster.generation) == (2, 2)
    assert [agent.blobs for agent in driver.node.agents.values()] == [[blob], [blob]]
    assert driver.reconciler.hurried == 1


def test_an_update_that_one_member_cannot_load_goes_to_the_others_and_says_who_runs_what() -> None:
    driver = Driver()
    driver.node.agents["1"].refuses = {2}
    with pytest.raises(UpdateFailed) as failed:
        driver.cluster.update(answer_two)
    assert failed.value.failures == {"1": "generation 2 cannot be loaded"}
    assert failed.value.generations == {"0": 2, "1": 1}
    assert driver.newcomers_get()[0] == 2
    driver.node.agents["1"].refuses = set()
    driver.look()  # it is given it again
    assert driver.generations() == {"0": 2, "1": 2}


def test_an_update_that_no_member_can_load_is_given_up() -> None:
    driver = Driver()
    for agent in driver.node.agents.values():
        agent.refuses = {2}
    with pytest.raises(UpdateFailed):
        driver.cluster.update(answer_two)
    assert driver.generations() == {"0": 1, "1": 1}
    assert driver.newcomers_get()[0] == driver.cluster.generation == 1
    assert driver.cluster.update(answer_two) == 3  # no generation is used twice


def test_a_newcomer_learns_which_handler_to_fall_back_to() -> None:
    driver = Driver()
    first = driver.newcomers_get()
    driver.node.agents["1"].refuses = {2}
    with pytest.raises(UpdateFailed):
        driver.cluster.update(answer_two)
    driver.node.agents["1"].refuses = {2, 3}
    with pytest.raises(UpdateFailed):
        driver.cluster.update(answer_two)
    assert driver.cluster._order.before == first  # the newest that every executor has loaded


def test_a_member_that_is_silent_fails_the_update_and_one_that_is_gone_does_not() -> None:
    driver = Driver()
    driver.node.agents["0"].is_silent = True
    with pytest.raises(UpdateFailed) as failed:
        driver.cluster.update(answer_two)
    assert set(failed.value.failures) == {"0"}
    driver.node.agents["0"].is_gone = True
    assert driver.cluster.update(answer_one) == 3


def test_a_newcomer_whose_handler_was_replaced_meanwhile_is_given_the_one_of_today() -> None:
    driver = Driver()
    assert driver.cluster.update(answer_two) == 2
    assert driver.come("2") is None  # its task had begun with the first
    assert driver.node.agents["2"].asked == [(GREET, 2), (UPDATE, 2)]
    assert driver.generations() == {"0": 2, "1": 2, "2": 2}


def test_a_newcomer_that_cannot_load_the_handler_of_today_is_a_member_with_its_own() -> None:
    driver = Driver()
    assert driver.cluster.update(answer_two) == 2
    assert driver.come("2", refuses={2}) is None
    assert driver.generations()["2"] == 1


def test_a_member_that_comes_while_an_update_is_spread_is_given_it_too() -> None:
    driver = Driver()

    def come_once() -> None:
        driver.node.agents["0"].after = lambda: None
        assert driver.come("2") is None

    driver.node.agents["0"].after = come_once
    assert driver.cluster.update(answer_two) == 2
    assert driver.generations() == {"0": 2, "1": 2, "2": 2}


# -- wrong arguments, and the end


@pytest.mark.parametrize("name", ["", "n" * (NAME_BYTES_MAX + 1), "é" * NAME_BYTES_MAX, 7])
def test_names_that_are_none_are_refused(name: Any) -> None:
    with pytest.raises(ConfigurationError, match="name="):
        ExecutorCluster(None, name, answer_one, node=FakeNode())  # type: ignore[arg-type]


@pytest.mark.parametrize("poll", [0, -1.0, float("inf"), float("nan"), "1"])
def test_times_that_are_none_are_refused(poll: Any) -> None:
    with pytest.raises(ConfigurationError, match="poll="):
        ExecutorCluster(None, "c", answer_one, node=FakeNode(), poll=poll)  # type: ignore[arg-type]


def test_a_handler_that_is_too_large_is_refused_and_leaves_nothing_behind() -> None:
    node = FakeNode()
    node.max_message_bytes = 10
    with pytest.raises(MessageTooLarge):
        ExecutorCluster(None, "c", answer_one, node=node, network=Network())  # type: ignore[arg-type]
    assert node.closed == 0  # it is the caller's
    driver = Driver()
    driver.node.max_message_bytes = 10
    with pytest.raises(MessageTooLarge):
        driver.cluster.update(answer_two)
    assert driver.cluster.generation == 1


def test_two_of_one_name_in_one_application_are_refused_until_the_first_is_closed() -> None:
    driver = Driver()
    with pytest.raises(ConfigurationError, match="there is an ExecutorCluster 'c' already"):
        Driver()
    driver.cluster.close()
    Driver()


def test_closing_says_bye_to_everybody_that_was_greeted_once() -> None:
    driver = Driver()
    driver.come("2", is_silent=True)  # not a member, and perhaps it serves
    driver.cluster.close()
    driver.cluster.close()
    byes = {key: [order for order, _ in agent.asked].count(BYE) for key, agent in driver.node.agents.items()}
    assert byes == {"0": 1, "1": 1, "2": 1}
    assert driver.reconciler.is_stopped
    with pytest.raises(NodeClosed):
        driver.cluster.update(answer_two)
    assert driver.node.closed == 0
