"""`iris door nats`: lets programs with a client of NATS use the network until stopped, or only checks the settings file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_py.cli.door_service import load_or_complain, rights_text, serve_door
from iris_py.cli.outcome import ExitCode, shorten_collections
from iris_py.cli.output import Output
from iris_py.cli.standard_error import tell
from iris_py.json_lines import Line, Lines
from iris_py.observe.node_name import short_name
from iris_py.servers.settings_file import load_nats_settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from iris_py.cli.door_service import DoorCommand
    from iris_py.doors.nats.users import NatsUser
    from iris_py.servers.nats.door import NatsDoor

__all__ = ["LINES", "check", "serve_nats"]


class NatsReadyLine(Line, tag="ready"):
    """A started door for NATS clients."""

    id: str
    """The node id."""
    network: str
    door: str
    """``nats``."""
    address: str
    """The listening address."""
    url: str
    """The address for clients."""
    users: list[str]
    """The names of the users."""


class UserLine(Line, tag="user"):
    """A user in the settings file of a door."""

    user: str
    rights: list[str]
    """The rights, a sentence for each."""


class NatsCheckSummary(Line, tag="summary"):
    """The summary of a settings file without mistakes."""

    users: int
    listen: str
    tokens: bool
    """Whether tokens of `iris token new` are taken."""


#: The lines of `--json`, by command.
LINES: Final[Lines] = {"door nats": (NatsReadyLine, UserLine, NatsCheckSummary)}


async def check(file: Path | None, *, as_json: bool) -> int:
    """Check the settings file of a door and print the rights of each user, without opening a door.

    Returns:
        The exit code. Mistakes have been printed on standard error.
    """
    settings = load_or_complain(load_nats_settings, file, None)
    if settings is None:
        return ExitCode.USAGE
    output = Output(as_json=as_json)
    for name, user in settings.users.items():
        lines = list(_rights_of(user))
        output.line(UserLine(name, lines), rights_text(name, lines))
    count = len(settings.users)
    nats = settings.nats
    what = f"{count} user{'s' * (count != 1)}{', and tokens' if nats.tokens else ''}; listens at {nats.listen}"
    output.line(NatsCheckSummary(count, nats.listen, nats.tokens), what)
    return ExitCode.OK


async def serve_nats(command: DoorCommand) -> int:
    """Run a NATS door until a signal arrives; then send its clients to other doors. Return the exit code."""
    from iris_py.servers.nats.door import open_nats_door

    shorten_collections()
    return await serve_door(command, load_nats_settings, open_nats_door, lambda door: _announce(door, as_json=command.as_json))


def _rights_of(user: NatsUser) -> Iterator[str]:
    """Yield a sentence for each right."""
    for use, rules in (("publish to", user.publish), ("subscribe to", user.subscribe)):
        for is_given, some in ((True, rules.given), (False, rules.taken)):
            for rule in some:
                name = ".".join(rule.tokens) + (f"@{rule.cloud}" if rule.cloud else "")
                queue = f" in the queue group {rule.queue.decode()}" if rule.queue else ""
                yield f"{'' if is_given else 'not '}{use} {name}{queue}"


def _announce(door: NatsDoor, *, as_json: bool) -> None:
    node, users = door.node, list(door.settings.users)
    if as_json:
        Output(as_json=True).line(NatsReadyLine(node.id, node.network, "nats", door.address, door.url, users))
        return
    shown = short_name(node.id, node.name)
    whose = "" if users or door.settings.nats.tokens else ", for programs of your user on this machine"
    tell(f"door {shown} of {node.network!r} listens at {door.url}{whose}; Ctrl-C ends it", event="running")
