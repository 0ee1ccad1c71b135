"""Counters of drops, by reason: nothing is lost without a trace."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """Count what an overlay dropped or gave up on. Reading is for everybody, writing for the overlay."""

    messages_invalid: int = 0
    """Link messages that broke the protocol; each closes its link."""
    messages_unknown: int = 0
    """Messages for groups of a kind that only newer versions know."""
    messages_unexpected: int = 0
    """Link messages from peers without a link or with a violation, and changes that leave more members than
    a view can have."""
    datagrams_invalid: int = 0
    """Datagrams that were no beacon, and no echo."""
    answers_suppressed: int = 0
    """Questions that were not answered because of `answers_per_s_max`, a full queue, or a question smaller than its answer."""
    dial_checks_refused: int = 0
    """Nodes that were not dialled for them to know what comes of it, because that was under way, or for too many others."""
    candidates_refused: int = 0
    """Unknown nodes that were not dialled because `candidates_max` others wait."""
    dials_timed_out: int = 0
    """Dials that the owner never reported on."""
    changes_unconfirmed: int = 0
    """Joins and leaves that completed because the bound passed, not because everybody had acknowledged."""
    registrations_refused: int = 0
    """Registrations in groups, watchers in copies, groups, and copies of those, beyond the bounds of a directory."""
    casts_lost: int = 0
    """Casts of this node that no root took, for the ring was broken or too many were under way."""
    casts_hurried: int = 0
    """Casts that went down a tree before its inner nodes had said that they know their children, for too many waited."""
    casts_skipped: int = 0
    """Casts that others sent and that did not arrive here before later ones of the same source had waited for long enough."""
    permits_invalid: int = 0
    """Registrations, watches, casts and copies of directories that nobody who holds the keys of their group has made."""
    casts_invalid: int = 0
    """Casts that are not of the source which they name, or that say not to wait for earlier ones than there can be."""
    casts_early: int = 0
    """Casts that were made before this node joined: somebody has kept them, or they were under way."""
    messages_undeliverable: int = 0
    """Messages of groups that the ring gave up; what they carry is sent again."""
    questions_refused: int = 0
    """Questions for the root of a key that were not answered, for there were `ANSWERS_PER_S_MAX` in that second already."""
    packets_undeliverable: int = 0
    """Packets of the owner for nodes without a link that the ring gave up."""
