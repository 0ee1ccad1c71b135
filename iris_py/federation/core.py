"""The protocol of a gateway with other clouds, without input or output (docs/design.md 15.91).

:class:`iris_py.net.driver.Driver` drives the core, as it drives a node. The owner is the gateway: it gets the requests and
channels of neighbours as events, and answers with the members of its cloud.

A neighbour's input never raises here: a violation of the protocol ends the bundle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from iris_overlay.timers import DeadlineTable
from iris_py.errors import CloudUnavailable, MemberLost, MessageTooLarge, NotExported, Overloaded, RequestTimeout
from iris_py.federation import messages
from iris_py.federation.bundle import BROKEN_S, INCOMING_MAX, QUEUED_BYTES_MAX, Bundle, Incoming, Outgoing
from iris_py.federation.calls import UNEXECUTED, Status, encode_outcome
from iris_py.federation.connections import (
    BundleClosed,
    BundleOpened,
    ConnectionClosed,
    ConnectionOpened,
    GatewayConnections,
    HandshakeRefused,
    Introduction,
)
from iris_py.federation.events import (
    BundleChanged,
    BundleSuspected,
    CloudChanged,
    CountTold,
    FederationEvent,
    IncomingCancelled,
    OffersChanged,
    RequestsReceived,
    UseRefused,
    WatchChanged,
)
from iris_py.federation.messages import CLUSTER, LINE_GROUP, LineError, decode_control, decode_messages, decode_request
from iris_py.federation.neighbour import Neighbour
from iris_py.federation.openings import Openings
from iris_py.federation.rules import KINDS, ReceivedCatalogue, make_catalogue
from iris_py.link.config import LinkConfig
from iris_py.link.lanes import BODY, CONTROL, LARGE_BODY, TUNNEL
from iris_py.wire import packets

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from iris_overlay.environment import Rng
    from iris_py.errors import IrisError
    from iris_py.federation.calls import Call
    from iris_py.federation.rules import ImportRule, RuleTable
    from iris_py.federation.settings import FederationSettings
    from iris_py.link.link import Link, Packet
    from iris_security import CloudKey

#: Times of a connection between clouds, longer than inside a cloud. The keep-alive is a last resort: the health check of the
#: bundle acts sooner.
LINE_CONFIG = LinkConfig(handshake_timeout_s=10.0, keepalive_interval_s=1.0, keepalive_timeout_s=10.0, close_timeout_s=2.0)
#: The largest payload between clouds: the largest that a node can be allowed to send.
MESSAGE_BYTES_MAX = packets.MESSAGE_BYTES_LIMIT
_LAST_STATUS = max(Status)


class FederationCore:
    """The protocol of a gateway: its connections to other clouds, and the requests and channels over these connections.

    Args:
        gateway: 16 random bytes of the process.
        clock_ms: Returns the machine's clock (milliseconds since 1970), sent to peers for comparison only; 0 to keep the clock
            undisclosed.

    Attributes:
        lines: The connections.
        openings: The channels and their openings.
        drops: The number of dropped messages, by reason.
    """

    def __init__(
        self,
        settings: FederationSettings,
        key: CloudKey,
        *,
        gateway: bytes,
        zone: str,
        rng: Rng,
        entropy: Callable[[int], bytes],
        now: float,
        clock_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        self.drops: dict[str, int] = {}
        self.settings = settings
        self._rng = rng
        own = settings.gateway
        introduction = Introduction(gateway, own.name, zone, MESSAGE_BYTES_MAX, own.connections, clock_ms)
        self.openings = Openings(own.channel_bytes, own.window_bytes, self.count_drop, self._schedule_check)
        self.lines = GatewayConnections(key, introduction, LINE_CONFIG, self.openings.make_channels, rng, entropy)
        self._events: list[FederationEvent] = []
        self._outcomes: list[tuple[object, bytes]] = []
        self._deadlines: DeadlineTable[Outgoing] = DeadlineTable()
        self._checks: DeadlineTable[Bundle] = DeadlineTable()  # of their health
        self._flushed: dict[Bundle, None] = {}  # bundles with gathered messages
        self._versions = 0  # the last version of a catalogue
        self._is_draining = False
        self._unsure: dict[Bundle, int] = {}  # after a standstill of this process: the probe whose echo ends the doubt
        self._imports: dict[tuple[str, int], RuleTable[ImportRule]] = {}
        self._has_new_deadline = True
        self._configure(settings, now)

    # -- requests of this cloud

    def request(
        self,
        alias: str,
        call: Call,
        headers: bytes,
        token: object,
        deadline: float,
        now: float,
        among: Container[Bundle] | None = None,
    ) -> Outgoing | None:
        """Send a request to a cluster of a neighbour (other cloud); the outcome is reported with the token.

        Args:
            call: The call, with the identity for the peer.
            headers: The application's headers, encoded.
            token: The key under which the outcome is reported.
            deadline: The end of the caller's wait.
            among: The bundles for the first try; None for all.

        Returns:
            The request, for :meth:`cancel`; None if the outcome is already queued.
        """
        refusal = self._refusal_of(alias, call, deadline, now)
        if refusal is not None:
            self._outcomes.append((token, encode_outcome(refusal)))
            return None
        neighbour = self.lines.neighbours[alias]
        way = neighbour.choose(CLUSTER, call.name, messages.ALLOW_REQUEST, now, among=among)
        if way is None:
            is_usable = neighbour.is_usable(now)
            error = NotExported(call.name) if is_usable else CloudUnavailable(call.name)
            self._outcomes.append((token, encode_outcome(error)))
            return None
        bundle, entry = way
        size = len(call.payload)
        if size > bundle.max_message_bytes:
            self._outcomes.append((token, encode_outcome(MessageTooLarge(size, bundle.max_message_bytes))))
            return None
        if bundle.queued_bytes >= QUEUED_BYTES_MAX:
            self._outcomes.append((token, encode_outcome(Overloaded(call.name, 0))))
            return None
        limits = neighbour.limits_of(entry, now)
        wait_s = limits.begin_request(size, now)
        if wait_s is not None:
            self._outcomes.append((token, encode_outcome(Overloaded(call.name, retry_after_s=wait_s))))
            return None
        account = neighbour.accounts.of_import("cluster", entry.pattern)
        outgoing = Outgoing(token, call, headers, deadline, limits, account, bundle)
        self._deadlines.set(outgoing, deadline)
        self._has_new_deadline = True
        self._send(outgoing, bundle, now)
        return outgoing

    def cancel(self, outgoing: Outgoing, now: float) -> None:
        """Cancel a request; no outcome is reported. Harmless after the outcome."""
        bundle = outgoing.bundle
        if bundle.calls.get(outgoing.number) is outgoing:
            bundle.send_cancel(outgoing.number, now)
            self._flushed[bundle] = None
            self._forget(outgoing, 0, now)

    # -- requests of neighbours

    def reply(self, incoming: Incoming, outcome: bytes, now: float) -> None:
        """Answer a neighbour's request; harmless after a cancellation.

        Args:
            outcome: An outcome of :mod:`iris_py.federation.calls`, with pseudonyms in place of member ids.
        """
        bundle = incoming.bundle
        if bundle.incoming.get(incoming.number) is not incoming:
            return
        del bundle.incoming[incoming.number]
        self._end_incoming(incoming, outcome, now)
        bundle.send_reply(incoming.number, outcome, now)
        self._flushed[bundle] = None

    def note_refused(self, alias: str, name: str, use: str, reason: str) -> None:
        """Report a use refused by the owner, for the log and the audit."""
        self._events.append(UseRefused(alias, name, use, reason))

    # -- neighbours

    def import_rule(self, alias: str, kind: int, name: str) -> ImportRule | None:
        """Return the local rule that imports a neighbour's name; None without a rule."""
        table = self._imports.get((alias, kind))
        return None if table is None else table.find(name)

    def imports_overlapping(self, alias: str, pattern: str) -> list[ImportRule]:
        """Return the import rules for topics that share a name with a pattern.

        Raises:
            ValueError: The pattern is invalid.
        """
        table = self._imports.get((alias, messages.TOPIC))
        return [] if table is None else table.find_overlapping(pattern)

    def unusable(self, now: float) -> list[Neighbour]:
        """Return the neighbours without a bundle (connections to a gateway) that can get new work."""
        return [neighbour for neighbour in self.lines.neighbours.values() if not neighbour.is_usable(now)]

    def is_usable(self, alias: str, now: float) -> bool:
        """Tell whether a neighbour has a bundle (connections to a gateway) that can get new work."""
        neighbour = self.lines.neighbours.get(alias)
        return neighbour is not None and neighbour.is_usable(now)

    def is_left(self, alias: str, now: float) -> bool:
        """Tell whether all reachable gateways of a neighbour leave in order: bundles carry open channels, and no new work."""
        neighbour = self.lines.neighbours.get(alias)
        return neighbour is not None and neighbour.is_left(now)

    def reconfigure(self, settings: FederationSettings, now: float) -> None:
        """Switch to other settings: end connections with removed keys at once, and send new catalogues."""
        self._configure(settings, now)
        for neighbour in self.lines.neighbours.values():
            for bundle in neighbour.bundles.values():
                self._send_catalogue(bundle, now)
        self._advance(now)
        self._tell_changes(now)

    def end_bundle(self, bundle: Bundle, name: str, use: str, reason: str, now: float) -> None:
        """End a bundle whose peer violates its rules."""
        self._events.append(UseRefused(bundle.alias, name, use, reason))
        self.lines.end_bundle(bundle, f"{use} of {name!r}: {reason}", now)
        self._advance(now)

    def drain(self, now: float) -> None:
        """Ask every neighbour to start nothing new here, and stop opening connections."""
        self._is_draining = self.lines.is_draining = True
        for neighbour in self.lines.neighbours.values():
            for bundle in neighbour.bundles.values():
                bundle.send_control(messages.Going(), now)
                self._touch(bundle)

    @property
    def is_idle(self) -> bool:
        """Whether no request or channel is under way; while draining, all neighbours must also agree to end their bundles."""
        bundles = [bundle for neighbour in self.lines.neighbours.values() for bundle in neighbour.bundles.values()]
        return not any(
            bundle.is_busy or bundle.incoming or (self._is_draining and not bundle.is_released) for bundle in bundles
        )

    def count_under_way(self) -> int:
        """Return the number of unfinished requests and channels of the local cloud and its neighbours."""
        return sum(
            bundle.count_under_way() for neighbour in self.lines.neighbours.values() for bundle in neighbour.bundles.values()
        )

    def watch(self, bundle: Bundle, name: str, now: float, *, is_on: bool) -> bool:
        """Ask a neighbour's gateway to start or stop reporting the member count of a cluster.

        Returns:
            Whether the gateway exports the cluster for requests; if not, nothing is sent.
        """
        neighbour = self.lines.neighbours.get(bundle.alias)
        offer = None if neighbour is None else neighbour.offers.get(bundle)
        entry = None if offer is None else offer.find(CLUSTER, name, messages.ALLOW_REQUEST)
        if entry is None:
            return False
        bundle.send_control(messages.WatchCount(entry.rule, name, is_on), now)
        self._touch(bundle)
        return True

    def probe(self, alias: str, now: float) -> None:
        """Probe every link to a neighbour without a probe under way, so that a dead link is suspect within seconds."""
        neighbour = self.lines.neighbours.get(alias)
        for bundle in () if neighbour is None else list(neighbour.bundles.values()):
            if bundle.is_up and not bundle.health.is_probed:
                self._probe(bundle, now)
                self._schedule_check(bundle, now)

    def tell_count(self, bundle: Bundle, name: str, members: int, now: float) -> None:
        """Report the member count of a local cluster to a neighbour, under the exported name."""
        bundle.send_control(messages.Count(name, members), now)
        self._touch(bundle)

    # -- the driver

    def accepted(self, address: str, now: float) -> Link | None:
        """Return the link of a connection accepted from an IP address."""
        link = self.lines.accepted(address, now)
        self._advance(now)
        return link

    def dialled(self, address: str, now: float, host: str = "") -> Link | None:
        """Return the link of a dialled connection; None if no longer wanted."""
        link = self.lines.dialled(address, now)
        self._advance(now)
        return link

    def dial_failed(self, address: str, now: float, *, is_refused: bool = False, is_broken: bool = False) -> None:
        """Handle a failed dial."""
        reason = "nobody listens there" if is_refused else "it broke at once" if is_broken else "nobody answers there"
        self.lines.dial_failed(address, reason, now)
        self._advance(now)

    def dial_rested(self, address: str, now: float) -> None:
        """Handle a dial that was not made. A gateway dials configured addresses alone, and these never rest."""
        self.dial_failed(address, now)

    def link_received(self, link: Link, now: float) -> bool:
        """Handle the bytes received by a link; return False, because the results are sent at once. The hot path."""
        received, line = link.packets_received(), self.lines.line_of(link)
        if line is None and link.events:
            self.lines.handle_link(link, now)
            line = self.lines.line_of(link)
        if line is not None:
            assert line.neighbour is not None
            assert line.bundle is not None
            if link.received_bytes != line.received_bytes:
                if not line.index:  # only connection 0 counts: another connection may outlive it
                    self._note_heard(line.bundle, now)
                elif line.received_bytes:
                    line.bundle.known_open.add(line.index)
                line.received_bytes = link.received_bytes
            if received:
                self._receive(line.neighbour, line.bundle, line.index, received, now)
        if link.events:
            self.lines.handle_link(link, now)
        if self.lines.events:
            self._advance(now)
        if link.has_output():
            self.lines.touched[link] = None
        return False

    def receive_datagram(self, data: bytes, source: tuple[str, int], now: float) -> None:
        """Ignore datagrams: clouds exchange none."""

    def handle_resumption(self, now: float) -> None:
        """After a standstill of this process, refuse each bundle's requests until an echo: their callers may have given up."""
        for neighbour in self.lines.neighbours.values():
            for bundle in neighbour.bundles.values():
                bundle.health.resume(now)
                self._unsure[bundle] = self._probe(bundle, now)

    def handle_timeout(self, now: float) -> None:
        """Handle due deadlines; harmless if early."""
        for outgoing in self._deadlines.expired(now):
            self._handle_overdue(outgoing, now)
        for bundle in self._checks.expired(now):
            self._check(bundle, now)
        self.openings.handle_timeout(now)
        self.lines.handle_timeout(now)
        self._advance(now)

    def has_output(self) -> bool:
        """Tell whether :meth:`flush` or :meth:`links_to_flush` has anything to do."""
        return bool(self._flushed or self.lines.touched or self.openings.has_output)

    def flush(self, now: float) -> None:
        """Pass the gathered messages to the links."""
        flushed, self._flushed = self._flushed, {}
        for bundle in flushed:
            bundle.flush(now)
            self._touch(bundle)
        if self.openings.has_output:
            self.lines.touched.update(self.openings.fill(now))

    def has_output_for(self, link: Link) -> bool:
        """Tell whether another :meth:`flush` would give a link more to write."""
        return self.openings.is_ready_for(link)

    def links_to_flush(self) -> list[Link]:
        """Take the links that may have data to write."""
        return self.lines.take_touched()

    def datagrams_to_send(self) -> list[tuple[tuple[str, int] | None, bytes]]:
        """Return no datagrams: clouds exchange none."""
        return []

    def has_events(self) -> bool:
        """Tell whether :meth:`outcomes_received` or :meth:`events_received` has anything to return."""
        return bool(self._outcomes or self._events or self.lines.dials or self.openings.has_events)

    def outcomes_received(self) -> list[tuple[object, bytes]]:
        """Take the outcomes of requests: tokens and outcomes of :mod:`iris_py.federation.calls`."""
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def events_received(self) -> list[FederationEvent]:
        """Take the events so far, in order."""
        events: list[FederationEvent] = [*self.lines.dials, *self._events]
        self.lines.dials, self._events = [], []
        return events + self.openings.events_received()

    def has_new_deadline(self) -> bool:
        """Tell whether :meth:`deadline` may be earlier than before."""
        return self._has_new_deadline or self.lines.has_new_deadline

    def deadline(self) -> float | None:
        """Return the earliest time at which to call :meth:`handle_timeout`."""
        self._has_new_deadline = False
        times = (self._deadlines.deadline(), self._checks.deadline(), self.lines.deadline(), self.openings.deadline())
        return min((time for time in times if time is not None), default=None)

    def close_links(self, now: float) -> None:
        """End every connection, after sending its queue."""
        self.flush(now)
        self.lines.close(now)
        self._advance(now)

    def status(self, now: float) -> dict[str, Any]:
        """Return the state of the cloud links, as plain values."""
        self.lines.count_bytes()
        return {
            alias: neighbour.status(now)
            | {
                "unmatched_imports": [
                    {"kind": rule.kind, "outside": rule.outside, "line": rule.line} for rule in self.unmatched_imports(alias)
                ]
            }
            for alias, neighbour in self.lines.neighbours.items()
        }

    def unmatched_imports(self, alias: str) -> list[ImportRule]:
        """Return the imports without a matching export of the neighbour; empty before the neighbour's first catalogue."""
        neighbour = self.lines.neighbours[alias]
        rules = (rule for number in KINDS for rule in self._imports[alias, number].rules)
        return [rule for rule in rules if neighbour.exports_any(rule.kind, rule.outside) is False]

    def count_drop(self, reason: str, times: int = 1) -> int:
        """Count dropped messages; return the total for the reason."""
        count = self.drops[reason] = self.drops.get(reason, 0) + times
        return count

    # -- settings

    def _configure(self, settings: FederationSettings, now: float) -> None:
        self.settings = settings
        bundles = settings.gateway.bundles
        for gone in [each for alias, each in self.lines.neighbours.items() if alias not in settings.clouds]:
            self.lines.drop_neighbour(gone, "it is no longer a neighbour", now)
            if gone.was_usable:
                self._events.append(CloudChanged(gone.alias, is_usable=False, reason="it is no longer a neighbour"))
        for alias, cloud in settings.clouds.items():
            neighbour = self.lines.neighbours.get(alias)
            if neighbour is None:
                self.lines.neighbours[alias] = Neighbour(alias, cloud, bundles, self._rng, now)
            else:
                neighbour.change(cloud, bundles, now)
                self.lines.drop_links(neighbour, frozenset(cloud.keys), "its key is not accepted any more", now)
        self.lines.note_settings()
        self._imports = {
            (alias, number): settings.import_table(alias, kind) for alias in settings.clouds for number, kind in KINDS.items()
        }
        for alias, neighbour in self.lines.neighbours.items():
            neighbour.set_exports(settings.exports_to(alias), now)
        self._has_new_deadline = True

    def _send_catalogue(self, bundle: Bundle, now: float) -> None:
        self._versions += 1
        exports = self.lines.neighbours[bundle.alias].exports
        bundle.send_control(make_catalogue(self._versions, exports, messages.ALLOW_BLOCK), now)
        self._touch(bundle)

    # -- requests of this cloud

    def _refusal_of(self, alias: str, call: Call, deadline: float, now: float) -> IrisError | None:
        """Return the error by which the local gateway refuses a request without asking the peer; None to send the request."""
        neighbour = self.lines.neighbours.get(alias)
        if neighbour is None:
            return CloudUnavailable(call.name)
        if self.import_rule(alias, CLUSTER, call.name) is None:
            return NotExported(call.name)
        if deadline <= now:
            return RequestTimeout(call.name, 0.0, None)
        return None

    def _send(self, outgoing: Outgoing, bundle: Bundle, now: float) -> None:
        bundle.send_request(outgoing, now)
        self._flushed[bundle] = None
        if len(bundle.calls) == 1:  # the bundle became busy; further requests change nothing
            self._schedule_check(bundle, now)

    def _reroute(self, outgoing: Outgoing, now: float) -> bool:
        """Send an idempotent request over another bundle, if possible; return whether the request was sent."""
        neighbour = self.lines.neighbours.get(outgoing.bundle.alias)
        if not outgoing.call.identity or neighbour is None or outgoing.deadline <= now:
            return False
        way = neighbour.choose(CLUSTER, outgoing.call.name, messages.ALLOW_REQUEST, now)
        if way is None or len(outgoing.call.payload) > way[0].max_message_bytes:
            return False
        before = outgoing.bundle
        before.calls.pop(outgoing.number, None)
        self._release(before, now)
        outgoing.is_unsure = True
        self._send(outgoing, way[0], now)
        return True

    def _forget(self, outgoing: Outgoing, reply_bytes: int, now: float) -> None:
        outgoing.bundle.calls.pop(outgoing.number, None)
        self._release(outgoing.bundle, now)
        self._deadlines.cancel(outgoing)
        outgoing.limits.end_request(reply_bytes, now)

    def _release(self, bundle: Bundle, now: float) -> None:
        """Tell a draining peer that the bundle may end, as soon as no request of the local cloud is under way there."""
        if bundle.is_going and not bundle.is_quiet and not bundle.calls:
            bundle.is_quiet = True
            bundle.send_control(messages.Quiet(), now)
            self._touch(bundle)

    def _finish(self, outgoing: Outgoing, outcome: bytes, now: float) -> None:
        if outgoing.is_unsure and outcome[0] in UNEXECUTED:
            outcome = encode_outcome(MemberLost(outgoing.call.name, ""))  # the first way may have executed the request
        self._forget(outgoing, len(outcome) - 1, now)
        outgoing.account.ended(outcome[0], len(outgoing.call.payload), len(outcome) - 1, now - outgoing.sent_at)
        self._outcomes.append((outgoing.token, outcome))

    def _handle_overdue(self, outgoing: Outgoing, now: float) -> None:
        outgoing.bundle.send_cancel(outgoing.number, now)
        self._flushed[outgoing.bundle] = None
        self._finish(outgoing, encode_outcome(RequestTimeout(outgoing.call.name, 0.0, None)), now)

    # -- what comes in

    def _receive(self, neighbour: Neighbour, bundle: Bundle, index: int, received: list[Packet], now: float) -> None:
        started: dict[Incoming, None] = {}
        try:
            for kind, key, data, start, stop in received:
                if kind == BODY and key == LINE_GROUP:
                    for message in decode_messages(data, start, stop):
                        self._receive_message(neighbour, bundle, message, started, now)
                elif kind == LARGE_BODY and key.startswith(LINE_GROUP):
                    for message in decode_messages(key + data, len(LINE_GROUP), len(key) + len(data)):
                        self._receive_message(neighbour, bundle, message, started, now)
                elif kind == TUNNEL:
                    self.openings.receive_chunk(bundle, index, key, data, start, stop, now)
                elif kind == CONTROL:
                    self._receive_control(neighbour, bundle, key, now)
                else:
                    self.count_drop("unknown_frame")
        except LineError as exc:
            self.count_drop("violation")
            self._events.append(UseRefused(neighbour.alias, "", "protocol", str(exc)))
            self.lines.end_bundle(bundle, f"a violation of the protocol: {exc}", now)
        if started:
            self._events.append(RequestsReceived(list(started)))

    def _receive_message(
        self,
        neighbour: Neighbour,
        bundle: Bundle,
        message: tuple[int, int, int, bytes, bytes],
        started: dict[Incoming, None],
        now: float,
    ) -> None:
        kind, number, argument, head, payload = message
        if kind == packets.REPLY:
            outgoing = bundle.calls.get(number)
            if outgoing is None:
                self.count_drop("late_reply")
            elif not payload or payload[0] > _LAST_STATUS:
                raise LineError("a reply without a status")
            else:
                self._finish(outgoing, payload, now)
        elif kind == packets.REQUEST:
            incoming = self._admit(neighbour, bundle, number, argument, head, payload, now)
            if incoming is not None:
                started[incoming] = None
        elif kind == packets.CANCEL:
            cancelled = bundle.incoming.pop(number, None)
            if cancelled is not None:
                self._end_incoming(cancelled, b"", now)
                if cancelled in started:
                    del started[cancelled]
                else:
                    self._events.append(IncomingCancelled(cancelled))
        else:
            self.count_drop("unknown_kind")

    def _admit(
        self, neighbour: Neighbour, bundle: Bundle, number: int, left_ms: int, headers: bytes, payload: bytes, now: float
    ) -> Incoming | None:
        """Return a neighbour's request if the rules allow it; otherwise answer with an error, and return None."""
        call = decode_request(payload)
        if number in bundle.incoming:
            raise LineError("a request number that is already in use")
        rule = neighbour.export_for("cluster", call.name)
        name = None if rule is None or "request" not in rule.allow else rule.to_local(call.name)
        outcome: IrisError | None = None
        if name is None or rule is None:
            if not neighbour.admit_refusal(now):
                raise LineError("names that are not exported, again and again")
            outcome = NotExported(call.name)
            self._events.append(UseRefused(neighbour.alias, call.name, "request", "not exported"))
        elif bundle in self._unsure:
            outcome = CloudUnavailable(call.name)  # the request may be old
        elif neighbour.incoming >= INCOMING_MAX or bundle.queued_bytes >= QUEUED_BYTES_MAX:
            outcome = Overloaded(call.name, 0)
        else:
            limits = neighbour.export_limits[rule.number]
            wait_s = limits.begin_request(len(call.payload), now)
            if wait_s is None:
                account = neighbour.accounts.of_export(rule)
                deadline = now + left_ms / 1000
                incoming = Incoming(bundle, number, rule, call, headers, name, deadline, now, limits, account)
                bundle.incoming[number] = incoming
                neighbour.incoming += 1
                return incoming
            outcome = Overloaded(call.name, retry_after_s=wait_s)
            self._events.append(UseRefused(neighbour.alias, call.name, "request", "limited"))
        bundle.send_reply(number, encode_outcome(outcome), now)
        self._flushed[bundle] = None
        return None

    def _end_incoming(self, incoming: Incoming, outcome: bytes, now: float) -> None:
        incoming.limits.end_request(max(0, len(outcome) - 1), now)
        neighbour = self.lines.neighbours.get(incoming.bundle.alias)
        if neighbour is not None:  # a removed neighbour has no count: its requests end with it
            neighbour.incoming -= 1
        if outcome:
            incoming.account.ended(outcome[0], len(incoming.call.payload), len(outcome) - 1, now - incoming.began_at)

    def _receive_control(self, neighbour: Neighbour, bundle: Bundle, data: bytes, now: float) -> None:
        message = decode_control(data)
        if isinstance(message, messages.Echo):
            bundle.health.handle_echo(message.number, now)
            if self._unsure.get(bundle) == message.number:
                del self._unsure[bundle]
        elif isinstance(message, messages.Probe):
            bundle.send_control(messages.Echo(message.number), now)
            self._touch(bundle)
        elif isinstance(message, messages.Catalogue):
            if not neighbour.admit_catalogue(1 + len(message.entries), now):
                raise LineError("catalogues again and again")
            neighbour.note_offer(bundle, ReceivedCatalogue(message))
            bundle.catalogue = message
            self._events.append(OffersChanged(neighbour.alias))
            self._tell_changes(now)
        elif isinstance(message, messages.Going):
            bundle.is_going = True
            self._release(bundle, now)
            self.lines.replace(bundle, now)
            self._events.append(OffersChanged(neighbour.alias))
            self._tell_changes(now)
        elif isinstance(message, messages.Quiet):
            bundle.is_released = True
        elif isinstance(message, messages.WatchCount):
            rule = neighbour.export_rule(message.rule, message.name)
            name = None if rule is None or "request" not in rule.allow else rule.to_local(message.name)
            if name is not None:
                self._events.append(WatchChanged(bundle, message.name, name, message.is_on))
        elif isinstance(message, messages.Count):
            self._events.append(CountTold(neighbour.alias, bundle, message.name, message.members))
        elif message is None:
            self.count_drop("unknown_control")
        else:
            self.openings.receive_control(neighbour, bundle, message, now)

    # -- bundles

    def _touch(self, bundle: Bundle) -> None:
        if bundle.touched:
            self.lines.touched.update(bundle.touched)
            bundle.touched.clear()

    def _advance(self, now: float) -> None:
        """Handle the events of connections."""
        while self.lines.events:
            events, self.lines.events = self.lines.events, []
            for event in events:
                if isinstance(event, BundleOpened):
                    if event.bundle.is_closed:
                        continue  # its neighbour may have been removed
                    self.lines.neighbours[event.bundle.alias].note_opened(event.bundle)
                    self._send_catalogue(event.bundle, now)
                    if self._is_draining:
                        event.bundle.send_control(messages.Going(), now)
                    self._probe(event.bundle, now)
                    self._schedule_check(event.bundle, now)
                    self._events.append(BundleChanged(event.bundle, ""))
                elif isinstance(event, BundleClosed):
                    self._handle_bundle_closed(event.bundle, event.reason, now)
                elif isinstance(event, ConnectionOpened):
                    self.openings.connection_opened(event.bundle, event.index)
                elif isinstance(event, ConnectionClosed):
                    self.openings.connection_closed(event.bundle, event.channels, event.reason)
                    self._handle_connection_lost(event.bundle, event.link, now)
                elif isinstance(event, HandshakeRefused):
                    self._events.append(event)
            self._tell_changes(now)

    def _handle_bundle_closed(self, bundle: Bundle, reason: str, now: float) -> None:
        neighbour = self.lines.neighbours.get(bundle.alias)
        if neighbour is not None:
            neighbour.offers.pop(bundle, None)
            if not self._is_draining:
                neighbour.note_ended(bundle, reason, now)
        self._checks.cancel(bundle)
        self._flushed.pop(bundle, None)
        self._unsure.pop(bundle, None)
        self._events.append(BundleChanged(bundle, reason))
        self._events.append(OffersChanged(bundle.alias))
        for outgoing in list(bundle.calls.values()):
            if not self._reroute(outgoing, now):
                self._finish(outgoing, encode_outcome(MemberLost(outgoing.call.name, "")), now)
        incoming, bundle.incoming = bundle.incoming, {}
        for request in incoming.values():
            self._end_incoming(request, b"", now)
            self._events.append(IncomingCancelled(request))

    def _handle_connection_lost(self, bundle: Bundle, link: Link, now: float) -> None:
        """End the requests whose large messages were lost with one connection of a bundle that goes on."""
        replies = bundle.take_large_replies(link)
        if bundle.is_closed:
            return  # the end of the bundle ends everything
        for outgoing in [each for each in bundle.calls.values() if each.link is link]:
            if not self._reroute(outgoing, now):
                self._finish(outgoing, encode_outcome(MemberLost(outgoing.call.name, "")), now)
        for number in replies:  # a peer that has the reply drops this one
            bundle.send_reply(number, encode_outcome(MemberLost("", "")), now)
            self._flushed[bundle] = None

    def _check(self, bundle: Bundle, now: float) -> None:
        """Update the health of a bundle: send a probe if due, and end a broken bundle."""
        if bundle.is_closed:
            return
        was_suspect = bundle.health.is_suspect
        asks, is_broken = bundle.health.check(now, is_busy=bundle.is_busy)
        if bundle.health.is_suspect and not was_suspect:
            self._events.append(BundleSuspected(bundle, now - bundle.health.heard_at))
        if is_broken:
            self.lines.end_bundle(bundle, f"nothing heard for {BROKEN_S:g} s", now)
            return
        if asks:
            self._probe(bundle, now)
        for link in bundle.ask_for_signs(now):
            link.abort("nothing was heard over it")
            self.lines.handle_link(link, now)
        self._touch(bundle)
        if bundle.health.is_suspect:
            for outgoing in list(bundle.calls.values()):
                self._reroute(outgoing, now)
        self._schedule_check(bundle, now)
        self._tell_changes(now)

    def _probe(self, bundle: Bundle, now: float) -> int:
        """Send a probe; return its number."""
        number = bundle.health.probe(now)
        bundle.send_control(messages.Probe(number), now)
        self._touch(bundle)
        return number

    def _note_heard(self, bundle: Bundle, now: float) -> None:
        was_suspect = bundle.health.is_suspect
        bundle.health.heard(now)
        if was_suspect:
            self._events.append(BundleSuspected(bundle, 0.0))
            self._schedule_check(bundle, now)  # at the end of the trial

    def _schedule_check(self, bundle: Bundle, now: float) -> None:
        if not bundle.is_closed:
            self._checks.set(bundle, bundle.health.deadline(now, is_busy=bundle.is_busy))
            self._has_new_deadline = True

    def _tell_changes(self, now: float) -> None:
        """Report the neighbours whose reachability or usable bundles changed."""
        if self.lines.events:
            return  # events of connections come first; then this is called again
        for neighbour in self.lines.neighbours.values():
            usable = neighbour.usable(now)
            if usable == neighbour.was_usable:
                continue
            if bool(usable) is not bool(neighbour.was_usable):
                faults = [f"the cloud link to {each.where}: {each.describe_fault(now)}" for each in neighbour.was_usable]
                is_planned = bool(faults) and all(each.is_going for each in neighbour.was_usable)
                self._events.append(
                    CloudChanged(neighbour.alias, bool(usable), "" if usable else "; ".join(faults), is_planned)
                )
            neighbour.was_usable = usable
            self._events.append(OffersChanged(neighbour.alias))
