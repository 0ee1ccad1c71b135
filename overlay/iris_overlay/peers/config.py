"""The numbers of links on demand, with the cost of too small and too large."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ContactsConfig:
    """Configure contacts."""

    waiting_messages_max: int = 64
    """Messages that wait for one peer; beyond it the oldest is given back. Too small: a burst to a new peer takes the long way.
    Too large: a black hole holds back as many until it is found out."""

    waiting_peers_max: int = 256
    """Peers that messages wait for. Beyond it they are given back at once. Too small: a node that must tell many at once, as
    the root of a popular group, takes the long way. Too large: memory."""

    dials_max: int = 32
    """Dials under way at once. Too small: many peers are reached one after the other. Too large: the handshakes starve each
    other."""

    dial_timeout_s: float = 5.0
    """When a dial that led to no link is taken for failed. Too small: slow but good paths are given up. Too large: messages to
    a black hole wait as long."""

    again_s: float = 0.02
    """How long after a dial whose connection ended without a word the same address is dialled again, once. A process that ends
    may listen a few milliseconds longer than its links live; when nobody listens any more, that is proof of its death. Too
    small: it still listens, and its death is left to the detector. Too large: it is seen as much later."""

    patience_s: float = 0.25
    """How long messages wait for a dial before they are given back, to go another way while it goes on. Too small: under load
    much goes the long way for nothing. Too large: who is behind a firewall hears late."""

    rest_s: float = 1.0
    """How long a peer that could not be reached is not dialled again: messages for it are given back at once. Too small: a dead
    peer that others still name is hammered. Too large: one that listens again is reached the long way for that time."""

    address_rest_s: float = 0.5
    """How long an address at which a dial found nobody, or another node, is not dialled for peers that there was no link to
    yet. Too small: one message that names many made-up peers at one address makes the node dial it for each of them. Too large:
    a process that starts again on its port is reached the long way for that time."""

    hearsay_dials_max: int = 64
    """Dials in vain at once, of nodes never met, that one peer costs by naming those nodes. Beyond it such a node counts as one
    that cannot be dialled. Too small: a peer that tells a newcomer of many dead nodes in good faith has the living ones reached
    the long way. Too large: one message of a liar makes the node dial as many addresses of its choice."""

    hearsay_dials_per_s: float = 1.0
    """How many more such dials a peer may cost per second. Too small and too large as above, in the long run."""

    link_idle_s: float = 90.0
    """When a link that nobody needs and nothing used is let go. Too small, less than the time between renewals of memberships:
    each renewal dials again. Too large: descriptors."""
