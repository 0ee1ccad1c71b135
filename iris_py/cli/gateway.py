"""`iris gateway`: connects this cloud to others until stopped, or only checks the settings file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import iris_py
from iris_py.cli.join import describe_service, ending_by_signal, run_on_hangup, serving_status
from iris_py.cli.outcome import ExitCode
from iris_py.cli.output import Output
from iris_py.cli.standard_error import complain, tell
from iris_py.errors import ConfigurationError, IrisError
from iris_py.federation.description import RuleRow, describe
from iris_py.gateway.startup import load, reload_gateway, start_gateway
from iris_py.json_lines import Line, Lines
from iris_py.net.service_manager import service_manager
from iris_py.observe.node_name import short_name
from iris_py.wire.packets import MESSAGE_BYTES_LIMIT

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from rich.console import Console

    from iris_py.cli.settings import Settings
    from iris_py.federation.description import NeighbourDescription
    from iris_py.federation.settings import FederationSettings
    from iris_py.gateway.gateway import Gateway
    from iris_security import CloudKey

__all__ = ["LINES", "check", "serve"]


class GatewayReadyLine(Line, tag="ready"):
    """A started gateway, with its addresses and neighbours."""

    id: str
    """The node id."""
    address: str
    network: str
    gateway: str | None
    """The address for other clouds; None if the gateway only dials."""
    identity: str
    """The public key of the gateway's cloud."""
    clouds: list[str]
    """The aliases of the neighbours."""


class NeighbourLine(Line, tag="neighbour"):
    """A neighbour (a cloud to connect to) in the settings file of a gateway, with the effective rules."""

    alias: str
    keys: tuple[str, ...]
    links: str
    """The connections, as text."""
    exports: tuple[RuleRow, ...]
    imports: tuple[RuleRow, ...]


class GatewayCheckSummary(Line, tag="summary"):
    """The summary of a settings file without mistakes: the cloud's key, and the number of neighbours."""

    identity: str
    """The public key of the cloud."""
    neighbours: int


#: The lines of `--json`, by command.
LINES: Final[Lines] = {"gateway": (GatewayReadyLine, NeighbourLine, GatewayCheckSummary)}


async def check(settings: Settings, file: Path, *, as_json: bool) -> int:
    """Check the settings file of a gateway and print its effective rules, without starting a gateway.

    Returns:
        The exit code. Mistakes have been printed on standard error.
    """
    federation, key = _load_or_complain(settings, file)
    if federation is None or key is None:
        return ExitCode.USAGE
    described = describe(federation)
    if as_json:
        output = Output(as_json=True)
        for each in described:
            output.line(NeighbourLine(each.alias, each.keys, each.links, each.exports, each.imports))
        output.line(GatewayCheckSummary(key.public_text, len(described)))
    else:
        _print(federation, key, described)
    return ExitCode.OK


async def serve(settings: Settings, file: Path, *, http: str | None = None, as_json: bool) -> int:
    """Run a gateway until a signal arrives; then leave without failing running requests. Return the exit code."""
    federation, key = _load_or_complain(settings, file)
    if federation is None or key is None:
        return ExitCode.USAGE
    arguments = settings.connect_arguments()
    arguments["max_message_bytes"] = MESSAGE_BYTES_LIMIT
    async with (
        ending_by_signal() as ended,
        serving_status(http) as status,
        iris_py.connect(**arguments) as node,
        start_gateway(node, federation, key, folder=file.parent) as gateway,
    ):
        if status is not None:
            status.show(node, gateway.collector, reasons=gateway.reasons, notes=gateway.unreached)
        run_on_hangup(lambda: _reload(gateway, file))
        service_manager().ready(lambda: describe_service(node, f"is the gateway of {gateway.settings.gateway.name!r}"))
        _announce(gateway, as_json=as_json)
        return await ended


async def _reload(gateway: Gateway, file: Path) -> None:
    """Read the secrets and the settings file again. After a mistake, report it and keep the old settings."""
    try:
        await reload_gateway(gateway, file)
    except IrisError as exc:
        for line in str(exc).split("\n"):
            complain(f"the settings were not changed: {line}", event="settings_kept")
    else:
        tell("read the settings and secrets again", event="settings_read")


def _announce(gateway: Gateway, *, as_json: bool) -> None:
    settings = gateway.settings
    if as_json:
        line = GatewayReadyLine(
            id=gateway.node.id,
            address=gateway.node.address,
            network=gateway.node.network,
            gateway=gateway.address or None,
            identity=gateway.public_text,
            clouds=list(settings.clouds),
        )
        Output(as_json=True).line(line)
        return
    where = f"listens for other clouds at {gateway.address}" if gateway.address else "only dials"
    shown = short_name(gateway.node.id, gateway.node.name)
    what = f"gateway {shown} of {settings.gateway.name!r} ({gateway.node.network!r} here) {where}"
    tell(f"{what}; neighbours: {', '.join(settings.clouds) or 'none'}; Ctrl-C ends it", event="running")


def _load_or_complain(settings: Settings, file: Path) -> tuple[FederationSettings | None, CloudKey | None]:
    """Load the settings file and the key of a gateway; after a mistake, print all mistakes and return None for both."""
    try:
        return load(file, _own_secrets(settings))
    except ConfigurationError as exc:
        for line in str(exc).split("\n"):
            complain(line)
        return None, None


def _own_secrets(settings: Settings) -> Collection[str]:
    """Return the names of the clusters that have a secret of their own in the node's settings."""
    clusters = settings.load().clusters
    return () if callable(clusters) else tuple(clusters)


def _print(settings: FederationSettings, key: CloudKey, described: Sequence[NeighbourDescription]) -> None:
    from rich.console import Console

    console = Console(highlight=False, markup=False, soft_wrap=True)
    console.print(f"This cloud calls itself {settings.gateway.name!r}. Its public key, for neighbours: {key.public_text}")
    for neighbour in described:
        console.print(f"\n{neighbour.alias}: {neighbour.links}", style="bold")
        for public in neighbour.keys:
            console.print(f"key {public}")
        _print_rules(console, f"Exports to {neighbour.alias}", neighbour.exports)
        _print_rules(console, f"Imports from {neighbour.alias}", neighbour.imports)
    if not described:
        console.print("There is no neighbour: write a table [cloud.ALIAS] for each.")


def _print_rules(console: Console, title: str, rows: Sequence[RuleRow]) -> None:
    from rich.table import Table
    from rich.text import Text

    if not rows:
        console.print(f"{title}: nothing")
        return
    table = Table("kind", "name outside", "here", "uses", "limits", "line", title=title, title_justify="left")
    for row in rows:
        # As texts, because a pattern in brackets is not markup.
        table.add_row(*map(Text, (row.kind, row.outside, row.local, row.uses, row.limits, str(row.line))))
    console.print(table)
