"""The measurements of `iris demo --federation`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from iris_py.cli.demo.result import Outcome

if TYPE_CHECKING:
    from iris_py.cli.demo.crew import CrewMember
    from iris_py.cli.demo.federation_gateways import CrewGateway

__all__ = ["FederationOutcome"]


@dataclass(slots=True)
class FederationOutcome(Outcome):
    """The measurements of one run."""

    is_kill: bool = True
    is_closed: bool = False
    """Whether the name that the cluster has in its own cloud was refused."""
    members: list[CrewMember] = field(default_factory=list)
    gateways: list[CrewGateway] = field(default_factory=list)

    @property
    def findings(self) -> list[str]:
        """The findings that are not as they should be."""
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
