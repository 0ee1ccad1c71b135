"""The statistics of a node at one moment, collected from its parts into a tree of structs."""

from __future__ import annotations

from heapq import nlargest
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import msgspec

from iris_py.observe.counts import OTHER, TOKENS_MAX, count_in
from iris_py.observe.histogram import Histogram, HistogramStatistics
from iris_py.observe.statistics import (
    LANES,
    BroadcastStatistics,
    ClusterStatistics,
    FarStatistics,
    Histograms,
    InterestStatistics,
    LinksStatistics,
    LinkStatistics,
    OverlayStatistics,
    ProcessStatistics,
    QuestionStatistics,
    RequestStatistics,
    SecurityStatistics,
    ServiceStatistics,
    ShareStatistics,
    Statistics,
    SubscriptionStatistics,
    SurveyStatistics,
    TopicStatistics,
    TunnelStatistics,
)
from iris_py.wire.facts import TOPIC_VERSION

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from iris_overlay.detector.config import DetectorCounters
    from iris_overlay.events import Counters
    from iris_overlay.overlay import Overlay
    from iris_overlay.ring.state import PastryCounters
    from iris_py.link.link import Link
    from iris_py.node.core import NodeCore
    from iris_py.observe.counts import FarCounts, GroupCounts, ServiceCounts, SurveyCounts
    from iris_py.patterns.request.registration import Registration
    from iris_py.patterns.topic.queue import SubscriptionQueue
    from iris_py.peers.group import Group
    from iris_py.peers.peer import Peer

#: Number of links shown singly, the busiest open ones. Too small: the important link may be missing; too large: a node with
#: thousands of peers shows more than anybody reads.
LINKS_SHOWN_MAX: Final = 256


#: Number of nodes named as holders of tunnels. Too small: two nodes that share the blame look like a single culprit; too large:
#: a page of answers has room for fewer clusters.
HOLDERS_SHOWN_MAX: Final = 8
#: The sizes of the overlay that belong to ``Statistics.interest``.
_OF_INTEREST: Final = ("root_tables", "root_nodes", "root_entries", "root_promoted")
#: Reasons for which a subscription drops messages on arrival.
_NEVER_KEPT: Final = ("newest", "over_block", "cut_off")


def statistics_of(
    core: NodeCore,
    subscriptions: Collection[SubscriptionQueue],
    process: ProcessStatistics,
    questions: QuestionStatistics,
    started_at: float,
    now: float,
    *,
    retransmissions: int = 0,
) -> Statistics:
    """Return the statistics of a node.

    Args:
        subscriptions: The program's subscriptions, including those to other clouds.
        process: The process statistics.
        questions: The statistics of questions from other nodes.
        started_at: Start time of the node.
        retransmissions: TCP segments retransmitted on its links.
    """
    requests, service, groups = core.requester.counts, core.service, core.groups
    clusters = _clusters(core)  # also adds pending durations to the totals
    pubsub = core.patterns.pubsub
    promoted = set() if pubsub is None else pubsub.promoted_entries()
    local = {} if pubsub is None else pubsub.deliveries.queues  # without the subscriptions to other clouds
    shown = tuple(
        [_subscription(queue, now, is_promoted=queue in local and queue.entry in promoted) for queue in subscriptions]
    )
    histograms = _histograms(core)
    tables = core.overlay.table_sizes()
    of_interest = {name: tables.pop(name) for name in _OF_INTEREST}
    return Statistics(
        requests=groups.cluster_counts.sent(),
        replies=histograms.round_trip.count,
        retries=requests.retries,
        executed=service.executed,
        rejected=dict(service.rejected),
        drops=_drops(core),
        repeated=service.repetitions.repeated,
        failed=requests.failed,
        hedged=requests.hedged,
        recalled=requests.recalled,
        uptime_s=now - started_at,
        clusters=clusters,
        far_requests={name: _far(counts) for name, counts in requests.far.all().items()},
        topics=_topics(core),
        interest=_interest(core, of_interest, len(promoted)),
        subscriptions=shown,
        shares=_shares(core),
        tunnels=_tunnels(core),
        links=_links(core, retransmissions),
        overlay=_overlay(core.overlay, tables),
        security=_security(core),
        questions=questions,
        process=process,
        histograms=histograms,
    )


def _drops(core: NodeCore) -> dict[str, int]:
    counted_elsewhere = {
        "late_reply": core.requester.counts.late,
        "late_answer": core.surveyor.late,
        "refused_connection": core.peers.refused,
        "unsigned_generations": core.peers.rotation.unsigned,
        "remembered_reply": core.service.repetitions.forgotten,
    }
    return core.drops | {reason: count for reason, count in counted_elsewhere.items() if count}


