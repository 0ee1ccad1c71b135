"""`iris doctor` and `/readyz` beside gateways that are real processes: what they say of another cloud, and of the way to it."""

from __future__ import annotations

import asyncio
import json
import signal
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

import iris_py as iris
from iris_py.cli.settings import Settings
from iris_py.doctor.check import Finding, FindingStatus, Subject
from iris_py.doctor.examination import choose, examine
from iris_py.doctor.host import Host
from iris_py.doctor.real_surroundings import Actual
from tests.integration.clouds import until_lines
from tests.integration.conftest import PATIENCE_S
from tests.integration.test_doctor import SILENT
from tests.integration.test_gateway import EXPORT, Pair, with_nodes
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import iris_py
    from tests.integration.conftest import Loops

THERE = "scorers@eu"


@pytest.fixture
def pair(home: Path) -> Iterator[Pair]:
    pair = Pair(home)
    try:
        yield pair
    finally:
        pair.end()


async def look(pair: Pair, node: iris_py.Node, name: str, cluster: str | None = None) -> Finding:
    """Make one check in the cloud of a node."""
    cloud = pair.us if node.network == "us" else pair.eu
    settings = Settings({"secret_file": cloud.secret_file, "network": cloud.name, "seeds": [node.address], "discovery": False})
    async with Actual(settings, Host(SILENT)) as surroundings:
        found = {each.check.name: each async for each in examine(Subject(surroundings, cluster), choose([name], []))}
    return found[name].finding


async def until_found(
    pair: Pair, node: iris_py.Node, status: FindingStatus, *parts: str, name: str = "clouds", cluster: str | None = None
) -> Finding:
    """Repeat a check until it finds something: gateways notice a fault at different times."""
    found = None
    try:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                found = await look(pair, node, name, cluster)
                if found.status is status and all(part in found.cause for part in parts):
                    return found
    except TimeoutError:
        raise AssertionError(f"{status} with {parts}, and not {found}") from None


async def ask(address: str, path: str = "/readyz") -> tuple[int, dict[str, Any]]:
    def read() -> tuple[int, dict[str, Any]]:
        try:
            with urllib.request.urlopen(f"http://{address}{path}", timeout=PATIENCE_S) as response:
                return response.status, json.loads(response.read())
        except urllib.error.HTTPError as exc:
            return exc.code, json.loads(exc.read())

    return await asyncio.to_thread(read)


def test_a_cloud_whose_gateways_are_gone_one_after_the_other(loop: Loops, pair: Pair) -> None:
    async def main(us: iris_py.Node, eu: iris_py.Node) -> None:
        one, other = there = await pair.start_eu(eu.address, count=2)
        await pair.start_us(us.address, there)
        await until_lines(us, "eu", 2)
        found = await until_found(pair, us, FindingStatus.OK, "1 gateway; 'eu' over 2 cloud links, round trip")
        assert not found.advice
        await one.kill()
        await until_found(
            pair, us, FindingStatus.WARNING, "has 1 of 2 cloud links to 'eu'", f"{one.address}: nobody listens there"
        )
        await other.kill()
        addresses = one.address, other.address
        found = await until_found(
            pair, us, FindingStatus.FAULT, "the cloud 'eu' cannot be reached from the only gateway", *addresses
        )
        assert "nc -vz 127.0.0.1 " + one.address.rpartition(":")[2] in found.hints
        found = await until_found(
            pair, us, FindingStatus.FAULT, f"forwards nothing to {THERE!r}", name="cluster", cluster=THERE
        )
        assert "firewall" in found.advice

    with_nodes(loop, pair, main)


