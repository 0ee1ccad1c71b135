"""Sealed requests between nodes: nobody between reads them, each runs once at a member, and retries are answered."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest

import iris_py as iris
from iris_py.api import seal as sealing
from iris_py.testing import NodeSimulation, run
from iris_py.wire import packets
from iris_security.sealed_requests import REQUEST_OVERHEAD_BYTES, WINDOW_MS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

SECRET, OTHER = iris.Secret(bytes(range(32))), iris.Secret(b"o" * 32)
PLAIN = b"plaintext of a patient"


class Vault(iris.Handler):
    """Notes what it is asked, works, and fails where it is told to."""

    def __init__(self, work_s: float = 0.0) -> None:
        self.asked: list[bytes] = []
        self.done = 0
        self._work_s = work_s

    async def on_request(self, request: iris.Request) -> bytes:
        assert request.is_sealed
        self.asked.append(request.payload)
        await asyncio.sleep(self._work_s)
        if request.payload.startswith(b"fail"):
            raise ValueError(request.payload.decode())
        self.done += 1
        return request.payload[::-1]

    async def on_survey(self, request: iris.Request) -> bytes | None:
        return None if request.payload == b"none" else await self.on_request(request)


class Batches(iris.Handler):
    """Answers together."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    async def on_requests(self, requests: Sequence[iris.Request]) -> Sequence[bytes | Exception]:
        assert all(request.is_sealed for request in requests)
        self.sizes.append(len(requests))
        if any(request.payload == b"break" for request in requests):
            raise KeyError("all of them")
        return [ValueError(each.payload.decode()) if each.payload == b"fail" else each.payload[::-1] for each in requests]


class Middle:
    """A node between, as a gateway is: hands on what it is given, and keeps everything that it has seen.

    It is itself no member of the cluster, and holds no seal.
    """

    def __init__(self, node: iris.Node) -> None:
        self._node = node
        self.seen: list[bytes] = []

    async def hand_on(self, request: iris.Request) -> bytes:
        self.seen.append(request.payload)
        try:
            reply = await self._node.request("vault", request.payload)
        except iris.RemoteError as exc:
            self.seen.append(f"{exc.type} {exc.text}".encode())
            raise type(exc.type, (Exception,), {})(exc.text) from None
        self.seen.append(reply)
        return reply


def simulate(scenario: Callable[[NodeSimulation], Awaitable[None]], seed: int = 1) -> None:
    async def main() -> None:
        async with NodeSimulation(seed) as simulation:
            await scenario(simulation)

    run(main(), limit_s=120)


async def refused(asking: Awaitable[bytes]) -> str:
    with pytest.raises(iris.RemoteError) as caught:
        await asking
    assert caught.value.type == "SealError"
    return caught.value.text


def test_the_member_reads_what_the_caller_sealed_and_the_caller_its_reply() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        caller, server = await simulation.start_nodes(2)
        vault = Vault()
        await server.join("vault", iris.Sealed(vault, SECRET))
        for seal in (SECRET, SECRET.text, [SECRET, OTHER], iris.Seal(SECRET), iris.Seal(SECRET, name="vault")):
            assert await caller.request("vault", PLAIN, seal=seal) == PLAIN[::-1]
        assert vault.asked == [PLAIN] * 5

    simulate(scenario)


def test_functions_are_sealed_too() -> None:
    def answer(request: iris.Request) -> bytes:
        if request.payload == b"fail":
            raise ValueError("a plain text")
        return request.payload[::-1]

    async def answer_later(request: iris.Request) -> bytes:
        await asyncio.sleep(0.1)
        return answer(request)

    async def scenario(simulation: NodeSimulation) -> None:
        caller, server = await simulation.start_nodes(2)
        for function, is_inline in ((answer, True), (answer_later, False)):
            async with server.join("vault", iris.Sealed(function, SECRET), inline=is_inline):
                assert await caller.request("vault", PLAIN, seal=SECRET) == PLAIN[::-1]
                with pytest.raises(iris.RemoteError, match="ValueError: a plain text"):
                    await caller.request("vault", b"fail", seal=SECRET)

    simulate(scenario)


def test_without_the_seal_of_the_members_nothing_runs_and_all_are_told_the_same() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        caller, server = await simulation.start_nodes(2)
        vault = Vault()
        await server.join("vault", iris.Sealed(vault, SECRET))
        texts = {
            await refused(caller.request("vault", payload, seal=seal))
            for payload, seal in (
                (PLAIN, None),
                (b"", None),
                (b"\1" * 99, None),
                (PLAIN, OTHER),
                (PLAIN, iris.Seal(SECRET, name="x")),
            )
        }
        assert len(texts) == 1, "nobody learns how near it was"
        assert "Pass seal=" in texts.pop()
        assert vault.asked == []

    simulate(scenario)


