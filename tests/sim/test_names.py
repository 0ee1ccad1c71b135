"""Names of nodes: labels that show wherever an id does, and that nothing routes or admits by."""

from __future__ import annotations

import asyncio
import pickle
import re

import pytest

import iris_py as iris
from iris_py.peers.peer_table import VISIT_S
from iris_py.testing import NodeSimulation, run


async def echo(request: iris.Request) -> bytes:
    return request.payload


def test_names_are_known_of_nodes_with_a_link_of_members_and_of_those_that_answer() -> None:
    async def main() -> None:
        async with NodeSimulation(1) as simulation:
            caller = await simulation.start_node(name="web-1/shop.py")
            member = await simulation.start_node(name="db-1/orders.py", zone="eu/a")
            hidden = await simulation.start_node()
            await member.join("orders", echo)
            await hidden.join("orders", echo)
            expected = {caller.id: "web-1/shop.py", member.id: "db-1/orders.py", hidden.id: ""}
            assert {node.id: node.name for node in (caller, member, hidden)} == expected
            assert {node.id: node.name for node in caller.nodes()} == expected
            members = await caller.members("orders")
            assert {each.id: each.name for each in members} == {member.id: "db-1/orders.py", hidden.id: ""}
            found = await caller.ask_nodes()
            assert {report.node.id: report.node.name for report in found.reports} == {
                member.id: "db-1/orders.py",
                hidden.id: "",
            }
            assert {report.about.name for report in found.reports} == {"db-1/orders.py", ""}
            await caller.request("orders", b"1")
            trace = await caller.trace("orders")
            assert {each.node.id: each.node.name for each in trace.candidates} == {each.id: each.name for each in members}

    run(main())


def test_events_name_the_node_that_they_are_about() -> None:
    async def main() -> None:
        async with NodeSimulation(2) as simulation:
            witness = await simulation.start_node(name="witness")
            member = await simulation.start_node(name="db-1/orders.py", zone="eu/a")
            await member.join("orders", echo)
            await witness.request("orders", b"1")
            address = member.address
            simulation.kill(member)
            about = []
            async for event in witness.events(since=0):
                about += [event] if event.node == member.id else []
                if event.kind == "died":
                    break
            assert {event.kind for event in about} >= {"joined", "link_opened", "link_lost", "died"}
            assert {(event.node_name, event.node_address, event.node_zone) for event in about} == {
                ("db-1/orders.py", address, "eu/a")
            }

    run(main())


@pytest.mark.parametrize("taken", ["db-1/orders.py", "x" * 64])
def test_nodes_with_one_name_are_two_nodes(taken: str) -> None:
    async def main() -> None:
        async with NodeSimulation(3) as simulation:
            caller = await simulation.start_node(name=taken)
            members = [await simulation.start_node(name=taken) for _ in range(2)]
            for member in members:
                await member.join("orders", echo)
            seen = await caller.members("orders")
            assert {each.id for each in seen} == {member.id for member in members}
            assert {each.name for each in seen} == {taken}
            simulation.kill(members[0])
            for number in range(20):
                assert await caller.request("orders", b"%d" % number, idempotent=True) == b"%d" % number
            left = await caller.members("orders")
            assert [each.id for each in left] == [members[1].id]

    run(main())


class Holding(iris.Handler):
    """Holds each request and tunnel for ever."""

    async def on_request(self, request: iris.Request) -> bytes:
        await asyncio.Event().wait()
        return b""

    async def on_tunnel(self, tunnel: iris.Tunnel) -> None:
        await asyncio.Event().wait()


def test_errors_name_the_node_that_they_are_about() -> None:
    async def main() -> None:
        async with NodeSimulation(4) as simulation:
            caller = await simulation.start_node(name="web-1/shop.py")
            member = await simulation.start_node(name="db-1/orders.py")
            shown = f"{member.id[:8]} (db-1/orders.py)"

            async def fail(request: iris.Request) -> bytes:
                raise ValueError("broken")

            await member.join("failing", fail)
            with pytest.raises(iris.RemoteError, match=re.escape(f"at member {shown} failed")) as failed:
                await caller.request("failing", b"1")
            await member.join("held", Holding())
            with pytest.raises(iris.RequestTimeout, match=re.escape(f"member {shown} held it")) as late:
                await caller.request("held", b"1", timeout=1.0)

            async def receive() -> None:
                async with caller.tunnel("held") as tunnel:
                    assert shown in repr(tunnel)
                    opened.set()
                    await tunnel.receive()

            opened = asyncio.Event()
            receiving = asyncio.create_task(receive())
            asking = asyncio.create_task(caller.request("held", b"1", timeout=60.0))
            await opened.wait()
            simulation.kill(member)
            with pytest.raises(iris.MemberLost, match=re.escape(f"member {shown} of 'held' was lost")) as lost:
                await asking
            with pytest.raises(iris.TunnelBroken, match=re.escape(f"to {shown} broke")) as broken:
                await receiving
            for found in (failed, late, lost, broken):
                assert found.value.node_name == "db-1/orders.py"
                assert pickle.loads(pickle.dumps(found.value)).node_name == "db-1/orders.py"

    run(main())


def test_departures_are_told_with_when_and_why() -> None:
    async def main() -> None:
        async with NodeSimulation(5) as simulation:
            asker = await simulation.start_node(name="ops-1/iris")
            witness = await simulation.start_node(name="web-1/shop.py")
            leaving = await simulation.start_node(name="db-1/orders.py", zone="eu/a")
            dying = await simulation.start_node(name="db-2/orders.py")
            address = leaving.address
            visitor = await simulation.start_node(name="ops-1/iris-nodes")
            await asyncio.sleep(VISIT_S / 2)
            await visitor.close()
            await asyncio.sleep(VISIT_S)
            await leaving.close()
            simulation.kill(dying)

            def departures() -> list[tuple[str, str, str]]:
                return [(each.kind, each.name, each.node) for each in witness._core.journal.departures.all()]

            await simulation.until(lambda: len(departures()) == 2)
            assert departures() == [("left", "db-1/orders.py", leaving.id), ("died", "db-2/orders.py", dying.id)]
            found = await asker.ask_nodes("departures")
            (report,) = found.reports
            assert report.departures == witness._core.journal.departures.all()
            assert report.departures is not None
            left, died = report.departures
            assert (left.address, left.zone, left.detail) == (address, "eu/a", "the node leaves the network")
            assert died.detail in ("it does not answer", "nobody listens where it did")
            assert (await asker.ask_nodes()).reports[0].departures is None

    run(main())
