"""Public objects show themselves: briefly, as what they are, without the address in memory, and without any secret."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

import iris_py as iris
import iris_py.sync
from iris_py.testing import NodeSimulation, run

if TYPE_CHECKING:
    from pathlib import Path

SECRET = iris.Secret(bytes(range(32)))
#: None of these may be shown, in whatever way bytes are written.
HIDDEN = (SECRET.text, SECRET.text.partition(".")[2], bytes(range(32)).hex(), repr(bytes(range(32)))[2:-1], "payload-42")
LENGTH_MAX = 160
#: These are read as a whole: a long line of numbers, or of settings.
LONG = {
    "Config",
    "Health",
    "NodeName",
    "NodeReport",
    "NodeReports",
    "RotationStatus",
    "Route",
    "Statistics",
    "StreamInfo",
    "Streams",
    "Trace",
}


class Work(iris.Handler):
    """A handler."""

    async def on_request(self, request: iris.Request) -> bytes:
        SHOWN["Request"] = repr(request)
        return request.payload

    async def on_tunnel(self, tunnel: iris.Tunnel) -> None:
        await tunnel.receive()


class WorkInThreads(iris_py.sync.Handler):
    """A handler of the other API."""


SHOWN: dict[str, str] = {}


async def show_all() -> None:
    """Note how an object of each class shows itself that only a network makes, while it is alive."""
    async with NodeSimulation(1) as simulation:
        node, member = await simulation.start_nodes(2)
        found: dict[str, Any] = {"Node": node, "Handler": (work := Work())}
        opening = found["Opening"] = member.join("work", work)
        found["Membership"] = await opening
        await node.request("work", b"payload-42")
        found["Members"] = node.members("work")
        (found["Member"],) = await node.members("work")
        survey = found["Survey"] = node.survey("work", b"payload-42")
        found["Answers"] = answers = await survey
        (found["SurveyReply"],) = answers
        found["SurveyFailure"] = iris.SurveyFailure(member=answers[0].member, type="KeyError", text="no such thing")
        subscription = found["Subscription"] = await member.subscribe("news")
        await node.publish("news", b"payload-42")
        found["Message"] = await anext(subscription)
        tunnel = found["Tunnel"] = await node.tunnel("work")
        await tunnel.send(b"payload-42")
        found["Statistics"] = node.statistics()
        found["Health"] = node.health()
        found["NodeReports"] = reports = await member.ask_nodes()
        found["NodeReport"] = reports.reports[0]
        found["NodeName"] = reports.reports[0].node
        found["Trace"] = trace = await member.trace("work")
        found["Route"] = trace.route
        for name, value in found.items():
            SHOWN.setdefault(name, repr(value))
        await tunnel.close()
    SHOWN["closed Node"] = repr(node)


async def show_streams(directory: Path) -> None:
    """Note how the objects of streams show themselves."""
    async with iris.open_streams(directory) as streams:
        stream = await streams.create_stream("notes")
        receipt = await stream.append(b"payload-42")
        records = stream.read()
        info = stream.info()
        async with stream.writer() as writer:
            objects = (streams, stream, receipt, records, await anext(records), writer, info, info.partitions[0])
        SHOWN.update({type(each).__name__: repr(each) for each in objects})


def plain_objects() -> dict[str, object]:
    """Return an object of each class that is made as it is."""
    return {
        "AdministrationKey": iris.AdministrationKey(bytes(range(32))),
        "Cloud": iris.Cloud(alias="eu", is_up=True, gateways=2, round_trip_s=0.08),
        "Codec": iris.Codec(dict[str, int], list[int]),
        "Config": iris.Config(secret=SECRET, seeds=("192.0.2.1:1",)),
        "EventRecord": iris.EventRecord(number=1, at_s=0.5, kind="died", node="ab" * 16),
        "Keyring": iris.Keyring(SECRET, clusters={"vault": SECRET}),
        "Retry": iris.Retry(attempts=3),
        "Seal": iris.Seal(SECRET),
        "Sealed": iris.Sealed(lambda request: request.payload, SECRET),
        "Secret": SECRET,
    }


def test_each_public_object_shows_itself_briefly_and_no_secret(tmp_path: Path) -> None:
    run(show_all(), limit_s=60)
    asyncio.run(show_streams(tmp_path / "data"))
    shown = SHOWN | {name: repr(value) for name, value in plain_objects().items()}
    classes = {
        name
        for name in iris.__all__
        if inspect.isclass(getattr(iris, name)) and not issubclass(getattr(iris, name), BaseException)
    }
    assert classes - shown.keys() == {"RotationStatus"} - shown.keys(), "show an object of each new class here"
    for name, text in shown.items():
        assert " object at 0x" not in text, f"{name} shows nothing: {text}"
        assert "\n" not in text
        assert len(text) <= LENGTH_MAX or name in LONG, f"{name}: {text}"
        assert not [hidden for hidden in HIDDEN if hidden in text], f"{name} shows what it must not"


def test_objects_of_the_synchronous_api_show_themselves() -> None:
    with iris_py.sync.connect(secret=SECRET, discovery=False) as node:
        handler = WorkInThreads()
        membership, subscription = node.join("work", handler), node.subscribe("news")
        survey = node.survey("work", b"payload-42")
        objects = (node, handler, membership, subscription, survey, node.members("work"))
        shown = {type(each).__name__: repr(each) for each in objects}
    for name, text in shown.items():
        assert " object at 0x" not in text, name
        assert len(text) <= LENGTH_MAX
        assert not [hidden for hidden in HIDDEN if hidden in text], name
    assert shown["Node"].startswith(f"<Node {node.id[:8]} ({node.name}) of ")
    assert repr(node).endswith(", closed>")


def test_what_a_repr_says() -> None:
    if not SHOWN:
        run(show_all(), limit_s=60)
    assert SHOWN["Handler"] == "<handler Work>"
    assert SHOWN["SurveyReply"].startswith("<SurveyReply of 10 bytes from ")
    assert SHOWN["closed Node"].endswith(", closed>")
    assert SHOWN["Node"].startswith("<Node ")
    assert SHOWN["Opening"].startswith("<Opening: await it")
