"""`iris demo --federation`: a cluster of another cloud counts a source tree while gateways and a member are killed.

The work is that of `iris demo`. The driver, this process, is a node of the near cloud without a secret of the far cloud. Its
requests go through a gateway of each cloud to a member in the far cloud.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import iris_py
from iris_py.api.cloud.gateways import ask_gateways
from iris_py.cli.demo import federation_member
from iris_py.cli.demo.crew import Crew, MemberFailed, kill_and_replace
from iris_py.cli.demo.federation_crew import (
    FAR,
    FAR_GATEWAY_KILL_AT,
    GATEWAYS,
    INSIDE,
    MEMBER_KILL_AT,
    NEAR,
    NEAR_GATEWAY_KILL_AT,
    OUTSIDE,
    GatewayCrew,
    network_of,
)
from iris_py.cli.demo.federation_report import FederationOutcome, document, print_report
from iris_py.cli.demo.files import count_plainly, take_inventory
from iris_py.cli.demo.job import REQUEST_TIMEOUT_S, Job
from iris_py.cli.demo.lexer import TokenTotals
from iris_py.cli.demo.member import ID_BYTES
from iris_py.cli.demo.progress import make_progress
from iris_py.cli.outcome import ExitCode, complain
from iris_py.cli.output import Output
from iris_py.federation.calls import Call, Op

if TYPE_CHECKING:
    from pathlib import Path

    from iris_py.cli.demo.federation_crew import CrewGateway
    from iris_py.cli.demo.progress import Progress

__all__ = ["demo_federation"]

LINES_TIMEOUT_S: Final = 30.0  # for the cloud links between gateways: they need a handshake, but machines can be busy
LOOK_S: Final = 0.02


async def demo_federation(directory: Path | None, *, member_count: int, is_kill: bool, as_json: bool) -> int:
    """Run `iris demo --federation`, and print its report.

    Args:
        directory: The directory to count; None for the standard library of the running interpreter.
        member_count: Number of simultaneous members.
        is_kill: Whether to kill a gateway of each cloud, and a member.
        as_json: Print one line of JSON instead of tables.

    Returns:
        The exit code, 0 only if the totals of the cluster and of one process are equal, and the kills took place.

    Raises:
        ConfigurationError: The directory has no files to count.
        MemberFailed: A process did not start.
    """
    outcome = FederationOutcome(await asyncio.to_thread(take_inventory, directory), is_kill=is_kill)
    with make_progress(sys.stderr) as progress:
        await _with_clouds(outcome, progress, member_count)
        started = time.perf_counter()
        outcome.plain = await asyncio.to_thread(count_plainly, outcome.inventory, progress)
        outcome.plain_s = time.perf_counter() - started
    if as_json:
        Output(as_json=True).line(document(outcome))
    else:
        print_report(outcome)
    for finding in outcome.findings[len(outcome.failures) :]:  # failures were printed as they happened
        complain(finding)
    return ExitCode.FAILED if outcome.findings else ExitCode.OK


async def _with_clouds(outcome: FederationOutcome, progress: Progress, member_count: int) -> None:
    """Start both clouds, let the cluster of the far cloud count all files, record the measurements, and end both clouds."""
    started = time.perf_counter()
    async with GatewayCrew() as gateways:
        first = await gateways.start(FAR, ())
        config = iris_py.Config(network=network_of(NEAR), secret=gateways.secrets[NEAR], discovery=False)
        async with (
            iris_py.connect(config=config) as node,
            Crew(
                first.address,
                gateways.secrets[FAR],
                *(federation_member.__name__, network_of(FAR), INSIDE),
                command="iris demo --federation",
            ) as crew,
        ):
            await _start_all(gateways, crew, node, member_count)
            run = _FederationRun(node, gateways, crew, outcome, progress)
            await run.wait_for_lines()
            outcome.start_s = time.perf_counter() - started
            progress.note(f"{GATEWAYS} gateways of each of the clouds {NEAR!r} and {FAR!r} are connected by cloud links")
            progress.note(f"{member_count} member processes serve {INSIDE!r} in {FAR!r}, which exports it as {OUTSIDE!r}")
            await run.try_the_other_name()
            kills = {
                NEAR_GATEWAY_KILL_AT: run.kill_near_gateway,
                MEMBER_KILL_AT: run.kill_member,
                FAR_GATEWAY_KILL_AT: run.kill_far_gateway,
            }
            await Job(outcome, progress, run.ask, kills if outcome.is_kill else {}, crew.hasten).run()
            await run.note_passed()
            outcome.retries = node.statistics().retries
        outcome.members, outcome.gateways = crew.members, gateways.started


async def _start_all(gateways: GatewayCrew, crew: Crew, node: iris_py.Node, member_count: int) -> None:
    """Start the members and the gateways. The first gateway of the far cloud, the seed there, runs already."""
    (first,) = gateways.of(FAR)

    async def start_gateways() -> None:
        async with asyncio.TaskGroup() as far:
            for _ in range(GATEWAYS - 1):
                far.create_task(gateways.start(FAR, [first.address]))
        dial = [gateway.listens for gateway in gateways.of(FAR)]
        async with asyncio.TaskGroup() as near:
            for _ in range(GATEWAYS):
                near.create_task(gateways.start(NEAR, [node.address], dial))

    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(crew.start_many(member_count, "served"))
            tasks.create_task(start_gateways())
    except ExceptionGroup as group:
        raise _first_of(group) from None  # the first has cancelled the others


def _first_of(group: BaseExceptionGroup) -> BaseException:
    """Return the first exception in nested exception groups."""
    first = group.exceptions[0]
    return _first_of(first) if isinstance(first, BaseExceptionGroup) else first


class _FederationRun:
    """The callbacks of :class:`Job` for this demo: how to have a file counted, and how to kill gateways and a member."""

    def __init__(
        self, node: iris_py.Node, gateways: GatewayCrew, crew: Crew, outcome: FederationOutcome, progress: Progress
    ) -> None:
        self._node = node
        self._gateways = gateways
        self._crew = crew
        self._outcome = outcome
        self._progress = progress

    async def wait_for_lines(self) -> None:
        """Return when every gateway of the near cloud has a cloud link to every gateway of the far cloud.

        Raises:
            MemberFailed: The gateways do not connect within `LINES_TIMEOUT_S`.
        """
        try:
            async with asyncio.timeout(LINES_TIMEOUT_S):
                while await self._count_lines() < GATEWAYS * GATEWAYS:  # noqa: ASYNC110 - no event reports it
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            raise MemberFailed(
                f"the gateways do not reach each other within {LINES_TIMEOUT_S:g} s. Run `iris demo --federation` again."
            ) from None

    async def _count_lines(self) -> int:
        return sum(len(one["clouds"][FAR]["bundles"]) for one in await self._ask_gateways())

    async def try_the_other_name(self) -> None:
        """Check that a request to the cluster's name inside the far cloud is refused, because only another name is exported."""
        try:
            await self._node.request(f"{INSIDE}@{FAR}", b"")
        except iris_py.NotExported:
            self._outcome.is_closed = True
            self._progress.note(f"{INSIDE!r} of {FAR!r} is refused, because it is not exported under that name")

    async def ask(self, path: Path, content: bytes) -> None:
        """Have a member in the far cloud count a file, and add the counts to the totals."""
        reply = await self._node.request(
            f"{OUTSIDE}@{FAR}", content, timeout=REQUEST_TIMEOUT_S, idempotent=True, key=bytes(path)
        )
        member, gateway = reply[:ID_BYTES].hex(), reply[ID_BYTES : 2 * ID_BYTES].hex()
        self._outcome.totals.add(TokenTotals.decode(reply[2 * ID_BYTES :]))
        self._crew.credit(member)
        for one in self._gateways.of(FAR):
            one.process.requests += one.process.id == gateway

    async def kill_near_gateway(self) -> None:
        """Kill a gateway of the near cloud, after its last report of passed requests."""
        await self.note_passed()
        await self._kill(self._gateways.of(NEAR)[-1])

    async def kill_far_gateway(self) -> None:
        """Kill the last gateway of the far cloud. The first stays, as the seed of a new member."""
        await self._kill(self._gateways.of(FAR)[-1])

    async def kill_member(self) -> None:
        """Kill a member that executes a request, and start another."""
        await kill_and_replace(self._crew, self._progress)

    async def note_passed(self) -> None:
        """Record the number of requests passed on by each gateway of the near cloud."""
        counts = {one["node"]: _count_passed(one["clouds"][FAR]) for one in await self._ask_gateways()}
        for gateway in self._gateways.of(NEAR):
            gateway.process.requests = counts.get(gateway.process.id, gateway.process.requests)

    async def _kill(self, gateway: CrewGateway) -> None:
        await self._gateways.kill(gateway)
        process = gateway.process
        self._progress.note(f"gateway {process.id[:8]} of {gateway.cloud!r} killed (SIGKILL to process {process.pid})")

    async def _ask_gateways(self) -> list[dict[str, Any]]:
        return await ask_gateways(self._node, Call(op=Op.STATUS))


def _count_passed(cloud: dict[str, Any]) -> int:
    """Return the number of requests with a reply from another cloud, by a gateway's status about the cloud."""
    return sum(rule["requests"].get("done", 0) for rule in cloud["accounts"]["rules"] if rule["direction"] == "import")
