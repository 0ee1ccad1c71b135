"""Errors advise nobody to do what the caller has done, or cannot do."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import iris_py
from iris_py import errors

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

PATIENCE_S = 60.0
SECRET = bytes(range(32))
BRIEFLY_S = 0.3

#: Ways to ask that repeat a request or wait for a member, so that nothing more can be advised.
CAREFUL: dict[str, dict[str, Any]] = {
    "idempotent": {"idempotent": True},
    "retry": {"retry": iris_py.Retry()},
    "waits": {"wait_for_members": 0.1},
    "idempotent, does not wait": {"idempotent": True, "wait_for_members": 0.0},
}


def connect(*seeds: iris_py.Node) -> Any:
    return iris_py.connect(
        secret=SECRET, listen="127.0.0.1:0", seeds=[seed.address for seed in seeds], discovery=False, administrator=None
    )


async def failure(asking: Awaitable[object]) -> errors.IrisError:
    with pytest.raises(errors.IrisError) as caught:
        await asyncio.wait_for(asking, PATIENCE_S)
    return caught.value


def advises(error: errors.IrisError, what: str = "idempotent=True") -> bool:
    assert ("idempotent=True" in str(error)) is error.of_plain_request
    return what in str(error)


def queued(node: iris_py.Node, cluster: str) -> int:
    service = node.statistics().clusters[cluster].service
    return 0 if service is None else service.queued_messages


@pytest.mark.parametrize("cluster", ["nobody", "nobody@eu"])
def test_a_request_for_which_nobody_is_there(cluster: str) -> None:
    async def main() -> None:
        async with connect() as node, connect(node):
            plain = await failure(node.request(cluster, b"", timeout=PATIENCE_S))  # which waits for no member
            assert isinstance(plain, errors.NoMembers)
            assert advises(plain)
            for name, options in CAREFUL.items():
                if "retry" in options and "@" in cluster:
                    continue  # gateways repeat
                assert not advises(await failure(node.request(cluster, b"", timeout=BRIEFLY_S, **options))), name
            others: list[Callable[[], Awaitable[object]]] = [
                lambda: node.survey(cluster, b"", timeout=BRIEFLY_S),
                lambda: node.tunnel(cluster, timeout=BRIEFLY_S),
            ]
            for ask in others:
                assert not advises(await failure(ask()))

    iris_py.run(main())


def test_a_request_whose_member_is_lost() -> None:
    async def main() -> None:
        async with connect() as node:
            for number, options in enumerate([{}, *({**each, "wait_for_members": 0.0} for each in CAREFUL.values())]):
                async with connect(node) as member:
                    held = asyncio.Event()

                    async def hold(_request: iris_py.Request, held: asyncio.Event = held) -> bytes:
                        held.set()
                        await asyncio.Event().wait()
                        return b""

                    await member.join(f"held {number}", hold)
                    asking = asyncio.create_task(failure(node.request(f"held {number}", b"", timeout=PATIENCE_S, **options)))
                    await asyncio.wait_for(held.wait(), PATIENCE_S)
                    member._parts.abort()  # as the end of its process would
                    error = await asking
                assert type(error) is errors.MemberLost
                assert advises(error) is not bool({"idempotent", "retry"} & options.keys())
                assert "send it again" in str(error)

    iris_py.run(main())


def test_a_request_whose_members_are_full() -> None:
    async def main() -> None:
        async with connect() as node:
            go_on = asyncio.Event()

            async def hold(_request: iris_py.Request) -> bytes:
                await go_on.wait()
                return b""

            async with node.join("full", hold, concurrency=1, queue_messages=1):
                held = [asyncio.create_task(node.request("full", b"", timeout=PATIENCE_S)) for _ in range(2)]
                while not queued(node, "full"):  # noqa: ASYNC110 - no event says so
                    await asyncio.sleep(0.01)
                at_once = await failure(node.request("full", b"", on_full="raise"))
                waited: errors.IrisError | None = None
                timeout_s = BRIEFLY_S
                while not isinstance(waited, errors.Overloaded):  # a busy machine may not hear of it in so little time
                    waited = await failure(node.request("full", b"", timeout=timeout_s))
                    timeout_s *= 4
                go_on.set()
                await asyncio.gather(*held)
            assert isinstance(at_once, errors.Overloaded)
            assert advises(at_once, 'on_full="wait"')
            assert not advises(waited, 'on_full="wait"')

    iris_py.run(main())


@pytest.mark.parametrize("cluster", ["db", "db@eu"])
def test_only_clusters_that_take_a_policy_are_advised_one(cluster: str) -> None:
    error = errors.TooManyMembersLost(cluster, ["ab" * 16, "cd" * 16])
    error._note_plain_request()
    assert ("members_lost_max" in str(error)) is ("@" not in cluster)
    assert not advises(error)


def test_a_time_that_the_caller_does_not_choose_is_not_to_be_made_longer() -> None:
    assert "timeout=" in str(errors.RequestTimeout("db", 1.0, None))
    assert "timeout=" not in str(errors.RequestTimeout("news@eu", 1.0, None, is_fixed=True))
