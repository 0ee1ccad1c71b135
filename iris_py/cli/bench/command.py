"""The commands of `iris bench`: their options become a plan, and the plan is carried out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_py.cli.bench.joins import Joins
from iris_py.cli.bench.plan import Payload, choose_concurrency, make_plan
from iris_py.cli.bench.requests import Requests
from iris_py.cli.bench.roles import STAMP
from iris_py.cli.bench.sizes import parse_size
from iris_py.cli.bench.topics import Topics
from iris_py.cli.bench.tunnels import Tunnels
from iris_py.defaults import MAX_MESSAGE_BYTES
from iris_py.errors import ConfigurationError
from iris_py.wire.packets import MESSAGE_BYTES_LIMIT

if TYPE_CHECKING:
    from pathlib import Path
    from typing import TypedDict, Unpack

    from iris_py.cli.settings import Settings

    class Common(TypedDict):
        """The options that all measurements have, by the names of the fields of a plan."""

        seconds: float
        warm_up_s: float
        processes: int
        rate: float | None
        timeout_s: float
        as_json: bool
        path: Path | None


__all__ = ["bench_join", "bench_requests", "bench_topics", "bench_tunnels"]

SIZE: Final = "1k"
#: As large as pieces of files are.
BLOCK_SIZE: Final = "64k"
JOIN_SIZE: Final = "16"


async def bench_requests(
    settings: Settings,
    *,
    against: str | None,
    size: str | None,
    input_path: Path | None,
    reply: str | None,
    concurrency: int | None,
    members: int | None,
    **common: Unpack[Common],
) -> int:
    """Measure requests."""
    payload = Payload(
        size=size, default=SIZE, path=input_path, advice="Give less, or send it in blocks: `iris bench tunnels`"
    ).read(settings, against)
    if reply is not None and against is not None:
        raise ConfigurationError("--reply is for the members of a private network; with --against they reply what they like.")
    answer = None if reply is None else bytes(_reply_size(reply))
    plan = make_plan(
        settings,
        against=against,
        receivers=members,
        receivers_option="--members",
        payload=payload,
        reply=answer,
        concurrency=choose_concurrency(concurrency, rate=common["rate"], processes=common["processes"]),
        **common,
    )
    return await Requests(plan).run()


async def bench_topics(
    settings: Settings,
    *,
    against: str | None,
    size: str | None,
    policy: str | None,
    subscribers: int | None,
    **common: Unpack[Common],
) -> int:
    """Measure topics."""
    if policy is not None and against is not None:
        raise ConfigurationError("--policy is for subscribers of a private network; with --against they have their own.")
    plan = make_plan(
        settings,
        against=against,
        receivers=subscribers,
        receivers_option="--subscribers",
        payload=Payload(size=size, default=SIZE, bytes_min=STAMP.size).read(settings, against),
        policy=policy or "block",
        concurrency=common["processes"],
        **common,
    )
    return await Topics(plan).run()


async def bench_tunnels(
    settings: Settings,
    *,
    against: str | None,
    size: str | None,
    input_path: Path | None,
    tunnels: int,
    members: int | None,
    **common: Unpack[Common],
) -> int:
    """Measure tunnels."""
    # Not more than a member takes at once, whatever a node may send.
    payload = Payload(size=size, default=BLOCK_SIZE, path=input_path, bytes_max=MAX_MESSAGE_BYTES).read(settings, against)
    plan = make_plan(
        settings,
        against=against,
        receivers=members,
        receivers_option="--members",
        payload=payload,
        concurrency=max(tunnels, common["processes"]),
        **common,
    )
    return await Tunnels(plan).run()


async def bench_join(
    settings: Settings,
    *,
    against: str | None,
    size: str | None,
    concurrency: int | None,
    members: int | None,
    **common: Unpack[Common],
) -> int:
    """Measure how long nodes take to start."""
    plan = make_plan(
        settings,
        against=against,
        receivers=members,
        receivers_option="--members",
        payload=Payload(size=size, default=JOIN_SIZE).read(settings, against),
        concurrency=max(concurrency or 1, common["processes"]),
        **common,
    )
    return await Joins(plan).run()


def _reply_size(text: str) -> int:
    size = parse_size(text, "--reply")
    if size > MESSAGE_BYTES_LIMIT:
        raise ConfigurationError(f"--reply {text} is more than {MESSAGE_BYTES_LIMIT} bytes, the most that a message may have.")
    return size
