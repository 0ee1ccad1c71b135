"""The numbers of a node, as :meth:`iris_py.Node.statistics` returns them: one tree of structs (docs/statistics.md).

Counters count from the start of the node, and never fall: where a cluster or a topic is forgotten, what it had counted goes on
under the name ``_other``. Gauges are what there is at this moment; their descriptions say "now". Durations are in seconds.
``msgspec.json.encode`` writes the tree as JSON, and ``msgspec.json.schema`` its JSON Schema.

The structs are not looked at by the garbage collector (``gc=False``): they are trees that do not change, so none holds itself.
Else a look at a busy node, which makes a thousand of them, would set it going, and that takes longer than the look.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from iris_py.observe.histogram import HistogramStatistics

#: The name under which the sums of forgotten clusters and topics are shown. One that is really called so is counted there, too.
OTHER: Final = "_other"


#: The lanes of a link, in the order in which they are served; the last two take turns.
LANES: Final = ("overlay", "interactive", "bulk", "tunnels")


class RequestStatistics(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Requests that this node made to one cluster."""

    sent: int = 0
    """Requests made."""
    replied: int = 0
    """Those that ended with a reply."""
    retries: int = 0
    """Times that one was given to another member."""
    errors: Mapping[str, int] = {}
    """Those that ended with an error, by the name of its class, as in ``RequestTimeout``."""
    cancelled: int = 0
    """Those that their caller gave up."""
    in_flight: int = 0
    """Requests that a member has now."""
    waiting: int = 0
    """Requests that wait now: for a member, for a link, or for a place at a member."""
    round_trip: HistogramStatistics = HistogramStatistics()
    """How long members took to reply, from when the request was given to the one that did."""


