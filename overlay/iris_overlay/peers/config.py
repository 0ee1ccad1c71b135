"""The constants of links on demand, with the cost of too small and too large values."""

from __future__ import annotations

import msgspec


class ContactsConfig(msgspec.Struct, frozen=True):
    """The configuration of links on demand."""

    waiting_messages_max: int = 64
    """The largest number of messages that wait for one peer; beyond it the oldest is returned. Too small: a burst to a new peer
    takes a detour. Too large: a black hole delays that number of messages until it is detected.
    """

    waiting_peers_max: int = 256
    """The largest number of peers with waiting messages; messages for more peers are returned at once. Too small: the messages
    of a node with many receivers, such as the root of a popular group, take detours. Too large: memory.
    """

    dials_max: int = 32
    """The largest number of concurrent dials. Too small: many peers are reached one after the other. Too large: the handshakes
    starve each other.
    """

    dial_timeout_s: float = 5.0
    """The time after which a dial without a link counts as failed. Too small: slow but good paths are given up. Too large:
    messages to a black hole wait for that time.
    """

    again_s: float = 0.02
    """The pause before an address is dialled a second time, after a connection that ended without an answer. An ending process
    may listen a few milliseconds longer than its links live; a refused second dial proves its death. Too small: the process
    still listens, and the detector has to find the death. Too large: the death is noticed later.
    """

    patience_s: float = 0.25
    """The time messages wait for a dial; then they are returned and take another way, while the dial continues. Too small:
    under load many messages take needless detours. Too large: nodes behind a firewall get messages late.
    """

    rest_s: float = 1.0
    """The pause before an unreachable peer is dialled again; messages for it are returned at once. Too small: a dead peer named
    by others is dialled all the time. Too large: detours to a peer that listens again.
    """

    address_rest_s: float = 0.5
    """The pause of an address after a dial that found no node or another node, for peers that never had a link. Too small: a
    message with many made-up peers at one address causes a dial for each. Too large: detours to a process restarted on its
    port.
    """

    hearsay_dials_max: int = 64
    """The largest number of failed dials of unmet nodes (nodes that never had a link) that a peer may cause at once by naming
    them. Beyond it the named nodes count as unreachable. Too small: if an honest peer tells a new node of many dead nodes, live
    ones are reached by detours. Too large: a single message of a liar causes many dials to addresses of its choice.
    """

    hearsay_dials_per_s: float = 1.0
    """The further failed dials of unmet nodes that a peer may cause per second. Too small or too large: as with
    `hearsay_dials_max`, in the long run.
    """

    link_idle_s: float = 90.0
    """The time after which an idle and unneeded link is released. Too small, below the renewal interval of memberships: each
    renewal dials again. Too large: descriptors.
    """
