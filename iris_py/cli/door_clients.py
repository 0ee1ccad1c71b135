"""`iris door clients`: the clients of all doors of the network, by the reports of the doors."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from iris_py.api.door_survey import ask_clients
from iris_py.cli.outcome import ExitCode, complain
from iris_py.cli.output import Column, Output
from iris_py.errors import NoMembers, RequestTimeout
from iris_py.json_lines import Line
from iris_py.observe.node_name import short_id
from iris_py.overview.units import format_bytes, format_count, format_seconds

if TYPE_CHECKING:
    from iris_py.api.door_survey import ClientsAtDoor
    from iris_py.cli.settings import Settings
    from iris_py.doors.door_messages import DoorAnnouncement
    from iris_py.doors.door_reports import ClientReport
    from iris_py.json_lines import Lines

__all__ = ["LINES", "clients"]


class ClientLine(Line, tag="client", kw_only=True):
    """A client of a door."""

    door: str
    """The node id of the door."""
    door_kind: str
    """The kind of the door: ``nats``, or ``web``, where each open event stream is a client."""
    door_address: str
    """The address of the door for clients."""
    number: int
    """The number of the client at its door; 0 for an event stream."""
    name: str
    """The name that the client gives itself."""
    user: str
    """The user, or the subject of the token; empty at a door without users."""
    language: str
    """The language of the client's library, as the library says it."""
    version: str
    """The version of this library."""
    address: str
    """The address of the client; empty if the door does not know it."""
    subscriptions: int
    messages_in: int
    """Messages from the client."""
    messages_out: int | None
    """Messages to the client; null if the door does not count them."""
    waiting_bytes: int
    """Bytes that the client has not taken."""
    since: datetime | None
    """The time at which the client has connected, by the clock of this machine; null if the door does not know it."""
    age_s: float | None
    """The time since then, in seconds."""


class ClientsSummary(Line, tag="summary", kw_only=True):
    """The end of the list."""

    shown: int
    total: int
    """The number of clients of the listed doors."""
    doors: int
    """The number of listed doors."""
    silent: int
    """The number of doors without an answer."""


#: The lines of `--json`, by command.
LINES: Final[Lines] = {"door clients": (ClientLine, ClientsSummary)}

_COLUMNS: Final = (
    Column[ClientLine]("door", lambda line: line.door_address or short_id(line.door), rank=1),
    Column[ClientLine]("name", lambda line: line.name),
    Column[ClientLine]("user", lambda line: line.user),
    Column[ClientLine]("language", lambda line: f"{line.language} {line.version}".strip(), rank=2),
    Column[ClientLine]("address", lambda line: line.address),
    Column[ClientLine]("subscriptions", lambda line: format_count(line.subscriptions), is_number=True),
    Column[ClientLine]("in", lambda line: format_count(line.messages_in), is_number=True),
    Column[ClientLine](
        "out", lambda line: "" if line.messages_out is None else format_count(line.messages_out), is_number=True
    ),
    Column[ClientLine]("waiting", lambda line: format_bytes(line.waiting_bytes), is_number=True, rank=3),
    Column[ClientLine]("for", lambda line: "" if line.age_s is None else format_seconds(line.age_s), is_number=True),
)


async def clients(settings: Settings, *, door: str | None, timeout_s: float, limit: int, as_json: bool) -> int:
    """List the clients of the doors of the network; return the exit code.

    Args:
        settings: The settings of the command line.
        door: The kind, the address or the first digits of the node id of the listed doors; None for all.
        timeout_s: Time to wait for the doors (seconds).
        limit: The largest number of clients.
        as_json: Print lines of JSON.
    """
    async with settings.visit() as node:
        network = node.network
        try:
            report = await ask_clients(node, timeout_s, limit, lambda at, each: door is None or _is_meant(door, at, each))
        except NoMembers:
            complain(f"no door runs in the network {network!r}. Start one with `iris door nats` or `iris door web`.")
            return ExitCode.NO_MEMBERS
        except RequestTimeout:
            complain(f"no door has answered within {timeout_s:g} s. Repeat the command with a longer --timeout.")
            return ExitCode.TIMEOUT
    if not report.doors and report.others:
        complain(f"none of the {report.others} doors is {door!r}. Give a kind, an address, or digits of a node id.")
        return ExitCode.NO_MEMBERS
    unix_s = time.time()
    lines = [_line(at_door, each, unix_s) for at_door in report.doors for each in at_door.clients]
    total = sum(at_door.total for at_door in report.doors)
    output = Output(as_json=as_json)
    output.table(lines, _COLUMNS)
    output.line(ClientsSummary(shown=len(lines), total=total, doors=len(report.doors), silent=report.silent))
    if total > len(lines):
        complain(f"these are {len(lines)} of {total} clients: --limit shows more.")
    if report.silent:
        complain(f"{report.silent} doors did not answer: they are busy, or of an earlier version.")
    return ExitCode.TIMEOUT if report.silent and not report.doors else ExitCode.OK


def _is_meant(door: str, node: str, announcement: DoorAnnouncement) -> bool:
    """Return whether a text on the command line names a door."""
    address = announcement.address
    return bool(door) and (door in (announcement.kind, address, address.partition("://")[2]) or node.startswith(door.lower()))


def _line(at_door: ClientsAtDoor, client: ClientReport, unix_s: float) -> ClientLine:
    door, age_s = at_door.door, client.age_s
    return ClientLine(
        door=at_door.node,
        door_kind=door.kind,
        door_address=door.address,
        number=client.number,
        name=client.name,
        user=client.user,
        language=client.language,
        version=client.version,
        address=client.address,
        subscriptions=client.subscriptions,
        messages_in=client.messages_in,
        messages_out=client.messages_out,
        waiting_bytes=client.waiting_bytes,
        since=None if age_s is None else datetime.fromtimestamp(unix_s - age_s, UTC),
        age_s=None if age_s is None else round(age_s, 3),
    )
