"""`iris federation`: shows the gateways of a cloud, and the clouds connected by them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from iris_py.api.cloud.gateways import ask_gateways
from iris_py.cli.outcome import ExitCode, complain
from iris_py.cli.output import Output
from iris_py.federation.calls import Call, Op
from iris_py.federation.names import split
from iris_py.json_lines import Line, Lines
from iris_py.overview.clouds import GatewayLine, gateway_line
from iris_py.overview.units import format_seconds

if TYPE_CHECKING:
    from rich.console import Console

    from iris_py.cli.settings import Settings

__all__ = ["LINES", "explain", "status"]


class StatusSummary(Line, tag="summary"):
    """The number of listed gateways."""

    gateways: int


class ExplanationLine(Line, tag="gateway"):
    """The outcome of a request to a name of another cloud at a gateway (docs/federation.md)."""

    node: str
    name: str
    file: str
    """The settings file."""
    asked: str
    goes: bool
    reason: str
    """The reason against sending; empty otherwise."""
    imports: list[dict[str, Any]]
    """The rules for the name in the gateway's file."""
    ways: list[dict[str, Any]]
    """The gateways of the other cloud, and whether each would carry the request."""
    dials: list[dict[str, Any]]
    """The addresses without a connection now."""


class ExplanationSummary(Line, tag="summary"):
    """The end of `iris federation explain`: whether a gateway would send the request."""

    asked: str
    goes: bool
    """Whether any gateway would carry the request."""
    gateways: int


#: The lines of `--json`, by command.
LINES: Final[Lines] = {
    "federation status": (GatewayLine, StatusSummary),
    "federation explain": (ExplanationLine, ExplanationSummary),
}


async def status(settings: Settings, *, as_json: bool) -> int:
    """Print the state of the gateways and their cloud links (`iris federation status`); return the exit code."""
    async with settings.visit() as node:
        gateways = await ask_gateways(node, Call(op=Op.STATUS))
    if as_json:
        output = Output(as_json=True)
        output.lines((gateway_line(gateway), None) for gateway in gateways)
        output.line(StatusSummary(len(gateways)))
    elif gateways:
        _print(gateways)
    if not gateways:
        complain("no gateway runs in this network. Start one with `iris gateway federation.toml`.")
        return ExitCode.NO_MEMBERS
    return ExitCode.OK


async def explain(settings: Settings, name: str, *, as_json: bool) -> int:
    """Print the outcome of a request to a name of another cloud at each gateway; return the exit code."""
    try:
        _there, alias = split(name)
    except ValueError as exc:
        complain(str(exc))
        return ExitCode.USAGE
    if not alias:
        complain(f"{name!r} names no cloud. Write it like {name}@eu; `iris federation status` shows the clouds.")
        return ExitCode.USAGE
    async with settings.visit() as node:
        gateways = await ask_gateways(node, Call(op=Op.EXPLAIN, name=name))
    goes = any(gateway["goes"] for gateway in gateways)
    if as_json:
        output = Output(as_json=True)
        output.lines((_explanation_line(gateway), None) for gateway in gateways)
        output.line(ExplanationSummary(name, goes, len(gateways)))
    elif gateways:
        _print_explanations(name, gateways, goes=goes)
    if not gateways:
        complain("no gateway runs in this network. Start one with `iris gateway federation.toml`.")
    return ExitCode.OK if goes else ExitCode.NO_MEMBERS


def _explanation_line(gateway: dict[str, Any]) -> ExplanationLine:
    return ExplanationLine(**{name: gateway[name] for name in ExplanationLine.__struct_fields__})


def _print(gateways: list[dict[str, Any]]) -> None:
    from rich.console import Console

    console = Console(highlight=False, markup=False, soft_wrap=True)
    for gateway in gateways:
        where = f"listens at {gateway['listens']}" if gateway["listens"] else "only dials"
        console.print(f"gateway {gateway['node'][:8]} of {gateway['name']!r}, {where}", style="bold")
        for alias, cloud in gateway["clouds"].items():
            _print_cloud(console, alias, cloud)
        drops = ", ".join(f"{count} {reason}" for reason, count in sorted(gateway["drops"].items()))
        if drops:
            console.print(f"  dropped: {drops}")


