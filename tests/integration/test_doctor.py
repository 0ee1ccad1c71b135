"""`iris doctor` on real files, sockets and nodes: each fault is put in as it happens, and named."""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import socket
import subprocess
import sys
import threading
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest

import iris_py
import iris_py.sync
from iris_overlay.events import EchoReturned, RootLocated
from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_py.api.lifecycle import parts_of
from iris_py.cli.settings import Settings
from iris_py.config import load_config, make_keyring
from iris_py.doctor.check import FindingStatus, Subject
from iris_py.doctor.examination import Examined, choose, examine
from iris_py.doctor.host import Host
from iris_py.doctor.prober_node import ProberParts, start_prober
from iris_py.doctor.real_surroundings import Actual
from iris_security import AdministrationKey, Secret
from tests.integration.conftest import PATIENCE_S, until
from tests.pages import all_blocks
from tests.ports import dead_port, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator


def new_secret() -> str:
    return Secret.generate(os.urandom).text


@pytest.fixture(autouse=True)
def network_of_its_own(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each test have a secret of its own, so that it meets nobody else's nodes."""
    monkeypatch.setenv("IRIS_SECRET", new_secret())


#: A machine that says nothing of itself: of the one that the tests run on, the processors may be withheld.
SILENT = Path("/nowhere")


async def look(
    *only: str, cluster: str | None = None, host: Host | None = None, config: Path | None = None, **given: object
) -> dict[str, Examined]:
    """Make some checks, and what they need."""
    async with Actual(Settings(given, config), host or Host(SILENT)) as surroundings:
        return {each.check.name: each async for each in examine(Subject(surroundings, cluster), choose(only, ()))}


def faults(found: dict[str, Examined]) -> dict[str, str]:
    return {name: each.finding.cause for name, each in found.items() if each.finding.status is FindingStatus.FAULT}


def warnings(found: dict[str, Examined]) -> dict[str, str]:
    return {name: each.finding.cause for name, each in found.items() if each.finding.status is FindingStatus.WARNING}


@dataclass
class Nodes:
    """Nodes of this process, closed at the end of a test."""

    opened: list[iris_py.Node]

    async def start(self, **arguments: Any) -> iris_py.Node:
        node = await iris_py.connect(**arguments)
        self.opened.append(node)
        return node

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        for node in self.opened:
            await node.close(timeout=0.0)


async def refuse(_request: iris_py.Request) -> bytes:
    raise ValueError("no")


async def answer(_request: iris_py.Request) -> bytes:
    return b""


# -- what somebody has configured


def test_an_unknown_key_of_the_settings(home: Path) -> None:
    file = home / "iris.toml"
    file.write_text('listne = "127.0.0.1:0"\n')
    found = asyncio.run(look(config=file))
    assert list(faults(found)) == ["config"]
    assert "'listne'" in faults(found)["config"]
    assert "listen" in found["config"].finding.advice
    assert found["udp"].because == "config"


def test_a_contradiction_in_the_settings(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IRIS_LISTEN", "somewhere")
    assert list(faults(asyncio.run(look("config")))) == ["config"]


def test_a_variable_that_sets_nothing_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iris_py.settings.layers._warned", set())
    monkeypatch.setenv("IRIS_LISTNE", "127.0.0.1:0")
    assert "IRIS_LISTNE" in warnings(asyncio.run(look("config")))["config"]


@pytest.mark.parametrize(("mode", "word", "is_blocking"), [(0o644, "read", False), (0o666, "write", True)])
def test_a_secret_file_that_others_can_use(
    home: Path, monkeypatch: pytest.MonkeyPatch, mode: int, word: str, is_blocking: bool
) -> None:
    monkeypatch.delenv("IRIS_SECRET")
    file = home / "secret"
    file.write_text(new_secret() + "\n")
    file.chmod(mode)
    found = asyncio.run(look("secret-file", "secret", secret_file=file))
    assert list(faults(found)) == ["secret-file"]
    assert word in faults(found)["secret-file"]
    assert found["secret-file"].finding.hints[0] == f"chmod 600 {file}"
    assert (found["secret"].finding.status is FindingStatus.SKIPPED) == is_blocking


def test_a_secret_with_one_wrong_character(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = os.environ["IRIS_SECRET"]
    monkeypatch.setenv("IRIS_SECRET", secret[:20] + ("a" if secret[20] != "a" else "b") + secret[21:])
    found = asyncio.run(look())
    assert list(faults(found)) == ["secret"]
    assert secret[10:] not in str(found)


def test_a_user_without_a_secret_gets_none(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("IRIS_SECRET")
    found = asyncio.run(look())
    assert list(warnings(found)) == ["secret"]
    assert not list(home.rglob("*secret*"))


def test_a_file_in_place_of_the_state_directory(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "state").write_text("")
    assert "is not a directory" in warnings(asyncio.run(look("state")))["state"]
    monkeypatch.setenv("IRIS_ADMINISTRATOR", AdministrationKey(bytes(32)).administrator_text)
    cause = faults(asyncio.run(look("state")))["state"]
    assert "is not a directory" in cause
    assert "the secrets of a rotation are not saved" in cause


def test_peers_that_are_gone_are_found_and_left(home: Path) -> None:
    async def main() -> None:
        async with Nodes([]) as nodes:
            node = await nodes.start()
            (own,) = (path for path in files_below(home) if path.name == node.id)
            own.with_name("a" * 32).write_text(f"127.0.0.1:{dead}\n")
            before = files_below(home)
            assert "1 of 2 remembered peers" in warnings(await look("state"))["state"]
            assert files_below(home) == before

    with dead_port() as dead:
        asyncio.run(main())


def files_below(directory: Path) -> dict[Path, int]:
    """Return every file with the time of its last change."""
    return {path: path.stat().st_mtime_ns for path in directory.rglob("*")}


@pytest.fixture(params=[socket.SOCK_STREAM, socket.SOCK_DGRAM], ids=["tcp", "udp"])
def taken(request: pytest.FixtureRequest) -> Iterator[tuple[str, int]]:
    with socket.socket(socket.AF_INET, request.param) as holder:
        holder.bind(("127.0.0.1", free_port()))  # which nobody has in the other protocol, either
        yield ("TCP" if request.param is socket.SOCK_STREAM else "UDP"), holder.getsockname()[1]


def test_a_port_that_another_program_has(taken: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iris_py.doctor.prober_node.SEEDS_S", 0.2)
    monkeypatch.setattr("iris_py.doctor.prober_node.BEACONS_S", 0.0)
    kind, port = taken
    found = asyncio.run(look("port", "dial-back", listen=f"127.0.0.1:{port}"))
    assert f"({kind}: Address already in use" in faults(found)["port"]
    assert found["dial-back"].because == "port"


@pytest.fixture
def may_stand_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the event loop of this process stand still as long as a busy machine makes it: that is no fault of the network."""
    for name in ("STALL_WARNING_S", "STALL_FAULT_S"):
        monkeypatch.setattr(f"iris_py.doctor.answers.{name}", PATIENCE_S)


def test_a_port_that_a_node_of_the_network_has_is_no_fault(may_stand_still: None) -> None:
    async def main() -> None:
        async with Nodes([]) as nodes:
            node = await nodes.start()
            found = await look(listen=node.address)
            assert not faults(found), faults(found)
            assert "a node of this network listens" in found["port"].finding.cause

    asyncio.run(main())


def test_loopback_and_a_distant_seed() -> None:
    found = asyncio.run(look("listen", seeds=["198.51.100.7:7400"]))
    assert "198.51.100.7:7400 is on another" in faults(found)["listen"]


def test_no_way_to_find_anybody() -> None:
    found = asyncio.run(look("discovery", "udp", discovery=False))
    assert list(faults(found)) == ["discovery"]
    assert found["udp"].because == "discovery"


# -- the machine


def test_few_descriptors(home: Path) -> None:
    command = [sys.executable, "-m", "iris_py.cli", "doctor", "--json", "--only", "limits"]
    done = subprocess.run(
        command,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)),
        capture_output=True,
        text=True,
        check=False,
    )
    check, summary = map(json.loads, done.stdout.splitlines())
    assert done.returncode == 8, done.stderr
    assert check["kind"] == "check"
    assert (check["check"], check["status"]) == ("limits", "FAULT")
    assert "64 file descriptors" in check["cause"]
    assert summary == {"kind": "summary", "ok": 0, "warnings": 0, "faults": 1, "skipped": 0}


def test_a_control_group_that_is_throttled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iris_py.doctor.host.WATCHED_S", 0.0)
    group = tmp_path / "sys/fs/cgroup/iris"
    group.mkdir(parents=True)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/iris\n")
    (group / "cpu.stat").write_text("usage_usec 5\nnr_periods 100\nnr_throttled 10\n")
    host = Host(tmp_path)
    (group / "cpu.stat").write_text("usage_usec 9\nnr_periods 110\nnr_throttled 18\n")
    assert "80% of the periods" in faults(asyncio.run(look("processor", host=host)))["processor"]


# -- the network


def test_a_seed_where_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iris_py.doctor.prober_node.BEACONS_S", 0.0)
    with dead_port() as dead:
        found = asyncio.run(look("seeds", "ring", seeds=[f"127.0.0.1:{dead}"]))
    assert "refuses connections" in faults(found)["seeds"]
    assert found["ring"].because == "seeds"


def test_a_seed_whose_name_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iris_py.doctor.prober_node.BEACONS_S", 0.0)
    ask = asyncio.base_events.BaseEventLoop.getaddrinfo

    async def unknown(loop: Any, host: str, *arguments: Any, **options: Any) -> Any:
        if host == "seed.example":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return await ask(loop, host, *arguments, **options)

    monkeypatch.setattr(asyncio.base_events.BaseEventLoop, "getaddrinfo", unknown)
    found = asyncio.run(look("seeds", seeds=["seed.example:7400"], listen="127.0.0.1:0"))
    assert "seed.example:7400 is unknown (Name or service not known)" in faults(found)["seeds"]


@pytest.mark.long  # 3 s: so long a connection that was taken may mean a node that is busy
def test_a_seed_that_is_no_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iris_py.doctor.prober_node.SEEDS_S", 0.3)
    monkeypatch.setattr("iris_py.doctor.prober_node.BEACONS_S", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        found = asyncio.run(look("seeds", seeds=[f"127.0.0.1:{mute.getsockname()[1]}"]))
    assert "accepts connections" in faults(found)["seeds"]


def test_a_seed_with_another_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with Nodes([]) as nodes:
            other = await nodes.start(secret=new_secret(), discovery=False)
            monkeypatch.setattr("iris_py.doctor.prober_node.BEACONS_S", 0.0)
            found = await look("seeds", "seed-secret", "udp", seeds=[other.address])
            assert list(faults(found)) == ["seed-secret"]
            assert other.address in faults(found)["seed-secret"]
            assert found["udp"].because == "seed-secret"

    asyncio.run(main())


def test_another_network_on_this_segment() -> None:
    async def main() -> None:
        async with Nodes([]) as nodes:
            looking = asyncio.ensure_future(look("other-network"))
            await until(lambda: len(iris_py.api.unclosed.nodes) > 0)
            while not looking.done():  # each says once that it is here
                await nodes.start(secret=new_secret())
            assert "127.0.0.1" in faults(await looking)["other-network"]

    asyncio.run(main())


def test_a_healthy_network_with_a_cluster(may_stand_still: None) -> None:
    async def main() -> None:
        async with Nodes([]) as nodes:
            for _ in range(3):
                await (await nodes.start()).join("databases", answer)
            found = await look(cluster="databases")
            assert not faults(found), faults(found)
            assert not {"udp", "mtu", "dial-back", "clock", "versions", "stalls", "ring", "cluster"} & {
                name for name, each in found.items() if each.finding.status is not FindingStatus.OK
            }, found

    asyncio.run(main())


def test_it_leaves_no_trace(home: Path) -> None:
    async def main() -> None:
        async with Nodes([]) as nodes:
            node = await nodes.start()
            before = files_below(home)
            await look()
            assert files_below(home) == before
            await until(lambda: len(node.nodes()) == 1, "the looking node is gone")

    asyncio.run(main())


# -- what other nodes say


def test_a_clock_that_is_wrong() -> None:
    async def main() -> None:
        async with Nodes([]) as nodes:
            node = await nodes.start()
            node._parts.introspection._read_unix_s = lambda: time.time() + 1000.0
            found = re.search(r" is (\d+) s ahead$", faults(await look("clock"))["clock"])
            assert found is not None
            # When within the time of asking it was read nobody knows, so what that took is left out.
            assert 1000 - PATIENCE_S <= int(found[1]) <= 1000

    asyncio.run(main())


def test_versions_of_links_that_have_nothing_in_common() -> None:
    async def main() -> None:
        async with Nodes([]) as nodes:
            node, other = await nodes.start(), await nodes.start()
            node._parts.introspection.desk._version, node._parts.introspection.desk._link_versions = "7.1.0", (2, 3)
            found = await look("versions")
            assert "versions 1 to 1 (1), 2 to 3 (1)" in faults(found)["versions"]
            assert "7.1.0" in faults(found)["versions"]
            other._parts.introspection.desk._link_versions = (1, 2)  # as one that everybody can talk to
            assert "versions" not in faults(await look("versions"))

    asyncio.run(main())


def test_another_version_that_speaks_the_same_is_no_fault() -> None:
    async def main() -> None:
        async with Nodes([]) as nodes:
            node, other = await nodes.start(), await nodes.start()
            node._parts.introspection.desk._version, node._parts.introspection.desk._link_versions = "7.1.0", (1, 3)
            other._parts.introspection.desk._version, other._parts.introspection.desk._link_versions = (
                "an unknown build",
                (0, 0),
            )
            found = await look("versions")
            assert "versions" not in faults(found)
            assert "an unknown build" in warnings(found)["versions"]

    asyncio.run(main())


def test_nodes_whose_topics_have_another_version() -> None:
    async def main() -> None:
        async with Nodes([]) as nodes:
            node, other = await nodes.start(), await nodes.start()
            async with other.subscribe("news.>"):
                assert "versions" not in faults(await look("versions"))
                node._parts.introspection.desk._topic_version = 1
                found = faults(await look("versions"))["versions"]
            assert "different versions of topics: 1 at 1, 2 at 1" in found
            assert node.address in found
            assert other.address not in found

    asyncio.run(main())


def test_an_event_loop_that_a_handler_holds() -> None:
    def hold(_request: iris_py.Request) -> bytes:
        time.sleep(1.2)
        return b""

    def serve() -> None:
        with iris_py.sync.connect() as node, node.join("slow", hold, inline=True):
            serving.set()
            done.wait()

    async def main() -> None:
        async with Nodes([]) as nodes:
            node = await nodes.start()
            await node.request("slow", b"")
            await until(lambda: node._core is not None)
            found = await look("stalls")
            assert "the event loop stood still at 127.0.0.1" in faults(found)["stalls"]

    serving, done = threading.Event(), threading.Event()
    thread = threading.Thread(target=serve)
    thread.start()
    try:
        assert serving.wait(60.0)
        asyncio.run(main())
    finally:
        done.set()
        thread.join()


# -- a cluster


def test_a_cluster_that_nobody_serves() -> None:
    async def main() -> None:
        async with Nodes([]) as nodes:
            await nodes.start()
            assert "nobody serves 'databases'" in faults(await look("cluster", cluster="databases"))["cluster"]

    asyncio.run(main())


def test_a_cluster_whose_members_are_full() -> None:
    async def main() -> None:
        release = asyncio.Event()

        async def hold(_request: iris_py.Request) -> bytes:
            await release.wait()
            return b""

        async with Nodes([]) as nodes:
            node = await nodes.start()
            await (await nodes.start()).join("databases", hold, concurrency=1, queue_messages=0)
            asked = asyncio.ensure_future(node.request("databases", b""))
            await until(lambda: nodes.opened[1].statistics().executed == 1)
            found = await look("cluster", cluster="databases")
            assert "all 1 members are full" in faults(found)["cluster"]
            release.set()
            await asked

    asyncio.run(main())


def test_a_cluster_whose_handlers_fail() -> None:
    async def main() -> None:
        async with Nodes([]) as nodes:
            node = await nodes.start()
            await (await nodes.start()).join("databases", refuse)
            for _ in range(6):
                with pytest.raises(iris_py.RemoteError):
                    await node.request("databases", b"")
            assert "handlers fail: 6 of 6" in faults(await look("cluster", cluster="databases"))["cluster"]

    asyncio.run(main())


def test_a_cluster_with_a_slow_member() -> None:
    async def slow(_request: iris_py.Request) -> bytes:
        await asyncio.sleep(0.06)
        return b""

    async def main() -> None:
        async with Nodes([]) as nodes:
            node = await nodes.start()
            for handler in (answer, slow):
                await (await nodes.start()).join("databases", handler)
            await until(lambda: len(node.members("databases")) == 2)
            while any(each.statistics().executed < 6 for each in nodes.opened[1:]):
                await node.request("databases", b"")  # one after the other: of many at once each waits for those before it
            assert "one is slow" in warnings(await look("cluster", cluster="databases"))["cluster"]

    asyncio.run(main())


def test_a_member_that_has_become_slow_and_that_callers_avoid() -> None:
    pause_s = 0.0

    async def fade(_request: iris_py.Request) -> bytes:
        await asyncio.sleep(pause_s)
        return b""

    async def main() -> None:
        nonlocal pause_s
        async with Nodes([]) as nodes:
            node = await nodes.start()
            await (await nodes.start()).join("databases", answer)
            await (await nodes.start(name="fading")).join("databases", fade)
            await until(lambda: len(node.members("databases")) == 2)
            fading = nodes.opened[2]
            while fading.statistics().executed < 100:
                await node.request("databases", b"")
            pause_s = 0.2
            executed = fading.statistics().executed
            while fading.statistics().executed < executed + 5:  # the balancer asks it now and then
                await node.request("databases", b"")
            said = warnings(await look("cluster", cluster="databases"))["cluster"]
            assert f"one is slow: {fading.address} (fading) takes 2" in said

    asyncio.run(main())


def test_a_member_that_never_answers_while_others_do() -> None:
    async def hang(_request: iris_py.Request) -> bytes:
        hanging.set()
        await asyncio.Event().wait()
        return b""

    async def keep_asking(node: iris_py.Node) -> None:
        while True:
            asking.append(asyncio.create_task(node.request("databases", b"")))
            await asyncio.sleep(0.01)

    async def main() -> None:
        async with Nodes([]) as nodes:
            node = await nodes.start()
            await (await nodes.start()).join("databases", hang)
            held = asyncio.create_task(node.request("databases", b"", timeout=600))
            await hanging.wait()
            await (await nodes.start()).join("databases", answer)
            await until(lambda: len(node.members("databases")) == 2)
            other = asyncio.create_task(keep_asking(node))
            await until(lambda: nodes.opened[2].statistics().executed > 10)
            # Each look may see a request begin at the member that hangs, until callers leave it alone.
            async with asyncio.timeout(PATIENCE_S):
                while "one is stuck" not in warnings(await look("cluster", cluster="databases")).get("cluster", ""):
                    pass
            for task in (held, other, *asking):
                task.cancel()
            await asyncio.gather(held, other, *asking, return_exceptions=True)

    hanging, asking = asyncio.Event(), list[asyncio.Task[bytes]]()
    asyncio.run(main())


def test_a_cluster_whose_tunnels_are_all_open() -> None:
    class Keeper(iris_py.Handler):
        async def on_tunnel(self, tunnel: iris_py.Tunnel) -> None:
            async for _message in tunnel:
                pass

    async def main() -> None:
        async with Nodes([]) as nodes:
            node = await nodes.start(name="holder")
            await (await nodes.start(name="keeper")).join("databases", Keeper(), tunnels=3)
            async with AsyncExitStack() as opened:
                for count in range(3):
                    assert ("cluster" in faults(await look("cluster", cluster="databases"))) is False, count
                    await opened.enter_async_context(node.tunnel("databases"))
                said = faults(await look("cluster", cluster="databases"))["cluster"]
                assert (
                    f"3 of 3 tunnels are open at {nodes.opened[1].address} (keeper): {node.address} (holder) has 3 of them"
                    in said
                )
            found: dict[str, Examined] = {}
            async with asyncio.timeout(PATIENCE_S):
                while not found or found["cluster"].finding.status is not FindingStatus.OK:
                    found = await look("cluster", cluster="databases")
            assert "tunnel" not in found["cluster"].finding.cause

    asyncio.run(main())


def test_a_cluster_whose_requests_wait_for_long() -> None:
    async def main() -> None:
        async with Nodes([]) as nodes:
            release, pause_s = asyncio.Event(), 0.06

            async def hold(_request: iris_py.Request) -> bytes:
                await (asyncio.sleep(pause_s) if pause_s else release.wait())
                return b""

            node = await nodes.start()
            await (await nodes.start()).join("databases", hold, concurrency=1)
            for _ in range(6):
                await node.request("databases", b"")
            pause_s = 0.0
            asked = asyncio.gather(*(node.request("databases", b"") for _ in range(41)))
            numbers = nodes.opened[1].statistics
            await until(
                lambda: (served := numbers().clusters["databases"].service) is not None and served.queued_messages == 40
            )
            found = await look("cluster", cluster="databases")
            assert "40 requests wait for a handler" in warnings(found)["cluster"]
            assert "the only member is busy" in warnings(found)["cluster"]
            release.set()
            await asked

    asyncio.run(main())


# -- the command


def run(*arguments: str, **environment: str) -> tuple[int, str, str]:
    """Run the command; return its exit code and what it prints."""
    command = [sys.executable, "-m", "iris_py.cli", "doctor", *arguments]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def test_a_fault_has_its_exit_code_and_the_commands_that_show_more() -> None:
    code, out, error = run("--only", "discovery", "--no-discovery", "--fix-hints")
    assert (code, error) == (8, "")
    assert out.startswith("FAULT    discovery      there are no seeds, and discovery is switched off")
    assert "\n           $ ip -brief link\n" in out


def test_the_example_of_doctor_md() -> None:
    (example,) = [block.text for block in all_blocks() if block.page == "docs/doctor.md" and block.kind == "console"]
    command, *lines = example.strip().splitlines()
    code, out, _ = run(*command.removeprefix("$ iris doctor ").split())
    assert (code, out.splitlines()) == (0, lines)


def test_a_fixed_port_that_connections_may_have_is_warned_of(may_stand_still: None) -> None:
    async def main() -> None:
        async with Nodes([]) as nodes:
            node = await nodes.start()
            number = int(node.address.rpartition(":")[2])
            finding = (await look("port", host=Host(), listen=node.address))["port"].finding
            assert finding.status is (FindingStatus.WARNING if Host().outgoing_ports(number) else FindingStatus.OK)

    asyncio.run(main())


def test_answers_that_the_doctor_does_not_await_are_forgotten() -> None:
    """Any peer may send them, with ever new numbers."""

    async def flood() -> None:
        config = load_config(listen="127.0.0.1:0")
        prober = await start_prober(config, make_keyring(config))
        parts = parts_of(prober)
        assert isinstance(parts, ProberParts)
        info = NodeInfo(NodeId(bytes(16)), ())
        parts.handle_events([EchoReturned(info.id, number) for number in range(100)])
        parts.handle_events([RootLocated(number, info, info.id, (), (), (), None, None) for number in range(100)])
        assert (parts.echoed, parts.located) == (set(), {})
        await prober.close()

    asyncio.run(flood())
