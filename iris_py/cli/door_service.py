"""The common part of `iris door web` and `iris door nats`: a door runs until a signal, and reads its file again on SIGHUP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

import iris_py
from iris_py.cli.join import describe_service, ending_by_signal, run_on_hangup, serving_status
from iris_py.cli.outcome import ExitCode
from iris_py.cli.standard_error import complain, tell
from iris_py.errors import ConfigurationError, IrisError
from iris_py.net.service_manager import service_manager

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from iris_py.api.node import Node
    from iris_py.cli.settings import Settings
    from iris_py.doors.settings import DoorSettings
    from iris_py.servers.metrics import DoorCollector

__all__ = ["DoorCommand", "RunningDoor", "SettingsLoad", "load_or_complain", "reload", "rights_text", "serve_door"]


class RunningDoor(Protocol):
    """A door of any kind."""

    @property
    def url(self) -> str: ...

    @property
    def collector(self) -> DoorCollector: ...

    def reasons(self) -> list[str]: ...

    def check_change(self, settings: DoorSettings) -> None: ...

    def apply(self, settings: DoorSettings) -> None: ...

    async def reload_keys(self) -> None: ...


Door = TypeVar("Door", bound=RunningDoor)
#: Loads the settings of a door of some kind from a file, with another address to listen at.
SettingsLoad: TypeAlias = "Callable[[Path | None, str | None], DoorSettings]"


@dataclass(frozen=True, slots=True)
class DoorCommand:
    """The arguments of a command that runs a door."""

    settings: Settings
    """The settings of the command line."""
    file: Path | None
    """The settings file of the door; None for the defaults."""
    at: str | None
    """The address to listen at; None for the address in the file."""
    http: str | None
    """The address for the status; None for none."""
    as_json: bool
    """Print lines of JSON."""


async def serve_door(
    command: DoorCommand,
    load: SettingsLoad,
    open_door: Callable[[Node, DoorSettings], AbstractAsyncContextManager[Door]],
    announce: Callable[[Door], None],
) -> int:
    """Run a door until a signal arrives; then close the door in order. Return the exit code.

    Args:
        command: The arguments.
        load: Loads the settings of the door.
        open_door: Opens the door over a node.
        announce: Prints that the door runs.
    """
    loaded = load_or_complain(load, command.file, command.at)
    if loaded is None:
        return ExitCode.USAGE
    async with (
        ending_by_signal() as ended,
        serving_status(command.http) as status,
        iris_py.connect(**command.settings.connect_arguments()) as node,
        open_door(node, loaded) as door,
    ):
        if status is not None:
            status.show(node, door.collector, reasons=door.reasons)
        run_on_hangup(lambda: reload(door, load, command.file, command.at))
        service_manager().ready(lambda: describe_service(node, f"is a door at {door.url}"))
        announce(door)
        return await ended


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


def rights_text(name: str, rights: Iterable[str]) -> str:
    """Return the rights of a role or user as text, a line for each."""
    return "\n".join([f"{name}:", *(f"  {line}" for line in [*rights] or ["nothing"])])
