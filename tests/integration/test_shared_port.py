"""Programs of one machine that are all given one port, by the environment or by a file."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
from typing import TYPE_CHECKING

import pytest

import iris_py as iris
from iris_py.cli.settings import Settings
from iris_py.config import load_config
from iris_py.net import listen_address, port_holder
from iris_security import Secret
from tests.integration.test_cli import Shell, finish, read_line, stop
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.conftest import Loops

HERE = "127.0.0.1"


async def echo(request: iris.Request) -> bytes:
    return request.payload


@pytest.fixture
def port(home: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """The port that every program is given, with a secret. Nodes meet there alone: no beacons, no remembered peers."""
    number = free_port()
    monkeypatch.setenv("IRIS_SECRET", Secret.generate(os.urandom).text)
    monkeypatch.setenv("IRIS_DISCOVERY", "false")
    monkeypatch.setenv("IRIS_LISTEN", f"{HERE}:{number}")
    monkeypatch.setenv("IRIS_SEEDS", f"{HERE}:{number}")
    return number


@pytest.fixture
def is_impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let programs give up at once what would last: nothing here makes the answer better."""
    monkeypatch.setattr(listen_address, "PORT_WAIT_S", 0.0)
    monkeypatch.setattr(port_holder, "ANSWER_S", 0.1)


@pytest.fixture
def shell(port: int, tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path / "home")
    shell.environment |= {name: value for name, value in os.environ.items() if name.startswith("IRIS_")}
    yield shell
    shell.end()


# -- programs


