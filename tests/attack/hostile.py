"""A hostile neighbour: it holds the key of a cloud that a gateway accepts, and says on the line whatever it likes.

Its connections are those of :class:`iris_py.link.link.Link`, for without sound records nothing comes through at all; everything
inside is made by hand. It keeps, in the open, all that the gateway says to it.
"""

from __future__ import annotations

import asyncio
import json
import os
import struct
import subprocess
import sys
import time
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import msgspec

import iris_py as iris
from iris_py.api.cloud.gateways import ask_gateways
from iris_py.federation import messages
from iris_py.federation.calls import Call, Op, call_head
from iris_py.federation.core import LINE_CONFIG
from iris_py.federation.handshake import FederationHandshake
from iris_py.federation.messages import LINE_GROUP, encode_control, encode_message
from iris_py.gateway.startup import open_gateway
from iris_py.link.lanes import BODY, CONTROL, TUNNEL
from iris_py.link.link import Link, LinkState
from iris_py.wire import packets
from iris_security import CloudKey, Secret
from tests import warm
from tests.integration.conftest import PATIENCE_S, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from iris_py.federation.messages import Control

#: A gateway serves others within so much of its own processor time, whatever a neighbour does: how long that takes depends on
#: who else wants the processors. And it lets nobody wait until a neighbour's requests, of 10 s, have ended.
SERVED_CPU_S, SERVED_S = 1.5, 9.0
READ_BYTES = 1 << 18
REFUSED_MAX = 4096


class Reply(NamedTuple):
    """The end of a request."""

    status: int
    content: bytes


