"""The commands that ask and go: `iris request`, `iris broadcast`, `iris survey`, `iris members`."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from typing import TYPE_CHECKING

import iris_py
from iris_py.cli.outcome import ExitCode, complain, one_line
from iris_py.errors import ConfigurationError
from iris_py.wire.packets import MESSAGE_BYTES_LIMIT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py.api.request import OnFull
    from iris_py.cli.settings import Settings

__all__ = ["broadcast", "members", "read_headers", "read_payload", "request", "survey"]


async def request(
    settings: Settings,
    cluster: str,
    text: str,
    *,
    timeout_s: float,
    is_idempotent: bool,
    key: str | None,
    prefer: str | None,
    require: str | None,
    retry_failed: bool,
    on_full: OnFull,
    header: Sequence[str] | None,
    as_json: bool,
) -> int:
    """Ask one member and print its reply as it came: not a byte more into a file or pipe."""
    config = settings.load()
    headers, payload = (
        read_headers(header),
        read_payload(text, config.max_message_bytes, f"Pipe it through `iris tunnel {shlex.quote(cluster)}`"),
    )
    async with iris_py.connect(config=config) as node:
        started = time.perf_counter()
        reply = await node.request(
            cluster,
            payload,
            timeout=timeout_s,
            idempotent=is_idempotent,
            key=key,
            prefer=prefer,
            require=require,
            headers=headers,
            on_full=on_full,
            retry_failed=retry_failed,
        )
        duration_s = time.perf_counter() - started
    if as_json:
        _print_json({"cluster": cluster, **_describe(reply), "seconds": round(duration_s, 6)})
        return ExitCode.OK
    sys.stdout.buffer.write(reply)
    if sys.stdout.isatty() and not reply.endswith(b"\n"):
        sys.stdout.buffer.write(b"\n")
    sys.stdout.buffer.flush()
    return ExitCode.OK


async def broadcast(settings: Settings, cluster: str, text: str, *, header: Sequence[str] | None, as_json: bool) -> int:
    """Send to every member and say how many there were."""
    config = settings.load()
    headers, payload = read_headers(header), read_payload(text, config.max_message_bytes, "Split it")
    async with iris_py.connect(config=config) as node:
        count = await node.broadcast(cluster, payload, headers=headers)
        known = len(node.nodes()) - 1
    if count == 0:
        raise iris_py.NoMembers(cluster, known)
    if as_json:
        _print_json({"cluster": cluster, "members": count})
    else:
        print(f"sent to {count} member{'s' * (count != 1)}")
    return ExitCode.OK


async def survey(
    settings: Settings,
    cluster: str,
    text: str,
    *,
    timeout_s: float,
    stop_after: int | None,
    header: Sequence[str] | None,
    as_json: bool,
) -> int:
    """Ask every member, print a line for each reply as it comes, and say what became of the others."""
    config = settings.load()
    headers, payload = read_headers(header), read_payload(text, config.max_message_bytes, "Split it")
    replies = 0
    documents: list[dict[str, str]] = []
    async with iris_py.connect(config=config) as node:
        asked = node.survey(cluster, payload, timeout=timeout_s, stop_after=stop_after, headers=headers)
        async for reply in asked:
            replies += 1
            if as_json:
                documents.append({"member": reply.member.id, **_describe(reply.payload)})
            else:
                print(f"{reply.member.id[:8]}  {one_line(reply.payload.decode(errors='backslashreplace'))}", flush=True)
    answers = asked.answers
    if as_json:
        _print_json(_describe_survey(cluster, documents, answers))
    else:
        _complain_of(cluster, answers, is_stopped=replies == stop_after)
    if replies >= (stop_after or 1):
        return ExitCode.OK
    if answers.missing_count:
        return ExitCode.TIMEOUT
    if answers.failed:
        return ExitCode.FAILED
    return ExitCode.OVERLOADED if answers.rejected else ExitCode.OK


async def members(settings: Settings, cluster: str | None, *, as_json: bool) -> int:
    """List the members of a cluster or the nodes of the network; an empty list has the exit code of `NoMembers`.

    Of a large cluster or network a node sees a part only. Where that is so, standard error says of how many.
    """
    async with iris_py.connect(**settings.connect_arguments()) as node:
        network, found, total = node.network, list[iris_py.Member](), 0
        if cluster is None:
            # The node of this very command is about to go: it is of no interest to anybody.
            found = [member for member in node.nodes() if member.id != node.id]
            total = node.network_size - 1
        else:
            view = node.members(cluster)
            found = list(await view)
            total = view.total
        seeds = node.unreached_seeds()
    for address, reason in seeds.items():
        complain(f"no node of this network answers at the seed {address}: it {reason}")
    if as_json:
        _print_json([{"id": member.id, "address": member.address, "zone": member.zone} for member in found])
    else:
        _print_table([(member.id, member.address, member.zone) for member in found])
    if total > len(found) > 0 and cluster is not None:
        complain(
            f"these are {len(found)} of {total} members of {cluster!r}: of a large cluster a node sees a sample. "
            "`iris survey` asks them all."
        )
    elif total > len(found) > 0:
        complain(
            f"these are {len(found)} of about {total} nodes of the network {network!r}: of a large one a node knows a part."
        )
    if found:
        return ExitCode.OK
    if not as_json:
        start = "iris node" if cluster is None else f"iris join {shlex.quote(cluster)} --exec ..."
        what = f"nobody serves {cluster!r}" if cluster is not None else f"no other node found in the network {network!r}"
        complain(f"{what}. Start one with `{start}`, or name one with --seed.")
    return ExitCode.NO_MEMBERS


def read_payload(text: str, bytes_max: int, advice: str) -> bytes:
    """Return the bytes of an argument, exactly as the shell gave them, or of standard input.

    Args:
        text: The argument; ``-`` stands for standard input.
        bytes_max: The largest payload that this node sends. Not a byte more is read than shows that there are more.
        advice: What to do with more, beside raising the limit.

    Raises:
        ConfigurationError: Standard input is closed, or has more.
    """
    if text != "-":
        return os.fsencode(text)
    if sys.stdin is None:
        raise ConfigurationError("standard input is closed. Give it something to read, or the text in place of -.")
    payload = sys.stdin.buffer.read(bytes_max + 1)
    if len(payload) > bytes_max:
        raise ConfigurationError(
            f"standard input has more than {bytes_max} bytes, the most that a message of this node may have. {advice}, or "
            f"raise max_message_bytes with IRIS_MAX_MESSAGE_BYTES (at most {MESSAGE_BYTES_LIMIT})."
        )
    return payload


def read_headers(given: Sequence[str] | None) -> dict[str, str]:
    """Return the headers that were given as `NAME=VALUE`; of one that was given twice the last.

    Raises:
        ConfigurationError: One has no `=`.
    """
    headers = {}
    for each in given or ():
        name, separator, value = each.partition("=")
        if not separator:
            raise ConfigurationError(f"--header {each!r} has no value. Write it as NAME=VALUE.")
        headers[name] = value
    return headers


def _describe(reply: bytes) -> dict[str, str]:
    """Say in JSON what bytes are there: as text when they are text."""
    try:
        return {"reply": reply.decode()}
    except UnicodeDecodeError:
        import base64

        return {"reply_base64": base64.b64encode(reply).decode()}


def _describe_survey(cluster: str, replies: Sequence[dict[str, str]], answers: iris_py.Answers) -> dict[str, object]:
    """Say in JSON what became of a survey."""
    return {
        "cluster": cluster,
        "replies": replies,
        "members": answers.expected,
        "complete": answers.is_complete,
        "missing": answers.missing_count,
        "missing_members": [member.id for member in answers.missing],
        "failed": [{"member": each.member.id, "type": each.type, "text": each.text} for each in answers.failed],
        "rejected": [member.id for member in answers.rejected],
        "declined": [member.id for member in answers.declined],
        "dropped": answers.dropped,
    }


def _complain_of(cluster: str, answers: iris_py.Answers, *, is_stopped: bool) -> None:
    """Say who did not reply; who was not waited for is of no interest."""
    for failure in answers.failed:
        complain(f"the handler at member {failure.member.id[:8]} failed with {failure.type}: {failure.text}")
    if answers.rejected:
        complain(f"{len(answers.rejected)} members of {cluster!r} are full: {_names(answers.rejected)}")
    if answers.missing_count and not is_stopped:
        which = f": {_names(answers.missing)}" if answers.missing else ""
        complain(f"{answers.missing_count} of {answers.expected} members of {cluster!r} did not answer{which}")


def _names(members: Sequence[iris_py.Member]) -> str:
    return ", ".join(member.id[:8] for member in members)


def _print_json(document: object) -> None:
    print(json.dumps(document))


def _print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print aligned columns, one line per row, for people and for `awk`. Zones come from others, so they are made harmless."""
    shown = [[one_line(cell) or "-" for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    for row in shown:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