def test_the_second_program_takes_another_port_and_says_so(loops: Loops, port: int, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with iris.connect() as first, first.join("echo", echo):
            assert (first.port, first.address) == (port, f"{HERE}:{port}")
            with caplog.at_level(logging.INFO, "iris_py.net.listen_address"):
                async with iris.connect() as second:
                    assert second.port not in (0, port)
                    assert second.address == f"{HERE}:{second.port}"
                    assert await second.request("echo", b"hello") == b"hello"
            text = f"the node {first.id[:8]} of this network has the port {port}, so this one listens on {second.port}"
            assert [record.getMessage() for record in caplog.records if record.name == "iris_py.net.listen_address"] == [text]
            async with iris.connect(config=load_config()) as third:
                assert third.port != port, "settings that were loaded first are the same settings"

    loops.run(main())


def test_the_file_is_for_every_program_too(loop: Loops, port: int, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("IRIS_LISTEN")
    file = home / "config" / "iris" / "iris.toml"
    file.parent.mkdir(parents=True)
    file.write_text(f'listen = "{HERE}:{port}"\n')

    async def main() -> None:
        async with iris.connect() as first, iris.connect() as second:
            assert first.port == port
            assert second.port != port

    loop.run(main())


def test_a_port_that_a_program_names_itself_is_its_own(loop: Loops, port: int) -> None:
    listen = f"{HERE}:{port}"

    async def main() -> None:
        async with iris.connect():
            for arguments in (
                {"listen": listen},
                {"config": iris.Config(listen=listen, secret=Secret.parse(os.environ["IRIS_SECRET"]))},
            ):
                with pytest.raises(iris.ConfigurationError, match=rf"cannot listen on {listen}: .*in use\. Choose"):
                    await iris.connect(**arguments)

    loop.run(main())


def test_of_programs_that_start_together_one_gets_the_port_and_none_fails(loops: Loops, port: int) -> None:
    async def main() -> None:
        nodes = await asyncio.gather(*(iris.connect() for _ in range(6)))
        assert sorted(node.port == port for node in nodes) == [False] * 5 + [True]
        assert len({node.port for node in nodes}) == 6
        await loops.until(lambda: all(len(node.nodes()) == 6 for node in nodes), "all know each other")
        await asyncio.gather(*(node.close() for node in nodes))

    loops.run(main())


def test_a_program_with_another_port_does_not_keep_the_first_from_its_port(
    loop: Loops, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IRIS_DISCOVERY", "true")

    async def main() -> None:
        first = await iris.connect()
        async with iris.connect() as second, second.join("echo", echo):
            other = second.port
            await first.close()
            async with iris.connect() as again:
                assert (again.port, second.port) == (port, other)
                assert await again.request("echo", b"hello", idempotent=True, timeout=60.0) == b"hello"

    loop.run(main())


def test_what_others_pass_on_to_the_port_is_not_told_by_a_node_with_another_one(
    loop: Loops, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IRIS_ADVERTISE", "203.0.113.5:14711,198.51.100.7,listen")

    async def main() -> None:
        async with iris.connect() as first, iris.connect() as second:
            told = [next(node.addresses for node in (each._core.info,)) for each in (first, second)]
            assert told == [
                ("203.0.113.5:14711", f"198.51.100.7:{port}", f"{HERE}:{port}"),
                (f"198.51.100.7:{second.port}", f"{HERE}:{second.port}"),
            ]

    loop.run(main())


@pytest.mark.usefixtures("is_impatient")
@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM], ids=["TCP", "UDP"])
def test_a_port_that_something_else_has_is_an_error(loop: Loops, port: int, kind: socket.SocketKind) -> None:
    async def main() -> None:
        with socket.socket(socket.AF_INET, kind) as rival:
            rival.bind((HERE, port))
            if kind == socket.SOCK_STREAM:
                rival.listen()
            words = r"in use \(UDP\)" if kind == socket.SOCK_DGRAM else "in use"
            with pytest.raises(iris.ConfigurationError, match=rf"cannot listen on {HERE}:{port}: .*{words}\. Choose"):
                await iris.connect()

    loop.run(main())


@pytest.mark.usefixtures("is_impatient")
def test_a_port_that_a_node_of_another_network_has_is_an_error(loop: Loops, port: int) -> None:
    async def main() -> None:
        async with iris.connect(network="another"):
            with pytest.raises(iris.ConfigurationError, match="in use"):
                await iris.connect()

    loop.run(main())


def test_a_port_that_becomes_free_meanwhile_is_taken(loop: Loops, port: int) -> None:
    async def main() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as leaving:  # a node that leaves keeps its datagrams to the end
            leaving.bind((HERE, port))
            loop_ = asyncio.get_running_loop()
            loop_.call_later(0.2, leaving.close)
            async with iris.connect() as node:
                assert node.port == port

    loop.run(main())


# -- commands


def test_a_command_leaves_the_port_to_programs(loop: Loops, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IRIS_ADVERTISE", f"203.0.113.5:{port}")

    async def main() -> None:
        async with Settings().visit() as node:
            assert node.port != port
            assert node.address == f"{HERE}:{node.port}"
            async with iris.connect() as program:
                assert program.port == port
        own = free_port()
        async with Settings({"listen": f"{HERE}:{own}", "advertise": ["198.51.100.1"]}).visit() as node:
            assert node.port == own, "one that the command line names"

    loop.run(main())


def test_commands_and_services_work_beside_a_service(shell: Shell, port: int) -> None:
    first, line = shell.serve("join", "upper", "--exec", "tr a-z A-Z")
    assert f":{port};" in line
    assert shell.run("request", "upper", "hello") == (0, b"HELLO", "")
    code, out, error = shell.run("top", "--once")
    assert (code, error) == (0, "")
    assert b"upper" in out
    second = shell.start("join", "upper", "--exec", "cat", "--json")
    told = read_line(second.stderr)
    assert "Z INFO port_shared: the node " in told
    assert f"has the port {port}, so this one listens on " in told
    ready = json.loads(read_line(second.stdout))
    assert ready["address"] != f"{HERE}:{port}"
    code, out, _ = shell.run("doctor", "--only", "port", "--json")
    assert code == 0
    assert "a second program takes another port" in json.loads(out.splitlines()[0])["cause"]
    code, _, error = shell.run("join", "upper", "--exec", "cat", "--listen", f"{HERE}:{port}")
    assert code == 2
    assert "in use" in error
    for process in (first, second):
        assert stop(process)[0] == 0


def test_workers_of_a_service_share_the_port(shell: Shell, port: int, tmp_path: Path) -> None:
    (tmp_path / "shout.py").write_text("def upper(text: bytes) -> bytes:\n    return bytes(text).upper()\n")
    (tmp_path / "shout.py").write_text("def upper(request):\n    return request.payload.upper()\n")
    service = shell.start("serve", "shout:upper", "--directory", str(tmp_path), "--workers", "2", "--json")
    ready = [json.loads(read_line(service.stdout)) for _ in range(2)]
    addresses = {line["address"] for line in ready}
    assert f"{HERE}:{port}" in addresses
    assert len(addresses) == 2
    assert shell.run("request", "upper", "hello") == (0, b"HELLO", "")
    assert stop(service)[0] == 0


def test_iris_node_takes_the_port_as_soon_as_the_program_that_had_it_has_gone(shell: Shell, port: int) -> None:
    service, _ = shell.serve("join", "upper", "--exec", "cat")
    seed = shell.start("node", "--json")
    assert json.loads(read_line(seed.stdout))["address"] != f"{HERE}:{port}"
    assert stop(service)[0] == 0
    assert json.loads(read_line(seed.stdout))["address"] == f"{HERE}:{port}"
    assert shell.run("nodes", "--json")[0] == 0
    seed.send_signal(signal.SIGTERM)
    code, _, errors = finish(seed)
    assert code == 0
    assert f"{HERE}:{port} is free, so the node starts again there" in errors
