"""`iris gateway` as processes: two clouds on real sockets, whose gateways are killed, stopped and changed."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import iris_py
from iris_py.gateway import open_gateway, reload_gateway
from tests import warm
from tests.integration.clouds import Cloud, statuses, until_lines
from tests.integration.conftest import PATIENCE_S, until
from tests.integration.test_cli import finish, read_line

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Mapping
    from pathlib import Path

    from tests.integration.clouds import GatewayProcess
    from tests.integration.conftest import Loops

EXPORT = '[[export]]\nto = ["us"]\ncluster = "scorers-v2"\nas = "scorers"\n'
IMPORT = '[[import]]\nfrom = ["eu"]\ncluster = ">"\n'
REQUESTS = 300
IN_FLIGHT = 24


class Pair:
    """Two clouds: ``us`` asks, ``eu`` serves.

    Attributes:
        us: The one.
        eu: The other.
        executed: The requests that members in ``eu`` have had, with the cloud that they came from.
    """

    def __init__(self, directory: Path) -> None:
        self.us, self.eu = Cloud("us", directory), Cloud("eu", directory)
        self.executed: list[tuple[str, bytes]] = []

    async def handle(self, request: iris_py.Request) -> bytes:
        """Answer at once: what is begun is done, however soon its gateway dies."""
        self.executed.append((request.cloud, request.payload))
        return b"scored " + request.payload

    async def start_eu(self, seed: str, count: int = 1, rules: str = EXPORT) -> list[GatewayProcess]:
        """Start gateways of ``eu``, which wait for those of ``us``."""
        self.eu.write(self.us, rules)
        return await self.eu.start(seed, count=count)

    async def start_us(self, seed: str, to: list[GatewayProcess], count: int = 1, rules: str = IMPORT) -> list[GatewayProcess]:
        """Start gateways of ``us``, which only dial."""
        self.us.write(self.eu, rules, dial=[gateway.address for gateway in to], listens=False)
        return await self.us.start(seed, count=count)

    def end(self) -> None:
        self.us.end()
        self.eu.end()


@pytest.fixture
def pair(home: Path) -> Iterator[Pair]:
    pair = Pair(home)
    try:
        yield pair
    finally:
        pair.end()


def with_nodes(
    loop: Loops, pair: Pair, main: Callable[[iris_py.Node, iris_py.Node], Coroutine[Any, Any, None]], *, serves: bool = True
) -> None:
    """Run a test with a node of each cloud in this process; that of ``eu`` serves."""

    async def run() -> None:
        async with pair.us.connect() as us, pair.eu.connect() as eu:
            if serves:
                await eu.join("scorers-v2", pair.handle)
            await main(us, eu)

    loop.run(run(), patience_s=120.0)


async def ask_much(
    node: iris_py.Node, at: Mapping[int, Callable[[], Coroutine[Any, Any, object]]], *, idempotent: bool = False
) -> None:
    """Ask many times, many at once, and do something else beside it when so many have been answered; none may fail."""
    numbers, done = iter(range(REQUESTS)), 0
    beside: list[asyncio.Task[object]] = []

    async def work() -> None:
        nonlocal done
        for number in numbers:
            payload = b"%d" % number
            key = payload if idempotent else None
            reply = await node.request("scorers@eu", payload, timeout=60, idempotent=idempotent, key=key)
            assert reply == b"scored " + payload
            done += 1
            if done in at:
                beside.append(asyncio.create_task(at[done]()))

    async with asyncio.TaskGroup() as tasks:
        for _ in range(IN_FLIGHT):
            tasks.create_task(work())
    await asyncio.gather(*beside)
    assert len(beside) == len(at)


# -- requests


def test_a_request_goes_through_two_gateways(loop: Loops, pair: Pair) -> None:
    async def main(us: iris_py.Node, eu: iris_py.Node) -> None:
        await pair.start_us(us.address, await pair.start_eu(eu.address))
        await until_lines(us, "eu", 1)
        assert await us.request("scorers@eu", b"1", idempotent=True) == b"scored 1"
        assert await us.request("scorers@eu", b"2") == b"scored 2"
        assert pair.executed == [("us", b"1"), ("us", b"2")]
        for name in ("scorers-v2@eu", "other@eu"):
            with pytest.raises(iris_py.NotExported) as not_exported:
                await us.request(name, b"3")
            assert (not_exported.value.cluster, not_exported.value.cloud) == (name, "eu")
        with pytest.raises(iris_py.CloudUnavailable):
            await us.request("scorers@asia", b"3")
        with pytest.raises(iris_py.NotExported):
            await eu.request("anything@us", b"3")
        assert len(pair.executed) == 2

    with_nodes(loop, pair, main)


def test_nobody_serves_what_is_exported(loop: Loops, pair: Pair) -> None:
    async def main(us: iris_py.Node, eu: iris_py.Node) -> None:
        await pair.start_us(us.address, await pair.start_eu(eu.address))
        await until_lines(us, "eu", 1)
        with pytest.raises(iris_py.NoMembers) as nobody:
            await us.request("scorers@eu", b"1")
        assert type(nobody.value) is iris_py.NoMembers
        waiting = asyncio.create_task(us.request("scorers@eu", b"2", idempotent=True, timeout=60))
        await eu.join("scorers-v2", pair.handle)
        assert await waiting == b"scored 2"

    with_nodes(loop, pair, main, serves=False)


def test_one_side_dials_and_both_ask(loop: Loops, pair: Pair) -> None:
    async def main(us: iris_py.Node, eu: iris_py.Node) -> None:
        rules = EXPORT + '[[import]]\nfrom = ["us"]\ncluster = "billing"\n'
        far = await pair.start_eu(eu.address, rules=rules)
        await pair.start_us(us.address, far, rules=IMPORT + '[[export]]\nto = ["eu"]\ncluster = "billing"\n')
        await until_lines(us, "eu", 1)
        await until_lines(eu, "us", 1)
        await us.join("billing", lambda request: request.cloud.encode())
        assert await us.request("scorers@eu", b"1", idempotent=True) == b"scored 1"
        assert await eu.request("billing@us", b"", idempotent=True) == b"eu"

    with_nodes(loop, pair, main)


# -- gateways that die, and that leave


def test_gateways_killed_under_load_fail_nothing_idempotent(loop: Loops, pair: Pair) -> None:
    async def main(us: iris_py.Node, eu: iris_py.Node) -> None:
        far = await pair.start_eu(eu.address, 2)
        near = await pair.start_us(us.address, far, 2)
        await until_lines(us, "eu", 4)
        at = {
            REQUESTS // 4: near[0].kill,
            REQUESTS // 2: far[0].kill,
        }
        await ask_much(us, at, idempotent=True)
        payloads = [payload for _cloud, payload in pair.executed]
        assert sorted(payloads, key=int) == [b"%d" % number for number in range(REQUESTS)], "a key is executed once"
        await until_lines(us, "eu", 1)

    with_nodes(loop, pair, main)


def test_the_only_gateway_comes_again(loop: Loops, pair: Pair) -> None:
    """Idempotent requests wait for it; the new one has another port, which the other side is told by its file."""

    async def main(us: iris_py.Node, eu: iris_py.Node) -> None:
        (far,) = await pair.start_eu(eu.address)
        (near,) = await pair.start_us(us.address, [far])
        await until_lines(us, "eu", 1)
        await far.kill()
        await near.wait_for("the cloud 'eu' cannot be reached")
        waiting = asyncio.create_task(us.request("scorers@eu", b"1", idempotent=True, timeout=60))
        (again,) = await pair.eu.start(eu.address)
        pair.us.write(pair.eu, IMPORT, dial=[again.address], listens=False)
        await near.reload()
        assert await waiting == b"scored 1"
        assert again.address != far.address

    with_nodes(loop, pair, main)


#: The events of the log about a line, and the cloud to which it leads.
CHANGES = {"line_open", "line_lost", "line_silent", "line_heard", "line_closed", "cloud_up", "cloud_down", "cloud_left"}


def test_the_log_says_when_a_cloud_is_lost_and_why_and_does_not_read_like_the_end_of_this_gateway(
    loop: Loops, pair: Pair
) -> None:
    async def main(us: iris_py.Node, eu: iris_py.Node) -> None:
        (far,) = await pair.start_eu(eu.address)
        (near,) = await pair.start_us(us.address, [far])
        await until_lines(us, "eu", 1)
        await near.wait_for(f" INFO line_open: the cloud link to 'eu' at {far.address} is open")
        await near.wait_for(" INFO cloud_up: reached the cloud 'eu'")
        await far.kill()
        (lost,) = await near.wait_for(
            f" WARNING line_lost: the cloud link to 'eu' at {far.address} is lost: the connection broke"
        )
        (down,) = await near.wait_for(" WARNING cloud_down: the cloud 'eu' cannot be reached from this gateway: ")
        assert down.endswith(f"the cloud link to {far.address}: the connection broke")
        await near.wait_for(f" WARNING dial_failed: the gateway of 'eu' at {far.address} cannot be dialled: it refuses")
        events = [re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (INFO|WARNING) (\w+): .", line) for line in near.lines]
        assert all(events), near.lines
        names = [event[2] for event in events if event is not None and event[2] in CHANGES]
        assert names == ["line_open", "cloud_up", "line_lost", "cloud_down"]
        assert lost.split(" ")[0] <= down.split(" ")[0]
        assert not [line for line in near.lines if "leav" in line]
        assert await near.stop() == 0
        assert not [line for line in near.lines if "WARNING" in line and "this gateway is leaving" in line]

    with_nodes(loop, pair, main)


def test_a_line_that_falls_silent_is_said_and_what_waits_meanwhile_is_no_shutdown(loop: Loops, pair: Pair) -> None:
    async def main(us: iris_py.Node, eu: iris_py.Node) -> None:
        (far,) = await pair.start_eu(eu.address)
        (near,) = await pair.start_us(us.address, [far])
        await until_lines(us, "eu", 1)
        far.process.send_signal(signal.SIGSTOP)
        try:
            asking = asyncio.create_task(us.request("scorers@eu", b"1", timeout=60))
            await near.wait_for(f" WARNING line_silent: nothing was heard over the cloud link to 'eu' at {far.address} for ")
            (down,) = await near.wait_for(" WARNING cloud_down: ")
            assert f"the cloud link to {far.address}: nothing was heard for " in down
            await near.wait_for(" WARNING leaving_waits: the cloud 'eu' cannot be reached: this node waits for ")
            assert not [line for line in near.lines if " leaving 'iris.gateway" in line]
        finally:
            far.process.send_signal(signal.SIGCONT)
        await asyncio.gather(asking, return_exceptions=True)  # an answer, or a lost gateway if the line was given up
        await until_lines(us, "eu", 1)

    with_nodes(loop, pair, main)


@pytest.mark.parametrize("side", ["us", "eu"])
def test_a_gateway_that_is_stopped_fails_nothing(loop: Loops, pair: Pair, side: str) -> None:
    """Not even what must not be asked twice."""

    async def main(us: iris_py.Node, eu: iris_py.Node) -> None:
        far = await pair.start_eu(eu.address, 2)
        near = await pair.start_us(us.address, far, 2)
        await until_lines(us, "eu", 4)
        stopped = (near if side == "us" else far)[0]
        codes = []

        async def stop() -> None:
            codes.append(await stopped.stop())

        await ask_much(us, {REQUESTS // 3: stop})
        assert codes == [0]
        assert len(pair.executed) == REQUESTS
        await until_lines(us, "eu", 2)

    with_nodes(loop, pair, main)


def test_gateways_that_are_stopped_one_after_the_other_cost_a_subscriber_nothing(loop: Loops, pair: Pair) -> None:
    """One of two in each cloud, while a publisher there publishes and a node here listens."""

    async def main(us: iris_py.Node, eu: iris_py.Node) -> None:
        far = await pair.start_eu(eu.address, 2, rules='[[export]]\nto = ["us"]\ntopic = "clicks.>"\n')
        near = await pair.start_us(us.address, far, 2, rules='[[import]]\nfrom = ["eu"]\ntopic = "clicks.>"\n')
        await until_lines(us, "eu", 4)
        got: list[iris_py.Message] = []
        count, is_over = 0, asyncio.Event()

        async def publish() -> None:
            nonlocal count
            while not is_over.is_set():
                await eu.publish(f"clicks.{'ab'[count % 2]}", b"%d" % count)
                await eu.publish("elsewhere", b"")
                count += 1
                await asyncio.sleep(0.002)

        subscription = await us.subscribe("clicks.>@eu", got.append)
        publishing = asyncio.create_task(publish())
        for stopped in (near[0], far[0]):
            before = len(got)
            await until(lambda before=before: len(got) > before + 100, "messages")  # type: ignore[misc]
            assert await stopped.stop() == 0
        await until_lines(us, "eu", 1)
        before = len(got)
        await until(lambda: len(got) > before + 100, "messages after all")
        is_over.set()
        await publishing
        await until(lambda: len(got) == count, "all messages", lambda: [f"{len(got)} of {count}", *near[1].lines])
        assert [int(message.payload) for message in got] == list(range(count))
        # A move may fall between two messages here: then the gap counts the message that was published elsewhere.
        assert all(message.gap <= 1 and not message.has_unknown_gap for message in got)
        await subscription.close()

    with_nodes(loop, pair, main, serves=False)


def test_an_interrupt_ends_a_gateway(loop: Loops, pair: Pair) -> None:
    async def main(us: iris_py.Node, eu: iris_py.Node) -> None:
        (far,) = await pair.start_eu(eu.address)
        (near,) = await pair.start_us(us.address, [far])
        await until_lines(us, "eu", 1)
        assert await near.stop(signal.SIGINT) == 130
        await far.wait_for("the cloud 'us' cannot be reached")
        with pytest.raises(iris_py.CloudUnavailable):
            await us.request("scorers@eu", b"1")

    with_nodes(loop, pair, main)


# -- changes while they run


def test_an_export_is_added_while_it_runs(loop: Loops, pair: Pair) -> None:
    async def main(us: iris_py.Node, eu: iris_py.Node) -> None:
        (far,) = await pair.start_eu(eu.address)
        await pair.start_us(us.address, [far])
        await until_lines(us, "eu", 1)
        await eu.join("lookups", lambda request: b"found " + request.payload)
        with pytest.raises(iris_py.NotExported):
            await us.request("lookups@eu", b"1")
        pair.eu.write(pair.us, EXPORT + '[[export]]\nto = ["us"]\ncluster = "lookups"\n')
        await far.reload()
        await until_offered(us, "lookups")
        assert await us.request("lookups@eu", b"1") == b"found 1"
        assert await us.request("scorers@eu", b"1") == b"scored 1"

        pair.eu.file.write_text(pair.eu.file.read_text().replace("lookups", "look ups").replace("as =", "az ="))
        far.process.send_signal(signal.SIGHUP)
        mistakes = await far.wait_for("the settings were not changed: ")
        assert "Z ERROR settings_kept: the settings were not changed: federation.toml:" in mistakes[0], mistakes
        assert await us.request("lookups@eu", b"2") == b"found 2"
        assert await us.request("scorers@eu", b"2") == b"scored 2"

        pair.eu.write(pair.us, EXPORT)
        await far.reload()
        await until_offered(us, "lookups", is_offered=False)
        with pytest.raises(iris_py.NotExported):
            await us.request("lookups@eu", b"3")

    with_nodes(loop, pair, main)


async def until_offered(node: iris_py.Node, name: str, *, is_offered: bool = True) -> None:
    """Wait until the catalogue of the other side, as the gateway of a node has it, names something, or does not any more."""
    async with asyncio.timeout(60):
        while True:
            bundles = [bundle for status in await statuses(node) for bundle in status["clouds"]["eu"]["bundles"]]
            if bundles and all((name in bundle["catalogue"]) is is_offered for bundle in bundles):
                return
            await asyncio.sleep(0.01)


def test_a_key_is_changed_without_a_break(loop: Loops, pair: Pair) -> None:
    """Neighbours accept the new one beside the old one, the owner takes it, neighbours remove the old one: in both clouds."""

    async def main(us: iris_py.Node, eu: iris_py.Node) -> None:
        far = await pair.start_eu(eu.address, 2)
        near = await pair.start_us(us.address, far, 2)
        await until_lines(us, "eu", 4)
        changes = [(pair.eu, far, eu, pair.us, near), (pair.us, near, us, pair.eu, far)]
        for cloud, gateways, seed, other, others in changes:
            old = cloud.key.public_text
            cloud.change_key()
            new = cloud.key.public_text

            def rewrite(keys: list[str], *, is_owner: bool = False, cloud: Cloud = cloud, other: Cloud = other) -> None:
                dial = [gateway.address for gateway in far]
                pairs = {False: (other, cloud, keys), True: (cloud, other, [])}
                one, its_neighbour, its_keys = pairs[is_owner]
                if one is pair.us:
                    one.write(its_neighbour, IMPORT, dial=dial, listens=False, keys=its_keys)
                else:
                    one.write(its_neighbour, EXPORT, keys=its_keys)

            rewrite([old, new])
            for gateway in others:
                await gateway.reload()
            for index in range(2):
                before = gateways[index]
                gateways[index] = (await cloud.start(seed.address))[0]
                if cloud is pair.eu:
                    rewrite([old, new])  # the new one has another port
                    for gateway in others:
                        await gateway.reload()
                assert await us.request("scorers@eu", b"1", idempotent=True, timeout=60) == b"scored 1"
                assert await before.stop() == 0
                assert await us.request("scorers@eu", b"2", idempotent=True, timeout=60) == b"scored 2"
            rewrite([new])
            for gateway in others:
                await gateway.reload()
            await until_lines(us, "eu", 4)
            assert await us.request("scorers@eu", b"3") == b"scored 3"

    with_nodes(loop, pair, main)


def test_a_key_that_is_removed_is_shut_out(loop: Loops, pair: Pair) -> None:
    async def main(us: iris_py.Node, eu: iris_py.Node) -> None:
        (far,) = await pair.start_eu(eu.address)
        (near,) = await pair.start_us(us.address, [far])
        await until_lines(us, "eu", 1)
        stranger = Cloud("stranger", pair.us.file.parent)
        pair.eu.write(pair.us, EXPORT, keys=[stranger.key.public_text])
        await far.reload()
        await near.wait_for("the cloud 'eu' cannot be reached")
        with pytest.raises(iris_py.CloudUnavailable):
            await us.request("scorers@eu", b"1")

    with_nodes(loop, pair, main)


def test_a_neighbour_with_a_wrong_key_is_a_line_on_each_side_and_not_one_for_each_dial(loop: Loops, pair: Pair) -> None:
    async def main(us: iris_py.Node, eu: iris_py.Node) -> None:
        stranger = Cloud("stranger", pair.us.file.parent)
        pair.eu.write(pair.us, EXPORT, keys=[stranger.key.public_text])
        (far,) = await pair.eu.start(eu.address)
        (near,) = await pair.start_us(us.address, [far])
        (said,) = await near.wait_for(f"the gateway of 'eu' at {far.address} refuses cloud links from this gateway")
        assert pair.us.key.public_text in said, "what the other side has to write"
        await far.wait_for("dialled this gateway and was refused: its key is not the key of a neighbour")

        async def until_dialled_again() -> None:
            while True:
                (status,) = await statuses(us)
                if sum(slot["failures"] for slot in status["clouds"]["eu"]["dials"]) >= 4:
                    return
                await asyncio.sleep(0.05)

        await asyncio.wait_for(until_dialled_again(), PATIENCE_S)
        for gateway in (near, far):
            assert len([line for line in gateway.lines if " WARNING handshake_refused: " in line and "refuse" in line]) == 1, (
                gateway.lines
            )

    with_nodes(loop, pair, main)


def test_something_else_that_listens_is_said(loop: Loops, pair: Pair) -> None:
    async def main(us: iris_py.Node, _eu: iris_py.Node) -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(4096)
            writer.write(b"HTTP/1.0 400 Bad Request\r\n\r\n")
            writer.close()

        async with await asyncio.start_server(answer, "127.0.0.1", 0) as other:
            address = f"127.0.0.1:{other.sockets[0].getsockname()[1]}"
            pair.us.write(pair.eu, IMPORT, dial=[address], listens=False)
            (near,) = await pair.us.start(us.address)
            (said,) = await near.wait_for(f"the gateway of 'eu' at {address} refuses cloud links from this gateway")
            assert "Another program may listen there" in said
            assert await near.stop() == 0

    with_nodes(loop, pair, main)


# -- what is wrong from the beginning


@pytest.mark.parametrize(
    ("old", "new", "errors"),
    [
        (
            "dial = ",
            "diel = ",
            ["federation.toml:4: [cloud.eu] has no dial, and", "federation.toml:6: [cloud.eu] has no key 'diel'"],
        ),
        ('cluster = ">"', 'cluster = "a..b"', ["federation.toml:9: [[import]] cluster"]),
        ('"identity"', '"no-identity"', ["identity_file: "]),
        ('"identity"', '"secret"', ["identity_file: "]),
    ],
)
def test_each_mistake_is_a_line(pair: Pair, old: str, new: str, errors: list[str]) -> None:
    pair.us.write(pair.eu, IMPORT, dial=["127.0.0.1:1"], listens=False)
    pair.us.file.write_text(pair.us.file.read_text().replace(old, new))
    gateway = pair.us.begin()
    assert gateway.wait() == 2
    assert len(gateway.lines) == len(errors), gateway.lines
    for line, error in zip(gateway.lines, errors, strict=True):
        assert line.startswith(f"iris: {error}"), gateway.lines


def test_a_gateway_without_its_secret_or_its_file(pair: Pair) -> None:
    pair.us.write(pair.eu, IMPORT, dial=["127.0.0.1:1"], listens=False)
    pair.us.secret_file.unlink()
    without_secret = pair.us.begin()
    pair.eu.file = pair.eu.file.with_name("none.toml")
    without_file = pair.eu.begin()
    assert without_secret.wait() == without_file.wait() == 2
    assert [line.split(" ")[1] for line in without_secret.lines] == ["--secret-file:"]
    assert ["none.toml cannot be read" in line for line in without_file.lines] == [True]


@pytest.mark.parametrize("name", ["federation.toml", "identity"])
def test_a_file_that_others_may_write(pair: Pair, name: str) -> None:
    pair.us.write(pair.eu, IMPORT, dial=["127.0.0.1:1"], listens=False)
    pair.us.file.with_name(name).chmod(0o666)
    gateway = pair.us.begin()
    assert gateway.wait() == 2
    assert [name in line and "chmod" in line for line in gateway.lines] == [True], gateway.lines


def test_an_identity_that_others_may_read(loop: Loops, pair: Pair) -> None:
    async def main(_us: iris_py.Node, eu: iris_py.Node) -> None:
        pair.eu.file.with_name("identity").chmod(0o644)
        (far,) = await pair.start_eu(eu.address)
        assert "chmod" in (await far.wait_for("identity"))[0]

    with_nodes(loop, pair, main)


def test_a_port_that_is_taken(loop: Loops, pair: Pair) -> None:
    async def main(_us: iris_py.Node, eu: iris_py.Node) -> None:
        (far,) = await pair.start_eu(eu.address)
        pair.eu.file.write_text(pair.eu.file.read_text().replace("127.0.0.1:0", far.address))
        second = pair.eu.begin(eu.address)
        assert await asyncio.to_thread(second.wait) == 2
        assert [f"cannot listen on {far.address} for other clouds" in line for line in second.lines] == [True]

    with_nodes(loop, pair, main)


# -- what operators see


def run_iris(cloud: Cloud, *arguments: str) -> tuple[int, bytes, str]:
    return finish(
        warm.Process(
            [sys.executable, "-m", "iris_py.cli", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=cloud.environment() | {"COLUMNS": "200"},
        )
    )


def test_status_shows_every_gateway_and_line(loop: Loops, pair: Pair) -> None:
    async def main(us: iris_py.Node, eu: iris_py.Node) -> None:
        status = ["federation", "status", *pair.us.options(us.address)]
        code, out, error = await asyncio.to_thread(run_iris, pair.us, *status)
        assert (code, out) == (3, b"")
        assert error.startswith("iris: no gateway runs in this network. ")

        far = await pair.start_eu(eu.address, 2)
        near = await pair.start_us(us.address, far, 2)
        await until_lines(us, "eu", 4)
        assert [(cloud.alias, cloud.is_up, cloud.gateways) for cloud in await us.clouds()] == [("eu", True, 2)]
        await us.request("scorers@eu", b"1")  # which one gateway passes on: what is idempotent and late, another one does, too

        code, out, error = await asyncio.to_thread(run_iris, pair.us, *status, "--json")
        assert (code, error) == (0, "")
        *gateways, summary = map(json.loads, out.splitlines())
        assert (summary["kind"], summary["gateways"]) == ("summary", len(gateways))
        assert sorted(one["node"] for one in gateways) == sorted(one.id for one in near)
        for one in gateways:
            assert (one["name"], one["listens"], one["identity"]) == ("us", "", pair.us.key.public_text)
            assert one["clouds"]["eu"]["is_up"] is True
            assert {bundle["address"] for bundle in one["clouds"]["eu"]["bundles"]} == {other.address for other in far}
        passed = [rule["requests"] for one in gateways for rule in one["clouds"]["eu"]["accounts"]["rules"]]
        assert passed == [{"done": 1}]

        code, out, error = await asyncio.to_thread(run_iris, pair.us, *status)
        assert (code, error) == (0, "")
        text = out.decode()
        for gateway in near:
            assert f"gateway {gateway.id[:8]} of 'us', only dials" in text
        assert text.count("eu: up") == 2

        for gateway in far:
            await gateway.kill()
        for gateway in near:
            await gateway.wait_for("cannot be reached")
        code, out, _ = await asyncio.to_thread(run_iris, pair.us, *status)
        assert code == 0
        assert out.decode().count("eu: down") == 2

    with_nodes(loop, pair, main)


def begin_to_subscribe(cloud: Cloud, pattern: str, seed: str) -> subprocess.Popen[bytes]:
    return warm.Process(
        [sys.executable, "-m", "iris_py.cli", "subscribe", pattern, *cloud.options(seed)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=cloud.environment(),
    )


def test_subscribing_prints_what_another_cloud_publishes(loop: Loops, pair: Pair) -> None:
    """Without an option, though only few clouds let others make their publishers wait."""

    async def main(us: iris_py.Node, eu: iris_py.Node) -> None:
        (far,) = await pair.start_eu(eu.address, rules='[[export]]\nto = ["us"]\ntopic = "clicks.>"\n')
        await pair.start_us(us.address, [far], rules='[[import]]\nfrom = ["eu"]\ntopic = "clicks.>"\n')
        await until_lines(us, "eu", 1)
        with begin_to_subscribe(pair.us, "clicks.>@eu", us.address) as subscriber:
            assert subscriber.stdout is not None
            assert subscriber.stderr is not None
            said = await asyncio.to_thread(read_line, subscriber.stderr)
            assert "subscribes to 'clicks.>@eu'" in said
            await eu.publish("clicks.shop", b"one")
            assert await asyncio.to_thread(subscriber.stdout.readline) == b"clicks.shop one\n"
            subscriber.terminate()

    with_nodes(loop, pair, main)


def test_files_made_by_commands_make_a_gateway(loop: Loops, pair: Pair) -> None:
    """As the operator of a cloud begins: a secret, an identity, and its public half for the neighbour."""

    async def main(us: iris_py.Node, eu: iris_py.Node) -> None:
        directory = pair.eu.file.parent
        (directory / "identity").unlink()
        code, out, _ = await asyncio.to_thread(run_iris, pair.eu, "keys", "identity", "-o", str(directory / "identity"))
        assert code == 0
        shown = await asyncio.to_thread(run_iris, pair.eu, "keys", "public", str(directory / "identity"))
        assert shown[1] == out
        (far,) = await pair.start_eu(eu.address)
        assert far.described["identity"] == out.decode().strip()
        pair.us.write(pair.eu, IMPORT, dial=[far.address], listens=False, keys=[out.decode().strip()])
        await pair.us.start(us.address)
        await until_lines(us, "eu", 1)
        code, out, error = await asyncio.to_thread(
            run_iris, pair.us, "request", "scorers@eu", "hello", *pair.us.options(us.address)
        )
        assert (code, out, error) == (0, b"scored hello", "")
        code, out, error = await asyncio.to_thread(
            run_iris, pair.us, "request", "none@eu", "hello", *pair.us.options(us.address)
        )
        assert (code, out, error.count("\n")) == (3, b"", 1)

    with_nodes(loop, pair, main)


# -- gateways of programs


def test_gateways_in_a_program(loop: Loops, pair: Pair) -> None:
    async def main(us: iris_py.Node, eu: iris_py.Node) -> None:
        pair.eu.write(pair.us, EXPORT)
        async with open_gateway(eu, pair.eu.file) as far:
            pair.us.write(pair.eu, IMPORT, dial=[far.address], listens=False)
            near = await open_gateway(us, str(pair.us.file))
            seen: list[tuple[str, bool]] = []
            near.on_changed = lambda alias, is_usable: seen.append((alias, is_usable))
            assert await us.request("scorers@eu", b"1", idempotent=True, timeout=60) == b"scored 1"
            assert seen == [("eu", True)]

            pair.eu.write(pair.us, EXPORT.replace("scorers-v2", "none"))
            await reload_gateway(far, pair.eu.file)
            pair.eu.write(pair.us, EXPORT.replace("to", "for"))
            with pytest.raises(iris_py.ConfigurationError, match=r"federation.toml:\d+: "):
                await reload_gateway(far, pair.eu.file)
            with pytest.raises(iris_py.NoMembers):
                await us.request("scorers@eu", b"2")
            pair.eu.write(pair.us, EXPORT)
            pair.eu.change_key()
            with pytest.raises(iris_py.ConfigurationError, match="the identity has changed"):
                await reload_gateway(far, pair.eu.file)
            pair.us.write(pair.eu, IMPORT)
            with pytest.raises(iris_py.ConfigurationError, match="listen"):
                await reload_gateway(near, pair.us.file)
        await loop.until(lambda: seen == [("eu", True), ("eu", False)])
        await near.close()
        assert await eu.request("scorers-v2", b"3") == b"scored 3", "the node stays when its gateway goes"

    with_nodes(loop, pair, main)


@pytest.mark.parametrize(("allowed", "strangers"), [(256, 16), (65_536, 256)])
def test_a_gateway_with_few_descriptors_keeps_few_strangers(
    loop: Loops, pair: Pair, monkeypatch: pytest.MonkeyPatch, allowed: int, strangers: int
) -> None:
    monkeypatch.setattr("iris_py.net.process.raise_limit", lambda: allowed)

    async def main(_us: iris_py.Node, eu: iris_py.Node) -> None:
        pair.eu.write(pair.us, EXPORT)
        async with open_gateway(eu, pair.eu.file) as far:
            assert far.core.lines.handshakes_max == strangers

    with_nodes(loop, pair, main)


def test_a_gateway_of_a_program_with_mistakes(loop: Loops, pair: Pair) -> None:
    async def main(us: iris_py.Node, _eu: iris_py.Node) -> None:
        with pytest.raises(iris_py.ConfigurationError, match="cannot be read"):
            await open_gateway(us, pair.us.file.with_name("none.toml"))
        pair.us.write(pair.us, IMPORT.replace("eu", "us"))
        with pytest.raises(iris_py.ConfigurationError, match="the key of this cloud itself"):
            await open_gateway(us, pair.us.file)
        pair.us.write(pair.eu, '[[export]]\nto = ["eu"]\ncluster = "vault"\n')
        own = iris_py.connect(secret=pair.us.secret, network="us", clusters={"vault": pair.eu.secret})
        async with own as node:
            with pytest.raises(iris_py.ConfigurationError, match="which has its own secret"):
                await open_gateway(node, pair.us.file)

    with_nodes(loop, pair, main)
