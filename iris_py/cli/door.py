"""`iris door`: lets programs that are not nodes use the network until stopped, or only checks the settings file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import iris_py
from iris_py.cli.join import describe_service, ending_by_signal, run_on_hangup, serving_status
from iris_py.cli.outcome import ExitCode
from iris_py.cli.output import Output
from iris_py.cli.standard_error import complain, tell
from iris_py.doors.rights import CLUSTER_USES, TOPIC_USES
from iris_py.errors import ConfigurationError, IrisError
from iris_py.extras import install_command
from iris_py.json_lines import Line, Lines
from iris_py.net.service_manager import service_manager
from iris_py.observe.node_name import short_name
from iris_py.servers.settings_file import load_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from iris_py.cli.settings import Settings
    from iris_py.doors.rights import Rights
    from iris_py.doors.settings import DoorSettings
    from iris_py.servers.web.door import WebDoor

__all__ = ["LINES", "check", "load_or_complain", "reload", "rights_of", "serve_web"]


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
        output.line(RoleLine(role, lines), "\n".join([f"{role}:", *(f"  {line}" for line in lines or ["nothing"])]))
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


async def serve_web(settings: Settings, file: Path | None, *, at: str | None, http: str | None, as_json: bool) -> int:
    """Run a web door until a signal arrives; then end without failing requests under way. Return the exit code."""
    try:
        from iris_py.servers.web.door import open_door
    except ImportError as exc:
        raise ConfigurationError(f"a web door needs {exc.name}. Run: {install_command('web')}") from exc
    loaded = load_or_complain(load_settings, file, at)
    if loaded is None:
        return ExitCode.USAGE
    async with (
        ending_by_signal() as ended,
        serving_status(http) as status,
        iris_py.connect(**settings.connect_arguments()) as node,
        open_door(node, loaded) as door,
    ):
        if status is not None:
            status.show(node, door.collector, reasons=door.reasons)
        run_on_hangup(lambda: reload(door, load_settings, file, at))
        service_manager().ready(lambda: describe_service(node, f"is a door at {door.url}"))
        _announce(door, as_json=as_json)
        return await ended


class RunningDoor(Protocol):
    """A door of any kind."""

    def check_change(self, settings: DoorSettings) -> None: ...

    def apply(self, settings: DoorSettings) -> None: ...

    async def reload_keys(self) -> None: ...


#: Loads the settings of a door of some kind from a file, with another address to listen at.
SettingsLoad: TypeAlias = "Callable[[Path | None, str | None], DoorSettings]"


def load_or_complain(load: SettingsLoad, file: Path | None, at: str | None) -> DoorSettings | None:
    """Load the settings of a door; after a mistake, print all mistakes and return None."""
    try:
        return load(file, at)
    except ConfigurationError as exc:
        for line in str(exc).split("\n"):
            complain(line)
        return None


async def reload(door: RunningDoor, load: SettingsLoad, file: Path | None, at: str | None) -> None:
    """Read the secrets and the settings file again. After a mistake, report it and keep the old settings."""
    try:
        loaded = load(file, at)
        door.check_change(loaded)
        await door.reload_keys()
        door.apply(loaded)
    except IrisError as exc:
        for line in str(exc).split("\n"):
            complain(f"the settings were not changed: {line}", event="settings_kept")
    else:
        tell("read the settings and secrets again", event="settings_read")


def _announce(door: WebDoor, *, as_json: bool) -> None:
    node, roles = door.node, list(door.settings.roles)
    if as_json:
        line = DoorReadyLine(node.id, node.network, "web", door.address, door.url, roles)
        Output(as_json=True).line(line)
        return
    shown = short_name(node.id, node.name)
    tell(f"door {shown} of {node.network!r} listens at {door.url}; Ctrl-C ends it", event="running")
    tell(f"the dashboard, for one browser within 10 minutes: {door.url}/#code={door.make_code()}", event="dashboard")
