"""Counters of dropped messages and abandoned work, by reason: every loss is counted."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """The counters of an overlay. Anybody may read them; only the overlay writes."""

    messages_invalid: int = 0
    """Link messages with a violation of the protocol, after which the link is closed."""
    messages_unknown: int = 0
    """Group messages of a kind known only to newer versions."""
    messages_unexpected: int = 0
    """Link messages from peers without a link or after a violation, and changes beyond the size limit of a membership view."""
    datagrams_invalid: int = 0
    """Datagrams that were no valid beacon or echo of their sender."""
    answers_suppressed: int = 0
    """Unanswered questions: beyond `answers_per_s_max`, with a full queue, or smaller than their answer."""
    dial_checks_refused: int = 0
    """Refused requests of nodes for a dial check: one was in progress, too many for other nodes, or too many failed before."""
    candidates_refused: int = 0
    """Unknown nodes not dialled because `candidates_max` others wait."""
    dials_timed_out: int = 0
    """Dials without a report from the owner within `OverlayConfig.dial_timeout_s`."""
    dials_rested: int = 0
    """Dials put off by the owner, because the resolved address rested."""
    changes_unconfirmed: int = 0
    """Joins and leaves completed by the time limit instead of all acknowledgements."""
    registrations_refused: int = 0
    """Refused registrations, groups, copies of groups and watchers in copies, beyond the bounds of directories and nodes."""
    casts_lost: int = 0
    """Multicasts of the local node that reached no root, because the ring was broken or too many were in progress."""
    casts_hurried: int = 0
    """Multicasts sent down a tree before its inner nodes had confirmed their children, because too many waited."""
    casts_skipped: int = 0
    """Multicasts of other nodes that failed to arrive before later ones of the same source had waited long enough."""
    permits_invalid: int = 0
    """Registrations, watches, multicasts and copies of directories without a valid permit of their group."""
    casts_invalid: int = 0
    """Multicasts not made by their claimed source, or with an impossible number of earlier ones to skip."""
    casts_early: int = 0
    """Multicasts made before the local node joined: kept and replayed by another node, or still in transit."""
    messages_undeliverable: int = 0
    """Messages of the groups layer that the ring could not deliver; their content is sent again."""
    questions_refused: int = 0
    """Unanswered questions for the root of a key, beyond `ANSWERS_PER_S_MAX`."""
    packets_undeliverable: int = 0
    """Packets of the owner for nodes without a link that the ring could not deliver."""
