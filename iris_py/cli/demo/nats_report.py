"""The output of `iris demo --nats`: its doors, and at the end the losses."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import msgspec

from iris_py.cli.demo.findings import DemoFinding, print_findings
from iris_py.cli.demo.keys import has_keys
from iris_py.cli.demo.nats_client import client_name
from iris_py.cli.demo.nats_load import CLUSTER, NATIVE, NATS, NumberedMessages, Replies
from iris_py.cli.demo.progress import print_note
from iris_py.cli.output import Output
from iris_py.json_lines import Line, Lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from iris_py.cli.demo.nats_load import NatsLoad
    from iris_py.cli.demo.nats_network import NatsDemo

__all__ = ["LINES", "announce", "report"]


class DemoDoor(msgspec.Struct):
    """A door of the demo."""

    url: str
    """The address for clients of NATS."""
    process: int
    """The process id."""


class NatsDemoReadyLine(Line, tag="nats-demo-ready"):
    """The running demo."""

    doors: list[DemoDoor]
    members: list[int]
    """The process ids of the native members."""
    client: str
    """The client of NATS that the demo uses."""


class RequestCounts(msgspec.Struct):
    """The requests of a caller."""

    sent: int
    native: int
    """Replies of native members."""
    nats: int
    """Replies of clients of NATS."""
    lost: int


class MessageCounts(msgspec.Struct):
    """The messages of a client of NATS at a subscriber."""

    published: int
    received: int
    repeated: int
    lost: int


class NatsDemoLine(Line, tag="nats-demo"):
    """The counts of `iris demo --nats`, and with `--check` the findings."""

    findings: list[DemoFinding]
    native_requests: RequestCounts
    """The requests of a native program."""
    client_requests: RequestCounts
    """The requests of a client of NATS."""
    to_native: MessageCounts
    """The messages at a native subscriber."""
    to_client: MessageCounts
    """The messages at a subscriber with a client of NATS."""


#: The lines of `--json`, by command.
LINES: Final[Lines] = {"demo": (NatsDemoReadyLine, NatsDemoLine)}


def announce(demo: NatsDemo, *, as_json: bool) -> None:
    """Print the doors and the keys: as JSON on standard output, as text on standard error."""
    doors = [DemoDoor(f"nats://{each.id}", each.pid) for each in demo.doors.members]
    members = [each.pid for each in demo.members.members]
    if as_json:
        Output(as_json=True).line(NatsDemoReadyLine(doors, members, client_name()))
        return
    print_note(sys.stderr, f"{len(members)} member processes and 2 clients of NATS serve {CLUSTER!r} in a private network")
    print_note(sys.stderr, f"the clients of NATS are those of {client_name()}")
    print_note(sys.stderr, f"clients of yours are welcome at {' and '.join(each.url for each in doors)}")
    keys = "press k to kill a member, d to kill a door; q or Ctrl-C ends the demo" if has_keys() else "Ctrl-C ends the demo"
    print_note(sys.stderr, keys)


def report(findings: list[DemoFinding], load: NatsLoad, *, as_json: bool) -> int:
    """Print the findings and the counts; return the exit code, 0 only if all claims hold."""
    line = NatsDemoLine(
        findings,
        _requests(load.native_requests),
        _requests(load.client_requests),
        _messages(load.to_native, load.published),
        _messages(load.to_client, load.published),
    )
    return print_findings(findings, line, _figures(line), as_json=as_json)


def _requests(replies: Replies) -> RequestCounts:
    return RequestCounts(replies.sent, replies.by_kind[NATIVE], replies.by_kind[NATS], replies.lost)


def _messages(deliveries: NumberedMessages, published: int) -> MessageCounts:
    return MessageCounts(published, deliveries.received, deliveries.repeated, published - deliveries.received)


def _figures(line: NatsDemoLine) -> Iterator[str]:
    """Yield a line of text for each way of messages."""
    for caller, requests in (("a native program", line.native_requests), ("a client of NATS", line.client_requests)):
        yield (
            f"Requests of {caller}: {requests.sent:,}, answered by native members {requests.native:,}, "
            f"by clients of NATS {requests.nats:,}, lost {requests.lost:,}"
        )
    for reader, messages in (("a native program", line.to_native), ("a client of NATS", line.to_client)):
        yield (
            f"Messages of a client of NATS to {reader}: {messages.published:,}, "
            f"lost {messages.lost:,}, repeated {messages.repeated:,}"
        )
