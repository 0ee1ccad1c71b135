"""The numbers of a node, as returned by :meth:`iris_py.Node.statistics`: one tree of structs (docs/statistics.md).

Counters count from the start of the node, and never fall: the counts of a forgotten cluster or topic go on
under the name ``_other``. Gauges are current values; their descriptions say "now". Durations are in seconds.
``msgspec.json.encode`` writes the tree as JSON, and ``msgspec.json.schema`` its JSON Schema.

The garbage collector skips the structs (``gc=False``): they are immutable trees, without reference cycles.
Otherwise one call at a busy node, which makes a thousand of them, would start a collection, which takes longer than the call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from iris_py.observe.histogram import HistogramStatistics

#: The lanes of a link, in the order in which they are served; the last two take turns.
LANES: Final = ("overlay", "interactive", "bulk", "tunnels")


class RequestStatistics(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Requests of this node to a cluster."""

    sent: int = 0
    """Requests made."""
    replied: int = 0
    """Requests with a reply."""
    retries: int = 0
    """Times that a request was sent to another member."""
    errors: Mapping[str, int] = {}
    """Requests that failed, by the class of the error, as in ``RequestTimeout``."""
    cancelled: int = 0
    """Requests that their callers cancelled."""
    in_flight: int = 0
    """Requests at a member now."""
    waiting: int = 0
    """Requests that wait now: for a member, for a link, or for a place at a member."""
    round_trip: HistogramStatistics = HistogramStatistics()
    """Times from sending a request to a member until its reply."""


