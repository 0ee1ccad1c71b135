"""`iris door web`: lets programs that are not nodes use the network until stopped, or only checks the settings file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_py.cli.door_service import load_or_complain, rights_text, serve_door
from iris_py.cli.outcome import ExitCode
from iris_py.cli.output import Output
from iris_py.cli.standard_error import tell
from iris_py.doors.rights import CLUSTER_USES, TOPIC_USES
from iris_py.errors import ConfigurationError
from iris_py.extras import install_command
from iris_py.json_lines import Line, Lines
from iris_py.observe.node_name import short_name
from iris_py.servers.settings_file import load_settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from iris_py.cli.door_service import DoorCommand
    from iris_py.doors.rights import Rights
    from iris_py.servers.web.door import WebDoor

__all__ = ["LINES", "check", "rights_of", "serve_web"]


class DoorReadyLine(Line, tag="ready"):
    """A started door."""

    id: str
    """The node id."""
    network: str
    door: str
    """``web``."""
    address: str
    """The listening address."""
    url: str
    """The address for clients."""
    roles: list[str]
    """The names of the roles."""


class RoleLine(Line, tag="role"):
    """A role in the settings file of a door."""

    role: str
    rights: list[str]
    """The rights, a sentence for each."""


class DoorCheckSummary(Line, tag="summary"):
    """The summary of a settings file without mistakes."""

    roles: int
    histories: int
    listen: str


#: The lines of `--json`, by command.
LINES: Final[Lines] = {"door web": (DoorReadyLine, RoleLine, DoorCheckSummary)}


async def check(file: Path | None, *, as_json: bool) -> int:
    """Check the settings file of a door and print the rights of each role, without opening a door.

    Returns:
        The exit code. Mistakes have been printed on standard error.
    """
    settings = load_or_complain(load_settings, file, None)
    if settings is None:
        return ExitCode.USAGE
    output = Output(as_json=as_json)
    for role, rights in settings.roles.items():
        lines = list(rights_of(rights))
        output.line(RoleLine(role, lines), rights_text(role, lines))
    count = len(settings.roles)
    what = f"{count} role{'s' * (count != 1)}; listens at {settings.web.listen}"
    output.line(DoorCheckSummary(count, len(settings.histories), settings.web.listen), what)
    return ExitCode.OK


def rights_of(rights: Rights) -> Iterator[str]:
    """Yield a sentence for each right."""
    for use in (*CLUSTER_USES, *TOPIC_USES):
        for rule in getattr(rights, use):
            yield f"{use} {rule}"
    if rights.observe:
        yield "observe the network"
    if rights.remote_errors:
        yield "read the errors of handlers"


async def serve_web(command: DoorCommand) -> int:
    """Run a web door until a signal arrives; then end without failing requests under way. Return the exit code."""
    try:
        from iris_py.servers.web.door import open_door
    except ImportError as exc:
        raise ConfigurationError(f"a web door needs {exc.name}. Run: {install_command('web')}") from exc
    return await serve_door(command, load_settings, open_door, lambda door: _announce(door, as_json=command.as_json))


def _announce(door: WebDoor, *, as_json: bool) -> None:
    node, roles = door.node, list(door.settings.roles)
    if as_json:
        line = DoorReadyLine(node.id, node.network, "web", door.address, door.url, roles)
        Output(as_json=True).line(line)
        return
    shown = short_name(node.id, node.name)
    tell(f"door {shown} of {node.network!r} listens at {door.url}; Ctrl-C ends it", event="running")
    tell(f"the dashboard, for one browser within 10 minutes: {door.url}/#code={door.make_code()}", event="dashboard")
