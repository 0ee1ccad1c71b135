"""The measurements of `iris demo --federation`, and the report at its end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from iris_py.cli.demo import report
from iris_py.cli.demo.federation_crew import FAR, INSIDE, NEAR, OUTSIDE, network_of
from iris_py.cli.demo.report import DemoLine, DemoOutcome, percentiles_ms, print_totals, print_verdict

if TYPE_CHECKING:
    from iris_py.cli.demo.crew import CrewMember
    from iris_py.cli.demo.federation_crew import CrewGateway
    from iris_py.json_lines import Lines

__all__ = ["LINES", "FederationOutcome", "document", "print_report"]


@dataclass(slots=True)
class FederationOutcome(DemoOutcome):
    """The measurements of one run of `iris demo --federation`."""

    is_kill: bool = True
    is_closed: bool = False
    """Whether a request to the cluster's inner name, which is not exported, was refused."""
    members: list[CrewMember] = field(default_factory=list)
    gateways: list[CrewGateway] = field(default_factory=list)

    @property
    def findings(self) -> list[str]:
        """Sentences about all that differs from the expected result; empty for a successful demo."""
        found = list(self.failures)
        if self.totals != self.plain:
            found.append("the totals of the other cloud differ from the plain count")
        if not self.is_closed:
            found.append("a name that is not exported was not refused")
        dead = {gateway.cloud for gateway in self.gateways if gateway.process.state == "killed"}
        if self.is_kill and dead != {gateway.cloud for gateway in self.gateways}:
            found.append("not every cloud has lost a gateway")
        if self.is_kill and not any(member.state.startswith("killed") for member in self.members):
            found.append("no member was killed")
        return found


class GatewayResult(msgspec.Struct):
    """A gateway of the demo, with the number of passed requests."""

    cloud: str
    id: str
    process: int
    listens: str | None
    """The address for the other cloud; None if the gateway only dials."""
    state: str
    requests: int


class FederationDemoLine(DemoLine, tag="federation-demo", kw_only=True):
    """All measurements of `iris demo --federation`."""

    clouds: dict[str, dict[str, Any]]
    closed: bool
    """Whether a name that is not exported was refused."""
    gateways: list[GatewayResult]


#: The lines of `--json`, by command.
LINES: Final[Lines] = {"demo": (FederationDemoLine,)}


def document(outcome: FederationOutcome) -> FederationDemoLine:
    """Return all measurements as the line of `--json`."""
    plain = report.document(outcome, outcome.members)
    fields = {name: getattr(plain, name) for name in plain.__struct_fields__} | {"failures": list(outcome.findings)}
    return FederationDemoLine(
        **fields,
        clouds={NEAR: {"network": network_of(NEAR)}, FAR: {"network": network_of(FAR), "exports": {OUTSIDE: INSIDE}}},
        closed=outcome.is_closed,
        gateways=[
            GatewayResult(
                cloud=gateway.cloud,
                id=gateway.process.id,
                process=gateway.process.pid,
                listens=gateway.listens or None,
                state=gateway.process.state,
                requests=gateway.process.requests,
            )
            for gateway in outcome.gateways
        ],
    )


def print_report(outcome: FederationOutcome) -> None:
    """Print the report of `iris demo --federation` as text."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, markup=False, soft_wrap=True)
    print_totals(console, outcome.inventory, outcome.totals, outcome.plain)

    table = Table("cloud", "what", "node", "process", "state")
    table.add_column("requests", justify="right")
    rows = [(gateway.cloud, "gateway", gateway.process) for gateway in outcome.gateways]
    for cloud, what, one in [*rows, *((FAR, "member", member) for member in outcome.members)]:
        table.add_row(cloud, what, one.id[:8], str(one.pid), one.state, f"{one.requests:,}")
    console.print(table)
    console.print(f"The requests of a killed gateway of {NEAR!r} are those with a reply at its last report.")

    latency = ", ".join(f"{name} {value:,.1f} ms" for name, value in percentiles_ms(outcome.latencies_s).items())
    console.print(f"Requests: {len(outcome.latencies_s):,}, {outcome.retries:,} retried, {len(outcome.failures):,} failed")
    console.print(f"Latency:  {latency or 'none measured'}")
    console.print(
        f"Time:     {outcome.cluster_s:.2f} s by the other cloud, {outcome.plain_s:.2f} s by one process "
        f"({outcome.start_s:.2f} s to start both clouds)"
    )
    print_verdict(console, is_equal=outcome.is_equal)