class HostileLine:
    """A connection to a gateway.

    Args:
        key: That of the hostile cloud.
        peer: The public key of the gateway's cloud.
        hello: What it says of itself, as a map; encoded without a check.

    Attributes:
        link: The link.
        controls: The control messages that came, as bytes.
        replies: The outcomes of requests, by number.
        chunks: What came on channels: the number as the gateway has it, and the frames.
        asked: The requests of the gateway's cloud: number and payload.
        heard: All bytes that the gateway has said inside its records.
        echoes: Whether it answers probes.
        reads: Whether it reads at all.
    """

    def __init__(self, key: CloudKey, peer: bytes, hello: Mapping[str, Any]) -> None:
        loop = asyncio.get_running_loop()
        handshake = FederationHandshake(
            key=key, peer=peer, hello=msgspec.msgpack.encode(hello), ephemeral_private=os.urandom(32)
        )
        self.link = Link(handshake=handshake, now=loop.time(), config=LINE_CONFIG)
        self.link.shared.add(LINE_GROUP)
        self.controls: list[bytes] = []
        self.replies: dict[int, Reply] = {}
        self.asked: dict[int, bytes] = {}
        self.chunks: list[tuple[int, bytes]] = []
        self.heard: list[bytes] = []
        self.echoes = True
        self.reads = asyncio.Event()
        self.reads.set()
        self._loop = loop
        self._number = 0
        self._task: asyncio.Task[None] | None = None

    async def connect(self, host: str, port: int) -> Self:
        """Dial; returns when the link is open or has ended."""
        self._reader, self._writer = await asyncio.open_connection(host, port)
        self._task = self._loop.create_task(self._read())
        await self.flush()
        await until(
            lambda: self.link.state in (LinkState.OPEN, LinkState.CLOSED) or self.is_over, "the link is open or has ended"
        )
        return self

    @property
    def is_over(self) -> bool:
        """Whether the gateway has ended it."""
        return self._task is None or self._task.done() or self.link.state is LinkState.CLOSED

    async def flush(self) -> None:
        """Send what is queued."""
        try:
            while data := self.link.data_to_send(1 << 20):
                self._writer.writelines(data)
                await self._writer.drain()
                if not self.link.has_output():
                    return
        except ConnectionError:
            pass

    def control(self, message: Control | bytes) -> None:
        """Queue a control message."""
        self.link.send_control(message if isinstance(message, bytes) else encode_control(message))

    def body(self, *parts: bytes) -> None:
        """Queue a body of messages."""
        self.link.send_body(LINE_GROUP, list(parts), sum(map(len, parts)), is_ordered=False)

    def chunk(self, channel: int, *its: tuple[int, bytes], claims: int | None = None) -> None:
        """Queue frames of a channel, each with its type and body."""
        data = b"".join(struct.pack(">BI", kind, len(body) if claims is None else claims) + body for kind, body in its)
        self.link.send_tunnel(TUNNEL, channel.to_bytes(8, "big"), (data,), len(data), self._loop.time())

    def request(self, name: str, payload: bytes = b"", *, headers: bytes = b"", left_ms: int = 10_000, **call: Any) -> int:
        """Queue a request; returns its number."""
        self._number += 1
        head = call_head(Call(name=name, **call))
        self.body(*encode_message(packets.REQUEST, self._number, left_ms, headers, (head, payload)))
        return self._number

    async def ask(self, name: str, payload: bytes = b"", **options: Any) -> Reply:
        """Make a request, and wait for what came of it."""
        number = self.request(name, payload, **options)
        await self.flush()
        await until(lambda: number in self.replies, f"the request to {name!r} is answered", lambda: f"(over: {self.is_over})")
        return self.replies.pop(number)

    async def open(self, channel: int, kind: int, name: str = "", rule: int = 0, **fields: Any) -> bytes:
        """Ask for a channel, and return the answer of the gateway: OPENED or REFUSED."""
        self.control(self.opening(channel, kind, name, rule, **fields))
        await self.flush()
        await until(lambda: self.answer_to(channel), f"the question for the channel {channel} is answered")
        return self.answer_to(channel)

    def opening(self, channel: int, kind: int, name: str = "", rule: int = 0, **fields: Any) -> messages.Open:
        """Return the question for a channel."""
        window = fields.pop("window", 1 << 20)
        options, headers = fields.pop("options", b""), fields.pop("headers", b"")
        return messages.Open(channel, fields.pop("connection", 0), kind, rule, name, 10_000, window, options, headers)

    def answer_to(self, channel: int) -> bytes:
        """Return the answer to the question for a channel; empty while there is none."""
        for data in self.controls:
            if data[0] in (3, 4) and msgspec.msgpack.decode(data[1:])[0] == channel:
                return data
        return b""

    async def catalogue(self) -> list[list[Any]]:
        """Return the rules that the gateway has told last."""
        await until(lambda: any(data[0] == 1 for data in self.controls), "the catalogue is there")
        found: list[list[Any]] = msgspec.msgpack.decode([data for data in self.controls if data[0] == 1][-1][1:])[1]
        return found

    async def wait_for_end(self) -> None:
        """Return when the gateway has ended it."""
        await until(lambda: self.is_over, "the gateway ends the connection")

    async def close(self) -> None:
        """End it without a word."""
        if self._task is not None:
            self._task.cancel()
            self._writer.transport.abort()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _read(self) -> None:
        buffer = bytearray()
        while True:
            await self.reads.wait()
            try:
                piece = await self._reader.read(READ_BYTES)
            except ConnectionError:
                return
            if not piece:
                return
            buffer += piece
            used = -1
            while used or self.link.has_unread:
                used = self.link.receive_data(memoryview(bytes(buffer)), self._loop.time())
                del buffer[:used]
                self._take()
            for event in self.link.events_received():
                if type(event).__name__ == "PeerIdentified":
                    self.heard.append(event.hello)  # type: ignore[union-attr]
                    self.link.confirm(self._loop.time())
            self._take()
            await self.flush()
            if self.link.state is LinkState.CLOSED:
                return

    def _take(self) -> None:
        for kind, key, data, start, stop in self.link.packets_received():
            if kind == CONTROL:
                self.heard.append(bytes(key))
                self.controls.append(bytes(key))
                if key[0] == 8 and self.echoes:
                    self.control(b"\x09" + key[1:])
            elif kind == BODY:
                self.heard.append(bytes(data[start:stop]))
                for what, number, _argument, _head, payload in messages.decode_messages(data, start, stop):
                    if what == packets.REPLY:
                        self.replies[number] = Reply(payload[0], payload[1:])
                    elif what == packets.REQUEST:
                        self.asked[number] = payload
            elif kind == TUNNEL:
                self.heard.append(bytes(data[start:stop]))
                self.chunks.append((int.from_bytes(key, "big"), bytes(data[start:stop])))


