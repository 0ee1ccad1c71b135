"""The commands for topics: `iris publish` and `iris subscribe`."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from msgspec import UNSET, UnsetType

import iris_py
from iris_py.cli.join import ReadyLine, address_of, announce, end_with, ending_by_signal, reload_on_hangup, serving_status
from iris_py.cli.outcome import ExitCode, complain, readable
from iris_py.cli.output import Output
from iris_py.cli.payload_options import read_headers
from iris_py.json_lines import Line, Lines, PayloadLine, payload_fields
from iris_py.logs import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from iris_py.cli.payload_options import PayloadSource
    from iris_py.cli.settings import Settings

__all__ = ["LINES", "publish", "subscribe"]


class PublishedLine(Line, tag="published"):
    """A published message, with the number of receiving nodes."""

    topic: str
    nodes: int
    """Number of other nodes to which the message was sent."""


class PublishSummary(Line, tag="summary"):
    """The number of messages of `--lines` or `--count`."""

    topic: str
    messages: int
    nodes: int
    """Number of other nodes the last message was sent to."""


class MessageLine(PayloadLine, tag="message", kw_only=True):
    """A message received by a subscription."""

    time: datetime
    """Time of arrival here, in UTC."""
    topic: str
    source: str
    """The node id of the publisher."""
    sequence: int
    """The number of the message in the flow of its publisher."""
    gap: int
    """Number of messages of the publisher missing before this one."""
    cloud: str | UnsetType = UNSET
    """The other cloud that the message comes from, if any."""
    headers: dict[str, str | int | float] | UnsetType = UNSET


#: Messages printed before the node does other work. Too small: a write for every few lines; too large: a subscription that is
#: behind keeps its node from answering, so that it seems to hang.
PRINTED_AT_ONCE: Final = 1024
#: The lines of `--json`, by command.
LINES: Final[Lines] = {"publish": (PublishedLine, PublishSummary), "subscribe": (ReadyLine, MessageLine)}


async def publish(
    settings: Settings,
    topic: str,
    source: PayloadSource,
    *,
    header: Sequence[str] | None,
    as_json: bool,
) -> int:
    """Publish a message and print the number of receiving nodes; return the exit code. No receiver is not a failure."""
    config, headers, output = settings.load(), read_headers(header), Output(as_json=as_json)
    lone = source.read_lone(config.max_message_bytes)
    if lone is not None:
        async with settings.visit(config) as node:
            nodes = await node.publish(topic, lone, headers=headers)
        output.line(PublishedLine(topic, nodes), f"sent to {nodes} node{'s' * (nodes != 1)}")
        return ExitCode.OK
    messages = nodes = 0
    async with settings.visit(config) as node:
        async for payloads in source.batches(config.max_message_bytes):
            nodes = await node.publish_many(topic, payloads, headers=headers)
            messages += len(payloads)
    sent = f"{messages:,} message{'s' * (messages != 1)} sent to {nodes} node{'s' * (nodes != 1)}"
    output.line(PublishSummary(topic, messages, nodes), sent)
    return ExitCode.OK


async def subscribe(
    settings: Settings,
    pattern: str,
    *,
    share: tuple[str, float] = ("", 1.0),
    enough: tuple[int | None, float | None] = (None, None),
    has_time: bool = False,
    path: Path | None = None,
    http: str | None = None,
    as_json: bool,
) -> int:
    """Print published messages, one per line, until a signal arrives, enough are printed, or the timeout has passed.

    Args:
        share: The group that the subscription belongs to, empty for none, and its weight.
        enough: The number of messages after which to stop, and the time (seconds); None for no limit.
    """
    group, weight = share
    count, timeout_s = enough
    with Output(as_json=as_json, path=path) as output:
        async with (
            ending_by_signal() as ended,
            serving_status(http) as status,
            iris_py.connect(**settings.connect_arguments()) as running,
            running.subscribe(pattern, policy=_policy_for(pattern), group=group, weight=weight) as subscription,
        ):
            if status is not None:
                status.show(running)
            reload_on_hangup(running)
            doing = f"subscribes to {pattern!r}{f' in the group {one_line(group)!r}' if group else ''}"
            announce(running, doing, pattern=pattern, http=address_of(status), as_json=as_json)
            printing = asyncio.create_task(_print_all(subscription, output, count, has_time=has_time))
            try:
                printing.add_done_callback(lambda done: end_with(ended, done))
                async with asyncio.timeout(timeout_s):
                    return await ended
            except TimeoutError:
                if count is None:
                    return ExitCode.OK
                complain(f"fewer than {count} messages came within {timeout_s:g} s. Allow more time with --timeout.")
                return ExitCode.TIMEOUT
            finally:
                if group and not printing.done():
                    await subscription.close()  # prints what came before the others took over
                printing.cancel()


def _policy_for(pattern: str) -> iris_py.OverflowPolicy:
    """Return the overflow policy: publishers wait for the reader of the output; messages of other clouds may be dropped."""
    return "drop_oldest" if "@" in pattern else "block"


async def _print_all(subscription: iris_py.Subscription, output: Output, count: int | None, *, has_time: bool) -> None:
    if count is not None:  # one by one: in a group all messages of a batch would count as taken
        async for message in subscription:
            _print([message], output, has_time=has_time)
            count -= 1
            if not count:
                return
        return
    async for batch in subscription.batches():
        for start in range(0, len(batch), PRINTED_AT_ONCE):
            _print(batch[start : start + PRINTED_AT_ONCE], output, has_time=has_time)
            await asyncio.sleep(0)


def _print(messages: Sequence[iris_py.Message], output: Output, *, has_time: bool) -> None:
    if output.is_json:
        output.lines((_line_of(message), None) for message in messages)
        return
    begin = f"{datetime.now().astimezone():%H:%M:%S.%f}"[:-3] + " " if has_time else ""
    output.write("".join(f"{begin}{_text_of(message)}\n" for message in messages).encode())
    missed = sum(message.gap for message in messages if message.cloud)
    if missed:
        complain(f"up to {missed} messages of the other cloud are missing before these")


def _text_of(message: iris_py.Message) -> str:
    """Return the line for a message: topic and text, without line ends and terminal control sequences."""
    return f"{one_line(message.topic)} {one_line(message.payload.decode(errors='replace'))}"


def _line_of(message: iris_py.Message) -> MessageLine:
    return MessageLine(
        time=datetime.now(UTC),
        topic=message.topic,
        source=message.source,
        sequence=message.sequence,
        gap=message.gap,
        cloud=message.cloud or UNSET,
        headers=readable(message.headers) if message.headers else UNSET,
        **payload_fields(message.payload),
    )
