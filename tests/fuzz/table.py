"""All targets, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.fuzz import (
    decoders_doors,
    decoders_federation,
    decoders_nats,
    decoders_overlay,
    decoders_security,
    decoders_streams,
    decoders_web,
    decoders_wire,
    machine_channels,
    machine_gateway,
    machine_link,
    machine_node,
    machine_replica,
    machines_overlay,
    properties,
)

if TYPE_CHECKING:
    from tests.fuzz.target import Target

TARGETS: Final[dict[str, Target]] = {
    target.name: target
    for module in (
        decoders_overlay,
        decoders_security,
        decoders_wire,
        decoders_federation,
        decoders_doors,
        decoders_web,
        decoders_nats,
        decoders_streams,
        machines_overlay,
        machine_channels,
        machine_gateway,
        machine_link,
        machine_node,
        machine_replica,
        properties,
    )
    for target in module.TARGETS
}
