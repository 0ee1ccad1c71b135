"""Requests, surveys and broadcasts, at the member: admit, queue, hand out, answer (docs/design.md section 6).

A registration runs at most ``concurrency`` requests and queues at most ``queue_messages`` more, of ``queue_bytes`` together.
Requests beyond the bounds are rejected at once, so that callers can try another member.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_py.observe.counts import count_in
from iris_py.observe.histogram import RECENT_MAX
from iris_py.patterns.request.deduplication import Deduplicator
from iris_py.patterns.request.place import Asking, Place
from iris_py.patterns.request.registration import (
    BroadcastReceived,
    Execution,
    Registration,
    RegistrationDrained,
    RequestCancelled,
    RequestsStarted,
    ServiceEvent,
    least_loaded,
)
from iris_py.peers.decrypted_message import PeerMessage
from iris_py.wire import packets
from iris_py.wire.headers import NO_HEADERS, cloud_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from iris_py.patterns.request.deduplication import Caller
    from iris_py.patterns.request.losses import Losses
    from iris_py.peers.group import Group
    from iris_py.peers.peer import Peer
    from iris_py.wire.headers import Headers


#: Remembered cancellations that arrived before their request: a small CANCEL overtakes a large REQUEST on the link. Most
#: remembered requests were already answered; forgetting a needed entry costs a useless execution.
EARLY_CANCELS_MAX = 1024


class RequestService:
    """The requests, surveys and broadcasts that reach one node as a member, and its registrations (handlers for clusters).

    Args:
        losses: The losses known to the node.

    Attributes:
        executed: Requests handed to handlers.
        rejected: Rejected requests, by the name of the :class:`~iris_py.wire.packets.Rejection`.
        repetitions: The known idempotent requests.
        has_new_deadline: Whether :meth:`deadline` may be earlier than before.
        out: The output of :meth:`messages_to_send`.
        events: The output of :meth:`events_received`.
    """

    def __init__(self, losses: Losses) -> None:
        self._losses = losses
        self._place = Place()
        self.has_new_deadline = False
        self.executed = 0
        self.rejected: dict[str, int] = {}
        self.repetitions: Deduplicator[Execution] = Deduplicator()
        self._registrations: dict[str, list[Registration]] = {}  # by cluster name
        self._draining: list[Registration] = []
        self._executions: dict[tuple[Peer, int], Execution] = {}
        self._surveys: dict[tuple[Peer, int], list[Execution]] = {}  # started, one per registration
        self._early_cancels: dict[tuple[Peer, int], None] = {}
        # Callers of idempotent requests under another generation than the primary one.
        self._asked_in: dict[Caller, Group] = {}
        self.out: list[PeerMessage] = []
        self.events: list[ServiceEvent] = []

    # -- commands

    def register(self, registration: Registration) -> bool:
        """Add a registration; return whether it starts the node's membership in the cluster."""
        is_first = not self.is_member(registration.group)
        registration.counts = registration.group.counts.serving()
        self._registrations.setdefault(registration.group.name, []).append(registration)
        return is_first

    def is_member(self, group: Group) -> bool:
        """Tell whether this node is a member of a cluster: at least one registration is not leaving."""
        return any(not registration.leaving for registration in self._registrations.get(group.name, ()))

    def registrations_of(self, group: Group) -> list[Registration]:
        """Return the registrations of a cluster."""
        return self._registrations.get(group.name, [])

    def membership_of(self, group: Group) -> Registration | None:
        """Return the first registration of a cluster that is not leaving, or None if this node is no member."""
        return next((each for each in self._registrations.get(group.name, ()) if not each.leaving), None)

    def leave(self, registration: Registration) -> bool:
        """Begin to leave, still serving; return whether this ends the node's membership in the cluster."""
        registration.leaving = True
        return not self.is_member(registration.group)

    def close(self, registration: Registration, now: float = 0.0, *, hands_back: bool = False) -> None:
        """Stop admitting requests; running and queued requests are still answered, then :class:`RegistrationDrained` follows.

        Args:
            hands_back: Whether to give queued requests to another registration of this node, or else to other members through
                their callers. Surveys stay queued.
        """
        if registration.closed:
            return
        registration.closed = True
        registrations = self._registrations.get(registration.group.name, [])
        if registration in registrations:
            registrations.remove(registration)
            if not registrations:
                del self._registrations[registration.group.name]
                for asking in self._place.turn_away(registration.group.name):
                    self._reject(asking.group, *asking.caller, packets.Rejection.NOT_A_MEMBER)
        self._draining.append(registration)
        if hands_back:
            self._hand_back(registration, now)
        self._maybe_drained(registration)

    def abandon(self, registration: Registration, now: float) -> None:
        """Reject the requests still queued at a closed registration, whose time to finish is over."""
        waiting = list(registration.queue)
        registration.remove(waiting)
        for execution in waiting:
            self._turn_away(execution, packets.Rejection.NOT_A_MEMBER, now)
        self._maybe_drained(registration)

    def owes(self, peer: Peer) -> bool:
        """Tell whether a peer waits for an answer."""
        return (
            any(key[0] is peer for key in (*self._executions, *self._surveys))
            or any(message.peer is peer for message in self.out)
            or any(queued.peer is peer for registration in self._each_registration() for queued in registration.queue)
            or self.repetitions.owes(peer)
            or self._place.owes(peer)
        )

    def serves(self, group: Group) -> bool:
        """Tell whether the cluster has a registration."""
        return group.name in self._registrations

    def rekey(self, find: Callable[[str], Group | None]) -> None:
        """Serve under a new keyring; earlier callers are answered in their own group.

        Args:
            find: Finds the primary group of a cluster.
        """
        for caller, execution in self.repetitions.waiting():
            self._asked_in.setdefault(caller, execution.registration.group)
        for registration in self._each_registration():
            registration.group = find(registration.group.name) or registration.group

    def reply(self, execution: Execution, payload: bytes, now: float) -> None:
        """Answer a started request."""
        # The hot path: like _finish, but a reply needs less.
        registration = execution.registration
        registration.running -= 1
        registration.counts.handling.recent.append(now - execution.since)
        if execution.identity:
            remembered = payload if registration.remembers else None
            for caller in self.repetitions.finish(execution.identity, remembered, now):
                group = self._group_of(caller, registration)
                self.out.append(PeerMessage(group, caller[0], packets.REPLY, caller[1], 0, payload))
        elif execution.surveyed:
            if self._forget(execution):
                argument = packets.encode_answer(execution.surveyed)
                self.out.append(PeerMessage(execution.group, execution.peer, packets.REPLY, execution.id, argument, payload))
        elif self._executions.pop((execution.peer, execution.id), None) is not None:
            self.out.append(PeerMessage(execution.group, execution.peer, packets.REPLY, execution.id, 0, payload))
        if registration.queue or registration.closed:
            self._start_waiting(registration, now)

    def reply_many(self, registration: Registration, answered: Sequence[tuple[Execution, bytes]], now: float) -> None:
        """Answer several started requests of a registration, like :meth:`reply`."""
        once = []
        recent = registration.counts.handling.recent
        for execution, payload in answered:
            if execution.identity:
                recent.append(now - execution.since)
                once.append((execution.identity, payload))
            else:
                self._finish(execution, packets.REPLY, payload, now)
        registration.running -= len(once)
        group, finished = registration.group, self.repetitions.finish_many(once, now, remembers=registration.remembers)
        if self._asked_in:
            for caller, payload in finished:
                asked_in = self._group_of(caller, registration)
                self.out.append(PeerMessage(asked_in, caller[0], packets.REPLY, caller[1], 0, payload))
        else:
            self.out += [PeerMessage(group, peer, packets.REPLY, id_, 0, payload) for (peer, id_), payload in finished]
        if registration.queue or registration.closed:
            self._start_waiting(registration, now)

    def fail(self, execution: Execution, error: BaseException, now: float) -> None:
        """Answer a started request whose handler raised."""
        self._finish(execution, packets.FAILURE, packets.encode_failure(error), now)

    def fail_as(self, execution: Execution, type: str, text: str, now: float) -> None:  # noqa: A002 - of an exception
        """Answer a started request whose handler raised elsewhere, with the exception's class name and text."""
        self._finish(execution, packets.FAILURE, packets.encode_failure_of(type, text), now)

    def reject(self, execution: Execution, reason: packets.Rejection, now: float) -> None:
        """Answer a started request with a rejection: it was not executed or, with the reason ``LOST``, may have been."""
        self._count_rejection(reason, execution.group)
        self._finish(execution, packets.REJECTION, b"", now, reason)

    def drop(self, execution: Execution, now: float) -> None:
        """End a started request without an answer, because its callers have already timed out."""
        registration = execution.registration
        registration.running -= 1
        if execution.identity:
            for caller in self.repetitions.finish(execution.identity, None, now):
                self._asked_in.pop(caller, None)
        else:
            self._forget(execution)
        self._start_waiting(registration, now)

    def decline(self, execution: Execution, now: float) -> None:
        """Answer a started survey with DECLINE: the handler has no reply."""
        self._finish(execution, packets.DECLINE, b"", now)

    # -- tunnels

    def admit_tunnel(self, group: Group) -> Registration | packets.Rejection:
        """Return the registration for another tunnel, or the reason for its rejection."""
        registrations = self._serving(group)
        if not registrations:
            return self._count_rejection(packets.Rejection.NOT_A_MEMBER, group)
        serving = [registration for registration in registrations if registration.tunnels]
        if not serving:
            return self._count_rejection(packets.Rejection.NO_TUNNELS, group)
        registration = min(serving, key=lambda each: each.tunnels_open / each.tunnels)
        if registration.tunnels_open >= registration.tunnels:
            return self._count_rejection(packets.Rejection.OVERLOADED, group)
        return registration

    def tunnel_begun(self, registration: Registration) -> None:
        """Count a new tunnel of a registration."""
        registration.tunnels_open += 1

    def tunnel_over(self, registration: Registration) -> None:
        """Count an ended tunnel of a registration."""
        registration.tunnels_open -= 1
        self._maybe_drained(registration)

    # -- in

    def receive_request(
        self,
        group: Group,
        peer: Peer,
        request_id: int,
        time_left_ms: int,
        payload: bytes,
        now: float,
        headers: Headers = NO_HEADERS,
    ) -> None:
        """Start a request at the least loaded registration, or queue or reject the request."""
        registration = self._choose(group, peer, request_id, len(payload) + len(headers.encoded))
        if registration is not None:
            deadline = now + time_left_ms / 1000
            self._admit(Execution(registration, group, peer, request_id, payload, deadline, headers=headers), now)

    def receive_request_once(
        self,
        group: Group,
        peer: Peer,
        request_id: int,
        time_left_ms: int,
        identity: bytes,
        payload: bytes,
        now: float,
        headers: Headers = NO_HEADERS,
    ) -> None:
        """Handle an idempotent request: repeat the reply, attach to a running execution, or admit."""
        registration = self._choose(group, peer, request_id, len(payload) + len(headers.encoded))
        if registration is None:
            return
        key, caller, deadline = group.subject + identity, (peer, request_id), now + time_left_ms / 1000
        reply = self.repetitions.reply_to(key, now)
        if reply is not None:
            registration.counts.repeated += 1
            self.out.append(PeerMessage(group, peer, packets.REPLY, request_id, 0, reply))
            return
        execution = self.repetitions.underway(key)
        if execution is None and self._losses.entries and (lost := self._losses.refuse(key, peer.id, now)):
            self._reject(group, peer, request_id, packets.Rejection.LOST_BEFORE, payload=b"".join(lost))
            return
        if execution is None:
            execution = Execution(registration, group, peer, request_id, payload, deadline, identity=key, headers=headers)
            self.repetitions.begin(key, execution, caller, cloud_of(headers))
            self._note_group(caller, group, registration)
            self._admit(execution, now)
        elif self.repetitions.attach(key, caller):
            execution.deadline = max(execution.deadline, deadline)
            registration.counts.repeated += 1
            self._note_group(caller, group, execution.registration)
        else:
            self._reject(group, peer, request_id, packets.Rejection.OVERLOADED)

    def receive_requests(
        self, group: Group, peer: Peer, requests: Sequence[tuple[int, int, bytes, bytes, Headers]], now: float
    ) -> None:
        """Handle requests that arrived together: (id, time left, identity, payload, headers) of each.

        Like :meth:`receive_request_once`, or for an empty identity :meth:`receive_request`, with the common work done once.
        """
        registrations = self._serving(group)
        # with several registrations, choose the least loaded for each
        registration = registrations[0] if len(registrations) == 1 else None
        subject, repetitions, early_cancels = group.subject, self.repetitions, self._early_cancels
        has_losses = bool(self._losses.entries)
        started: list[Execution] = []
        for request_id, time_left_ms, identity, payload, headers in requests:
            caller = peer, request_id
            if (
                registration is not None
                and time_left_ms
                and registration.group is group
                and registration.running < registration.concurrency
                and caller not in early_cancels
                and not (has_losses and identity)
            ):
                key = subject + identity if identity else b""
                deadline = now + time_left_ms / 1000
                execution = Execution(registration, group, peer, request_id, payload, deadline, 0, key, headers, False, now)
                if not identity:
                    self._executions[caller] = execution
                if not identity or repetitions.begin(key, execution, caller, cloud_of(headers) if headers.encoded else ""):
                    registration.running += 1
                    started.append(execution)
                    continue
            if identity:
                self.receive_request_once(group, peer, request_id, time_left_ms, identity, payload, now, headers)
            else:
                self.receive_request(group, peer, request_id, time_left_ms, payload, now, headers)
        if started:
            assert registration is not None
            self.executed += len(started)
            registration.counts.queue_wait.at_once += len(started)
            handling = registration.counts.handling
            if len(handling.recent) >= RECENT_MAX:  # requests end no faster than they begin
                handling.settle()
            self.events.append(RequestsStarted(registration, started))

    def receive_survey(
        self,
        group: Group,
        peer: Peer,
        survey_id: int,
        time_left_ms: int,
        payload: bytes,
        now: float,
        headers: Headers = NO_HEADERS,
    ) -> None:
        """Start or queue a survey at every registration of the cluster. A stand-in (gateway to other members) declines."""
        registrations = self._serving(group)[: packets.SURVEYED_REGISTRATIONS_MAX]
        if not registrations:
            self._reject(group, peer, survey_id, packets.Rejection.NOT_A_MEMBER, 1)
            return
        if registrations[0].rank:  # and then all are stand-ins
            self.out.append(PeerMessage(group, peer, packets.DECLINE, survey_id, packets.encode_answer(1)))
            return
        if self._early_cancels and (peer, survey_id) in self._early_cancels:
            del self._early_cancels[peer, survey_id]
            return
        deadline, count = now + time_left_ms / 1000, len(registrations)
        for registration in registrations:
            execution = Execution(registration, group, peer, survey_id, payload, deadline, count, b"", headers, False, now)
            if time_left_ms and registration.running < registration.concurrency:
                self._start(execution, now)
            else:
                self._admit(execution, now)

    def receive_reservation(self, message: PeerMessage, now: float) -> None:
        """Queue a caller for the node's place for exclusive requests; a remembered reply is sent at once."""
        group, peer, request_id = message.group, message.peer, message.id
        if self._choose(group, peer, request_id, 0) is None:
            return
        key = group.subject + message.payload
        if (reply := self.repetitions.reply_to(key, now)) is not None:
            self.out.append(PeerMessage(group, peer, packets.REPLY, request_id, 0, reply))
        elif lost := self._losses.refuse(key, peer.id, now):
            self._reject(group, peer, request_id, packets.Rejection.LOST_BEFORE, payload=b"".join(lost))
        else:
            refused = self._place.ask(Asking(group, (peer, request_id), key, now + message.argument / 1000), now)
            if refused is not None:
                self._reject(refused.group, *refused.caller, packets.Rejection.BUSY)
            self.has_new_deadline = True
            self._grant_place(now)

    def receive_cancel(self, peer: Peer, request_id: int, now: float) -> None:
        """Handle a caller's CANCEL, which also frees the place of an exclusive request."""
        if request_id >= packets.SURVEY_IDS:
            self._cancel_survey(peer, request_id)
            return
        if is_reserved := self._place.give_back((peer, request_id)):
            self._grant_place(now)
        execution = self._executions.pop((peer, request_id), None)
        if execution is not None:
            self.events.append(RequestCancelled(execution))
            return
        self._asked_in.pop((peer, request_id), None)
        if self.repetitions.is_waiting((peer, request_id)):
            self._cancel_once(self.repetitions.detach((peer, request_id)))
            return
        for registration in list(self._each_registration()):
            for queued in registration.queue:
                if queued.id == request_id and queued.peer is peer and not queued.identity:
                    registration.remove([queued])
                    self._maybe_drained(registration)
                    return
        if not is_reserved:
            self._remember_cancel(peer, request_id)

    def receive_recall(self, peer: Peer, ids: Sequence[int], now: float) -> None:
        """Give back the requests of a caller that have not begun and have no other caller."""
        wanted = frozenset(ids)
        for registration in list(self._each_registration()):
            recalled = [
                queued
                for queued in registration.queue
                if queued.peer is peer
                and queued.id in wanted
                and not queued.surveyed
                and (not queued.identity or self.repetitions.has_only((peer, queued.id)))
            ]
            if recalled:
                registration.remove(recalled)
                for execution in recalled:
                    self._turn_away(execution, packets.Rejection.RECALLED, now)
                self._maybe_drained(registration)

    def receive_broadcast(self, group: Group, peer: Peer, sequence: int, payload: bytes, headers: Headers = NO_HEADERS) -> None:
        """Hand a broadcast to every registration of the cluster. Stand-ins ignore broadcasts that a tree brings."""
        for registration in self._serving(group):
            if registration.rank:
                return
            registration.counts.broadcasts += 1
            self.events.append(BroadcastReceived(registration, peer, sequence, payload, headers))

    def peer_lost(self, peer: Peer, now: float) -> None:
        """Handle the loss of a caller: drop queued requests and cancel running requests."""
        self._place.forget_peer(peer)
        self._grant_place(now)
        for key in [key for key in self._executions if key[0] is peer]:
            self.events.append(RequestCancelled(self._executions.pop(key)))
        for key in [key for key in self._surveys if key[0] is peer]:
            self.events += map(RequestCancelled, self._surveys.pop(key))
        for execution in self.repetitions.detach_peer(peer):
            self._cancel_once(execution)
        for table in (self._early_cancels, self._asked_in):
            for key in [key for key in table if key[0] is peer]:
                del table[key]
        for registration in list(self._each_registration()):
            gone = [queued for queued in registration.queue if queued.peer is peer and not queued.identity]
            if gone:
                registration.remove(gone)
                self._maybe_drained(registration)

    # -- time

    def deadline(self) -> float | None:
        """Return the earliest deadline of an exclusive request's caller, or None."""
        self.has_new_deadline = False
        return self._place.deadline()

    def handle_timeout(self, now: float) -> None:
        """Forget expired replies, and grant the place to the next request; harmless if early."""
        self.repetitions.expire(now)
        self._grant_place(now)

    # -- out

    def messages_to_send(self) -> list[PeerMessage]:
        """Take the messages to send, in order."""
        out, self.out = self.out, []
        return out

    def events_received(self) -> list[ServiceEvent]:
        """Take the events, in order."""
        events, self.events = self.events, []
        return events

    # --

    def _serving(self, group: Group) -> list[Registration]:
        """Return the registrations that serve a group; empty if its generation is no longer accepted."""
        return [] if group.is_left else self._registrations.get(group.name, [])

    def _grant_place(self, now: float) -> None:
        """Notify the callers that now have the place for exclusive requests."""
        reserved = packets.encode_answer(0, packets.Rejection.RESERVED)
        for asking in self._place.grant(now):
            peer, request_id = asking.caller
            self.out.append(PeerMessage(asking.group, peer, packets.REJECTION, request_id, reserved))

    def _note_group(self, caller: Caller, group: Group, registration: Registration) -> None:
        """Remember the group in which a caller asked, unless the group is of the primary key generation."""
        if group is not registration.group:
            self._asked_in[caller] = group

    def _group_of(self, caller: Caller, registration: Registration) -> Group:
        """Take the remembered group in which to answer a caller; the registration's group if none is remembered."""
        return self._asked_in.pop(caller, registration.group) if self._asked_in else registration.group

    def _choose(self, group: Group, peer: Peer, request_id: int, size: int) -> Registration | None:
        """Return the registration for a request; None after a rejection or an early CANCEL."""
        registrations = self._serving(group)
        if not registrations:
            self._reject(group, peer, request_id, packets.Rejection.NOT_A_MEMBER)
            return None
        if self._early_cancels and (peer, request_id) in self._early_cancels:
            del self._early_cancels[peer, request_id]
            return None
        return registrations[0] if len(registrations) == 1 else least_loaded(registrations, size)

    def _admit(self, execution: Execution, now: float) -> None:
        registration = execution.registration
        if execution.deadline <= now:  # it may have waited at another registration
            self._turn_away(execution, packets.Rejection.EXPIRED, now)
        elif registration.running < registration.concurrency:
            execution.since = now
            self._start(execution, now)
        elif registration.has_room(execution.size):
            execution.since = now
            registration.add(execution)
        else:
            self._turn_away(execution, packets.Rejection.OVERLOADED, now)

    def _start(self, execution: Execution, now: float) -> None:
        registration = execution.registration
        registration.running += 1
        counts = registration.counts
        if execution.since == now:
            counts.queue_wait.at_once += 1
        else:
            counts.queue_wait.observe(now - execution.since)
        if len(counts.handling.recent) >= RECENT_MAX:
            counts.handling.settle()
        execution.since = now
        self.executed += 1
        if execution.surveyed:
            self._surveys.setdefault((execution.peer, execution.id), []).append(execution)
        elif not execution.identity:
            self._executions[execution.peer, execution.id] = execution
        last = self.events[-1] if self.events else None
        if isinstance(last, RequestsStarted) and last.registration is registration:
            last.executions.append(execution)
        else:
            self.events.append(RequestsStarted(registration, [execution]))

    def _forget(self, execution: Execution) -> bool:
        """Remove an ended execution; return whether its caller still waits."""
        key = (execution.peer, execution.id)
        if not execution.surveyed:
            return self._executions.pop(key, None) is not None
        started = self._surveys.get(key, [])
        if execution not in started:
            return False
        started.remove(execution)
        if not started:
            del self._surveys[key]
        return True

    def _cancel_survey(self, peer: Peer, survey_id: int) -> None:
        """Cancel the running executions of a survey, and remove the queued ones."""
        started = self._surveys.pop((peer, survey_id), [])
        self.events += map(RequestCancelled, started)
        is_known = bool(started)
        for registration in list(self._each_registration()):
            queued = [each for each in registration.queue if each.id == survey_id and each.peer is peer]
            if queued:
                is_known = True
                registration.remove(queued)
                self._maybe_drained(registration)
        if not is_known:
            self._remember_cancel(peer, survey_id)

    def _remember_cancel(self, peer: Peer, request_id: int) -> None:
        self._early_cancels[peer, request_id] = None
        if len(self._early_cancels) > EARLY_CANCELS_MAX:
            del self._early_cancels[next(iter(self._early_cancels))]

    def _finish(self, execution: Execution, kind: int, payload: bytes, now: float, reason: int = 0) -> None:
        registration = execution.registration
        registration.running -= 1
        if reason == 0:  # otherwise it was not executed
            registration.counts.handling.observe(now - execution.since)
            registration.counts.failed += kind == packets.FAILURE
        # A cancelled execution is no longer in the table: its handler has ended, and no caller waits.
        if execution.identity:
            self._fail_once(execution, kind, payload, now, reason)
        elif self._forget(execution):
            argument = packets.encode_answer(execution.surveyed, reason)
            self.out.append(PeerMessage(execution.group, execution.peer, kind, execution.id, argument, payload))
        self._start_waiting(registration, now)

    def _fail_once(self, execution: Execution, kind: int, payload: bytes, now: float, reason: int) -> None:
        """Answer all callers of an idempotent request that failed."""
        callers = self.repetitions.finish(execution.identity, None, now)
        if callers and execution.is_cancelled:
            # It was cancelled without callers, and these callers came before it ended: execute it again.
            self._execute_again(execution, callers, now)
            return
        for caller in callers:
            group = self._group_of(caller, execution.registration)
            self.out.append(PeerMessage(group, caller[0], kind, caller[1], packets.encode_answer(0, reason), payload))

    def _start_waiting(self, registration: Registration, now: float) -> None:
        """Start queued requests while there is room."""
        while registration.queue and registration.running < registration.concurrency:
            waiting = registration.take()
            if waiting.deadline <= now:
                self._turn_away(waiting, packets.Rejection.EXPIRED, now)
            else:
                self._start(waiting, now)
        self._maybe_drained(registration)

    def _execute_again(self, execution: Execution, callers: list[Caller], now: float) -> None:
        peer, request_id = callers[0]
        registrations = self._serving(execution.registration.group)
        if not registrations:
            for caller in callers:
                self._reject(self._group_of(caller, execution.registration), *caller, packets.Rejection.NOT_A_MEMBER)
            return
        registration = least_loaded(registrations, execution.size)
        again = Execution(
            registration,
            execution.group,
            peer,
            request_id,
            execution.payload,
            execution.deadline,
            identity=execution.identity,
            headers=execution.headers,
        )
        self.repetitions.begin(again.identity, again, callers[0], cloud_of(again.headers))
        for caller in callers[1:]:
            self.repetitions.attach(again.identity, caller)
        self._admit(again, now)

    def _cancel_once(self, execution: Execution | None) -> None:
        """Cancel or dequeue an idempotent request without callers."""
        if execution is None or execution.is_cancelled:
            return
        registration = execution.registration
        if execution in registration.queue:
            registration.remove([execution])
            self.repetitions.finish(execution.identity, None, 0.0)
            self._maybe_drained(registration)
        else:
            execution.is_cancelled = True
            self.events.append(RequestCancelled(execution))

    def _hand_back(self, registration: Registration, now: float) -> None:
        waiting = [execution for execution in registration.queue if not execution.surveyed]
        registration.remove(waiting)
        others = self._registrations.get(registration.group.name)
        for execution in waiting:
            if others:
                execution.registration = least_loaded(others, execution.size)
                self._admit(execution, now)
            else:
                self._turn_away(execution, packets.Rejection.NOT_A_MEMBER, now)

    def _turn_away(self, execution: Execution, reason: packets.Rejection, now: float) -> None:
        """Reject an unexecuted request to all its callers."""
        if execution.identity:
            for caller in self.repetitions.finish(execution.identity, None, now):
                self._reject(self._group_of(caller, execution.registration), *caller, reason)
        else:
            self._reject(execution.group, execution.peer, execution.id, reason, execution.surveyed)

    def _maybe_drained(self, registration: Registration) -> None:
        if registration.closed and registration.is_idle and registration in self._draining:
            self._draining.remove(registration)
            self.events.append(RegistrationDrained(registration))

    def _each_registration(self) -> Iterator[Registration]:
        for registrations in self._registrations.values():
            yield from registrations
        yield from self._draining

    def _reject(
        self,
        group: Group,
        peer: Peer,
        request_id: int,
        reason: packets.Rejection,
        surveyed: int = 0,
        payload: bytes = b"",
    ) -> None:
        if reason != packets.Rejection.RECALLED:  # which is no refusal
            self._count_rejection(reason, group)
        argument = packets.encode_answer(surveyed, reason)
        self.out.append(PeerMessage(group, peer, packets.REJECTION, request_id, argument, payload))

    def _count_rejection(self, reason: packets.Rejection, group: Group) -> packets.Rejection:
        name = reason.name.lower()
        count_in(self.rejected, name)
        if group.counts.service is not None:
            count_in(group.counts.service.rejected, name)
        return reason
