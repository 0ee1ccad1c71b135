"""The commands that look at a network, at one of real nodes in this process: what they print, and how they end."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import msgspec
import pytest

import iris_py
from iris_py.cli import lists, monitor, ping, topology, trace
from iris_py.cli.monitor import MonitorOptions
from iris_py.cli.network import QueryOptions
from iris_py.cli.outcome import ExitCode
from iris_py.cli.settings import Settings
from iris_py.cli.top import command as top
from tests.cli_reference import find_lines
from tests.integration.conftest import until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

NETWORK = "looking"
ASKED: dict[str, Any] = {"query": QueryOptions(), "limit": 200}
SHOWN: dict[str, Any] = {"by": "zone", "nodes_max": 500, "query": QueryOptions(sample=64)}
RATES: dict[str, Any] = {**ASKED, "query": QueryOptions(interval_s=0.3)}


async def answer(request: iris_py.Request) -> bytes:
    return request.payload


class Looking:
    """Runs commands, and reads what they print."""

    def __init__(self, settings: Settings, capture: pytest.CaptureFixture[str]) -> None:
        self.settings = settings
        self.errors = ""
        self._capture = capture

    async def run(self, command: Callable[..., Awaitable[int]], *arguments: object, **options: object) -> tuple[int, str]:
        self._capture.readouterr()
        code = await command(self.settings, *arguments, **options)
        out, self.errors = self._capture.readouterr()
        return code, out

    async def lines(
        self, name: str, command: Callable[..., Awaitable[int]], *arguments: object, **options: object
    ) -> list[dict[str, Any]]:
        """Return the lines of ``--json``, each of which is one that the schema knows."""
        code, out = await self.run(command, *arguments, as_json=True, **options)
        assert code == ExitCode.OK, self.errors
        kinds = {kind.__struct_config__.tag: kind for kind in find_lines()[name]}
        found = [json.loads(line) for line in out.splitlines()]
        for line in found:
            msgspec.convert(line, kinds[line["kind"]])
        assert found[-1]["kind"] == "summary"
        return found


def test_the_commands_show_what_there_is(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def look() -> None:
        async with (
            iris_py.connect(network=NETWORK, zone="eu/a") as first,
            iris_py.connect(network=NETWORK, zone="eu/b") as second,
            first.join("echo", answer, concurrency=3),
            second.join("echo", answer),
            second.subscribe("news.>"),
        ):
            looking = Looking(Settings({"network": NETWORK}), capsys)
            await show_lists(looking, first, second)
            await draw_topology(looking, home, first)
            await show_ways(looking, first, second)
            await show_events(looking, first, second)

    asyncio.run(look())


async def show_lists(looking: Looking, first: iris_py.Node, second: iris_py.Node) -> None:
    *nodes, summary = await looking.lines("nodes", lists.nodes, zone=None, **ASKED)
    assert {(line["id"], line["address"], line["zone"]) for line in nodes} == {
        (node.id, node.address, node.zone) for node in (first, second)
    }
    assert (summary["asked"], summary["answered"], summary["missing"], summary["is_whole"]) == (2, 2, [], True)
    (only, _summary) = await looking.lines("nodes", lists.nodes, zone="eu/b", **ASKED)
    assert only["id"] == second.id
    code, text = await looking.run(lists.nodes, zone=None, as_json=False, **{**ASKED, "limit": 1})
    assert (code, len(text.splitlines())) == (0, 1)
    assert "these are 1 of 2: --limit shows more." in looking.errors
    clusters = await looking.lines("clusters", lists.clusters, sort="name", **RATES)
    assert [(line["name"], line["members"]) for line in clusters[:-1]] == [("echo", 2)]
    assert await first.publish("news.a", b"") == 1
    (topic, token, table, _summary) = await looking.lines("topics", lists.topics, None, sort="pattern", **RATES)
    assert (topic["pattern"], topic["subscriptions"], topic["is_promoted"]) == ("news.>", 1, False)
    assert [token[name] for name in ("token", "entries", "published", "received", "gaps")] == ["news", 1, 1, 1, 0]
    assert [table[name] for name in ("entries", "nodes", "promoted", "watchers")] == [1, 1, 0, 1]
    assert {*table["roots"]} <= {first.id, second.id}  # empty if the node of the command keeps it
    _code, text = await looking.run(lists.topics, "news.a", sort="pattern", as_json=False, **RATES)
    assert "\ntokens:  news: 1 pattern, 0/s published, 0/s received, 0 missed\n" in text
    assert "\ntable:  1 pattern of 1 node, 0 promoted;  " in text
    (table, summary) = await looking.lines("topics", lists.topics, "other.>", sort="pattern", **RATES)
    assert (table["kind"], summary["total"]) == ("table", 0)
    *members, summary = await looking.lines("members", lists.member_stats, "echo", query=QueryOptions())
    assert {(line["id"], line["concurrency"]) for line in members} == {(first.id, 3), (second.id, 128)}
    *nodes, summary = await looking.lines("topology", topology.topology, svg=None, **SHOWN)
    told = {line["id"]: (line["clusters"], line["state"]) for line in nodes}
    assert told == {node.id: (["echo"], "told") for node in (first, second)}
    for line, other in zip(nodes, reversed(nodes), strict=True):
        assert other["id"] in line["links"], "beside the node of the command before, which has just left"
    assert (summary["links"], summary["is_whole"]) == (1, True)
    totals, *lines, summary = await looking.lines("top", top.top, sort="queued", cluster=None, node=None, is_once=True, **RATES)
    assert totals["nodes"] == {"total": 2.0, "error": 0.0}
    assert [line["name"] for line in lines if line["kind"] == "cluster"] == ["echo"]
    assert [(line["entries"], line["nodes"]) for line in lines if line["kind"] == "table"] == [(1, 1)]


def test_groups_show_their_members_and_the_messages_that_these_have_not_taken(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def look() -> None:
        async with (
            iris_py.connect(network=NETWORK) as publisher,
            iris_py.connect(network=NETWORK) as member,
            iris_py.connect(network=NETWORK) as other,
            member.subscribe("orders.>", group="billing") as orders,
            other.subscribe("orders.new", group="billing"),
            other.subscribe("mails.*", group="mail"),
        ):
            looking = Looking(Settings({"network": NETWORK}), capsys)
            taken = asyncio.ensure_future(anext(orders))
            await publisher.publish("orders.old", b"")  # only one of the patterns matches it
            await taken
            waiting = asyncio.ensure_future(anext(orders))  # so the message before is taken
            await until(lambda: "billing" in publisher.statistics().shares)
            await until(lambda: publisher.statistics().shares["billing"].taken == 1)
            waiting.cancel()
            for _ in range(2):
                await publisher.publish("orders.old", b"")
            lines = await looking.lines("topics", lists.topics, "orders.>", sort="pattern", **RATES)
            (group,) = (line for line in lines if line["kind"] == "group")
            assert (group["name"], group["patterns"]) == ("billing", ["orders.>", "orders.new"])
            assert (group["members"], group["publishers"], group["given_per_s"]) == (2, 1, 0)
            assert [group[name] for name in ("given", "taken", "outstanding", "lost", "full")] == [3, 1, 2, 0, 0]
            _code, text = await looking.run(lists.topics, None, sort="pattern", as_json=False, **ASKED)
            assert "\ngroups:\nbilling  orders.>, orders.new  2  0  3  1  2  0  0\nmail     " in text
            await looking.run(lists.topics, None, sort="pattern", as_json=False, **{**ASKED, "limit": 1})
            assert "these are 1 of 2 groups: --limit shows more." in looking.errors
            once = {"sort": "name", "cluster": None, "node": None, "is_once": True}
            lines = await looking.lines("top", top.top, **once, **RATES)
            assert [line["name"] for line in lines if line["kind"] == "group"] == ["billing", "mail"]
            _code, text = await looking.run(top.top, as_json=False, **once, **RATES)
            assert "\ngroups:  billing: 2 members, 0/s given, 2 outstanding;  mail: 1 member, 0/s given\n" in text

    asyncio.run(look())


async def draw_topology(looking: Looking, path: Path, first: iris_py.Node) -> None:
    code, text = await looking.run(topology.topology, svg=path / "network.svg", as_json=False, **SHOWN)
    assert (code, text) == (0, "")
    assert "network.svg: 2 nodes" in looking.errors
    assert first.id in (path / "network.svg").read_text()
    with pytest.raises(iris_py.ConfigurationError, match=r"--svg: .* cannot be written"):
        await looking.run(topology.topology, svg=path / "nowhere" / "network.svg", as_json=False, **SHOWN)


async def compare_ways(looking: Looking, first: iris_py.Node) -> None:
    often: dict[str, Any] = {"count": 2, "interval_s": 0.0, "timeout_s": 5.0, "has_udp": True}
    for target in ("echo", first.id):
        *pings, summary = await looking.lines("ping", ping.ping, target, **often)
        assert all(line[name] > 0 for line in pings for name in ("round_trip_s", "udp_s", "ring_s"))
        ways = {line["way"]: (line["sent"], line["lost"]) for line in summary["ways"]}
        assert ways["udp"] == ways["ring"] == (2, 0)
    once = {**often, "count": 1}
    code, text = await looking.run(ping.ping, first.id, **once, as_json=False)
    assert code == ExitCode.OK
    assert "\nudp   1 sent, 0 lost (0%), min " in text
    with patch.object(first._core.overlay, "receive_datagram"):
        code, text = await looking.run(ping.ping, first.id, **{**once, "timeout_s": 0.3}, as_json=False)
    assert code == ExitCode.FAULT
    assert "  udp no answer  " in text
    assert "udp   1 sent, 1 lost (100%)" in text


async def show_ways(looking: Looking, first: iris_py.Node, second: iris_py.Node) -> None:
    *pings, summary = await looking.lines("ping", ping.ping, "echo", count=3, interval_s=0.0, timeout_s=5.0)
    assert {line["id"] for line in pings} == {first.id, second.id}
    assert (summary["sent"], summary["lost"]) == (3, 0)
    for target in (first.id, first.id[:10], first.address):
        (answered, _summary) = await looking.lines("ping", ping.ping, target, count=1, interval_s=0.0, timeout_s=5.0)
        assert answered["id"] == first.id
    await compare_ways(looking, first)
    code, text = await looking.run(ping.ping, "f" * 32, count=1, interval_s=0.0, timeout_s=0.3, as_json=False)
    assert (code, text.splitlines()[-1]) == (ExitCode.FAULT, "1 sent, 1 lost (100%)")
    with pytest.raises(iris_py.ConfigurationError, match="iris nodes"):
        await looking.run(ping.ping, "127.0.0.1:1", count=1, interval_s=0.0, timeout_s=1.0, as_json=False)
    usual: dict[str, Any] = {"key": None, "prefer": None, "require": None, "timeout_s": 5.0}
    traced = await looking.lines("trace", trace.trace, "echo", text="hello", **usual)
    by_kind = {line["kind"]: line for line in traced}
    assert by_kind["route"]["route"]["members"] == 2
    assert by_kind["way"]["member"] in {first.id, second.id}
    assert by_kind["way"]["answer_s"] > 0
    assert by_kind["execution"]["reply_bytes"] == 5
    assert by_kind["execution"]["ended"] == 1
    (member,) = by_kind["execution"]["members"]
    assert member in {first.id, second.id}
    assert by_kind["execution"]["queue_s"] < by_kind["execution"]["seconds"]
    assert 0 < by_kind["execution"]["run_s"] < by_kind["execution"]["seconds"]
    assert by_kind["summary"]["ends"]
    code, text = await looking.run(trace.trace, "echo", text=None, as_json=False, **{**usual, "require": "eu/b"})
    assert code == 0
    assert f"member-> {second.id[:8]}" in text
    assert "not in the zone eu/b" in text
    code, _text = await looking.run(trace.trace, "nobody", text=None, as_json=False, **usual)
    assert (code, "nobody serves 'nobody'" in looking.errors) == (ExitCode.NO_MEMBERS, True)


async def show_events(looking: Looking, first: iris_py.Node, second: iris_py.Node) -> None:
    every = MonitorOptions(interval_s=0.1, since="0", count=3)
    watching, *events, summary = await looking.lines("monitor", monitor.monitor, every)
    assert (watching["kind"], watching["watched"]) == ("watching", 2)
    assert [event["kind"] for event in events] == ["event"] * 3
    assert [event["time"] for event in events] == sorted(event["time"] for event in events)
    assert (summary["events"], summary["watched"], summary["is_sample"]) == (3, 2, False)
    one = replace(every, target=first.id, kinds=["link_o"], count=1)
    code, text = await looking.run(monitor.monitor, one, as_json=False)
    opened = next(event for event in first.recent_events() if event.kind == "link_opened")
    assert re.fullmatch(
        rf"[\d:.]{{12}}  {first.id[:8]}  link_opened +{opened.node[:8]}    1  -  {re.escape(opened.node_name)}\n", text
    )
    assert (code, "watching 1 node; Ctrl-C" in looking.errors) == (0, True)
    late = replace(every, kinds=["stalled"], since=None, count=1, timeout_s=0.05)
    assert (await looking.run(monitor.monitor, late, as_json=False))[0] == ExitCode.TIMEOUT
    assert "--timeout" in looking.errors
    assert (await looking.run(monitor.monitor, replace(late, count=None), as_json=False))[0] == ExitCode.OK
    with pytest.raises(iris_py.ConfigurationError, match="Choose a node with --node"):
        await looking.run(monitor.monitor, replace(every, since="17"), as_json=False)
    last = first.recent_events()[-1].number
    (event,) = [
        line
        for line in await looking.lines("monitor", monitor.monitor, replace(one, kinds=(), since=str(last - 1), is_raw=True))
        if line["kind"] == "event"
    ]
    assert event["number"] == last


def test_a_network_of_nobody_is_said_to_be_one(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    looking = Looking(Settings({"network": "empty", "discovery": False}), capsys)
    code, text = asyncio.run(looking.run(lists.nodes, zone=None, as_json=False, **ASKED))
    assert (code, text) == (ExitCode.NO_MEMBERS, "")
    assert "no other node found in the network 'empty'" in looking.errors
