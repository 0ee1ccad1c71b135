"""Log lines of a node about links, dead nodes and stalls of the process: at INFO, from the events of the node's journal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from iris_py.logs import EventLogger
from iris_py.observe.node_name import short_name

if TYPE_CHECKING:
    from iris_py.observe.journal import EventRecord

__all__ = ["log_event"]

logger = EventLogger("iris_py")


def log_event(event: EventRecord) -> None:
    """Log an event of the node if operators need its kind.

    Peers control how often most of these events occur. The journal notes one event of each kind and node in ten seconds, and
    the log has ten lines of each kind in a minute.
    """
    facts: dict[str, Any] = {
        "node": event.node,
        "name": event.node_name,
        "address": event.node_address,
        "zone": event.node_zone,
        "reason": event.detail,
        "times": event.times,
    }
    node, address = short_name(event.node, event.node_name), event.node_address or "an unknown address"
    if event.kind == "link_opened":
        logger.info("link_opened", "the link to node %s at %s is open", node, address, **facts)
    elif event.kind == "link_closed":
        logger.info("link_closed", "the link to node %s at %s was closed: %s", node, address, event.detail, **facts)
    elif event.kind == "link_lost":
        logger.info("link_lost", "the link to node %s at %s was lost: %s", node, address, event.detail, **facts)
    elif event.kind == "died":
        logger.info("died", "node %s at %s is considered dead: %s", node, address, event.detail, **facts)
    elif event.kind == "stalled":
        logger.info(
            "stalled",
            "this process was stopped, or its event loop was blocked: the node asks its peers whether they still wait",
            times=event.times,
        )