def _clusters(core: NodeCore) -> dict[str, ClusterStatistics]:
    table, service = core.groups.cluster_counts, core.service
    find, shown, holders = core.groups.find, {}, _tunnel_holders(core)
    for name, counts in table.by_name.items():
        group = find(name)
        shown[name] = _cluster(counts, group, () if group is None else service.registrations_of(group), holders.get(name))
    if table.has_forgotten:
        shown[OTHER] = _cluster(table.forgotten, None, (), None)
    return shown


def _tunnel_holders(core: NodeCore) -> dict[str, dict[str, int]]:
    """Return the number of tunnels per served cluster and remote node."""
    found: dict[str, dict[str, int]] = {}
    for end in () if core.patterns.tunnels is None else core.patterns.tunnels.ends():
        if end.registration is not None:
            count_in(found.setdefault(end.registration.group.name, {}), end.peer.id.hex())
    return found


def _cluster(
    counts: GroupCounts,
    group: Group | None,
    registrations: Collection[Registration],
    tunnel_holders: Mapping[str, int] | None,
) -> ClusterStatistics:
    served, surveys = counts.service, counts.surveys
    return ClusterStatistics(
        members=0 if group is None else group.size,
        requests=_requests(counts, group) if counts.sent else _NO_REQUESTS,
        service=None if served is None else _service(served, registrations, tunnel_holders or _NONE),
        broadcasts=_broadcasts(counts, served, registrations),
        surveys=_NO_SURVEYS if surveys is None else _surveys(surveys),
        unopened=counts.unopened.copy() if counts.unopened else _NONE,
    )


def _far(counts: FarCounts) -> FarStatistics:
    trips = counts.round_trip.show()
    replied = counts.round_trip.settled
    return FarStatistics(
        sent=counts.sent,
        replied=replied,
        retries=counts.retries,
        errors=counts.errors.copy(),
        cancelled=counts.cancelled,
        waiting=counts.sent - replied - counts.cancelled - sum(counts.errors.values()),
        round_trip=trips,
        unopened=counts.unopened.copy(),
    )


def _requests(counts: GroupCounts, group: Group | None) -> RequestStatistics:
    trips = counts.round_trip.show()
    replied, errors = counts.round_trip.settled, counts.errors
    pending = counts.sent - replied - counts.cancelled - (sum(errors.values()) if errors else 0)
    in_flight = 0
    if pending and group is not None:  # otherwise no request is in flight, and there may be thousands of members
        in_flight = min(pending, sum([member.in_flight for member in group.members or ()]))
    return RequestStatistics(
        sent=counts.sent,
        replied=replied,
        retries=counts.retries,
        cancelled=counts.cancelled,
        errors=errors.copy(),
        in_flight=in_flight,
        waiting=max(0, pending - in_flight),
        round_trip=trips,
    )


def _service(
    counts: ServiceCounts, registrations: Collection[Registration], tunnel_holders: Mapping[str, int]
) -> ServiceStatistics:
    queue_wait = counts.queue_wait.show()
    running = concurrency = queued_messages = queue_messages = queued_bytes = queue_bytes = tunnels_open = tunnels_max = 0
    weight = 0.0
    for each in registrations:
        tunnels_open += each.tunnels_open
        tunnels_max += each.tunnels
        running += each.running
        concurrency += each.concurrency
        queued_messages += len(each.queue)
        queue_messages += each.queue_messages
        queued_bytes += each.queued_bytes
        queue_bytes += each.queue_bytes
        weight = max(weight, each.weight)
    handling = counts.handling.show()  # sorts all pending values
    return ServiceStatistics(
        handlers=len(registrations),
        executed=counts.queue_wait.settled,
        failed=counts.failed,
        rejected=counts.rejected.copy(),
        repeated=counts.repeated,
        running=running,
        concurrency=concurrency,
        queued_messages=queued_messages,
        queue_messages=queue_messages,
        queued_bytes=queued_bytes,
        queue_bytes=queue_bytes,
        tunnels_open=tunnels_open,
        tunnels_max=tunnels_max,
        tunnel_holders=_most(tunnel_holders) if tunnel_holders else _NONE,
        weight=weight,
        queue_wait=queue_wait,
        handling=handling,
        newest=len(counts.handling.newest),
        newest_s=counts.handling.newest_s(),
    )


def _most(holders: Mapping[str, int]) -> dict[str, int]:
    return dict(nlargest(HOLDERS_SHOWN_MAX, holders.items(), key=itemgetter(1)))