def test_a_member_that_does_not_seal_is_told_apart() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        caller, server = await simulation.start_nodes(2)
        payloads: list[bytes] = []

        async def answer(request: iris.Request) -> bytes:
            assert not request.is_sealed
            payloads.append(request.payload)
            return b"in the open"

        await server.join("vault", answer)
        with pytest.raises(iris.SealError, match="may have been executed"):
            await caller.request("vault", PLAIN, seal=SECRET)
        assert PLAIN not in payloads[0]
        answers = await caller.survey("vault", PLAIN, seal=SECRET)
        assert (len(answers), answers.failed[0].type) == (0, "SealError")

    simulate(scenario)


def test_a_node_between_sees_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Neither of what is asked, nor of what is answered, nor of what fails; and no log has it, anywhere."""
    caplog.set_level(logging.DEBUG)

    async def scenario(simulation: NodeSimulation) -> None:
        caller, between, server = await simulation.start_nodes(3)
        middle = Middle(between)
        await between.join("middle", middle.hand_on)
        await server.join("vault", iris.Sealed(Vault(), SECRET))
        seal = iris.Seal(SECRET, name="vault")
        assert await caller.request("middle", PLAIN, seal=seal) == PLAIN[::-1]
        with pytest.raises(iris.RemoteError) as caught:
            await caller.request("middle", b"fail: " + PLAIN, seal=seal)
        assert (caught.value.type, caught.value.text) == ("ValueError", f"fail: {PLAIN.decode()}")
        assert caught.value.__cause__ is None
        assert len(middle.seen) == 4
        for each in (*middle.seen, caplog.text.encode()):
            assert not [word for word in (PLAIN, PLAIN[::-1], b"fail: ") if word in each]
        assert not any(b"ValueError" in each for each in middle.seen)

    simulate(scenario)


def test_a_node_between_can_change_nothing_and_swap_nothing() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        caller, between, server = await simulation.start_nodes(3)
        vault = Vault()
        await server.join("vault", iris.Sealed(vault, SECRET))
        await server.join("ledger", iris.Sealed(vault, SECRET))
        replies: list[bytes] = []

        async def swap(request: iris.Request) -> bytes:
            replies.append(await between.request("vault", request.payload))
            return replies[0]

        async def misdirect(request: iris.Request) -> bytes:
            return await between.request("ledger", request.payload)

        async def change(request: iris.Request) -> bytes:
            return await between.request("vault", request.payload[:-1] + bytes((request.payload[-1] ^ 1,)))

        for name, function in (("swap", swap), ("misdirect", misdirect), ("change", change)):
            await between.join(name, function)
        seal = iris.Seal(SECRET, name="vault")
        assert await caller.request("swap", b"one", seal=seal) == b"eno"
        with pytest.raises(iris.SealError):
            await caller.request("swap", b"two", seal=seal)
        for name in ("misdirect", "change"):
            with pytest.raises(iris.RemoteError, match="SealError"):
                await caller.request(name, b"three", seal=seal)
        assert vault.asked == [b"one", b"two"]

    simulate(scenario)


def test_a_request_that_is_handed_over_again_is_refused() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        caller, between, server = await simulation.start_nodes(3)
        vault = Vault()
        await server.join("vault", iris.Sealed(vault, SECRET))
        middle = Middle(between)
        await between.join("middle", middle.hand_on)
        assert await caller.request("middle", b"pay", seal=iris.Seal(SECRET, name="vault")) == b"yap"
        assert "accept a request only once" in await refused(between.request("vault", middle.seen[0]))
        await refused(between.request("vault", middle.seen[0], idempotent=True))
        await refused(between.request("vault", middle.seen[0], idempotent=True, key="k"))
        assert vault.asked == [b"pay"]

    simulate(scenario)


@pytest.mark.parametrize("away_ms", [-WINDOW_MS - 1000, WINDOW_MS + 1000])
def test_what_was_sealed_at_another_time_is_refused(monkeypatch: pytest.MonkeyPatch, away_ms: int) -> None:
    """A node between that keeps a request for later has nothing of it; a clock that is wrong is named."""

    async def scenario(simulation: NodeSimulation) -> None:
        caller, server = await simulation.start_nodes(2)
        await server.join("vault", iris.Sealed(Vault(), SECRET))
        now_ms = sealing._unix_ms()
        times = iter((now_ms, now_ms + away_ms))  # of the caller, and of the member
        monkeypatch.setattr(sealing, "_unix_ms", lambda: next(times))
        assert "clocks" in await refused(caller.request("vault", b"pay", seal=SECRET))

    simulate(scenario)


@pytest.mark.parametrize("seed", range(3))
def test_a_reply_that_was_lost_is_given_again_and_opens(seed: int) -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        caller, server = await simulation.start_nodes(2)
        vault = Vault(0.5)
        await server.join("vault", iris.Sealed(vault, SECRET))
        asking = asyncio.create_task(caller.request("vault", b"pay", idempotent=True, timeout=30.0, seal=SECRET))
        await simulation.until(lambda: len(vault.asked) == 1)
        simulation.stall(server, caller)
        await simulation.until(lambda: not any(link.is_open for link in caller._core.peers.links()))
        simulation.heal()
        assert await asking == b"yap"
        assert (vault.done, server.statistics().repeated) == (1, 1)

    simulate(scenario, seed)


@pytest.mark.parametrize("seed", range(3))
def test_what_was_cancelled_with_its_link_is_done_anew_at_the_same_member(seed: int) -> None:
    """The member has seen the salt. It is the same request, so it is not taken for one that somebody kept."""

    async def scenario(simulation: NodeSimulation) -> None:
        caller, server = await simulation.start_nodes(2)
        vault = Vault(0.5)
        await server.join("vault", iris.Sealed(vault, SECRET))
        asking = asyncio.create_task(caller.request("vault", b"pay", idempotent=True, timeout=30.0, seal=SECRET))
        await simulation.until(lambda: len(vault.asked) == 1)
        simulation.reset(server)
        assert await asking == b"yap"
        assert (vault.asked, vault.done) == ([b"pay", b"pay"], 1)

    simulate(scenario, seed)


def test_a_request_that_is_retried_at_another_member_is_answered() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        caller, *servers = await simulation.start_nodes(3)
        vaults = {node: Vault(0.5) for node in servers}
        for node, vault in vaults.items():
            await node.join("vault", iris.Sealed(vault, SECRET))
        asking = asyncio.create_task(caller.request("vault", b"pay", idempotent=True, timeout=30.0, seal=SECRET))
        await simulation.until(lambda: any(vault.asked for vault in vaults.values()))
        holding = next(node for node, vault in vaults.items() if vault.asked)
        simulation.kill(holding)
        assert await asking == b"yap"
        assert [vault.asked for vault in vaults.values()] == [[b"pay"]] * 2

    simulate(scenario)


def test_a_failure_is_retried_elsewhere_and_at_the_same_member_and_the_last_one_is_read() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        caller, *servers = await simulation.start_nodes(3)
        vaults = [Vault(), Vault()]
        for node, vault in zip(servers, vaults, strict=True):
            await node.join("vault", iris.Sealed(vault, SECRET))
        with pytest.raises(iris.RemoteError, match="ValueError: fail"):
            await caller.request("vault", b"fail", idempotent=True, retry_failed=True, seal=SECRET)
        assert sorted(len(vault.asked) for vault in vaults) == [2, 3], "five times in all, at both"
        assert {payload for vault in vaults for payload in vault.asked} == {b"fail"}

    simulate(scenario)


def test_whoever_asks_with_the_same_key_opens_the_remembered_reply() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        first, second, server = await simulation.start_nodes(3)
        vault = Vault()
        await server.join("vault", iris.Sealed(vault, SECRET))
        for caller, payload in ((first, b"pay"), (second, b"pay"), (first, b"pay again")):
            assert await caller.request("vault", payload, idempotent=True, key="bill 7", seal=SECRET) == b"yap"
        assert vault.asked == [b"pay"]
        with pytest.raises(iris.SealError):  # the key is that of the first request, and the seal is not
            await second.request("vault", b"pay", idempotent=True, key="bill 7", seal=OTHER)
        assert await second.request("vault", b"pay", idempotent=True, key=b"bill 8", seal=SECRET) == b"yap"

    simulate(scenario)


def test_handlers_of_many_requests_are_sealed_one_by_one() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        caller, server = await simulation.start_nodes(2)
        batches = Batches()
        await server.join("vault", iris.Sealed(batches, SECRET))
        payloads = [b"%d!" % number for number in range(20)]
        asking = [caller.request("vault", each, seal=SECRET) for each in payloads]
        others = [
            caller.request("vault", b"fail", seal=SECRET),
            caller.request("vault", b"open"),
            caller.request("vault", b"x", seal=OTHER),
        ]
        *replies, failed, opened, other = await asyncio.gather(*asking, *others, return_exceptions=True)
        assert replies == [each[::-1] for each in payloads]
        assert [(error.type, error.text) for error in (failed,) if isinstance(error, iris.RemoteError)] == [
            ("ValueError", "fail")
        ]
        assert {error.type for error in (opened, other) if isinstance(error, iris.RemoteError)} == {"SealError"}
        assert max(batches.sizes) > 1
        with pytest.raises(iris.RemoteError, match="KeyError: 'all of them'"):
            await caller.request("vault", b"break", seal=SECRET)
        assert [reply.payload for reply in await caller.survey("vault", b"ab", seal=SECRET)] == [b"ba"]

    simulate(scenario)


def test_a_survey_is_sealed_for_all_members() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        caller, *servers = await simulation.start_nodes(4)
        for node in servers:
            await node.join("vault", iris.Sealed(Vault(), SECRET))
        answers = await caller.survey("vault", PLAIN, seal=SECRET)
        assert [reply.payload for reply in answers] == [PLAIN[::-1]] * 3
        assert answers.is_complete
        assert len((await caller.survey("vault", b"none", seal=SECRET)).declined) == 3
        failed = (await caller.survey("vault", b"fail: " + PLAIN, seal=SECRET)).failed
        assert {(each.type, each.text) for each in failed} == {("ValueError", f"fail: {PLAIN.decode()}")}
        assert {each.type for each in (await caller.survey("vault", PLAIN)).failed} == {"SealError"}

    simulate(scenario)


def test_a_secret_is_exchanged_without_a_request_that_fails() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        caller, server = await simulation.start_nodes(2)
        steps = (
            ([OTHER], [OTHER]),
            ([OTHER, SECRET], [OTHER]),
            ([OTHER, SECRET], [SECRET, OTHER]),
            ([SECRET], [SECRET, OTHER]),
        )
        for members, callers in steps:
            async with server.join("vault", iris.Sealed(Vault(), members)):
                assert await caller.request("vault", b"pay", seal=callers) == b"yap"
        async with server.join("vault", iris.Sealed(Vault(), SECRET)):
            await refused(caller.request("vault", b"pay", seal=OTHER))

    simulate(scenario)


def test_the_name_that_both_give_counts_and_not_that_of_the_cluster() -> None:
    """So it does where a cluster is exported under another name."""

    async def scenario(simulation: NodeSimulation) -> None:
        caller, server = await simulation.start_nodes(2)
        await server.join("vault-v2", iris.Sealed(Vault(), SECRET, name="vault"))
        assert await caller.request("vault-v2", b"pay", seal=iris.Seal(SECRET, name="vault")) == b"yap"
        await refused(caller.request("vault-v2", b"pay", seal=SECRET))

    simulate(scenario)


def test_what_sealing_adds_counts_as_payload() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        caller, server = await simulation.start_nodes(2)
        await server.join("vault", iris.Sealed(Vault(), SECRET))
        room = caller.max_message_bytes - REQUEST_OVERHEAD_BYTES
        assert await caller.request("vault", bytes(room), seal=SECRET, timeout=60.0) == bytes(room)
        with pytest.raises(iris.MessageTooLarge):
            await caller.request("vault", bytes(room + 1), seal=SECRET)
        with pytest.raises(iris.MessageTooLarge):
            caller.survey("vault", bytes(room + 1), seal=SECRET)

    simulate(scenario)


def test_a_broadcast_to_a_sealed_member_is_dropped_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        caller, server = await simulation.start_nodes(2)
        vault = Vault()
        await server.join("vault", iris.Sealed(vault, SECRET))
        await caller.members("vault")
        assert await caller.broadcast("vault", PLAIN) == 1
        await simulation.until(lambda: "broadcasts are not sealed" in caplog.text)
        assert PLAIN.decode() not in caplog.text
        with pytest.raises(iris.NoMembers, match="serves tunnels"):
            await caller.tunnel("vault")

    simulate(scenario)


def test_a_long_failure_is_cut_so_that_it_opens() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        caller, server = await simulation.start_nodes(2)
        await server.join("vault", iris.Sealed(Vault(), SECRET))
        for letter in ("x", "\u20ac"):
            with pytest.raises(iris.RemoteError) as caught:
                await caller.request("vault", b"fail" + letter.encode() * packets.FAILURE_TEXT_MAX, seal=SECRET)
            text = caught.value.text
            assert caught.value.type == "ValueError"
            assert text == "fail" + letter * (len(text) - 4)
            assert sealing.TEXT_BYTES_MAX - 3 < len(text.encode()) <= sealing.TEXT_BYTES_MAX

    simulate(scenario)