class ServiceStatistics(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Requests served by this node as a member of a cluster, in all handlers."""

    handlers: int = 0
    """Registered handlers now."""
    executed: int = 0
    """Requests and surveys passed to handlers."""
    failed: int = 0
    """Requests and surveys whose handler raised."""
    rejected: Mapping[str, int] = {}
    """Refused requests, surveys and tunnels, by reason: ``overloaded``, ``expired``, ``not_a_member`` ..."""
    repeated: int = 0
    """Repeated idempotent requests, which a handler had already executed or was executing."""
    running: int = 0
    """Requests and surveys that handlers execute now."""
    concurrency: int = 0
    """The largest number that may run at once."""
    queued_messages: int = 0
    """Requests and surveys that wait for a handler now."""
    queue_messages: int = 0
    """The largest number that may wait."""
    queued_bytes: int = 0
    """Bytes of waiting payloads and headers now."""
    queue_bytes: int = 0
    """The largest number of bytes that may wait."""
    tunnels_open: int = 0
    """Tunnels that handlers serve now."""
    tunnels_max: int = 0
    """The largest number of tunnels at once; 0 if handlers serve none."""
    tunnel_holders: Mapping[str, int] = {}
    """The number of tunnels per node at the other end, by its id; the 8 nodes with the most."""
    weight: float = 0.0
    """The share of the load for this node, relative to other members."""
    queue_wait: HistogramStatistics = HistogramStatistics()
    """Times that requests and surveys waited for a handler; the first bucket has immediate starts."""
    handling: HistogramStatistics = HistogramStatistics()
    """Times that handlers took to answer."""
    newest: int = 0
    """The number of requests and surveys in ``newest_s``: 9, or fewer if handlers have answered fewer."""
    newest_s: float = 0.0
    """The handlers' time for the newest ones, in seconds: the median, or with fewer than 5 the shortest. The histogram covers
    all since the start of the node, and so hides a member that has become slow.
    """


class BroadcastStatistics(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Broadcasts to one cluster."""

    sent: int = 0
    """Broadcasts that this node sent."""
    received: int = 0
    """Broadcasts for handlers of this node, counted per handler."""
    dropped: int = 0
    """Received broadcasts that were dropped, because the handler is too slow or accepts none."""
    queued_messages: int = 0
    """Broadcasts that wait for a handler now."""
    lag: HistogramStatistics = HistogramStatistics()
    """Times that broadcasts waited for their handler. A sample: one broadcast is measured at a time."""


class SurveyStatistics(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Surveys of this node in a cluster."""

    asked: int = 0
    """Surveys made."""
    answered: int = 0
    """Received answers: replies, failures, and members that declined."""
    missing: int = 0
    """Members that did not answer in time, or were lost."""
    cancelled: int = 0
    """Surveys that their callers cancelled."""
    under_way: int = 0
    """Unfinished surveys now."""
    completion: HistogramStatistics = HistogramStatistics()
    """Times until all members had answered, or until the timeout."""


class ClusterStatistics(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A cluster with its use and service by this node."""

    members: int = 0
    """Members now, as known to this node."""
    requests: RequestStatistics = RequestStatistics()
    """The requests that this node made."""
    service: ServiceStatistics | None = None
    """The requests that this node served; None if it never was a member."""
    broadcasts: BroadcastStatistics = BroadcastStatistics()
    """Broadcasts, sent and received."""
    surveys: SurveyStatistics = SurveyStatistics()
    """The surveys that this node made."""
    unopened: Mapping[str, int] = {}
    """Tunnels not opened there, by the class of the error, as in ``Overloaded``."""


class FarStatistics(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Requests of this node to a cluster of another cloud, and failed openings of tunnels there."""

    sent: int = 0
    """Requests made."""
    replied: int = 0
    """Requests with a reply."""
    retries: int = 0
    """Times that a request was sent to a gateway again."""
    errors: Mapping[str, int] = {}
    """Requests that failed, by the class of the error, as in ``CloudUnavailable``."""
    cancelled: int = 0
    """Requests that their callers cancelled."""
    waiting: int = 0
    """Unfinished requests now."""
    round_trip: HistogramStatistics = HistogramStatistics()
    """Times from the call until the reply."""
    unopened: Mapping[str, int] = {}
    """Tunnels not opened there, by the class of the error."""


class TopicStatistics(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The topics with the same first token (``news`` for ``news.>``)."""

    entries: int = 0
    """Patterns of this node's subscriptions that begin with the token, as other nodes know them."""
    runs: int = 0
    """Batches that this node published: consecutive messages to one topic."""
    published: int = 0
    """Messages published by this node, in batches or alone."""
    received: int = 0
    """Messages received by a subscription of this node."""
    gaps: int = 0
    """Messages that subscriptions of this node missed: the largest number that one subscription reported."""
    pauses_asked: int = 0
    """Pauses of publishers by this node, because a subscription was full."""
    pauses_obeyed: int = 0
    """Times that a subscriber paused this node."""


class InterestStatistics(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The subscriptions of the network as this node knows them, and its flows of publications (docs/design.md section 8).

    An *entry* stands for a pattern. The *table* of the network has the entries of all nodes. It is kept at its *root*, which is
    some node; a publisher watches it. There is a table for each generation of the secret.
    """

    entries: int = 0
    """Entries of this node now."""
    promoted: int = 0
    """Promoted entries of this node now: their messages come by multicast, because more than 256 nodes have them."""
    watched_tables: int = 0
    """Tables that this node watches and knows now, as a publisher: 0 or 1."""
    watched_nodes: int = 0
    """Nodes with entries in the watched table now, without this one."""
    watched_entries: int = 0
    """Entries of these nodes now."""
    watched_promoted: int = 0
    """Promoted entries that this node knows as a publisher."""
    root_tables: int = 0
    """Tables whose root is this node now."""
    root_nodes: int = 0
    """Nodes with entries in these tables now."""
    root_entries: int = 0
    """Entries of these nodes now."""
    root_promoted: int = 0
    """Promoted entries of these tables now."""
    flows: int = 0
    """Nodes whose messages from this publisher are counted now, or were counted before the last entry ended."""
    absent_nodes: int = 0
    """Nodes that are dead or cut off now, whose messages are counted for their return."""
    publishers: int = 0
    """Publishers whose messages to this node are counted now."""
    held_messages: int = 0
    """Publications of `try_publish()` that wait now until this node knows their receivers."""
    held_bytes: int = 0
    """Bytes of these publications."""
    other_versions: int = 0
    """Linked nodes with topics of another version now: their publications do not reach this node, nor the reverse."""


class SubscriptionStatistics(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One subscription of this node."""

    pattern: str
    """The pattern, as written."""
    policy: str
    """The overflow policy: ``drop_oldest``, ``drop_newest``, ``block`` or ``disconnect``."""
    group: str = ""
    """The group that the subscription belongs to; empty for a plain one."""
    delivered: int = 0
    """Messages received, including dropped ones."""
    dropped: Mapping[str, int] = {}
    """Dropped messages, by reason."""
    queued_messages: int = 0
    """Waiting messages now."""
    queue_messages: int = 0
    """The largest number that may wait."""
    queued_bytes: int = 0
    """Bytes of waiting payloads and headers now."""
    queue_bytes: int = 0
    """The largest number of bytes that may wait."""
    oldest_s: float = 0.0
    """The waiting time of the oldest message now, in seconds."""
    publishers_waiting: int = 0
    """Paused publishers now."""
    lag: HistogramStatistics = HistogramStatistics()
    """Times that messages waited for the program; the last message of simultaneous arrivals is measured."""
    is_promoted: bool = False
    """Whether the pattern is promoted, so that its messages come by multicast."""


class ShareStatistics(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A group of subscribers that shares messages of this node, see ``subscribe(group=)``."""

    members: int = 0
    """Members now."""
    given: int = 0
    """Messages that this node gave to members: taken, outstanding and lost ones."""
    taken: int = 0
    """Messages that members have taken, or dropped by their own policy."""
    outstanding: int = 0
    """Messages given and not taken now."""
    lost: int = 0
    """Messages that members had not taken when they were lost: an upper bound."""
    full: int = 0
    """Times that no member had room."""


class TunnelStatistics(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The tunnels of this node, at both sides of an opening."""

    opened: int = 0
    """Tunnels opened by this node and accepted by a member."""
    unopened: Mapping[str, int] = {}
    """Tunnels that this node could not open, by the class of the error, as in ``NoMembers``."""
    served: int = 0
    """Tunnels passed to handlers of this node."""
    ended: int = 0
    """Tunnels that ended cleanly."""
    broken: Mapping[str, int] = {}
    """Broken tunnels, by reason: aborted ``here`` or ``there``, ``link`` lost ..."""
    credit_waits: int = 0
    """Times that sending waited, because the other side had not read enough of the earlier data."""
    sent_bytes: int = 0
    """Bytes sent through open and ended tunnels, and 64 for each piece of a message."""
    received_bytes: int = 0
    """Bytes received through tunnels, counted in the same way."""
    open: int = 0
    """Open tunnels now."""
    credit_bytes: int = 0
    """Bytes of credit of this node for open tunnels now."""
    queued_bytes: int = 0
    """Bytes that wait to be sent through open tunnels now."""
    buffered_bytes: int = 0
    """Received but unread bytes of open tunnels now."""


class LinkStatistics(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One link to another node."""

    peer: str
    """The node at its other end: 32 hexadecimal digits."""
    address: str
    """The listening address of that node."""
    zone: str
    """The zone that it announces."""
    name: str = ""
    """The name of that node, a label; empty if it has none."""
    received_bytes: int = 0
    """Bytes read, with all headers."""
    sent_bytes: int = 0
    """Bytes written, with all headers."""
    received_records: int = 0
    """Records decrypted: a record is one write of the other side, up to 256 KiB."""
    sent_records: int = 0
    """Records encrypted."""
    rekeys: int = 0
    """Times that the key of a direction was replaced."""
    queued_bytes: int = 0
    """Bytes of messages that wait now."""
    is_congested: bool = False
    """Whether the queue is above its high watermark now, so senders wait."""
    awaited: int = 0
    """Unanswered requests, surveys and tunnels at the other node now."""
    round_trip_s: float | None = None
    """The round trip of the last ping, in seconds; None before the first. Busy links get no pings."""


class LinksStatistics(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The links of this node."""

    opened: int = 0
    """Opened links, dialled by either side."""
    dialled: int = 0
    """Connections that this node made."""
    dials_failed: int = 0
    """Failed dials: without a connection, or with one that ended before a link was open."""
    refused: int = 0
    """Accepted connections that ended without an authenticated peer."""
    closed: Mapping[str, int] = {}
    """Links that ended after the handshake, by reason: ``clean``, ``released``, ``broken``, ``silent`` ..."""
    received_bytes: int = 0
    """Bytes read, with all headers, on open and ended links."""
    sent_bytes: int = 0
    """Bytes written, with all headers, on open and ended links."""
    received_records: int = 0
    """Records decrypted, on open and ended links."""
    sent_records: int = 0
    """Records encrypted, on open and ended links."""
    rekeys: int = 0
    """Times that the key of one direction of a link was replaced: after each 65,536 records."""
    retransmissions: int = 0
    """TCP segments sent again, on open and ended links; 0 if the system does not provide it (Linux does)."""
    open: int = 0
    """Open links now."""
    congested: int = 0
    """Links above their high watermark now, so senders wait."""
    queued_bytes: int = 0
    """Bytes of messages that wait now."""
    queued_by_lane: Mapping[str, int] = {}
    """Waiting bytes now, by lane: ``overlay`` goes first, then ``interactive``, then ``bulk`` (large messages) and
    ``tunnels``, which ``queued_bytes`` excludes. Empty lanes are left out."""
    through_ring: int = 0
    """Peers reached through the ring now, because no link to them can be opened."""
    each: tuple[LinkStatistics, ...] = ()
    """Open links now; the busiest 256 of them."""


class OverlayStatistics(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The ring, the directories of groups that this node keeps, and the failure detector."""

    is_active: bool = False
    """Whether the node is part of a ring now."""
    size_estimate: int = 1
    """Estimated number of nodes of the network now, with this node."""
    roots: int = 0
    """Groups with their directory on this node now."""
    members_kept: int = 0
    """Members in these directories now."""
    tables: Mapping[str, int] = {}
    """Entries of each table now, by name."""
    directories: Mapping[str, int] = {}
    """Messages that the directories of groups dropped or abandoned, by reason."""
    ring: Mapping[str, int] = {}
    """Messages that the ring dropped, relayed or sent again, by reason."""
    detector: Mapping[str, int] = {}
    """Probes, suspicions, deaths and ignored messages of the failure detector."""


class SecurityStatistics(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Messages that failed authentication, and the secrets in use."""

    unauthentic: int = 0
    """Packets encrypted without the key, or for another node."""
    replayed: int = 0
    """Packets received before."""
    malformed: int = 0
    """Authentic packets with invalid messages."""
    datagrams: int = 0
    """Datagrams of other networks, and datagrams received before."""
    handshakes_refused: int = 0
    """Accepted connections that ended without an authenticated peer."""
    generations: int = 1
    """Accepted generations of the network's secret now, including the sealing one."""
    primary: str = ""
    """The public id of the sealing generation now: 16 hexadecimal digits."""
    accepted: tuple[str, ...] = ()
    """The public ids of the other generations."""


class QuestionStatistics(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The questions of other nodes about this one."""

    answered: int = 0
    """Answered questions, each with a page."""
    refused: Mapping[str, int] = {}
    """Refused questions, by reason: ``busy``, after 20 in that second; ``closed``, with ``observe`` set to
    ``"none"``."""


class ProcessStatistics(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The process that the node runs in."""

    stalls: int = 0
    """Times that the event loop stood still for more than 100 ms."""
    loop_lateness_s: float = 0.0
    """The largest lateness of the event loop within the last minute, in seconds, by the node's own timer."""
    cpu_s: float = 0.0
    """Processor time of the process since its start, user and system, in seconds."""
    resident_bytes: int = 0
    """Resident memory of the process now; 0 if the system does not provide it."""
    descriptors: int = 0
    """Open file descriptors now; 0 if the system does not provide it."""
    descriptors_max: int = 0
    """The limit of file descriptors."""
    threads: int = 0
    """Threads of the process now."""
    log_lines_suppressed: int = 0
    """Suppressed log lines, after ten of the same event and object in a minute."""


class Histograms(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Durations of the whole node: of all clusters and subscriptions together, including forgotten ones."""

    round_trip: HistogramStatistics = HistogramStatistics()
    """Requests that this node made: from sending to a member until its reply."""
    queue_wait: HistogramStatistics = HistogramStatistics()
    """Requests that this node served: the wait for a handler."""
    handling: HistogramStatistics = HistogramStatistics()
    """Requests that this node served: the time of the handler."""
    survey: HistogramStatistics = HistogramStatistics()
    """Surveys of this node: until all members had answered, or until the timeout."""
    lag: HistogramStatistics = HistogramStatistics()
    """Messages of subscriptions: the wait for the program."""
    broadcast_lag: HistogramStatistics = HistogramStatistics()
    """Broadcasts: the wait for the handler."""
    tunnel_opening: HistogramStatistics = HistogramStatistics()
    """Tunnels that this node opened: from the question to a member until its acceptance."""
    ping: HistogramStatistics = HistogramStatistics()
    """Pings over links: until the answer."""
    probe: HistogramStatistics = HistogramStatistics()
    """Probes of the failure detector: from the datagram to its answer."""


class Statistics(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Counters of a node since its start, and current values."""

    requests: int = 0
    """Requests that this node made."""
    replies: int = 0
    """Requests with a reply."""
    retries: int = 0
    """Times that a request was sent to another member."""
    executed: int = 0
    """Requests passed to handlers of this node."""
    rejected: Mapping[str, int] = {}
    """Requests that this node refused, by reason."""
    drops: Mapping[str, int] = {}
    """Dropped messages, by reason, including late replies."""
    repeated: int = 0
    """Repeated idempotent requests, which a handler of this node had already executed or was executing."""
    failed: int = 0
    """Requests of this node whose handler failed."""
    hedged: int = 0
    """Hedged requests: times that an idempotent request of this node went to a second member, because the first was slower
    than usual."""
    recalled: int = 0
    """Requests of this node that a slow member gave back before they had begun, for another member."""
    uptime_s: float = 0.0
    """Seconds since the start of the node."""
    clusters: Mapping[str, ClusterStatistics] = {}
    """The clusters used or served by this node, by name."""
    far_requests: Mapping[str, FarStatistics] = {}
    """Requests to clusters of other clouds, by name and alias, as in ``db@eu``; beyond 512 names the rest together as
    ``_other``. ``clusters`` counts the same requests at the gateways."""
    topics: Mapping[str, TopicStatistics] = {}
    """Topics by their first token, as in ``news``; beyond 1,024 tokens the rest together as ``_other``. ``*`` stands for the
    patterns of this node that begin with a wildcard."""
    interest: InterestStatistics = InterestStatistics()
    """The table of subscriptions, and the flows of publications."""
    subscriptions: tuple[SubscriptionStatistics, ...] = ()
    """Open subscriptions now."""
    shares: Mapping[str, ShareStatistics] = {}
    """Groups of subscribers that share messages of this node, by name; by 13 hexadecimal digits as long as that is unknown."""
    tunnels: TunnelStatistics = TunnelStatistics()
    """The tunnels."""
    links: LinksStatistics = LinksStatistics()
    """The links to other nodes."""
    overlay: OverlayStatistics = OverlayStatistics()
    """The ring, directories and failure detector."""
    security: SecurityStatistics = SecurityStatistics()
    """Messages that failed authentication, and the secrets in use."""
    questions: QuestionStatistics = QuestionStatistics()
    """Questions of other nodes."""
    process: ProcessStatistics = ProcessStatistics()
    """The process that the node runs in."""
    histograms: Histograms = Histograms()
    """Durations, of the whole node."""
