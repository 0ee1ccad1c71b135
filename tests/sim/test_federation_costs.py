"""A plain request between clouds costs the same with few and with many connections and neighbours."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from iris_py.testing import run
from iris_py.testing.federation import VirtualFederation

if TYPE_CHECKING:
    from types import FrameType

    import iris_py

#: The least of so many requests is the one without upkeep in it: keepalives, acknowledgements, the overlay's timers.
REQUESTS = 12


class Calls:
    """Counts the calls of functions in ``iris_py.federation`` and ``iris_py.gateway``."""

    def __init__(self) -> None:
        self.count = 0

    def note(self, frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame.f_globals.get("__name__", "").startswith(("iris_py.federation.", "iris_py.gateway.")):
            self.count += 1


async def echo(request: iris_py.Request) -> bytes:
    return request.payload


def calls_of_a_request(connections: int, neighbours: int) -> int:
    """Count the calls for one request from the cloud ``us`` to the cloud ``eu``."""
    counts: list[int] = []
    others = [f"c{number:02}" for number in range(neighbours - 1)]
    clouds = dict.fromkeys(["us", "eu", *others], 1)

    async def main() -> None:
        async with VirtualFederation(
            seed=1,
            clouds=clouds,
            links=[("us", other, 0.04) for other in ("eu", *others)],
            gateways=1,
            exports={"eu": [{"cluster": "db"}]},
            imports={"us": [{"cluster": "db", "from": ["eu"]}]},
            settings={cloud: {"gateway": {"connections": connections, "bundles": 1}} for cloud in clouds},
        ) as federation:
            (caller,), (member,) = federation.members("us"), federation.members("eu")
            await member.join("db", echo)
            for _ in range(10):
                await caller.request("db@eu", b"x", idempotent=True, timeout=20)
            for _ in range(REQUESTS):
                calls = Calls()
                sys.setprofile(calls.note)
                await caller.request("db@eu", b"x")
                sys.setprofile(None)
                counts.append(calls.count)

    try:
        run(main())
    finally:
        sys.setprofile(None)
    return min(counts)


@pytest.mark.parametrize(("connections", "neighbours"), [(8, 1), (1, 20)])
def test_a_request_asks_no_connection_and_no_neighbour_without_a_part_in_it(connections: int, neighbours: int) -> None:
    assert calls_of_a_request(connections, neighbours) == calls_of_a_request(1, 1)
