"""The other clouds, by the reports of gateways: cloud links, round trips, and failures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from iris_py.federation.names import GATEWAYS
from iris_py.json_lines import Line
from iris_py.logs import one_line
from iris_py.overview.units import format_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from iris_py.overview.pair import Pair

__all__ = [
    "CloudLine",
    "GatewayLine",
    "cloud_faults",
    "cloud_lines",
    "failed_text",
    "gateway_line",
    "gateway_lines",
    "has_gateways",
]

#: The outcome of a request that is no failure.
_DONE: Final = "done"


class CloudLine(Line, tag="cloud", kw_only=True):
    """The connection of one gateway of this cloud to another cloud."""

    cloud: str
    """The alias of the cloud."""
    gateway: str
    """The node id of the gateway of this cloud."""
    is_up: bool
    """Whether this gateway reaches the cloud."""
    lines: int
    """Number of the cloud's gateways with a cloud link to this gateway."""
    round_trip_s: float | None
    """The shortest round trip over these cloud links, in seconds; None before the first measurement."""
    failed: dict[str, int]
    """Requests through this gateway that failed since its start, by outcome: `unavailable`, `timeout` ..."""
    trouble: str
    """The last error of an address without a connection, or a silent cloud link; empty without either."""


class GatewayLine(Line, tag="gateway"):
    """The state of a gateway and its cloud links (docs/federation.md)."""

    node: str
    """The node id."""
    name: str
    """The name of the gateway's cloud."""
    listens: str
    """The address for other clouds; empty if the gateway only dials."""
    identity: str
    """The public key of the gateway's cloud."""
    clouds: dict[str, Any]
    """The state of each neighbour, by alias."""
    stand_ins: Any
    republished: Any
    drops: dict[str, int]
    """Number of dropped messages, by reason."""
    metrics: str
    """The address of the gateway's metrics for Prometheus; empty without metrics."""
    audit_unwritten: int


class _BundleReport(msgspec.Struct):
    round_trip_s: float | None = None
    is_suspect: bool = False


class _DialReport(msgspec.Struct):
    address: str = ""
    error: str = ""
    is_up: bool = False


class _RuleReport(msgspec.Struct):
    requests: dict[str, int] = {}


class _AccountsReport(msgspec.Struct):
    rules: list[_RuleReport] = []


class _CloudReport(msgspec.Struct):
    is_up: bool = False
    bundles: list[_BundleReport] = []
    dials: list[_DialReport] = []
    accounts: _AccountsReport = msgspec.field(default_factory=_AccountsReport)


class _GatewayReport(msgspec.Struct):
    node: str = ""
    clouds: dict[str, _CloudReport] = {}


def has_gateways(pairs: Iterable[Pair]) -> bool:
    """Return whether any answering node is a gateway."""
    clusters = (pair.last.statistics.clusters.get(GATEWAYS) for pair in pairs)
    return any(each is not None and each.service is not None and each.service.handlers for each in clusters)


def gateway_line(gateway: Mapping[str, Any]) -> GatewayLine:
    """Return the line of a gateway.

    Args:
        gateway: The state of the gateway, as for `iris federation status`.

    Raises:
        KeyError: The gateway does not report a field.
    """
    return GatewayLine(**{name: gateway[name] for name in GatewayLine.__struct_fields__})


def gateway_lines(gateways: Sequence[Mapping[str, Any]]) -> list[GatewayLine]:
    """Return the lines of gateways; answers without a field are left out."""
    return [gateway_line(each) for each in gateways if all(name in each for name in GatewayLine.__struct_fields__)]


def cloud_lines(gateways: Sequence[Mapping[str, Any]]) -> list[CloudLine]:
    """Return a line for each pair of gateway and cloud; malformed answers are left out.

    Args:
        gateways: The states of the gateways, as for `iris federation status`.
    """
    lines = []
    for told in gateways:
        try:
            gateway = msgspec.convert(told, _GatewayReport)
        except msgspec.ValidationError:
            continue
        lines += [_cloud_line(gateway.node, alias, cloud) for alias, cloud in gateway.clouds.items()]
    return sorted(lines, key=lambda line: (line.cloud, line.gateway))


def _cloud_line(node: str, alias: str, cloud: _CloudReport) -> CloudLine:
    failed: dict[str, int] = {}
    for rule in cloud.accounts.rules:
        for outcome, count in rule.requests.items():
            if outcome != _DONE:
                failed[outcome] = failed.get(outcome, 0) + count
    trips = [each.round_trip_s for each in cloud.bundles if each.round_trip_s is not None]
    troubles = [f"{dial.address}: {dial.error}" for dial in cloud.dials if dial.error and not dial.is_up]
    troubles += ["a cloud link is silent"] * any(each.is_suspect for each in cloud.bundles)
    return CloudLine(
        cloud=alias,
        gateway=node,
        is_up=cloud.is_up,
        lines=len(cloud.bundles),
        round_trip_s=min(trips, default=None),
        failed=failed,
        trouble=troubles[0] if troubles else "",
    )


def failed_text(line: CloudLine) -> str:
    """Return the failed requests of a gateway to a cloud as text, the most frequent error first."""
    counts = sorted(line.failed.items(), key=lambda each: -each[1])
    return ", ".join(f"{format_count(count)} {one_line(outcome).replace('_', ' ')}" for outcome, count in counts)


def cloud_faults(lines: Sequence[CloudLine]) -> list[str]:
    """Return texts about the clouds not reached by some gateway."""
    faults = []
    for cloud in dict.fromkeys(line.cloud for line in lines):
        ways = [line for line in lines if line.cloud == cloud]
        down = [line for line in ways if not line.is_up]
        if not down:
            continue
        reason = next((f" ({one_line(line.trouble)})" for line in down if line.trouble), "")
        share = "no gateway reaches it" if len(down) == len(ways) else f"{len(down)} of {len(ways)} gateways do not reach it"
        faults.append(f"cloud {one_line(cloud)}: {share}{reason}")
    return faults