class Works(iris.Handler):
    """A member: keeps what it is asked, and answers with its name.

    Args:
        name: Of the member.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked: list[iris.Request] = []
        self.heard: list[iris.Message] = []
        self.running = 0
        self.most = 0
        self.holds = asyncio.Event()
        self.holds.set()

    async def on_request(self, request: iris.Request) -> bytes:
        self.asked.append(request)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            if request.payload == b"hold":
                await self.holds.wait()
            if request.payload == b"fail":
                raise ValueError("as it was told")
            return self.name.encode()
        finally:
            self.running -= 1

    async def on_survey(self, request: iris.Request) -> bytes:
        return await self.on_request(request)

    async def on_broadcast(self, message: iris.Message) -> None:
        self.heard.append(message)

    async def on_tunnel(self, tunnel: iris.Tunnel) -> None:
        async for message in tunnel:
            await tunnel.send(message)


def toml(tables: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """Return tables as TOML."""
    return "\n".join(line for head, table in tables for line in (head, *(f"{k} = {json.dumps(v)}" for k, v in table.items())))


class Stand:
    """A gateway in a process of its own, with a cloud behind it and two neighbours: an honest one, and a hostile one.

    Attributes:
        own: A node of the gateway's cloud.
        works: The member there that is exported, under its own name.
        hidden: A member there that is not.
        far: A node of the honest neighbour.
        key: The key of the hostile neighbour.
        log: What the gateway has logged.
    """

    own: iris.Node
    far: iris.Node
    works: Works
    hidden: Works

    def __init__(self, home: Path) -> None:
        self._home = home
        self._stack = AsyncExitStack()
        self.key = CloudKey.generate(os.urandom)
        self._keys = {name: CloudKey.generate(os.urandom) for name in ("us", "eu")}
        self.secrets = {name: Secret.generate(os.urandom) for name in ("us", "eu")}
        self.log = home / "gateway.log"
        self.public = self._keys["us"].public
        self.lines: list[HostileLine] = []

    async def open(
        self, exports: Sequence[Mapping[str, Any]] | None = None, imports: Sequence[Mapping[str, Any]] | None = None
    ) -> None:
        """Start everything."""
        for name, key in self._keys.items():
            self._write(f"{name}.identity", key.text)
        secret = self._write("us.secret", self.secrets["us"].text)
        publics = {"mallory": self.key.public_text, "eu": self._keys["eu"].public_text}
        if exports is None:
            exports = [{"cluster": "works", "allow": ["request", "survey", "tunnel"], "in_flight": 64, "tunnels": 4}]
        if imports is None:
            imports = [{"cluster": ">"}]
        tables: list[tuple[str, Mapping[str, Any]]] = [
            ("[gateway]", {"name": "us", "identity_file": "us.identity", "listen": "127.0.0.1:0"}),
            *((f"[cloud.{alias}]", {"keys": [public]}) for alias, public in publics.items()),
            ("[[export]]", {"to": ["eu"], "cluster": "works"}),
            *(("[[export]]", {"to": ["mallory"]} | dict(rule)) for rule in exports),
            *(("[[import]]", {"from": ["mallory", "eu"]} | dict(rule)) for rule in imports),
        ]
        file = self._write("us.toml", toml(tables))
        said = await self._start_gateway(secret, file)
        self.host, _, port = said["gateway"].rpartition(":")
        self.port = int(port)
        self.gateway_id = said["id"]
        enter = self._stack.enter_async_context
        seeds = [said["address"]]
        own = iris.connect(
            secret=self.secrets["us"], discovery=False, listen="127.0.0.1:0", seeds=seeds, name="own-host/own-program"
        )
        self.own = await enter(own)
        self.works, self.hidden = Works("works of us"), Works("hidden of us")
        await self.own.join("works", self.works)
        await self.own.join("hidden", self.hidden)
        self.far = await enter(iris.connect(secret=self.secrets["eu"], discovery=False, listen="127.0.0.1:0"))
        await self.far.join("works", Works("works of eu"))
        eu: list[tuple[str, Mapping[str, Any]]] = [
            ("[gateway]", {"name": "eu", "identity_file": "eu.identity"}),
            ("[cloud.us]", {"keys": [self._keys["us"].public_text], "dial": [said["gateway"]]}),
            ("[[export]]", {"to": ["us"], "cluster": "works"}),
            ("[[import]]", {"from": ["us"], "cluster": ">"}),
        ]
        await enter(open_gateway(self.far, self._write("eu.toml", toml(eu))))
        await self.check(PATIENCE_S)

    async def close(self) -> None:
        """End everything."""
        for line in self.lines:
            await line.close()
        await self._stack.aclose()

    # -- the hostile neighbour

    def hello(self, **fields: Any) -> dict[str, Any]:
        """Return a hello, with some fields as given."""
        usual = {"gateway": os.urandom(16), "bundle": os.urandom(8), "name": "mallory", "max_message_bytes": 1 << 20}
        return usual | fields

    async def dial(self, hello: Mapping[str, Any] | None = None, cloud: str = "") -> HostileLine:
        """Open a connection; with a hello that is refused it is over when this returns.

        Args:
            hello: What to say; None for something usual.
            cloud: Whose key to show: that of the hostile neighbour unless this is ``eu``.
        """
        key = self._keys[cloud] if cloud else self.key
        line = HostileLine(key, self.public, self.hello() if hello is None else hello)
        self.lines.append(line)
        return await line.connect(self.host, self.port)

    async def join(self, *entries: tuple[str, int]) -> HostileLine:
        """Open a bundle and offer clusters: patterns and what they allow; returns when the gateway has offered its own."""
        line = await self.dial()
        assert not line.is_over
        offered = tuple(
            messages.CatalogueEntry(rule, messages.CLUSTER, name, allow, 0.0, 1024)
            for rule, (name, allow) in enumerate(entries)
        )
        line.control(messages.Catalogue(1, offered))
        await line.flush()
        await line.catalogue()
        await until(lambda: any(data[0] == 8 for data in line.controls), "the gateway probes the line")
        if entries:  # for nodes of the gateway's cloud, which learn of the way
            deadline = time.monotonic() + PATIENCE_S
            while not await self._is_reached():
                assert time.monotonic() < deadline
        return line

    async def _is_reached(self) -> bool:
        try:
            await self.own.request("nothing.that.is.offered@mallory", b"")
        except iris.NotExported:
            return True
        except iris.CloudUnavailable:
            return False
        raise AssertionError("nobody offers that")

    # -- the gateway

    async def check(self, within_s: float = SERVED_S) -> None:
        """Fail unless the gateway serves its own cloud and the honest neighbour in time."""
        began_s = self.cpu_s()
        async with asyncio.timeout(within_s):
            there, back, own = await asyncio.gather(
                self.own.request("works@eu", b"", idempotent=True, timeout=within_s),
                self.far.request("works@us", b"", idempotent=True, timeout=within_s),
                self.own.request("works", b"", timeout=within_s),
            )
        assert (there, back, own) == (b"works of eu", b"works of us", b"works of us")
        assert self.cpu_s() - began_s < SERVED_CPU_S

    async def status(self) -> dict[str, Any]:
        """Return what the gateway says of itself."""
        (status,) = await ask_gateways(self.own, Call(op=Op.STATUS))
        return status

    async def drops(self) -> dict[str, int]:
        """Return what the gateway has dropped, by reason."""
        counts: dict[str, int] = (await self.status())["drops"]
        return counts

    async def channels(self) -> int:
        """Return how many channels the gateway has to the hostile neighbour."""
        status = await self.status()
        return sum(bundle["channels"] for bundle in status["clouds"]["mallory"]["bundles"])

    def cpu_s(self) -> float:
        """Return the processor time that the gateway has taken."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_bytes(self) -> int:
        """Return the memory of the gateway."""
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    # --

    async def _start_gateway(self, secret: str, file: str) -> dict[str, Any]:
        self._begin_gateway(secret, file)
        assert self._process.stdout is not None
        line = await asyncio.to_thread(self._process.stdout.readline)
        assert line, self.log.read_text()
        said: dict[str, Any] = json.loads(line)
        return said

    def _begin_gateway(self, secret: str, file: str) -> None:
        environment = os.environ | {"IRIS_SECRET_FILE": secret, "IRIS_LISTEN": "127.0.0.1:0", "IRIS_DISCOVERY": "0"}
        command = [sys.executable, "-m", "iris_py.cli", "gateway", file, "--json", "-v"]
        log = self._stack.enter_context(self.log.open("wb"))
        self._process = warm.Process(command, stdout=subprocess.PIPE, stderr=log, env=environment)
        self._stack.callback(self._end_gateway)

    def _end_gateway(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _write(self, name: str, text: str) -> str:
        path = self._home / name
        path.touch(mode=0o600)
        path.write_text(text + "\n")
        return str(path)


@asynccontextmanager
async def standing(home: Path, **rules: Any) -> AsyncIterator[Stand]:
    """A stand, for use with `async with`."""
    stand = Stand(home)
    try:
        await stand.open(**rules)
        yield stand
    finally:
        await stand.close()
