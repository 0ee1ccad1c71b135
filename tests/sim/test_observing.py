"""Nodes that ask each other about themselves, on the simulated network: who answers, who does not, and what stays hidden."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

import iris_py as iris
from iris_overlay.events import EchoReturned
from iris_overlay.groups.messages import FindRoot, RootFound
from iris_overlay.groups.root_queries import RootQueries
from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_py.build import build
from iris_py.observe.queries import ANSWERS_PER_S_MAX, PAGE_BYTES, SNAPSHOT_S, AnswerPage, encode_answer
from iris_py.observe.reports import Estimate
from iris_py.testing import NodeSimulation, run
from iris_security import Keyring, Secret

if TYPE_CHECKING:
    from iris_py.api.node import Node

NETWORK = Secret(b"n" * 32)
OWN = Secret(b"o" * 32)


async def answer(request: iris.Request) -> bytes:
    return request.payload


def reports_of(found: iris.NodeReports) -> dict[str, iris.NodeReport]:
    return {report.node.id: report for report in found.reports}


async def find_everybody(simulation: NodeSimulation, nodes: list[Node]) -> None:
    """A walk finds every other node, and each tells what it serves. Who has just died holds nobody up."""
    await nodes[3].join("echo", answer)
    await nodes[4].join("echo", answer)
    await nodes[5].request("echo", b"x")
    await asyncio.sleep(SNAPSHOT_S)  # somebody has asked just before
    found = await nodes[0].ask_nodes("clusters", "counts")
    reports = reports_of(found)
    assert reports.keys() == {node.id for node in nodes[1:]}, "more than a node has neighbours"
    assert (found.missing, found.refused, found.is_sample, found.is_whole) == ((), (), False, True)
    echo = {id_: report.statistics.clusters.get("echo") for id_, report in reports.items()}
    serving = {id_ for id_, each in echo.items() if each is not None and each.service is not None}
    assert serving == {nodes[3].id, nodes[4].id}
    assert found.total(lambda report: report.statistics.executed) == Estimate(1.0)
    about = reports[nodes[3].id].about
    assert (about.version, about.clusters) == (build(), 1)
    route = await nodes[0].find_route("echo")
    assert route is not None
    assert (route.members, route.watchers) == (2, 3)
    links = {node.id: set(node._core.overlay._links) for node in nodes}
    simulation.kill(nodes[7])
    later = await nodes[0].ask_nodes(nodes=[report.node for report in found.reports], timeout=3.0)
    assert [node.id for node in later.missing] == [nodes[7].id]
    assert len(later.reports) == len(nodes) - 2
    assert all(set(node._core.overlay._links) <= links[node.id] for node in simulation.nodes), "nobody dialled"


async def send_datagrams(nodes: list[Node]) -> None:
    """A datagram counts when the node that it was sent to has sent it back: that one, and no other."""
    one, two, three = nodes[:3]
    assert 0 < (await one._parts.introspection.echo(iris.NodeName(two.id, two.address), 1.0) or 0) < 1.0
    waiting = asyncio.create_task(one._parts.introspection.echo(iris.NodeName(two.id, two.address), 1.0))
    await asyncio.sleep(0)
    ((peer, number),) = one._parts.introspection._echoes
    assert peer.hex() == two.id
    one._parts.handle_events([EchoReturned(NodeId(bytes.fromhex(three.id)), number), EchoReturned(peer, number + 1)])
    await asyncio.sleep(0)
    assert (peer, number) in one._parts.introspection._echoes, (
        "what answers another question, or comes from another node, is none"
    )
    assert await waiting is not None
    assert one._parts.introspection._echoes == {}
    with pytest.raises(iris.ConfigurationError, match="no numeric address"):
        await one._parts.introspection.echo(iris.NodeName("f" * 32), 1.0)
    assert await one._parts.introspection.echo(iris.NodeName("f" * 32, two.address), 1.0) is None, (
        "who has the address is not who is meant"
    )


async def follow_routes(nodes: list[Node]) -> None:
    """The way to a root that is told is one from each node to one that it knows, and ends at the root."""
    by_id = {node.id: node for node in nodes}
    for node in nodes:
        route = await node.find_route("a")
        assert route is not None
        key = bytes.fromhex(route.key)
        assert [each.id for each in nodes if each._core.overlay._ring.is_root(key)] == [route.root.id]
        assert all(hop.held_us is not None for hop in route.hops)
        way = [hop.node.id for hop in route.hops] + [route.root.id]
        assert way[0] == node.id
        for here, there in pairwise(way):
            assert there in {info.id.hex() for info in by_id[here]._core.overlay.peers()}


async def hear_a_liar(nodes: list[Node], monkeypatch: pytest.MonkeyPatch) -> None:
    """A root that makes neighbours up does not make a walk endless, and hides nobody."""
    asker, lying = nodes[0], nodes[11]._core.overlay._groups._finding
    honest = RootQueries.answer

    def answer_as_liar(finding: RootQueries, message: FindRoot, path: tuple[NodeId, ...] | None, now: float) -> None:
        if finding is not lying or path is None:
            honest(finding, message, path, now)
            return
        invented = [NodeInfo(NodeId(asker._runtime.entropy(16)), ("10.9.9.9:1",)) for _ in range(16)]
        finding._outbox.answer(path, RootFound(nodes[11]._core.info, message.key, message.number, path, (), invented))

    monkeypatch.setattr(RootQueries, "answer", answer_as_liar)
    found = await asker.ask_nodes(timeout=5.0)
    assert reports_of(found).keys() >= {node.id for node in nodes[1:]}, "the honest say whom they know"
    assert len(found.missing) < 16 * 40


def test_in_a_network_that_is_larger_than_a_neighbourhood(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed=1) as simulation:
            nodes = await simulation.start_nodes(20)
            await send_datagrams(nodes)
            await follow_routes(nodes)
            with monkeypatch.context() as patch:
                await hear_a_liar(nodes, patch)
            await find_everybody(simulation, nodes)

    run(scenario(), limit_s=120)


def test_nodes_tell_no_more_than_they_are_to() -> None:
    keyring = Keyring(NETWORK, clusters={"secret-plans": OWN})

    async def scenario() -> None:
        async with NodeSimulation(seed=2) as simulation:
            asker = await simulation.start_node(keyring=Keyring(NETWORK))
            open_, counting, closed = [
                await simulation.start_node(keyring=keyring, observe=observe) for observe in ("all", "counts", "none")
            ]
            for node in (open_, counting, closed):
                await node.join("echo", answer)
                await node.join("secret-plans", answer)
                await node.request("secret-plans", b"")
                await node.request("echo", b"")
            found = await asker.ask_nodes("clusters", "counts", "peers", "links", "events")
            reports = reports_of(found)
            group = keyring.cluster("secret-plans").group_id.hex()
            assert reports[open_.id].statistics.clusters.keys() == {"echo", f"#{group}"}
            assert reports[open_.id].statistics.links.each
            events = reports[open_.id].events
            assert events is not None
            assert {event.name for event in events} == {"", "echo", f"#{group}"}
            assert {"secret-plans"} <= {event.name for event in open_.recent_events()}
            assert [event.number for event in events] == [event.number for event in open_.recent_events()]
            assert reports[counting.id].statistics.clusters == {}
            assert reports[counting.id].events is None
            assert reports[counting.id].statistics.links.each == ()
            assert reports[counting.id].statistics.links.open > 0
            assert [node.id for node in found.refused] == [closed.id]
            assert found.missing == ()
            member = await simulation.start_node(keyring=keyring)
            theirs = await member.ask_nodes("clusters", cluster="secret-plans")
            assert reports_of(theirs)[open_.id].statistics.clusters.keys() == {f"#{group}"}, "who knows the name finds it"

    run(scenario(), limit_s=60)


def test_only_holders_of_the_secret_of_the_name_are_answered_where_it_has_one() -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed=3) as simulation:
            operator = Keyring(NETWORK, clusters={"iris.nodes": OWN})
            asker = await simulation.start_node(keyring=Keyring(NETWORK))
            first, second = [await simulation.start_node(keyring=operator) for _ in range(2)]
            assert {node.id for node in (await asker.ask_nodes(timeout=3.0)).missing} == {first.id, second.id}
            found = await first.ask_nodes(timeout=3.0)
            assert ([node.id for node in found.missing], list(reports_of(found))) == ([asker.id], [second.id])
            assert first._core.drops["unknown_group"] == 2, "asked twice"

    run(scenario(), limit_s=60)


def test_secrets_that_are_exchanged_change_nothing_for_questions() -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed=8) as simulation:
            new = Secret(b"w" * 32)
            old = await simulation.start_node(keyring=Keyring(NETWORK, accepted=[new]))
            other = await simulation.start_node(keyring=Keyring(NETWORK, accepted=[new]))
            other.rekey(Keyring(new, accepted=[NETWORK]))
            for asker, asked in ((old, other), (other, old)):
                assert list(reports_of(await asker.ask_nodes())) == [asked.id]
            old.rekey(Keyring(new))
            other.rekey(Keyring(new))
            assert list(reports_of(await old.ask_nodes())) == [other.id]

    run(scenario(), limit_s=60)


def test_events_are_asked_for_after_the_number_that_is_known_of_each_node() -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed=4) as simulation:
            asker, first, second = await simulation.start_nodes(3)
            await asyncio.sleep(100.0)
            assert all(report.events is None for report in (await asker.ask_nodes()).reports)
            found = reports_of(await asker.ask_nodes("events"))
            for node in (first, second):
                assert found[node.id].events == node.recent_events()
                assert found[node.id].about.last_event == node.recent_events()[-1].number
            last = first.recent_events()[-1].number
            report = reports_of(await asker.ask_nodes("events", since={first.id: last - 1}))[first.id]
            assert report.events == first.recent_events()[-1:]
            (event,) = report.events
            assert 0.0 <= report.unix_s_of(event) - (first._runtime.started_at + event.at_s) <= 0.1
            later = await asker.ask_nodes("events", since=last)
            assert reports_of(later)[first.id].events == ()

    run(scenario(), limit_s=200)


def test_a_flood_of_questions_is_refused_and_counted() -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed=5) as simulation:
            asker, asked = await simulation.start_nodes(2)
            loop = asyncio.get_running_loop()
            began = loop.time()
            found = await asyncio.gather(*(asker.ask_nodes() for _ in range(60)))
            took_s = loop.time() - began
            told = Counter("told" if each.reports else "refused" if each.refused else "missing" for each in found)
            assert told["missing"] == 0
            assert told["told"] <= ANSWERS_PER_S_MAX * (took_s + 1.0)
            shown = asked.statistics().questions
            assert shown.refused["busy"] > 0
            assert shown.answered == told["told"]
            assert (await asker.ask_nodes()).reports, "and afterwards it answers as before"

    run(scenario(), limit_s=60)


def test_a_node_with_much_to_say_says_it_in_pages() -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed=6) as simulation:
            asker, asked = await simulation.start_nodes(2)
            names = [f"cluster-{number:03}-{'x' * 150}" for number in range(150)]
            await asyncio.gather(*(asked.join(name, answer) for name in names))
            (report,) = (await asker.ask_nodes("clusters", "counts")).reports
            assert sorted(report.statistics.clusters) == names
            assert report.statistics.clusters[names[0]] == asked.statistics().clusters[names[0]], "as it shows them itself"
            assert report.left_out == 0
            (one,) = (await asker.ask_nodes("clusters", cluster=names[7])).reports
            assert list(one.statistics.clusters) == [names[7]]

    run(scenario(), limit_s=60)


@pytest.mark.parametrize(
    "lie",
    [
        b"",
        b"\xff" * 100,
        bytes(PAGE_BYTES + 1),
        encode_answer(AnswerPage(parts={"counts": {"requests": "many"}})),
        encode_answer(AnswerPage(parts={"clusters": {"a": 5}})),
    ],
    ids=["nothing", "garbage", "too large", "wrong type", "wrong cluster"],
)
def test_an_answer_that_is_none_counts_as_missing(lie: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed=7) as simulation:
            asker, liar = await simulation.start_nodes(2)
            monkeypatch.setattr(liar._parts.introspection.desk, "answer", lambda *_args: lie)
            found = await asker.ask_nodes("counts", "clusters", timeout=3.0)
            assert [node.id for node in found.missing] == [liar.id]

    run(scenario(), limit_s=60)


def test_pages_without_end_are_not_read_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed=7) as simulation:
            asker, liar = await simulation.start_nodes(2)
            endless = encode_answer(AnswerPage(next_part="clusters", next_key="a"))
            monkeypatch.setattr(liar._parts.introspection.desk, "answer", lambda *_args: endless)
            (report,) = (await asker.ask_nodes("clusters", timeout=3.0)).reports
            assert report.left_out

    run(scenario(), limit_s=60)


def test_a_trace_says_how_a_member_is_reached_and_where_the_way_ends() -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed=12) as simulation:
            asker, member, _third = await simulation.start_nodes(3)
            nobody = await asker.trace("echo", timeout=2.0)
            assert (nobody.candidates, nobody.chosen) == ((), None)
            await member.join("echo", answer)
            traced = await asker.trace("echo")
            assert traced.route is not None
            assert (traced.route.members, traced.chosen, traced.way) == (1, iris.NodeName(member.id, member.address), "link")
            assert traced.answer_s is not None
            assert (await member.trace("echo")).way == "local"
            simulation.kill(member)
            traced = await asker.trace("echo", timeout=2.0)
            assert traced.answer_s is None

    run(scenario(), limit_s=120)


def test_who_closes_its_node_waits_for_no_answer() -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed=10) as simulation:
            asker, silent = await simulation.start_nodes(2)
            simulation.network.partition([simulation.host_of(asker)], [simulation.host_of(silent)])
            asking_ = asyncio.create_task(asker.ask_nodes())
            await asyncio.sleep(0.1)
            closing = asyncio.create_task(asker.close(timeout=0.1))
            with pytest.raises(iris.NodeClosed):
                await asking_
            await closing
            with pytest.raises(iris.NodeClosed):
                await asker.ask_nodes()

    run(scenario(), limit_s=60)


def test_wrong_questions_say_what_is_wrong() -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed=11) as simulation:
            node: Node = await simulation.start_node()
            with pytest.raises(iris.ConfigurationError, match=r"no part 'cluster'\. Choose from counts"):
                await node.ask_nodes("cluster")
            with pytest.raises(iris.ConfigurationError, match="at least 1"):
                await node.ask_nodes(sample=0)
            with pytest.raises(iris.ConfigurationError, match="is not a node id"):
                await node.ask_nodes(nodes=[iris.NodeName("x")])
            with pytest.raises(iris.ConfigurationError, match="iris"):
                await node.find_route("iris.nodes")
            with pytest.raises(iris.ConfigurationError, match=r"begins with 'iris\.'"):
                await node.join("iris.nodes", answer)
            alone = await node.ask_nodes("counts")
            assert (alone.reports, alone.size.nodes) == ((), 0)

    run(scenario(), limit_s=60)
