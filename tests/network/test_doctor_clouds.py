"""`iris doctor` names what becomes of the lines to another cloud: cut in silence, one of two lost, and the way to a cluster."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.network.gateways import CLUSTER, LINE_PORT, Federation
from tests.network.lab import PATIENCE_S
from tests.network.test_doctor import examine

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.network.clouds import Clouds

THERE = f"{CLUSTER}@eu"


@pytest.fixture
def joined(clouds: Clouds) -> Federation:
    """The clouds us and eu with two gateways each: us dials, and both have a member."""
    federation = Federation(clouds, {"us": ["eu"]})
    federation.start()
    return federation


def look(federation: Federation, *arguments: str) -> dict[str, dict[str, Any]]:
    """Run the doctor in us, beside the member there."""
    host = federation.clouds.hosts["us3"]
    return examine(federation.clouds, "us3", *arguments, IRIS_LISTEN=f"{host.address}:0", **federation._seeds("us3"))


def until_found(
    federation: Federation, is_right: Callable[[dict[str, dict[str, Any]]], bool], *arguments: str
) -> dict[str, dict[str, Any]]:
    """Run the doctor until it finds something: gateways notice one by one, and each dial takes seconds to fail."""
    deadline = time.monotonic() + PATIENCE_S
    lines = look(federation, *arguments)
    while not is_right(lines):
        assert time.monotonic() < deadline, lines
        lines = look(federation, *arguments)
    return lines


def test_all_is_well_and_the_way_is_examined_without_executing_anything(joined: Federation) -> None:
    lines = look(joined, "--only", "clouds,cluster", THERE)
    assert lines["clouds"]["status"] == "ok", lines
    assert "2 gateways; 'eu' over 4 cloud links, round trip " in lines["clouds"]["cause"]
    assert lines["cluster"]["status"] == "ok", lines
    assert "2 gateways would forward a request over 4 cloud links" in lines["cluster"]["cause"]
    assert "1 member there" in lines["cluster"]["cause"]
    assert joined.executed("eu") == []


def test_a_cloud_that_is_cut_off_in_silence(joined: Federation) -> None:
    joined.clouds.cut("us", "eu")
    lines = until_found(joined, lambda said: said["clouds"]["status"] == "FAULT", "--only", "clouds,cluster", THERE)
    assert "the cloud 'eu' cannot be reached from any of 2 gateways" in lines["clouds"]["cause"]
    # A line is silent, and after 10 s it is dialled in vain: where processes begin late, that is all there is to see.
    assert f":{LINE_PORT}" in lines["clouds"]["cause"]
    assert lines["cluster"]["status"] == "FAULT", lines
    assert THERE in lines["cluster"]["cause"]
    # When the lines are given up, dials say the same.
    joined.clouds.until(lambda: not list(joined.bundles("us", "eu")), "the lines are given up")
    lines = until_found(joined, lambda said: "nobody answers there" in said["clouds"]["cause"], "--only", "clouds")
    assert lines["clouds"]["status"] == "FAULT"
    joined.clouds.heal("us", "eu")
    joined.wait_for_bundles("us", "eu", 4)
    until_found(joined, lambda said: said["clouds"]["status"] == "ok", "--only", "clouds")


def test_one_gateway_of_two_that_falls_silent(joined: Federation) -> None:
    joined.clouds.silence("eu2", "us")
    lines = until_found(joined, lambda said: said["clouds"]["status"] == "warning", "--only", "clouds,cluster", THERE)
    address = f"{joined.clouds.hosts['eu2'].address}:{LINE_PORT}"
    assert "has 1 of 2 cloud links to 'eu'" in lines["clouds"]["cause"]
    assert address in lines["clouds"]["cause"]
    other = f"{joined.clouds.hosts['eu1'].address}:{LINE_PORT}"
    assert other not in lines["clouds"]["cause"]
    # While the line is not given up, it is one of those that would carry nothing.
    assert lines["cluster"]["status"] in ("warning", "ok"), lines
    assert (
        lines["cluster"]["status"] == "ok" or f"cloud links would carry no request: {address}" in lines["cluster"]["cause"]
    ), lines


def test_one_gateway_of_two_that_was_killed(joined: Federation) -> None:
    joined.gateways["eu2"].kill()
    address = f"{joined.clouds.hosts['eu2'].address}:{LINE_PORT}"

    def is_named(lines: dict[str, dict[str, Any]]) -> bool:
        return lines["clouds"]["status"] == "warning" and f"{address}: nobody listens there" in lines["clouds"]["cause"]

    until_found(joined, is_named, "--only", "clouds")
    assert look(joined, "--only", "cluster", THERE)["cluster"]["status"] == "ok", "the other line carries everything"
