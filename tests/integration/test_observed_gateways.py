"""Two clouds on this machine: what their gateways tell Prometheus, the audit, and whoever asks why a use would not go."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import urllib.request
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from prometheus_client.parser import text_string_to_metric_families

import iris_py
from iris_py.api.cloud.gateways import ask_gateways
from iris_py.cli import federation as command
from iris_py.errors import NotExported
from iris_py.federation.calls import Call, Op
from iris_py.federation.settings import parse_settings
from iris_py.gateway import audit
from iris_py.gateway.startup import start_gateway
from iris_security import CloudKey, Secret

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    import pytest

    from iris_py.gateway.gateway import Gateway

PATIENCE_S = 60.0
HERE = "127.0.0.1:0"
KEYS = {name: CloudKey.generate(os.urandom) for name in ("us", "eu")}


@dataclass
class Pair:
    """The gateways of two clouds, a caller in one and a member in the other."""

    us: Gateway
    eu: Gateway
    caller: iris_py.Node
    member: iris_py.Node


def settings(name: str, other: str, gateway: str, rules: str, cloud: str = "") -> Any:
    text = f"""
        [gateway]
        name = "{name}"
        identity_file = "unused"
        {gateway}
        [cloud.{other}]
        keys = ["{KEYS[other].public_text}"]
        {cloud}
        {rules}
    """
    return parse_settings(text, f"{name}.toml")


EU_RULES = """
[[export]]
to = ["us"]
cluster = "databases"
audit = "all"
in_flight = 7
[[export]]
to = ["us"]
cluster = "files"
allow = ["tunnel"]
"""
US_RULES = """
[[import]]
from = ["eu"]
cluster = "databases"
[[import]]
from = ["eu"]
cluster = "files"
[[import]]
from = ["eu"]
cluster = "missing"
"""


@asynccontextmanager
async def joined(folder: Path) -> AsyncIterator[Pair]:
    secrets = {name: Secret.generate(os.urandom).text for name in ("us", "eu")}

    def connect(name: str, *seeds: iris_py.Node) -> Any:
        return iris_py.connect(secret=secrets[name], listen=HERE, seeds=[node.address for node in seeds], discovery=False)

    own = f'listen = "{HERE}"\naudit_file = "audit.jsonl"\nmetrics = "{HERE}"'
    async with (
        connect("eu") as far,
        connect("us") as near,
        start_gateway(far, settings("eu", "us", own, EU_RULES), KEYS["eu"], folder=folder) as eu,
    ):
        dial = settings("us", "eu", f'metrics = "{HERE}"', US_RULES, f'dial = ["{eu.address}"]\nprice_per_gb = 5')
        async with (
            start_gateway(near, dial, KEYS["us"]) as us,
            connect("eu", far) as member,
            connect("us", near) as caller,
            member.join("databases", echo),
        ):
            await until(lambda: us.core.is_usable("eu", us._loop.time()))
            await until(lambda: all(offer.entries for offer in us.core.lines.neighbours["eu"].offers.values()))
            yield Pair(us, eu, caller, member)


async def echo(request: iris_py.Request) -> bytes:
    return request.payload


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - no event says so
            await asyncio.sleep(0.01)


async def scrape(address: str, path: str = "/metrics") -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    def read() -> str:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=PATIENCE_S) as response:
            return str(response.read().decode())

    text = await asyncio.to_thread(read)
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def read_json(address: str, path: str) -> Any:
    def read() -> Any:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=PATIENCE_S) as response:
            return json.loads(response.read())

    return await asyncio.to_thread(read)


def records(path: Path) -> list[dict[str, Any]]:
    text = path.read_text()
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]  # the last one may be about to be written


def test_prometheus_reads_what_has_passed(tmp_path: Path) -> None:
    async def main() -> None:
        async with joined(tmp_path) as pair:
            for _ in range(3):
                assert await pair.caller.request("databases@eu", b"x" * 100, timeout=PATIENCE_S) == b"x" * 100
            assert pair.us.metrics is not None
            assert pair.eu.metrics is not None
            near, far = await scrape(pair.us.metrics.address), await scrape(pair.eu.metrics.address)
            later = await scrape(pair.us.metrics.address)
            rule = (("cloud", "eu"), ("direction", "import"), ("kind", "cluster"), ("rule", "databases"))
            outcome = tuple(sorted((*rule, ("outcome", "done"))))
            assert near["iris_federation_requests_total", outcome] == 3
            assert near["iris_federation_up", (("cloud", "eu"),)] == 1
            assert near["iris_federation_unmatched_imports", (("cloud", "eu"),)] == 1
            assert near["iris_federation_in_flight", (("cloud", "eu"),)] == 0
            line = (("cloud", "eu"), ("gateway", pair.eu.address))
            assert near["iris_federation_lines", (("cloud", "eu"),)] == near["iris_federation_line_up", line] == 1
            assert near["iris_federation_line_round_trip_seconds", line] > 0
            assert near["iris_federation_line_retransmissions_total", line] >= 0
            assert far["iris_federation_line_up", (("cloud", "us"), ("gateway", "127.0.0.1"))] == 1
            way = (("cloud", "eu"), ("direction", "sent"))
            sent, sent_later = (each["iris_federation_line_bytes_total", way] for each in (near, later))
            received = far["iris_federation_line_bytes_total", (("cloud", "us"), ("direction", "received"))]
            assert min(sent, received) > 300
            # What passed between the scrapes, however long that took; and handshakes, and what is on its way.
            assert sent - 1000 < received < sent_later + 1000
            assert 0 < near["iris_federation_rule_line_bytes_total", tuple(sorted((*rule, ("way", "sent"))))] <= sent

    iris_py.run(main())


def test_the_same_place_says_whether_the_gateway_is_ready(tmp_path: Path) -> None:
    async def main() -> None:
        async with joined(tmp_path) as pair:
            assert pair.us.metrics is not None
            assert await read_json(pair.us.metrics.address, "/readyz") == {"status": "SERVING"}
            closing = asyncio.create_task(pair.us.close())
            await asyncio.sleep(0)
            health = pair.us.metrics.health()
            assert health.reasons[0] == "the gateway is leaving"
            await closing

    iris_py.run(main())


def test_the_audit_has_what_happened_and_no_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "TOTALS_S", 0.3)
    path = tmp_path / "audit.jsonl"

    async def main() -> None:
        async with joined(tmp_path) as pair:
            await pair.caller.request(
                "databases@eu", b"a secret payload", headers={"note": "a secret header"}, timeout=PATIENCE_S
            )
            await until(lambda: {"link_up", "request", "totals"} <= {each["event"] for each in records(path)})
            path.rename(tmp_path / "audit.1")
            await pair.eu.reload(settings("eu", "us", pair_gateway(), EU_RULES.replace("7", "8")))
            await until(path.exists)
        found = records(tmp_path / "audit.1") + records(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        request = next(each for each in found if each["event"] == "request")
        assert (request["cloud"], request["rule"], request["name"]) == ("us", "databases", "databases")
        assert (request["use"], request["bytes"], request["outcome"]) == ("request", 16, "done")
        reload = next(each for each in found if each["event"] == "reload")
        assert reload["changes"] == {"exports_changed": ["databases@us"]}
        assert reload["is_applied"]
        totals = [each for each in found if each["event"] == "totals"]
        assert sum(each["requests"] for each in totals) == 1
        assert "secret" not in json.dumps(found)
        assert KEYS["us"].public_text not in json.dumps(found)

    def pair_gateway() -> str:
        return f'listen = "{HERE}"\naudit_file = "audit.jsonl"\nmetrics = "{HERE}"'

    iris_py.run(main())


def test_a_full_disk_stops_no_gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_descriptor: int, _data: object) -> int:
        raise OSError(28, "No space left on device")

    async def main() -> None:
        async with joined(tmp_path) as pair:
            await pair.caller.request("databases@eu", b"before", timeout=PATIENCE_S)
            monkeypatch.setattr("iris_py.gateway.audit.os.write", refuse)
            for _ in range(2):
                lost = pair.eu.auditor.unwritten
                await pair.caller.request("databases@eu", b"while it is full", timeout=PATIENCE_S)
                await until(lambda lost=lost: pair.eu.auditor.unwritten > lost)  # type: ignore[misc]
            [told] = await ask_gateways(pair.member, Call(op=Op.STATUS))
            assert told["audit"]["file"] == str(tmp_path / "audit.jsonl")
            assert told["audit"]["problem"] == "No space left on device"
            assert told["audit"]["unwritten"] == pair.eu.auditor.unwritten
            assert told["audit"]["free_bytes"] > 0
            monkeypatch.undo()
            await pair.caller.request("databases@eu", b"after", timeout=PATIENCE_S)
            await until(lambda: any("written again" in record.message for record in caplog.records))
            assert pair.eu.auditor.status()["problem"] == ""
        said = [record.message for record in caplog.records if "cannot be written" in record.message]
        assert said == ["the audit cannot be written: No space left on device. The gateway continues without the audit."]

    iris_py.run(main())


def explained(pair: Pair, name: str) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.msgpack.decode(pair.us._describe(Op.EXPLAIN, name)[1:])
    return found


def test_each_step_of_a_use_is_explained(tmp_path: Path) -> None:
    async def main() -> None:
        async with joined(tmp_path) as pair:
            found = explained(pair, "databases@eu")
            assert found["goes"]
            assert [(rule["kind"], rule["outside"]) for rule in found["imports"]] == [("cluster", "databases")]
            assert [(way["pattern"], way["uses"], way["in_flight"]) for way in found["ways"]] == [("databases", ["request"], 7)]
            for name, part in (
                ("databases@asia", "no [cloud.asia]; it knows: eu"),
                ("others@eu", 'no [[import]] from "eu" matches this name'),
                ("missing@eu", "it does not export this name to this cloud"),
                ("files@eu", "its rule for 'files' allows only tunnel"),
            ):
                found = explained(pair, name)
                assert not found["goes"]
                assert part in found["reason"]
            try:
                await pair.caller.request("missing@eu", b"", timeout=PATIENCE_S)
            except NotExported:
                pass
            [asked] = await ask_gateways(pair.caller, Call(op=Op.EXPLAIN, name="databases@eu"))
            assert asked["goes"]
            pair.eu._abort()
            await until(lambda: not pair.us.core.is_usable("eu", pair.us._loop.time()))
            await until(lambda: "nobody listens there" in explained(pair, "databases@eu")["reason"])

    iris_py.run(main())


def test_status_shows_what_does_not_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def main() -> None:
        async with joined(tmp_path) as pair:
            await pair.caller.request("databases@eu", b"x", timeout=PATIENCE_S)
            gateways = await ask_gateways(pair.caller, Call(op=Op.STATUS))
            command._print(gateways)
        said = capsys.readouterr().out
        assert "imports the cluster 'missing', which it does not export to this cloud" in said
        assert "import of cluster 'databases': requests: 1 done" in said
        assert "money: 0.00" in said
        assert "export different things" not in said

    iris_py.run(main())


def test_an_explanation_reads_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def main() -> None:
        async with joined(tmp_path) as pair:
            for name in ("databases@eu", "files@eu"):
                found = explained(pair, name)
                command._print_explanations(name, [found], goes=found["goes"])

    iris_py.run(main())
    said = capsys.readouterr().out
    assert "databases@eu: a request goes\n" in said
    assert "imported by line 11 of us.toml: cluster 'databases'\n" in said
    assert "exports cluster 'databases' for request; 7 in flight, 0 under way; " in said
    assert "would carry it\n" in said
    assert "files@eu: a request does not go\n" in said
    assert "its rule for 'files' allows only tunnel\n" in said
