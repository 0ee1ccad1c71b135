"""Events of a gateway's node: lines, clouds and catalogues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_py.testing import VirtualFederation, run

if TYPE_CHECKING:
    from iris_py.api.node import Node


def noted(node: Node) -> list[tuple[str, str]]:
    """Return the kinds of the events about clouds, and the names of these."""
    kinds = ("cloud_up", "cloud_down", "line_opened", "line_lost", "catalogue_changed")
    return [(event.kind, event.name) for event in node.recent_events() if event.kind in kinds]


def test_a_gateway_notes_lines_clouds_and_catalogues() -> None:
    async def main() -> None:
        exports, _imports = {"eu": [{"cluster": "orders"}]}, {"us": [{"cluster": ">"}]}
        federation = VirtualFederation(
            clouds={"us": 1, "eu": 1},
            links=[("us", "eu", 0.01)],
            gateways=1,
            exports=exports,
            imports={"us": [{"cluster": ">"}]},
        )
        async with federation:
            (node,) = federation.gateway_nodes("us")
            await federation.until(lambda: ("cloud_up", "eu") in noted(node))
            assert ("line_opened", "eu") in noted(node)
            assert ("cloud_down", "eu") not in noted(node)
            assert ("catalogue_changed", "eu") not in noted(node), "the first catalogue of a line is no change"
            await federation.reload("eu", exports=[{"cluster": "orders"}, {"cluster": "invoices"}])
            await federation.until(lambda: ("catalogue_changed", "eu") in noted(node))
            federation.cut("us", "eu")
            await federation.until(lambda: {("cloud_down", "eu"), ("line_lost", "eu")} <= {*noted(node)})
            (lost,) = [event for event in node.recent_events() if event.kind == "line_lost"]
            address, _, reason = lost.detail.rpartition(": ")
            assert address
            assert reason
            (down,) = [event for event in node.recent_events() if event.kind == "cloud_down"]
            assert "the cloud link to " in down.detail, "why the last line is of no use"
            await federation.advance(15.0)  # beyond the ten seconds in which the same event is noted once
            federation.heal("us", "eu")
            await federation.until(lambda: noted(node).count(("cloud_up", "eu")) == 2)

    run(main())
