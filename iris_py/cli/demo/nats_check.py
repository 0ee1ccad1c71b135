"""The check of `iris demo --nats`: a native member and a door are killed, and the losses are counted."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from iris_py.cli.demo.findings import DemoFinding, note_finding
from iris_py.cli.demo.nats_load import CLUSTER, NATIVE, NATS

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_py.cli.demo.nats_network import NatsDemo

__all__ = ["check_network"]

#: Time for each claim (seconds): longer than the replacement of a process on a busy machine.
TIMEOUT_S: Final = 60.0
LOOK_S: Final = 0.02
#: Requests and messages of each kind before and after a kill.
COUNT_MIN: Final = 50


async def check_network(demo: NatsDemo) -> list[DemoFinding]:
    """Kill a member and a door, end the load, and return the findings."""
    visit = _NatsVisit(demo)
    findings: list[DemoFinding] = []
    for claim, step in (
        (f"members and clients of NATS share {CLUSTER!r}", visit.look_at_services),
        ("requests go on after a member was killed", visit.kill_member),
        ("the clients of a killed door go to another one", visit.kill_door),
        ("after that nothing is lost, and nothing comes twice", visit.look_at_messages),
    ):
        await note_finding(findings, claim, step)
    return findings


async def _until(is_so: Callable[[], bool], refusal: Callable[[], str]) -> None:
    """Wait for a state.

    Args:
        is_so: Whether the state is there.
        refusal: Returns the text of the error.

    Raises:
        AssertionError: The state does not come.
    """
    until = time.monotonic() + TIMEOUT_S
    while not is_so():
        assert time.monotonic() < until, refusal()
        await asyncio.sleep(LOOK_S)


class _NatsVisit:
    """The steps. Each returns its counts, or raises an `AssertionError`."""

    def __init__(self, demo: NatsDemo) -> None:
        self._demo = demo
        self._load = demo.load
        self._first_number = 0  # of the messages that no kill disturbs

    async def look_at_services(self) -> str:
        """Wait for replies from services of both kinds to a native caller, and to a client of NATS."""
        native, client = self._load.native_requests, self._load.client_requests

        def counts() -> str:
            heard = [
                f"{each.by_kind[NATIVE]} replies of members and {each.by_kind[NATS]} of clients" for each in (native, client)
            ]
            return f"a native caller heard {heard[0]}, a client heard {heard[1]}"

        await _until(
            lambda: min(each.by_kind[kind] for each in (native, client) for kind in (NATIVE, NATS)) >= COUNT_MIN // 2,
            lambda: f"{counts()}, within {TIMEOUT_S:g} s",
        )
        return counts()

    async def kill_member(self) -> str:
        """Kill a native member, and wait for more replies."""
        native = self._load.native_requests
        replacement = self._demo.member_replacement
        replacement.begin()
        await _until(lambda: any(each.is_killed for each in self._demo.members.members), lambda: "no member was killed")
        before = native.answered
        await _until(lambda: native.answered >= before + COUNT_MIN, lambda: f"{native.answered - before} replies after it")
        assert not native.lost, f"{native.lost} native requests failed"
        return f"{native.answered - before} replies to native requests since then, none was lost"

    async def kill_door(self) -> str:
        """Kill the door of the publisher. Return when its clients are at another door and are heard again."""
        load, began = self._load, time.monotonic()
        killed = self._demo.doors.members[0].id
        moved = load.doors.count(killed)
        self._demo.door_replacement.begin()
        await _until(
            lambda: all(each not in ("", killed) for each in load.doors), lambda: f"the clients are at {', '.join(load.doors)}"
        )
        took_s = time.monotonic() - began
        first, client = load.published + 1, load.client_requests
        await _until(
            lambda: min(load.to_native.last, load.to_client.last) > first, lambda: "no message of the publisher arrives"
        )
        self._first_number = first
        before = client.answered
        await _until(lambda: client.answered >= before + COUNT_MIN, lambda: f"{client.answered - before} replies after it")
        return f"{moved} clients after {took_s:.1f} s; their requests are answered"

    async def look_at_messages(self) -> str:
        """Wait for more messages, end the load, and look for losses."""
        load, first = self._load, self._first_number
        await _until(lambda: load.published >= first + COUNT_MIN, lambda: f"{load.published - first} messages were published")
        await load.settle()
        lasts = (load.to_native.last, load.to_client.last)
        assert min(lasts) == load.published, f"of {load.published} messages, the last ones that arrived are {lasts}"
        for deliveries in (load.to_native, load.to_client):
            lost = [number for number in deliveries.missing if number >= first]
            assert not lost, f"{len(lost)} messages were lost"
            assert not deliveries.repeated, f"{deliveries.repeated} messages came twice"
        assert not load.native_requests.lost, f"{load.native_requests.lost} native requests failed"
        return f"{load.published - first + 1} messages at both subscribers; no native request was lost"