def test_a_gateway_that_dialled_and_is_gone_is_missed_until_another_one_dials(loop: Loops, pair: Pair) -> None:
    async def main(us: iris_py.Node, eu: iris_py.Node) -> None:
        there = await pair.start_eu(eu.address)
        one, other = await pair.start_us(us.address, there, count=2)
        await until_found(pair, eu, FindingStatus.OK, "'us' over 2 cloud links")
        await one.kill()
        await until_found(pair, eu, FindingStatus.WARNING, "has 1 of 2 cloud links to 'us': one from 127.0.0.1 ended")
        await pair.start_us(us.address, there)
        await until_found(pair, eu, FindingStatus.OK, "'us' over 2 cloud links")
        await other.stop()
        await until_found(pair, eu, FindingStatus.OK, "'us' over 1 cloud link")  # one that says that it leaves is not missed

    with_nodes(loop, pair, main)


def test_a_gateway_that_falls_silent_is_found_before_anybody_asks_for_something(loop: Loops, pair: Pair) -> None:
    async def main(us: iris_py.Node, eu: iris_py.Node) -> None:
        [there] = await pair.start_eu(eu.address)
        await pair.start_us(us.address, [there])
        await until_lines(us, "eu", 1)
        there.process.send_signal(signal.SIGSTOP)
        try:
            # The line rests: without the probe of the doctor it would be well for up to eight seconds.
            found = await look(pair, us, "clouds")
        finally:
            there.process.send_signal(signal.SIGCONT)
        assert found.status is FindingStatus.FAULT
        assert there.address in found.cause

    with_nodes(loop, pair, main)


def test_the_way_to_a_cluster_of_another_cloud_is_examined_and_nothing_is_executed(loop: Loops, pair: Pair) -> None:
    async def main(us: iris_py.Node, eu: iris_py.Node) -> None:
        there = await pair.start_eu(eu.address, count=2)
        await pair.start_us(us.address, there)
        await until_lines(us, "eu", 2)
        found = await until_found(pair, us, FindingStatus.FAULT, "but nobody serves it there", name="cluster", cluster=THERE)
        assert found.cause == "'eu' exports 'scorers', but nobody serves it there"
        await eu.join("scorers-v2", pair.handle)
        says = "1 gateway would forward a request over 2 cloud links", "1 member there"
        await until_found(pair, us, FindingStatus.OK, *says, name="cluster", cluster=THERE)
        for name, part in (
            ("files@eu", "it does not export this name to this cloud"),
            ("scorers@asia", "no [cloud.asia]; it knows: eu"),
        ):
            found = await look(pair, us, "cluster", name)
            assert found.status is FindingStatus.FAULT
            assert part in found.cause
        assert pair.executed == []

    with_nodes(loop, pair, main, serves=False)


def test_rules_that_match_nothing_and_gateways_with_different_files(loop: Loops, pair: Pair) -> None:
    async def main(us: iris_py.Node, eu: iris_py.Node) -> None:
        [one] = await pair.start_eu(eu.address)
        rules = '[[import]]\nfrom = ["eu"]\ncluster = "scorers"\n[[import]]\nfrom = ["eu"]\ncluster = "files"\n'
        await pair.start_us(us.address, [one], rules=rules)
        await until_lines(us, "eu", 1)
        found = await until_found(
            pair, us, FindingStatus.WARNING, "'eu' exports nothing for the imports of the cluster 'files'"
        )
        assert "export different things" not in found.cause
        [other] = await pair.start_eu(eu.address, rules=EXPORT + '[[export]]\nto = ["us"]\ncluster = "files"\n')
        pair.us.write(pair.eu, rules, dial=[one.address, other.address], listens=False)
        for gateway in pair.us.started:
            await gateway.reload()
        found = await until_found(pair, us, FindingStatus.WARNING, "the gateways of 'eu' export different things")
        assert "exports nothing" not in found.cause

    with_nodes(loop, pair, main)


