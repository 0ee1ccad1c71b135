"""The times and bounds of a link."""

from __future__ import annotations

from dataclasses import dataclass

from iris_py.link.handshake import DEFAULT_OFFER, Offer


@dataclass(frozen=True)
class LinkConfig:
    """Times and bounds of a link.

    Attributes:
        handshake_timeout_s: A connection that is not open by then ends. Too small: far or busy peers cannot connect; too
            large: strangers hold connections for long.
        keepalive_interval_s: Silence after which the peer is asked, while something is outstanding. Too small: slow answers
            cost; too large: deaths that break no connection are found late.
        keepalive_timeout_s: Silence after which the peer is given up, while something is outstanding. It bounds how long a
            request to a stopped or unreachable peer waits. Too small: a busy peer is lost.
        close_timeout_s: How long a closing link waits for the peer's CLOSE, or for some progress of what both had queued.
        queue_bytes_high: Above this the link is congested: senders wait or choose another member.
        queue_bytes_max: Above this the peer is taken as not reading and the link breaks.
        offer: The versions and ciphers that this side speaks.
    """

    handshake_timeout_s: float = 5.0
    keepalive_interval_s: float = 0.75
    keepalive_timeout_s: float = 2.25
    close_timeout_s: float = 1.0
    queue_bytes_high: int = 1024 * 1024
    queue_bytes_max: int = 256 * 1024 * 1024
    offer: Offer = DEFAULT_OFFER