def _broadcasts(
    counts: GroupCounts, served: ServiceCounts | None, registrations: Collection[Registration]
) -> BroadcastStatistics:
    if not counts.broadcasts and (served is None or not served.broadcasts):
        return _NO_BROADCASTS
    return BroadcastStatistics(
        sent=counts.broadcasts,
        received=0 if served is None else served.broadcasts,
        dropped=0 if served is None else served.broadcasts_dropped,
        queued_messages=sum([len(each.broadcasts) for each in registrations]),
        lag=HistogramStatistics() if served is None else served.broadcast_lag.show(),
    )


def _surveys(counts: SurveyCounts) -> SurveyStatistics:
    completion = counts.completion.show()
    return SurveyStatistics(
        asked=counts.asked,
        answered=counts.answered,
        missing=counts.missing,
        cancelled=counts.cancelled,
        under_way=counts.asked - counts.completion.settled - counts.cancelled,
        completion=completion,
    )


def _topics(core: NodeCore) -> dict[str, TopicStatistics]:
    table, pubsub = core.groups.topic_counts, core.patterns.pubsub
    if pubsub is None:
        return {}
    entries = pubsub.interest.counts()
    rows = table.by_name | {OTHER: table.forgotten} if table.has_forgotten else table.by_name
    shown: dict[str, TopicStatistics] = {}
    for name, counts in rows.items():  # there may be a thousand
        shown[name] = TopicStatistics(
            entries=entries.pop(name, 0),
            runs=counts.runs,
            published=counts.published,
            received=counts.received,
            gaps=counts.gaps,
            pauses_asked=counts.pauses_asked,
            pauses_obeyed=counts.pauses_obeyed,
        )
    for name in list(entries)[: max(0, TOKENS_MAX - len(shown))]:
        shown[name] = TopicStatistics(entries=entries.pop(name))
    if entries:
        last = shown.get(OTHER, TopicStatistics())
        shown[OTHER] = msgspec.structs.replace(last, entries=last.entries + sum(entries.values()))
    return shown


def _interest(core: NodeCore, tables: Mapping[str, int], promoted: int) -> InterestStatistics:
    pubsub = core.patterns.pubsub
    own = {} if pubsub is None else pubsub.publisher.table_sizes()
    return InterestStatistics(
        entries=0 if pubsub is None else len(pubsub.interest.entries),
        promoted=promoted,
        publishers=0 if pubsub is None else pubsub.deliveries.count_publishers(),
        other_versions=sum(
            [peer is not None and peer.topic_version != TOPIC_VERSION for peer in core.peers.peer_by_link.values()]
        ),
        **tables,
        **own,
    )


def _shares(core: NodeCore) -> dict[str, ShareStatistics]:
    pubsub = core.patterns.pubsub
    if pubsub is None:
        return {}
    shares = pubsub.publisher.shares
    members = shares.count_members()
    shown: dict[str, ShareStatistics] = {}
    for tag, counts in shares.counts.items():
        name = counts.name or f"{tag:013x}"
        before = shown.get(name, ShareStatistics())  # a group has a further tag under each generation of the secret
        shown[name] = ShareStatistics(
            members=before.members + members[tag],
            given=before.given + counts.given,
            taken=before.taken + counts.taken,
            outstanding=before.outstanding + counts.outstanding,
            lost=before.lost + counts.lost,
            full=before.full + counts.full,
        )
    return shown


def _subscription(queue: SubscriptionQueue, now: float, *, is_promoted: bool) -> SubscriptionStatistics:
    waiting, dropped = len(queue.waiting), queue.dropped
    return SubscriptionStatistics(
        pattern=queue.name,
        policy=queue.policy,
        group=queue.group,
        delivered=queue.taken + waiting + sum([dropped.get(reason, 0) for reason in _NEVER_KEPT]),
        dropped=dict(dropped),
        queued_messages=waiting,
        queue_messages=queue.messages_max,
        queued_bytes=queue.bytes,
        queue_bytes=queue.bytes_max,
        oldest_s=queue.oldest_s(now),
        publishers_waiting=len(queue.blocked),
        lag=queue.lag.show(),
        is_promoted=is_promoted,
    )


def _tunnels(core: NodeCore) -> TunnelStatistics:
    tunnels = core.patterns.tunnels
    if tunnels is None:
        return TunnelStatistics(unopened=core.groups.cluster_counts.unopened())
    counts, ends = tunnels.counts, tunnels.ends()
    return TunnelStatistics(
        opened=counts.opened,
        unopened=core.groups.cluster_counts.unopened(),
        served=counts.served,
        ended=counts.ended,
        broken=dict(counts.broken),
        credit_waits=counts.credit_waits + sum([end.credit_waits for end in ends]),
        sent_bytes=counts.sent_bytes + sum([end.written for end in ends]),
        received_bytes=counts.received_bytes + sum([end.received for end in ends]),
        open=len(ends),
        credit_bytes=sum([end.credit for end in ends]),
        queued_bytes=sum([end.queued_bytes for end in ends]),
        buffered_bytes=sum([end.buffered_bytes for end in ends]),
    )