@pytest.mark.parametrize("is_killed", [True, False])
def test_a_cloud_that_has_lost_all_its_own_gateways(loop: Loops, pair: Pair, is_killed: bool) -> None:
    """A death is a fault. Gateways that were stopped by intention are worth a warning."""

    async def main(us: iris_py.Node, eu: iris_py.Node) -> None:
        there = await pair.start_eu(eu.address)
        gateways = await pair.start_us(us.address, there, count=2)
        await until_lines(us, "eu", 2)
        assert await us.request(THERE, b"1", timeout=PATIENCE_S) is not None
        for gateway in gateways:
            await (gateway.kill() if is_killed else gateway.stop())
        status, how = (FindingStatus.FAULT, "died") if is_killed else (FindingStatus.WARNING, "left")
        says = "no gateway runs in this network: the last one, 127.0.0.1:", f", {how} ", " s ago", "no other cloud is reached"
        found = await until_found(pair, us, status, *says)
        assert found.hints == ("iris nodes --gone", "iris gateway federation.toml")
        found = await look(pair, us, "cluster", THERE)
        assert found.status is FindingStatus.FAULT
        assert f"no request goes to '{THERE}': no gateway runs here, the last one, 127.0.0.1:" in found.cause
        await pair.start_us(us.address, there)
        await until_found(pair, us, FindingStatus.OK, "1 gateway; 'eu' over 1 cloud link")

    with_nodes(loop, pair, main)


def test_a_cloud_that_asks_others_and_never_had_a_gateway(loop: Loops, pair: Pair) -> None:
    async def main(us: iris_py.Node, _eu: iris_py.Node) -> None:
        with pytest.raises(iris.IrisError):
            await us.request(THERE, b"1", timeout=1.0)
        found = await look(pair, us, "clouds")
        assert found.status is FindingStatus.FAULT
        assert found.cause == f"no gateway runs in this network, but nodes here use other clouds ({THERE})"

    with_nodes(loop, pair, main)


def test_a_network_without_gateways(loop: Loops, pair: Pair) -> None:
    async def main(us: iris_py.Node, _eu: iris_py.Node) -> None:
        found = await look(pair, us, "clouds")
        assert found.status is FindingStatus.OK
        assert found.cause == "no gateway runs in this network, and no node uses another cloud"
        assert "no gateway runs here" in (await look(pair, us, "cluster", THERE)).cause

    with_nodes(loop, pair, main)


def test_a_gateway_that_reaches_no_cloud_is_not_ready_and_lives(loop: Loops, pair: Pair) -> None:
    async def main(us: iris_py.Node, eu: iris_py.Node) -> None:
        [there] = await pair.start_eu(eu.address)
        status = f"127.0.0.1:{free_port()}"
        pair.us.write(pair.eu, dial=[there.address], listens=False)
        await pair.us.begin(us.address, http=status).wait_until_serving()
        await until_ready(status, lambda code, said: (code, said) == (200, {"status": "SERVING"}))
        await there.kill()
        why = f"no cloud link to 'eu' is usable: {there.address}: nobody listens there"
        await until_ready(status, lambda code, said: (code, said) == (503, {"status": "NOT_SERVING", "reasons": [why]}))
        assert await ask(status, "/healthz") == (200, {"status": "SERVING"}), "a restart would mend nothing"

    with_nodes(loop, pair, main)


async def until_ready(address: str, is_right: Callable[[int, dict[str, Any]], bool]) -> None:
    said = None
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not is_right(*(said := await ask(address))):
                pass
    except TimeoutError:
        raise AssertionError(said) from None


def test_a_gateway_that_its_neighbour_is_to_dial_stays_ready_and_says_what_it_does_not_reach(loop: Loops, pair: Pair) -> None:
    async def main(_us: iris_py.Node, eu: iris_py.Node) -> None:
        status = f"127.0.0.1:{free_port()}"
        pair.eu.write(pair.us, EXPORT)
        await pair.eu.begin(eu.address, http=status).wait_until_serving()
        note = "no cloud link to 'us' is usable: nobody there has dialled this gateway"
        await until_ready(status, lambda code, said: (code, said) == (200, {"status": "SERVING", "notes": [note]}))

    with_nodes(loop, pair, main)
