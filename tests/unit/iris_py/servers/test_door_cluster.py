"""Doors find each other, and a revocation reaches running doors, later doors, and doors back from a partition."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import iris_py as iris
import iris_py.web
from iris_py.api.door_survey import ask_clients, ask_statuses
from iris_py.doors.revocations import PAGE_REVOCATIONS, RevocationTable, SubjectRevocation, TokenRevocation, TotalRevocation
from iris_py.doors.rights import Rights
from iris_py.errors import NoMembers
from iris_py.servers.door_cluster import DoorCluster, revoke_tokens
from iris_py.servers.tokens import read_token
from iris_py.testing import NodeSimulation, run
from tests.unit.iris_py.servers.asgi import Answer, ask

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from iris_py.api.node import Node
    from iris_py.doors.door_messages import DoorAnnouncement
    from iris_py.doors.revocations import Revocation
    from iris_py.servers.door_cluster import RevocationReport
    from iris_py.web import MountedDoor

ALL = Rights(request=("*",), survey=("*",), broadcast=("*",), publish=(">",), subscribe=(">",), observe=True)
POLICY = "[roles.viewer]\nsubscribe = ['notes.{sub}.>', 'news.>']\nrequest = ['*']\n"


class Slow(iris.Handler):
    """Never answers, and counts."""

    def __init__(self) -> None:
        self.running = 0

    async def on_request(self, request: iris.Request) -> bytes:
        if request.payload == b"quick":
            return b"done"
        self.running += 1
        try:
            await asyncio.sleep(3600)
        finally:
            self.running -= 1
        return b""


class Doors:
    """Some doors of one network, and a node that revokes tokens."""

    def __init__(self, simulation: NodeSimulation, stack: AsyncExitStack, revoker: Node) -> None:
        self.simulation = simulation
        self.all: list[MountedDoor] = []
        self._stack = stack
        self.revoker = revoker

    async def open(self, text: str = POLICY) -> MountedDoor:
        node = await self.simulation.start_node()
        door = await self._stack.enter_async_context(iris_py.web.door(node, iris_py.web.Policy.from_text(text)))
        self.all.append(door)
        return door

    async def revoke(self, *revocations: Revocation) -> RevocationReport:
        return await revoke_tokens(self.revoker, revocations, 30.0)

    async def refusal(self, door: MountedDoor, token: str) -> str:
        """Return the problem of a client with a token; empty if the door lets the client in."""
        return (await ask(door.app, "GET", "/v1/session", b"", bearer(token))).problem


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def with_doors(scenario: Callable[[Doors], Awaitable[Any]], count: int = 2) -> None:
    async def main() -> None:
        async with NodeSimulation(1) as simulation, AsyncExitStack() as stack:
            doors = Doors(simulation, stack, await simulation.start_node())
            for _ in range(count):
                await doors.open()
            await scenario(doors)

    run(main())


def test_doors_know_each_other_and_who_leaves() -> None:
    async def scenario(doors: Doors) -> None:
        one, two, three = doors.all
        await doors.simulation.until(lambda: all(len(door.others) == 2 for door in doors.all))
        assert {each.kind for each in one.others} == {"web"}
        assert {each.version for each in one.others} == {iris.__version__}
        await doors.revoke(SubjectRevocation("ann", time.time()))
        series = {sample.name: sample.value for metric in two.collector.collect() for sample in metric.samples}
        assert (series["iris_door_others"], series["iris_door_revocations"]) == (2, 1)
        await two.close(timeout=0.0)
        await doors.simulation.until(lambda: len(one.others) == len(three.others) == 1)

    with_doors(scenario, 3)


def test_doors_of_another_kind_are_told_apart() -> None:
    async def scenario(doors: Doors) -> None:
        cluster = DoorCluster(await doors.simulation.start_node(), "nats", "nats://here:4222", RevocationTable(), int)
        await cluster.join()
        assert [each.announcement.kind for each in cluster.doors.all] == ["web", "web"]
        assert cluster.doors.of_kind("nats") == ()
        await doors.simulation.until(lambda: cluster.doors.of_kind("web"))
        assert len(doors.all[0].others) == 1
        cluster.change_address("nats://there:4222")
        await cluster.announce(is_draining=True)
        other = DoorCluster(await doors.simulation.start_node(), "nats", "", RevocationTable(), int)
        await other.join()
        found: list[DoorAnnouncement] = [each.announcement for each in other.doors.all]
        assert [(each.address, each.is_draining) for each in found if each.kind == "nats"] == [("nats://there:4222", True)]
        await other.leave()
        await cluster.leave()
        await cluster.leave()

    with_doors(scenario)


@pytest.mark.parametrize("way", ["token", "subject", "all"])
def test_a_revoked_token_is_refused_at_all_doors_at_once(way: str) -> None:
    async def scenario(doors: Doors) -> None:
        one, two = doors.all
        token, other = one.make_token("ann", rights=ALL), two.make_token("bob", rights=ALL)
        claims = read_token(token).claims
        assert [await doors.refusal(door, token) for door in doors.all] == ["", ""]
        now = time.time()
        ways: dict[str, Revocation] = {
            "token": TokenRevocation(claims.jti, claims.exp),
            "subject": SubjectRevocation("ann", now),
            "all": TotalRevocation(now),
        }
        report = await doors.revoke(ways[way])
        assert [receipt.outcomes for _node, receipt in report.receipts] == [("added",), ("added",)]
        assert {node for node, _receipt in report.receipts} == {door.node.id for door in doors.all}
        assert (report.silent, report.silent_count) == ((), 0)
        assert [await doors.refusal(door, token) for door in doors.all] == ["token-revoked", "token-revoked"]
        assert [await doors.refusal(door, other) for door in doors.all] == ["token-revoked" * (way == "all")] * 2
        while time.time() <= now + 0.002:  # tokens have the time in milliseconds
            pass
        assert await doors.refusal(two, two.make_token("ann", rights=ALL)) == ""
        again = await doors.revoke(ways[way])
        assert [receipt.outcomes for _node, receipt in again.receipts] == [("known",), ("known",)]

    with_doors(scenario)


def test_a_door_that_starts_later_refuses_the_token_from_its_first_request() -> None:
    async def scenario(doors: Doors) -> None:
        token = doors.all[0].make_token("ann", rights=ALL)
        many = [TokenRevocation(f"{number:032x}", time.time() + 3600) for number in range(PAGE_REVOCATIONS + 100)]
        await doors.revoke(*many[:PAGE_REVOCATIONS])
        await doors.revoke(*many[PAGE_REVOCATIONS:], SubjectRevocation("ann", time.time()))
        late = await doors.open()
        assert await doors.refusal(late, token) == "token-revoked"
        await doors.all[0].close(timeout=0.0)
        await doors.all[1].close(timeout=0.0)
        later = await doors.open()
        assert await doors.refusal(later, token) == "token-revoked"

    with_doors(scenario)


def test_a_door_that_was_cut_off_gets_the_revocation_when_it_is_back() -> None:
    async def scenario(doors: Doors) -> None:
        one, two = doors.all
        token = one.make_token("ann", rights=ALL)
        open_there = Stream(two, "GET", "/v1/topics/events?pattern=news.a", {**bearer(token), **LINES})
        await doors.simulation.until(lambda: open_there.content)
        doors.simulation.partition([two.node], [one.node, doors.revoker])
        report = await doors.revoke(SubjectRevocation("ann", time.time()))
        assert [node for node, _receipt in report.receipts] == [one.node.id]
        assert report.silent_count == (two.node.id in report.silent)
        assert await doors.refusal(two, token) == ""
        await asyncio.sleep(60.0)  # so each side has forgotten the other one
        doors.simulation.heal()
        await doors.simulation.until(open_there.task.done)
        assert await doors.refusal(two, token) == "token-revoked"

    with_doors(scenario)


def test_a_full_door_refuses_says_so_once_and_takes_the_revocation_of_all(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(doors: Doors) -> None:
        table, revoked = RevocationTable(1), list[int]()
        cluster = DoorCluster(await doors.simulation.start_node(), "web", "", table, lambda: revoked.append(len(table)))
        await cluster.join()
        now = time.time()
        outcomes: list[tuple[str, ...]] = []
        for name in ("ann", "bob", "eve"):
            ((_node, receipt),) = (await doors.revoke(SubjectRevocation(name, now), TokenRevocation("0" * 32, now))).receipts
            outcomes.append(receipt.outcomes)
        assert outcomes == [("added", "ended"), ("full", "ended"), ("full", "ended")]
        ((_node, receipt),) = (await doors.revoke(TotalRevocation(now), TotalRevocation(now + 600))).receipts
        assert receipt.outcomes == ("added", "ahead")
        assert revoked == [1, 2]
        assert caplog.text.count("has no place for more") == 1
        await cluster.leave()

    with_doors(scenario, 0)


def test_nobody_keeps_a_revocation_without_doors() -> None:
    async def scenario(doors: Doors) -> None:
        with pytest.raises(NoMembers):
            await doors.revoke(TotalRevocation(time.time()))

    with_doors(scenario, 0)


class Stream:
    """An answer that does not end by itself."""

    def __init__(self, door: MountedDoor, method: str, path: str, headers: dict[str, str], body: bytes = b"") -> None:
        self.content = b""
        self.task = asyncio.ensure_future(ask(door.app, method, path, body, headers, note=self._note))

    def _note(self, part: bytes) -> None:
        self.content += part

    async def ended(self) -> Answer:
        async with asyncio.timeout(2.0):
            return await self.task


LINES = {"Accept": "application/x-ndjson"}


def test_what_a_revoked_client_has_open_ends_with_the_problem() -> None:
    async def scenario(doors: Doors) -> None:
        slow, door = Slow(), doors.all[0]
        await (await doors.simulation.start_node()).join("slow", slow)
        given = {client: bearer(door.make_token(client, rights=ALL)) for client in ("ann", "bob")}
        opened = {
            client: [
                Stream(door, "GET", "/v1/topics/events?pattern=news.%3E", {**headers, **LINES}),
                Stream(door, "GET", "/v1/watch?page=overview", headers),
                Stream(door, "POST", "/v1/clusters/slow/request", headers, b"x"),
                Stream(door, "POST", "/v1/clusters/slow/survey", {**headers, "Iris-Timeout": "50"}, b"x"),
            ]
            for client, headers in given.items()
        }
        begun = [each for streams in opened.values() for each in streams[:2]]
        await doors.simulation.until(lambda: slow.running == 4 and all(each.content for each in begun))
        await doors.revoke(SubjectRevocation("ann", time.time()))
        events, watch, request, survey = [await each.ended() for each in opened["ann"]]
        assert msgspec.json.decode(events.content.splitlines()[-1])["reason"] == "token-revoked"
        assert watch.status == 200
        for answer in (request, survey):
            assert (answer.status, answer.problem, answer.json()["executed"]) == (401, "token-revoked", "maybe")
        await doors.simulation.until(lambda: slow.running == 2)
        assert not any(each.task.done() for each in opened["bob"])
        assert await doors.refusal(door, given["bob"]["Authorization"].partition(" ")[2]) == ""
        for each in opened["bob"]:
            each.task.cancel()

    with_doors(scenario)


def test_a_survey_with_replies_ends_with_a_line() -> None:
    async def scenario(doors: Doors) -> None:
        slow, door = Slow(), doors.all[0]

        class Quick(iris.Handler):
            async def on_request(self, _request: iris.Request) -> bytes:
                return b"1"

        for handler in (slow, Quick()):
            await (await doors.simulation.start_node()).join("mixed", handler)
        headers = {**bearer(door.make_token("ann", rights=ALL)), "Iris-Timeout": "50"}
        survey = Stream(door, "POST", "/v1/clusters/mixed/survey", headers, b"x")
        await doors.simulation.until(lambda: survey.content)
        await doors.revoke(TotalRevocation(time.time()))
        lines = [msgspec.json.decode(line) for line in (await survey.ended()).content.splitlines()]
        assert [line["kind"] for line in lines] == ["reply", "problem"]
        assert lines[1]["problem"]["type"] == "/v1/problems/token-revoked"
        await doors.simulation.until(lambda: slow.running == 0)

    with_doors(scenario)


def test_a_session_of_a_browser_ends_with_its_token() -> None:
    async def scenario(doors: Doors) -> None:
        door = doors.all[0]
        body = b'{"code": "%s"}' % door.make_code().encode()
        answer = await ask(door.app, "POST", "/v1/session", body, {"Iris-Request": "1"})
        session = {"Cookie": answer.headers["set-cookie"].partition(";")[0]}
        code = door.make_code()
        assert (await ask(door.app, "GET", "/v1/session", b"", session)).status == 200
        await doors.revoke(SubjectRevocation("dashboard", time.time()))
        assert (await ask(door.app, "GET", "/v1/session", b"", session)).problem == "token-revoked"
        body = b'{"code": "%s"}' % code.encode()
        assert (await ask(door.app, "POST", "/v1/session", body, {"Iris-Request": "1"})).problem == "token-revoked"

    with_doors(scenario)


def test_a_reload_ends_the_streams_that_have_lost_their_role_or_right() -> None:
    async def scenario(doors: Doors) -> None:
        door = doors.all[0]
        headers = {**bearer(door.make_token("ann", role="viewer")), **LINES}
        own = {**bearer(door.make_token("eve", rights=ALL)), **LINES}
        news, both, notes, other = (
            Stream(door, "GET", "/v1/topics/events?pattern=news.a", headers),
            Stream(door, "GET", "/v1/topics/events?pattern=notes.ann.a&pattern=news.a", headers),
            Stream(door, "GET", "/v1/topics/events?pattern=notes.ann.a", headers),
            Stream(door, "GET", "/v1/topics/events?pattern=news.a", own),
        )
        await doors.simulation.until(lambda: all(each.content for each in (news, both, notes, other)))
        door.apply(iris_py.web.Policy.from_text("[roles.viewer]\nsubscribe = ['notes.{sub}.>']\n").settings)
        for each in (news, both):
            assert msgspec.json.decode((await each.ended()).content.splitlines()[-1])["reason"] == "forbidden"
        assert not notes.task.done()
        door.apply(iris_py.web.Policy.from_text("").settings)
        assert msgspec.json.decode((await notes.ended()).content.splitlines()[-1])["reason"] == "token-unknown-role"
        assert not other.task.done()
        other.task.cancel()

    with_doors(scenario, 1)


def test_doors_tell_a_node_about_their_event_streams_and_counts() -> None:
    async def scenario(doors: Doors) -> None:
        one, two = doors.all
        token = one.make_token("ann", rights=ALL)
        stream = Stream(one, "GET", "/v1/topics/events?pattern=news.a&pattern=news.b", {**bearer(token), **LINES})
        await doors.simulation.until(lambda: stream.content)
        report = await ask_clients(doors.revoker, 30.0, 10, lambda _node, door: door.kind == "web")
        assert sorted(at_door.total for at_door in report.doors) == [0, 1]
        (client,) = [each for at_door in report.doors for each in at_door.clients]
        assert (client.user, client.subscriptions, client.messages_out, client.age_s) == ("ann", 2, None, None)
        statuses = dict(await ask_statuses(doors.revoker, 30.0))
        assert {node: status.figures.clients for node, status in statuses.items()} == {one.node.id: 1, two.node.id: 0}
        assert statuses[one.node.id].figures.messages_in == 1
        await one.close(timeout=0.0)
        assert await stream.ended() is not None
        assert [node for node, _status in await ask_statuses(doors.revoker, 30.0)] == [two.node.id]

    with_doors(scenario)


def test_a_door_of_an_earlier_version_is_silent_about_its_clients() -> None:
    async def scenario(doors: Doors) -> None:
        node = await doors.simulation.start_node()
        await DoorCluster(node, "later", "", RevocationTable(), lambda: None).join()
        report = await ask_clients(doors.revoker, 30.0, 10, lambda _node, _door: True)
        assert (len(report.doors), report.silent) == (2, 1)

    with_doors(scenario)
