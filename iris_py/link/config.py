"""The timeouts of a link, and the bounds of its queues and of its work in one turn."""

from __future__ import annotations

import msgspec

from iris_py.link.handshake import DEFAULT_OFFER, Offer

#: Frames that one call of `receive_data` reads, by work units; `has_unread` reports the rest. A frame costs one unit, plus one
#: for each `CONTROL_WORK_BYTES` of an overlay message or `PACKET_WORK_BYTES` of any other frame. Too small: mass traffic is
#: handled in small batches; too large: one record, whose frames may take a quarter of a millisecond each to check, blocks the
#: node for a tenth of a second.
WORK_MAX = 64
#: An overlay message may hold a signature in each 100 bytes.
CONTROL_WORK_BYTES = 128
PACKET_WORK_BYTES = 4096


class LinkConfig(msgspec.Struct, frozen=True):
    """Timeouts and queue bounds of a link, chosen by the node or gateway that owns the link.

    Attributes:
        handshake_timeout_s: Close a connection whose link has not opened within this time. Too small: distant or busy
            peers cannot connect; too large: unauthenticated
            programs occupy connections for long.
        keepalive_interval_s: Send a PING after this silence while the link awaits an answer. Too small: needless PINGs to slow
            peers; too large: crashes that break no connection are found late.
        keepalive_timeout_s: Close the link after this silence while it awaits an answer. It bounds how long a request to a
            stopped or unreachable peer waits. Too small: a busy peer is lost.
        close_timeout_s: Time a closing link waits for the peer's CLOSE or for progress with either side's queue.
        queue_bytes_high: With more bytes queued the link is congested: senders wait or choose another member.
        queue_bytes_max: With more bytes queued the peer counts as not reading, and the link ends.
        offer: The versions and ciphers this side supports.
    """

    handshake_timeout_s: float = 5.0
    keepalive_interval_s: float = 0.75
    keepalive_timeout_s: float = 2.25
    close_timeout_s: float = 1.0
    queue_bytes_high: int = 1024 * 1024
    queue_bytes_max: int = 256 * 1024 * 1024
    offer: Offer = DEFAULT_OFFER
