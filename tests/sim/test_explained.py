"""Gateways explain what would become of a use, show what does not fit, and tell the audit what they refuse."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

import iris_py.testing
from iris_py.errors import IrisError, Overloaded
from iris_py.federation.calls import Op
from iris_py.federation.settings import parse_settings
from iris_py.testing.federation import VirtualFederation

if TYPE_CHECKING:
    import pytest

    from iris_py.gateway.gateway import Gateway


def state_of(gateway: Gateway) -> dict[str, Any]:
    """Return what a gateway says of its lines to eu."""
    clouds: Any = gateway.status()["clouds"]
    state: dict[str, Any] = clouds["eu"]
    return state


def explained(gateway: Any, name: str) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.msgpack.decode(gateway._describe(Op.EXPLAIN, name)[1:])
    return found


def federation(**export: object) -> VirtualFederation:
    return VirtualFederation(
        seed=5,
        clouds={"us": 1, "eu": 1},
        links=[("us", "eu", 0.04)],
        exports={"eu": [{"cluster": "databases", **export}, {"topic": "clicks.>"}]},
        imports={"us": [{"cluster": "databases"}, {"topic": "clicks.>"}]},
    )


async def echo(request: iris_py.Request) -> bytes:
    return request.payload


def test_what_is_over_its_limits_now_would_not_go() -> None:
    async def main() -> None:
        async with federation(in_flight=1) as f:
            await f.advance(1)
            release = asyncio.Event()

            async def wait(request: iris_py.Request) -> bytes:
                await release.wait()
                return request.payload

            await f.members("eu")[0].join("databases", wait)
            asking = asyncio.create_task(f.members("us")[0].request("databases@eu", b"x", timeout=20))
            await f.advance(1)
            found = [explained(gateway, "databases@eu") for gateway in f.gateways("us")]
            [limited] = [each for each in found if not each["goes"]]  # each gateway counts its own
            assert "over its limits now: try again in 0.05 s" in limited["reason"]
            release.set()
            await asking
            assert all(explained(gateway, "databases@eu")["goes"] for gateway in f.gateways("us"))

    iris_py.testing.run(main())


def test_a_topic_is_explained_by_its_own_rules() -> None:
    async def main() -> None:
        async with federation() as f:
            await f.advance(1)
            found = explained(f.gateways("us")[0], "clicks.shop@eu")
            assert found["goes"]
            assert {way["kind"] for way in found["ways"]} == {"topic"}
            assert {way["pattern"] for way in found["ways"]} == {"clicks.>"}

    iris_py.testing.run(main())


def test_silence_and_draining_are_reasons() -> None:
    async def main() -> None:
        async with federation() as f:
            await f.advance(1)
            gateway = f.gateways("us")[0]
            f.gateways("eu")[0].core.drain(f.now)
            f.gateways("eu")[0]._driver.wake()
            await f.advance(0.2)
            found = explained(gateway, "databases@eu")
            assert sorted(way["obstacle"] for way in found["ways"]) == ["", "it is draining, and gets nothing new"]
            f.cut("us", "eu")
            await f.advance(9)
            assert "nothing was heard from it for" in explained(gateway, "databases@eu")["reason"]
            await f.advance(20)
            assert "there is no connection to the cloud 'eu': " in explained(gateway, "databases@eu")["reason"]
            assert explained(f.gateways("eu")[1], "databases@us")["reason"].startswith('no [[import]] from "us"')

    iris_py.testing.run(main())


def test_gateways_of_one_cloud_with_different_files_are_shown() -> None:
    async def main() -> None:
        async with federation() as f:
            await f.advance(1)
            gateway = f.gateways("us")[0]
            cloud = state_of(gateway)
            assert not cloud["catalogues_differ"]
            assert len({bundle["catalogue_digest"] for bundle in cloud["bundles"]}) == 1
            f.change_rules("eu", exports=[{"cluster": "databases", "in_flight": 5}])
            await f.gateways("eu")[0].reload(parse_settings(f.settings_text("eu", 0), "eu.toml"))
            await f.advance(0.2)
            cloud = state_of(gateway)
            assert cloud["catalogues_differ"]
            assert not cloud["unmatched_imports"]  # one of both exports the topics still

    iris_py.testing.run(main())


def test_an_import_that_fits_nothing_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with federation() as f:
            await f.advance(1)
            await f.reload("eu", exports=[{"cluster": "databases"}])
            await f.advance(1)
            await f.reload("eu", exports=[{"cluster": "databases", "in_flight": 5}])
            await f.advance(1)
            for gateway in f.gateways("us"):
                [rule] = state_of(gateway)["unmatched_imports"]
                assert (rule["kind"], rule["outside"]) == ("topic", "clicks.>")
        said = [record for record in caplog.records if "does not export this name to this cloud" in record.getMessage()]
        assert len(said) == 2  # by each gateway

    iris_py.testing.run(main())


def test_the_audit_is_told_of_lines_catalogues_limits_and_reloads(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "iris_py.federation.audit")

    async def main() -> None:
        async with federation(requests_per_s=1) as f:
            await f.advance(1)
            await f.members("eu")[0].join("databases", echo)
            for _ in range(6):
                try:
                    await f.members("us")[0].request("databases@eu", b"x", timeout=5)
                except Overloaded:
                    pass
            await f.advance(70)
            await f.reload("eu", exports=[])
            await f.advance(1)
            try:
                await f.members("us")[0].request("databases@eu", b"x", timeout=5)
            except IrisError:
                pass
            f.kill(f.gateways("eu")[0])
            await f.advance(1)

    iris_py.testing.run(main())
    records = [json.loads(record.getMessage()) for record in caplog.records if record.name == "iris_py.federation.audit"]
    events = {record["event"] for record in records}
    assert {"link_up", "catalogue", "totals", "reload", "link_down"} <= events
    totals = [record for record in records if record["event"] == "totals" and record["direction"] == "export"]
    assert sum(record["requests"] for record in totals) >= 1
    [reason, *_] = [record["reason"] for record in records if record["event"] == "link_down"]
    assert reason


def test_clocks_that_differ_are_said(caplog: pytest.LogCaptureFixture) -> None:
    def said() -> str:
        return "\n".join(text for record in caplog.records if "the clock of" in (text := record.getMessage()))

    async def main() -> None:
        async with federation() as f:
            await f.advance(1)
            for cloud, clock_ms in (("us", 1_000_000), ("eu", 1_090_000)):
                for gateway in f.gateways(cloud):
                    lines = gateway.core.lines
                    lines._introduction = replace(lines._introduction, clock_ms=partial(int, clock_ms))
            assert not said()
            f.reset(f.gateways("us")[0])
            await f.until(lambda: "of 'eu'" in said() and "of 'us'" in said())
            assert "90 s ahead of the clock" in said()
            assert "90 s behind the clock" in said()

    iris_py.testing.run(main())