def _links(core: NodeCore, retransmissions: int) -> LinksStatistics:
    counts, rows = core.peers.counts, [(link, peer, *link.records()) for link, peer in core.peers.links_and_peers()]
    open_rows = [row for row in rows if row[1] is not None]
    lanes = [lane for lane in [row[0].queued_by_lane() for row in open_rows] if any(lane)]
    shown = open_rows if len(open_rows) <= LINKS_SHOWN_MAX else nlargest(LINKS_SHOWN_MAX, open_rows, key=_traffic)
    return LinksStatistics(
        opened=counts.opened,
        dialled=counts.dialled,
        dials_failed=counts.dials_failed,
        refused=core.peers.refused,
        closed=counts.closed.copy(),
        received_bytes=counts.received_bytes + sum([row[0].received_bytes for row in rows]),
        sent_bytes=counts.sent_bytes + sum([row[0].sent_bytes for row in rows]),
        received_records=counts.received_records + sum([row[2] for row in rows]),
        sent_records=counts.sent_records + sum([row[3] for row in rows]),
        rekeys=counts.rekeys + sum([row[4] for row in rows]),
        retransmissions=retransmissions,
        open=len(open_rows),
        congested=sum([row[0].congested for row in open_rows]),
        queued_bytes=sum([sum(lane[:3]) for lane in lanes]),
        queued_by_lane={name: size for name, size in zip(LANES, map(sum, zip(*lanes, strict=True)), strict=False) if size},
        through_ring=core.peers.count_routed(),
        each=tuple([_link(*row) for row in shown]),
    )


def _traffic(row: tuple[Link, Peer | None, int, int, int]) -> int:
    return row[0].received_bytes + row[0].sent_bytes


def _link(link: Link, peer: Peer | None, received_records: int, sent_records: int, rekeys: int) -> LinkStatistics:
    assert peer is not None
    info = peer.info
    return LinkStatistics(
        peer=peer.name,
        address=info.addresses[0] if info.addresses else "",
        zone=info.zone,
        name=peer.label,
        received_bytes=link.received_bytes,
        sent_bytes=link.sent_bytes,
        received_records=received_records,
        sent_records=sent_records,
        rekeys=rekeys,
        queued_bytes=link.queued_bytes,
        is_congested=link.congested,
        awaited=peer.awaited,
        round_trip_s=link.signs.round_trip_s,
    )


def _overlay(overlay: Overlay, tables: Mapping[str, int]) -> OverlayStatistics:
    return OverlayStatistics(
        is_active=overlay.is_active(),
        size_estimate=overlay.size_estimate(),
        roots=tables["directories"],
        members_kept=tables["directory_members"],
        tables=tables,
        directories=_counted(overlay.counters),
        ring=_counted(overlay.ring_counters),
        detector=_counted(overlay.detector_counters),
    )


def _counted(counters: Counters | PastryCounters | DetectorCounters) -> dict[str, int]:
    return {name: getattr(counters, name) for name in counters.__struct_fields__}


def _security(core: NodeCore) -> SecurityStatistics:
    drops, keyring = core.drops, core.peers.keyring
    return SecurityStatistics(
        unauthentic=drops.get("unauthentic", 0),
        replayed=drops.get("replayed", 0),
        malformed=drops.get("malformed", 0) + drops.get("malformed_headers", 0),
        datagrams=drops.get("datagram", 0),
        handshakes_refused=core.peers.refused,
        generations=len(keyring.generations),
        primary=keyring.primary.key_id.hex(),
        accepted=tuple(keys.key_id.hex() for keys in keyring.generations[1:]),
    )


def _histograms(core: NodeCore) -> Histograms:
    totals = core.groups.cluster_counts.totals
    counts, seconds = core.overlay.round_trips
    pubsub = core.patterns.pubsub
    return Histograms(
        round_trip=totals.round_trip.show(),
        queue_wait=totals.queue_wait.show(),
        handling=totals.handling.show(),
        survey=totals.survey.show(),
        lag=_NO_LAG if pubsub is None else pubsub.deliveries.lags.show(),
        broadcast_lag=totals.broadcast_lag.show(),
        tunnel_opening=core.requester.counts.openings.show(),
        ping=core.peers.counts.round_trips.show(),
        probe=HistogramStatistics.of(counts, seconds),
    )


# Most clusters use one pattern only.
_NO_REQUESTS: Final = RequestStatistics()
_NONE: Final[Mapping[str, int]] = {}
_NO_BROADCASTS: Final = BroadcastStatistics()
_NO_SURVEYS: Final = SurveyStatistics()
_NO_LAG: Final = Histogram().show()