def _print_cloud(console: Console, alias: str, cloud: dict[str, Any]) -> None:
    console.print(f"  {alias}: {'up' if cloud['is_up'] else 'down'}", style="green" if cloud["is_up"] else "red")
    for bundle in cloud["bundles"]:
        trip = bundle["round_trip_s"]
        facts = [f"{bundle['connections']} connections", f"heard {bundle['heard_s_ago']:.1f} s ago"]
        facts += [] if trip is None else [f"round trip {format_seconds(trip)}"]
        facts += [f"requests {bundle['requests_out']} out, {bundle['requests_in']} in", f"{bundle['channels']} channels"]
        facts += ["suspect: gets nothing new"] * bundle["is_suspect"] + ["draining"] * bundle["is_going"]
        console.print(f"    gateway {bundle['gateway'][:8]} at {bundle['address']}: {', '.join(facts)}")
    for each in cloud["unmatched_imports"]:
        what = f"line {each['line']} imports the {each['kind']} {each['outside']!r}, which it does not export to this cloud"
        console.print(f"    {what}", style="red")
    if cloud["catalogues_differ"]:
        digests = ", ".join(f"{bundle['gateway'][:8]}: {bundle['catalogue_digest']}" for bundle in cloud["bundles"])
        console.print(f"    its gateways export different things ({digests}): one may have an old file", style="red")
    _print_accounts(console, cloud["accounts"])
    for slot in cloud["dials"]:
        if slot["error"] and not slot["is_up"]:
            console.print(f"    dialling {slot['address']}: {slot['error']} ({slot['failures']} times)")
    for loss in cloud.get("lost", ()):  # an older gateway does not report losses
        console.print(f"    lost a cloud link from {loss['address']} {loss['s_ago']:.0f} s ago: {loss['reason']}", style="red")


def _print_accounts(console: Console, accounts: dict[str, Any]) -> None:
    """Print the passed messages and bytes of a gateway, in total and by rule."""
    console.print(f"    cloud link: {_passed(accounts, 'line_bytes')}{_money(accounts)}")
    for rule in accounts["rules"]:
        outcomes = ", ".join(f"{count:,} {outcome}" for outcome, count in rule["requests"].items())
        facts = [f"requests: {outcomes}"] if outcomes else []
        facts.append(f"{rule['messages_sent']:,} messages out, {rule['messages_received']:,} in")
        facts.append(f"payloads: {_passed(rule, 'payload_bytes')}")
        facts += [f"dropped: {count:,} {reason}" for reason, count in rule["dropped"].items()]
        what = (
            f"{rule['direction']} of {rule['kind']} {rule['pattern']!r}" if rule["pattern"] else f"other {rule['direction']}s"
        )
        console.print(f"      {what}: {'; '.join(facts)}{_money(rule)}")


def _passed(counts: dict[str, Any], name: str) -> str:
    return f"{counts[f'{name}_sent']:,} bytes out, {counts[f'{name}_received']:,} in"


def _money(counts: dict[str, Any]) -> str:
    return f"; money: {counts['money']:,.2f}" if "money" in counts else ""


def _print_explanations(name: str, gateways: list[dict[str, Any]], *, goes: bool) -> None:
    from rich.console import Console

    console = Console(highlight=False, markup=False, soft_wrap=True)
    is_topic = {rule["kind"] for gateway in gateways for rule in gateway["imports"]} == {"topic"}
    use = "a subscription or publication" if is_topic else "a request"
    console.print(f"{name}: {use} {'goes' if goes else 'does not go'}", style="green" if goes else "red")
    for gateway in gateways:
        console.print(f"gateway {gateway['node'][:8]} of {gateway['name']!r}", style="bold")
        for rule in gateway["imports"]:
            here = f", here {rule['local']!r}" if rule["local"] else ""
            console.print(f"  imported by line {rule['line']} of {gateway['file']}: {rule['kind']} {rule['outside']!r}{here}")
        for way in gateway["ways"]:
            _print_way(console, way)
        if gateway["reason"]:
            console.print(f"  {gateway['reason']}", style="red")


def _print_way(console: Console, way: dict[str, Any]) -> None:
    facts = []
    if way["pattern"]:
        facts.append(f"exports {way['kind']} {way['pattern']!r} for {', '.join(way['uses'])}")
        facts += [f"{way['requests_per_s']:,g} requests/s"] if way["requests_per_s"] else []
        facts += [f"{way['in_flight']:,} in flight, {way['under_way']:,} under way"] if way["kind"] == "cluster" else []
    facts += [] if way["round_trip_s"] is None else [f"round trip {format_seconds(way['round_trip_s'])}"]
    facts.append(way["obstacle"] or "would carry it")
    style = "red" if way["obstacle"] else "green"
    console.print(f"  by gateway {way['gateway'][:8]} at {way['address']}: {'; '.join(facts)}", style=style)