class ServiceStatistics(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Requests that this node served as a member of one cluster, with all its handlers there."""

    handlers: int = 0
    """Handlers that are registered now."""
    executed: int = 0
    """Requests and surveys that handlers were given."""
    failed: int = 0
    """Those that ended because a handler raised."""
    rejected: Mapping[str, int] = {}
    """Requests, surveys and tunnels that were refused, by reason: ``overloaded``, ``expired``, ``not_a_member`` ..."""
    repeated: int = 0
    """Idempotent requests that no handler was given, for one has executed them or still does."""
    running: int = 0
    """Requests and surveys that handlers execute now."""
    concurrency: int = 0
    """How many may run at once."""
    queued_messages: int = 0
    """Requests and surveys that wait for a handler now."""
    queue_messages: int = 0
    """How many may wait."""
    queued_bytes: int = 0
    """The bytes of payloads and headers that wait now."""
    queue_bytes: int = 0
    """How many bytes may wait."""
    tunnels_open: int = 0
    """Tunnels that handlers serve now."""
    tunnels_max: int = 0
    """How many they may serve at once; 0 if they serve none."""
    tunnel_holders: Mapping[str, int] = {}
    """The nodes at the other ends, by id, with how many they have; the 8 that have the most."""
    weight: float = 0.0
    """How much of the load this node is to get beside other members."""
    queue_wait: HistogramStatistics = HistogramStatistics()
    """How long requests and surveys waited until a handler was given them; those that began at once are in the first bucket."""
    handling: HistogramStatistics = HistogramStatistics()
    """How long handlers took to answer."""
    newest: int = 0
    """How many of the newest requests and surveys ``newest_s`` is of: 9, or fewer if handlers have answered fewer."""
    newest_s: float = 0.0
    """How long handlers took to answer the newest ones, in seconds: the median, and of fewer than 5 the shortest. The histogram
    is of all since the node was started, so it does not show a member that has become slow."""


class BroadcastStatistics(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Broadcasts to one cluster."""

    sent: int = 0
    """Broadcasts that this node sent."""
    received: int = 0
    """Broadcasts that handlers of this node were to be given, once for each handler."""
    dropped: int = 0
    """Those of them that were dropped, for the handler is too slow or takes none."""
    queued_messages: int = 0
    """Broadcasts that wait for a handler now."""
    lag: HistogramStatistics = HistogramStatistics()
    """How long broadcasts waited for their handler: one at a time is measured, the last of those that wait."""


class SurveyStatistics(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Surveys that this node made in one cluster."""

    asked: int = 0
    """Surveys made."""
    answered: int = 0
    """Answers that came: replies, failures, and members that had nothing to say."""
    missing: int = 0
    """Members that were asked and did not answer in time, or were lost."""
    cancelled: int = 0
    """Surveys that their caller gave up."""
    under_way: int = 0
    """Surveys that have not ended now."""
    completion: HistogramStatistics = HistogramStatistics()
    """How long surveys took until everybody had answered, or their time was over."""


class ClusterStatistics(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One cluster, as this node uses and serves it."""

    members: int = 0
    """Its members now, as far as this node knows."""
    requests: RequestStatistics = RequestStatistics()
    """The requests that this node made."""
    service: ServiceStatistics | None = None
    """The requests that this node served; None if it never was a member."""
    broadcasts: BroadcastStatistics = BroadcastStatistics()
    """Broadcasts, sent and received."""
    surveys: SurveyStatistics = SurveyStatistics()
    """The surveys that this node made."""
    unopened: Mapping[str, int] = {}
    """Tunnels that this node could not open there, by the class of the error, as in ``Overloaded``."""


class FarStatistics(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Requests that this node made to one cluster of another cloud, and the tunnels that it could not open there."""

    sent: int = 0
    """Requests made."""
    replied: int = 0
    """Those that ended with a reply."""
    retries: int = 0
    """Times that a gateway was asked again."""
    errors: Mapping[str, int] = {}
    """Those that ended with an error, by the name of its class, as in ``CloudUnavailable``."""
    cancelled: int = 0
    """Those that their caller gave up."""
    waiting: int = 0
    """Requests that have not ended now."""
    round_trip: HistogramStatistics = HistogramStatistics()
    """How long callers waited for a reply, from the call on."""
    unopened: Mapping[str, int] = {}
    """Tunnels that this node could not open there, by the class of the error."""


class TopicStatistics(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The topics below one prefix: that is the group under which messages travel (``news`` for ``news.>``)."""

    members: int = 0
    """Nodes with a subscription below the prefix now, as far as this node knows."""
    runs: int = 0
    """Runs of messages that this node published: what follows one another to one topic is one."""
    published: int = 0
    """Messages that this node published, in runs or by themselves."""
    received: int = 0
    """Messages that came to this node and some subscription wanted."""
    gaps: int = 0
    """Messages that publishers had numbered and that did not come."""
    pauses_asked: int = 0
    """Times that this node asked a publisher to wait, for a subscription was full."""
    pauses_obeyed: int = 0
    """Times that a subscriber asked this node to wait."""


class SubscriptionStatistics(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One subscription of this node."""

    pattern: str
    """The pattern, as it was written."""
    policy: str
    """The policy when it is full: ``drop_oldest``, ``drop_newest``, ``block`` or ``disconnect``."""
    delivered: int = 0
    """Messages that were for it, those that it dropped among them."""
    dropped: Mapping[str, int] = {}
    """Messages that it dropped, by reason."""
    queued_messages: int = 0
    """Messages that wait in it now."""
    queue_messages: int = 0
    """How many may wait."""
    queued_bytes: int = 0
    """The bytes of payloads and headers that wait now."""
    queue_bytes: int = 0
    """How many bytes may wait."""
    oldest_s: float = 0.0
    """How long the oldest message has waited now, in seconds."""
    publishers_waiting: int = 0
    """Publishers that were asked to wait now."""
    lag: HistogramStatistics = HistogramStatistics()
    """How long messages waited until the program took them; one of each run that arrived together."""


class TunnelStatistics(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The tunnels of this node, at both sides of an opening."""

    opened: int = 0
    """Tunnels that this node opened and a member accepted."""
    unopened: Mapping[str, int] = {}
    """Tunnels that could not be opened, by the class of the error, as in ``NoMembers``."""
    served: int = 0
    """Tunnels that handlers of this node were given."""
    ended: int = 0
    """Tunnels that ended as both sides wanted."""
    broken: Mapping[str, int] = {}
    """Tunnels that ended otherwise: ``here`` and ``there`` say which side broke it off, ``link`` that the link was lost ..."""
    credit_waits: int = 0
    """Times that sending had to wait, for the other side had not taken enough of what was sent before."""
    sent_bytes: int = 0
    """Bytes that were sent through tunnels, also those that have ended, and 64 for each piece of a message."""
    received_bytes: int = 0
    """Bytes that came through tunnels, counted likewise."""
    open: int = 0
    """Tunnels that have not ended now."""
    credit_bytes: int = 0
    """How much this node may send through them now before their other sides take something."""
    queued_bytes: int = 0
    """Bytes that wait to be sent through them now."""
    buffered_bytes: int = 0
    """Bytes that came through those that are open now and were not taken yet."""


class LinkStatistics(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One link to another node."""

    peer: str
    """The node at its other end: 32 hexadecimal digits."""
    address: str
    """Where that node listens."""
    zone: str
    """Where it says it is."""
    name: str = ""
    """The name of that node, a label for people; empty if it tells none."""
    received_bytes: int = 0
    """Bytes that were read, with all headers."""
    sent_bytes: int = 0
    """Bytes that were written, with all headers."""
    received_records: int = 0
    """Records that were opened: each is what the other side wrote at once, up to 256 KiB."""
    sent_records: int = 0
    """Records that were sealed."""
    rekeys: int = 0
    """Times that the key of a direction was replaced."""
    queued_bytes: int = 0
    """Bytes of messages that wait now."""
    is_congested: bool = False
    """Whether so much waits now that senders wait, too."""
    awaited: int = 0
    """Requests, surveys and tunnels that the other node has now and has not answered."""
    round_trip_s: float | None = None
    """How long the last sign of life that was asked for took, in seconds; None if none was. A busy link is not asked."""


class LinksStatistics(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The links of this node."""

    opened: int = 0
    """Links that were opened, whoever dialled."""
    dialled: int = 0
    """Connections that this node made."""
    dials_failed: int = 0
    """Dials that came to nothing: no connection could be made, or it ended before a link was open."""
    refused: int = 0
    """Connections to this node that ended without an authenticated peer."""
    closed: Mapping[str, int] = {}
    """Links that ended after they had been open, by reason: ``clean``, ``released``, ``broken``, ``silent`` ..."""
    received_bytes: int = 0
    """Bytes that were read, with all headers, also on links that have ended."""
    sent_bytes: int = 0
    """Bytes that were written, with all headers, also on links that have ended."""
    received_records: int = 0
    """Records that were opened, also on links that have ended."""
    sent_records: int = 0
    """Records that were sealed, also on links that have ended."""
    rekeys: int = 0
    """Times that the key of one direction of a link was replaced: after each 65,536 records."""
    retransmissions: int = 0
    """TCP segments that were sent again, also on links that have ended; 0 where the system does not tell. Linux tells."""
    open: int = 0
    """Links that are open now."""
    congested: int = 0
    """Links with so much waiting now that senders wait, too."""
    queued_bytes: int = 0
    """Bytes of messages that wait now."""
    queued_by_lane: Mapping[str, int] = {}
    """Bytes that wait now, by lane, if any do: ``overlay`` goes first, then ``interactive``, then ``bulk``, large messages, and
    ``tunnels``, which are not among ``queued_bytes``."""
    through_ring: int = 0
    """Peers that are reached through the ring now, for no link to them can be had."""
    each: tuple[LinkStatistics, ...] = ()
    """Those that are open now; of more than 256 the busiest."""


class OverlayStatistics(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The ring, the directories of groups that this node keeps, and the failure detector."""

    is_active: bool = False
    """Whether the node is part of a ring now."""
    size_estimate: int = 1
    """About how many nodes the network has now, this one included."""
    roots: int = 0
    """Groups whose directory is here now."""
    members_kept: int = 0
    """The members in them now."""
    tables: Mapping[str, int] = {}
    """How many entries each table has now, by name."""
    directories: Mapping[str, int] = {}
    """Messages that the directories of groups dropped or gave up on, by reason."""
    ring: Mapping[str, int] = {}
    """Messages that the ring dropped, relayed or sent again, by reason."""
    detector: Mapping[str, int] = {}
    """Probes, suspicions and deaths of the failure detector, and what it ignored."""


class SecurityStatistics(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Messages that were not authentic, and the secrets in use."""

    unauthentic: int = 0
    """Packets that nobody who holds the key has sealed, or that were sealed for somebody else."""
    replayed: int = 0
    """Packets that had come before."""
    malformed: int = 0
    """Packets that are authentic, and no messages."""
    datagrams: int = 0
    """Datagrams that are not of this network, or came before."""
    handshakes_refused: int = 0
    """Connections to this node that ended without an authenticated peer."""
    generations: int = 1
    """Generations of the network's secret that are accepted now, the primary one among them."""
    primary: str = ""
    """The public id of the generation that this node seals with now: 16 hexadecimal digits."""
    accepted: tuple[str, ...] = ()
    """The public ids of the other generations."""


class QuestionStatistics(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The questions of other nodes about this one."""

    answered: int = 0
    """Those that were answered, each with a page."""
    refused: Mapping[str, int] = {}
    """Those that were not, by reason: ``busy``, for there were 20 in that second already; ``closed``, for ``observe`` is
    ``"none"``."""


class ProcessStatistics(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The process that the node runs in."""

    stalls: int = 0
    """Times that the event loop did nothing for more than 100 ms when it should have."""
    loop_lateness_s: float = 0.0
    """The most by which the event loop was late within the last minute, as the node's own timer shows it; in seconds."""
    cpu_s: float = 0.0
    """Seconds of processor time, of user and system, since the process began."""
    resident_bytes: int = 0
    """Memory that the process has now; 0 where the system does not tell."""
    descriptors: int = 0
    """File descriptors that are open now; 0 where the system does not tell."""
    descriptors_max: int = 0
    """How many it may have."""
    threads: int = 0
    """Threads of the process now."""
    log_lines_suppressed: int = 0
    """Lines that were not logged, for there had been ten of the same event and object in a minute."""


class Histograms(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Durations of the whole node: those of all clusters and subscriptions together, also of forgotten ones."""

    round_trip: HistogramStatistics = HistogramStatistics()
    """Requests that this node made: from when a request was given to a member until that replied."""
    queue_wait: HistogramStatistics = HistogramStatistics()
    """Requests that this node served: until a handler was given them."""
    handling: HistogramStatistics = HistogramStatistics()
    """Requests that this node served: until the handler answered."""
    survey: HistogramStatistics = HistogramStatistics()
    """Surveys of this node: until everybody had answered, or their time was over."""
    lag: HistogramStatistics = HistogramStatistics()
    """Messages of subscriptions: until the program took them."""
    broadcast_lag: HistogramStatistics = HistogramStatistics()
    """Broadcasts: until the handler was given them."""
    tunnel_opening: HistogramStatistics = HistogramStatistics()
    """Tunnels that this node opened: from when a member was asked until that accepted."""
    ping: HistogramStatistics = HistogramStatistics()
    """Signs of life over links: from the question to the answer."""
    probe: HistogramStatistics = HistogramStatistics()
    """Probes of the failure detector: from the datagram to its answer."""


class Statistics(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Counts of a node since it started, and what there is now."""

    requests: int = 0
    """Requests that this node made."""
    replies: int = 0
    """Requests that ended with a reply."""
    retries: int = 0
    """Times that a request was given to another member."""
    executed: int = 0
    """Requests that handlers of this node were given."""
    rejected: Mapping[str, int] = {}
    """Requests that this node refused, by reason."""
    drops: Mapping[str, int] = {}
    """The messages that were dropped, by reason. Late replies are among them."""
    repeated: int = 0
    """Requests that handlers of this node were not given, for they had executed them, or still do: repeated idempotent ones."""
    failed: int = 0
    """Requests of this node that ended because a handler had failed."""
    hedged: int = 0
    """Times that an idempotent request of this node was given to a second member, for the first was slower than nearly all
    are."""
    uptime_s: float = 0.0
    """How long ago the node was started, in seconds."""
    clusters: Mapping[str, ClusterStatistics] = {}
    """Each cluster that this node uses or serves, by name."""
    far_requests: Mapping[str, FarStatistics] = {}
    """Requests to clusters of other clouds, by name and alias, as in ``db@eu``; of more than 512 names the rest together as
    ``_other``. On their way they are also requests to the gateways, in ``clusters``."""
    topics: Mapping[str, TopicStatistics] = {}
    """Topics, by the prefix that they are grouped under, as in ``news``; ``>`` stands for the empty one."""
    subscriptions: tuple[SubscriptionStatistics, ...] = ()
    """The subscriptions that are open now."""
    tunnels: TunnelStatistics = TunnelStatistics()
    """The tunnels."""
    links: LinksStatistics = LinksStatistics()
    """The links to other nodes."""
    overlay: OverlayStatistics = OverlayStatistics()
    """The ring and what is kept in it."""
    security: SecurityStatistics = SecurityStatistics()
    """Messages that were not authentic, and the secrets in use."""
    questions: QuestionStatistics = QuestionStatistics()
    """Questions of other nodes."""
    process: ProcessStatistics = ProcessStatistics()
    """The process that the node runs in."""
    histograms: Histograms = Histograms()
    """Durations, of the whole node."""
