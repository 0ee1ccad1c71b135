"""Captures of a cloud on the line, in the other cloud, and in its programs, show nothing but what was said to it.

Each cloud and the line between them are captured from the first packet on, while everything is used that gateways serve, and
some of it is refused.
"""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iris_security import CloudKey, Secret
from tests.network.capture import contents, find_common
from tests.network.gateways import CLUSTER, LINE_PORT, USES, Federation
from tests.network.lab import PORT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.network.clouds import Capture, Clouds

#: Runs of bytes of this length are not the same in both clouds by chance.
COMMON_BYTES = 16


def private_names(site: str) -> list[str]:
    """Return names that a cloud does not export: a cluster, a topic, a text of a message, a header."""
    return [f"ledger-of-{site}", f"payroll-of-{site}", f"salary-of-{site}", f"colour-of-{site}"]


def marks_of(federation: Federation, site: str) -> dict[str, bytes]:
    """Return what must not be seen of a cloud, by what it is."""
    clouds = federation.clouds
    secret = Path(clouds.environment(f"{site}1")["IRIS_SECRET_FILE"]).read_text().strip()
    identity = clouds.path(f"{site}.identity").read_text().strip()
    marks = {
        "secret": secret.encode(),
        "bytes of the secret": Secret.parse(secret).value,
        "private key": identity.encode(),
        "bytes of the private key": CloudKey.parse(identity).value,
    }
    processes = [*clouds.members.values(), *federation.gateways.values()]
    ids = {process.name: said["id"] for process in processes for said in process.said if "id" in said and "address" in said}
    for name, id_ in ids.items():
        if site in name:
            marks |= {f"id of {name}": id_.encode(), f"bytes of the id of {name}": bytes.fromhex(id_)}
    for host in (each for name, each in clouds.hosts.items() if name.startswith(site)):
        for port in (PORT, PORT + 1, LINE_PORT):
            marks[f"address of {host.address}:{port}"] = f"{host.address}:{port}".encode()
            marks[f"bytes of {host.address}:{port}"] = socket.inet_aton(host.address) + port.to_bytes(2, "big")
    return marks | {name: name.encode() for name in private_names(site)}


def said_by_programs(capture: Capture) -> list[bytes]:
    """Return what a capture has, but for what kernels say to each other: which group of multicast a host listens to."""
    return contents(packet for packet in capture.stop() if packet.protocol in (socket.IPPROTO_TCP, socket.IPPROTO_UDP))


def find_marks(marks: dict[str, bytes], data: list[bytes]) -> list[str]:
    """Return what of these is in the data."""
    return [what for what, mark in marks.items() if any(mark in each for each in data)]


def test_nothing_of_a_cloud_shows_on_the_line_or_in_the_other_cloud(clouds: Clouds) -> None:
    captures = {site: clouds.capture_site(site) for site in ("us", "eu")}
    line = clouds.capture_line("us", "eu")
    exports: list[Mapping[str, Any]] = [{"cluster": CLUSTER, "allow": USES}, {"topic": "clicks.>"}]
    imports: list[Mapping[str, Any]] = [{"cluster": ">"}, {"topic": ">"}]
    federation = Federation(
        clouds, {"us": ["eu"]}, exports=dict.fromkeys(("us", "eu"), exports), imports=dict.fromkeys(("us", "eu"), imports)
    )
    federation.start()
    for site, other in (("us", "eu"), ("eu", "us")):
        _use(federation, site, other)
    wires = {site: said_by_programs(capture) for site, capture in captures.items()}
    on_line = said_by_programs(line)

    marks = {site: marks_of(federation, site) for site in ("us", "eu")}
    texts = [b"said-by-", b"asked-by-", b"clicks.", CLUSTER.encode(), b"network us", b"network eu"]
    for site in ("us", "eu"):
        other = "eu" if site == "us" else "us"
        assert len(marks[site]) > 20
        assert any(what.startswith("bytes of the id") for what in find_marks(marks[site], wires[site]))  # they show at home
        assert find_marks(marks[site], on_line) == []
        assert find_marks(marks[site], wires[other]) == []
        assert sum(map(len, wires[site])) > 50_000
    assert [text for text in texts if any(text in data for data in on_line)] == []
    assert sum(map(len, on_line)) > 50_000
    assert find_common(wires["us"], wires["eu"], COMMON_BYTES) is None

    for site in ("us", "eu"):  # and what programs there are told
        other = "eu" if site == "us" else "us"
        shown = [said for member in clouds.members.values() if member.name.startswith(site) for said in member.said]
        assert find_marks(marks[other], [json.dumps(said).encode() for said in shown]) == []
        ours = {said["id"] for gateway in federation.gateways.values() for said in gateway.said if "id" in said}
        executed = [said for said in federation.executed(site) if said["cloud"] == other]
        assert len(executed) >= 2
        for said in executed:
            assert said["source"] in ours  # the gateway that brings it
            assert said["headers"] in ({}, {"size": "large"})
        messages = [said for said in federation.members[site].said if said["event"] in ("message", "entered")]
        assert {said["cloud"] for said in messages} == {other}
        assert all(set(said["headers"]) <= {"size"} for said in messages)


def _use(federation: Federation, site: str, other: str) -> None:
    """Use another cloud in every way, and the own one."""
    member = federation.members[site]
    ledger, _payroll, salary, colour = private_names(site)
    own = federation.start_member(f"{site} extra", f"{site}3", ledger, port=PORT + 1)
    own.wait_for("serving")
    trace = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "size": "large"}
    done = member.do("done", do="burst", cluster=f"{CLUSTER}@{other}", count=20, lanes=4, size=2_000, headers=trace)
    assert done["failures"] == {}
    assert member.do("done", do="burst", cluster=ledger, count=5, headers={colour: salary})["failures"] == {}
    replies = member.do("surveyed", do="survey_all", cluster=f"{CLUSTER}@{other}", id=f"asked-by-{site}")["replies"]
    assert len(replies) == 1
    member.do("returned", do="tunnel", cluster=f"{CLUSTER}@{other}", count=3, size=8_000)
    member.do("told", do="tell_all", cluster=f"{CLUSTER}@{other}", text=f"said-by-{site}")
    member.do("subscribed", do="subscribe", pattern=f"clicks.>@{other}")
    publisher = federation.members[other]
    publisher.do("published", do="publish", topic="clicks.now", payload=f"said-by-{other}", headers=trace)
    publisher.do("published", do="publish", topic=private_names(other)[1], payload=private_names(other)[2])
    member.wait_for("message")
    for number, name in enumerate((f"{ledger}", "nothing", "iris-gateway")):  # names of ours, there
        member.tell(do="once", cluster=f"{name}@{other}", id=f"refused/{site}{number}")
        assert federation.outcome(site, f"refused/{site}{number}", 30.0)["error"] == "NotExported"
    federation.members[site].tell(do="once", cluster=f"{CLUSTER}@{other}", id=f"late/{site}", hold_s=5.0, timeout=1.0)
    assert federation.outcome(site, f"late/{site}", 30.0)["error"] == "RequestTimeout"
