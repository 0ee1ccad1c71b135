"""Requests through a gateway, in both directions: handled in lists, without a task for each.

*Out*: a node sends a request to the cluster of gateways; the core sends it to the neighbour, whose reply becomes the gateway's.
*In*: a neighbour sends a request; the gateway's node requests a member of the rule's cluster, and returns the reply.

`RelayServer` and `StandInServer` are the servers of a gateway's clusters: they relay requests and answer later.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from iris_py.api.cloud.duplex import GatewayTunnel
from iris_py.api.server import Server
from iris_py.errors import IrisError, RemoteError, TooManyMembersLost
from iris_py.federation.calls import Op, Status, decode_call, decode_outcome, encode_outcome, is_given_up
from iris_py.gateway.privacy import headers_for_members, hide_members, wishes_of
from iris_py.patterns.request.pending import RequestSpec, Ticket
from iris_py.patterns.request.retry import retry_of
from iris_py.peers.member import Placement
from iris_py.wire.packets import IDENTITY_BYTES, Rejection

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    from iris_py.api.tunnel import Tunnel
    from iris_py.federation.bundle import Bundle, Incoming, Outgoing
    from iris_py.federation.calls import Call
    from iris_py.federation.core import FederationCore
    from iris_py.gateway.port import GatewayPort
    from iris_py.net.driver import Driver
    from iris_py.patterns.request.registration import Execution
    from iris_py.wire.headers import Headers

#: The rejections for callers of a stand-in: they retry at another member, or learn that the request may have been executed.
_REASONS: Final[dict[int, Rejection]] = {
    Status.NO_MEMBERS: Rejection.NOT_A_MEMBER,
    Status.NOT_EXPORTED: Rejection.NOT_A_MEMBER,
    Status.UNAVAILABLE: Rejection.NOT_A_MEMBER,
    Status.OVERLOADED: Rejection.OVERLOADED,
    Status.LIMITED: Rejection.OVERLOADED,
    Status.MEMBER_LOST: Rejection.LOST,
}


class Relay(Protocol):
    """The part of a gateway that relays the requests of a cluster's server."""

    def relay(self, server: RelayServer, executions: Sequence[Execution]) -> None:
        """Relay requests, and call :meth:`RelayServer.answer` once for each."""

    def relay_cancelled(self, execution: Execution) -> None:
        """Cancel a relayed request."""


class RelayServer(Server):
    """Runs surveys and tunnels as other servers do, and relays requests.

    Args:
        relay: The receiver of the requests.
        args: The arguments of a :class:`Server`; ``options`` are its keyword arguments.
    """

    @staticmethod
    def _tunnel_type() -> type[Tunnel]:
        return GatewayTunnel

    def __init__(self, relay: Relay, *args: Any, **options: Any) -> None:  # noqa: ANN401 - those of a Server
        super().__init__(*args, **options)
        self._relay = relay

    def start(self, executions: Sequence[Execution]) -> None:
        """Pass requests to the relay; run surveys and tunnels as other servers do."""
        surveyed = [execution for execution in executions if execution.surveyed]
        if surveyed:
            super().start(surveyed)
            executions = [execution for execution in executions if not execution.surveyed]
        if executions:
            self._relay.relay(self, executions)

    def cancel(self, execution: Execution) -> None:
        """Cancel an execution."""
        if execution.surveyed:
            super().cancel(execution)
        else:
            self._relay.relay_cancelled(execution)

    def answer(self, answers: Sequence[tuple[Execution, bytes]]) -> None:
        """Answer relayed requests."""
        self._core.service.reply_many(answers[0][0].registration, answers, self._loop.time())
        self._driver.wake()


class StandInServer(RelayServer):
    """The server of a stand-in: callers do not know the gateway, so they get the answers of a member."""

    def answer(self, answers: Sequence[tuple[Execution, bytes]]) -> None:
        """Answer relayed requests.

        Args:
            answers: The requests with their outcomes of :mod:`iris_py.federation.calls`.
        """
        service, now = self._core.service, self._loop.time()
        done = []
        for execution, outcome in answers:
            status = outcome[0]
            if status == Status.DONE:
                done.append((execution, outcome[1:]))
            elif status in _REASONS and not is_given_up(outcome):
                service.reject(execution, _REASONS[status], now)
            elif status == Status.TIMEOUT and execution.identity and now < execution.deadline:
                service.reject(execution, Rejection.LOST, now)  # another caller with time left has joined it
            elif status == Status.TIMEOUT:  # the caller's own timeout reports this
                service.drop(execution, now)
            else:
                error = decode_outcome(outcome, self._cluster, 0.0)
                service.fail_as(execution, *_failure_of(error), now)
        if done:
            super().answer(done)
        self._driver.wake()


def _failure_of(error: object) -> tuple[str, str]:
    """Return the type and text of a failure for an error; for lost members, the text is their ids."""
    if isinstance(error, RemoteError):
        return error.type, error.text
    return type(error).__name__, ",".join(error.members) if isinstance(error, TooManyMembersLost) else str(error)


MALFORMED = encode_outcome(RemoteError("", "", "ProtocolError", "the gateway does not know this kind of request"))


class Answerer(Protocol):
    """A sender of nodes' requests to a neighbour, which takes the outcomes."""

    def answer(self, answers: Sequence[tuple[Execution, bytes]]) -> None:
        """Take outcomes of :mod:`iris_py.federation.calls`."""


class RelayedRequests:
    """The requests of a gateway, from local nodes to neighbours and from neighbours to local members.

    Args:
        describe: Returns the state of the gateway, encoded, for a query of the gateway itself.
        pseudonym_of: Returns a node's pseudonym for a neighbour, by alias and id.
        cloud_id_of: Returns the id of a neighbour, by alias.
        on_ended: Called with a neighbour's finished request and its outcome, if the rule asks for audit records.
    """

    def __init__(
        self,
        port: GatewayPort,
        core: FederationCore,
        driver: Driver,
        describe: Callable[[Op, str], bytes],
        pseudonym_of: Callable[[str, str], str],
        cloud_id_of: Callable[[str], bytes],
        on_ended: Callable[[Incoming, str], None],
    ) -> None:
        self._port = port
        self._core = core
        self._driver = driver
        self._describe = describe
        self._pseudonym_of = pseudonym_of
        self._cloud_id_of = cloud_id_of
        self._on_ended = on_ended
        self._out: dict[Execution, Outgoing] = {}
        self._in: dict[Incoming, int] = {}  # the number of each request at the node
        self._servers: dict[Execution, Answerer] = {}
        self._answers: list[tuple[Incoming, bytes | IrisError]] = []
        self._cloud_headers: dict[str, Headers] = {}

    # -- out

    def relay(self, server: RelayServer, executions: Sequence[Execution], alias: str) -> None:
        """Relay requests of nodes to a neighbour.

        Args:
            alias: The neighbour; empty for queries of the gateway itself.
        """
        answers = []
        for execution in executions:
            call = decode_call(execution.payload)
            if call is None:
                answers.append((execution, MALFORMED))
            elif call.op != Op.REQUEST:
                answers.append((execution, self._describe(Op(call.op), call.name)))
            elif not alias:
                answers.append((execution, MALFORMED))
            else:
                self.ask(server, execution, alias, call, execution.headers.encoded)
        if answers:
            server.answer(answers)
        self.wake()

    def ask(
        self,
        answerer: Answerer,
        execution: Execution,
        alias: str,
        call: Call,
        headers: bytes,
        among: Container[Bundle] | None = None,
    ) -> None:
        """Send a node's request to a neighbour; call :meth:`wake` after the last.

        Args:
            answerer: Takes the outcome.
            headers: The application's headers, encoded.
            among: The bundles for the first try; None for all.
        """
        self._servers[execution] = answerer
        now = self._port.loop.time()
        sent = self._core.request(alias, call, headers, execution, execution.deadline, now, among)
        if sent is not None:
            self._out[execution] = sent

    def wake(self) -> None:
        """Send the queued requests."""
        self._driver.wake()

    def bundle_of(self, execution: Execution) -> Bundle | None:
        """Return the bundle (connections to one gateway) that carries a node's request; None after the outcome."""
        outgoing = self._out.get(execution)
        return None if outgoing is None else outgoing.bundle

    def relay_cancelled(self, execution: Execution) -> None:
        """Cancel a node's request."""
        self.give_up(execution, MALFORMED)

    def give_up(self, execution: Execution, outcome: bytes) -> None:
        """Stop waiting for a neighbour's reply; end the node's request with the given outcome."""
        outgoing = self._out.get(execution)
        if outgoing is not None:
            self._core.cancel(outgoing, self._port.loop.time())
            self._driver.wake()
        self.handle_outcomes([(execution, outcome)])

    def handle_outcomes(self, outcomes: Sequence[tuple[object, bytes]]) -> None:
        """Answer the nodes' requests with these outcomes."""
        answers: dict[Answerer, list[tuple[Execution, bytes]]] = {}
        for execution, outcome in outcomes:
            server = self._servers.pop(execution, None)  # type: ignore[call-overload] # tokens of requests are executions
            self._out.pop(execution, None)  # type: ignore[call-overload]
            if server is not None:
                answers.setdefault(server, []).append((execution, outcome))  # type: ignore[arg-type]
        for server, its in answers.items():
            server.answer(its)

    # -- in

    def serve(self, requests: Sequence[Incoming]) -> None:
        """Send neighbours' requests to local members."""
        port, now = self._port, self._port.loop.time()
        for incoming in requests:
            call = incoming.call
            if incoming.bundle.is_closed:
                continue
            try:
                wishes = wishes_of(incoming.headers)
                retry = retry_of(idempotent=bool(call.identity), retry_failed=call.retries_failed)
                if retry is not None and wishes.members_lost_max is not None:
                    retry = replace(retry, members_lost_max=wishes.members_lost_max)
                spec = RequestSpec(
                    payload=call.payload,
                    timeout_s=max(incoming.deadline - now, 0.001),
                    retry=retry,
                    identity=self._identity_of(incoming),
                    is_anchored=call.is_anchored,
                    placement=Placement(call.prefer, call.require, is_own=True),
                    headers=self._headers_of(incoming),
                    waits=call.waits,
                    members_wait_s=wishes.members_wait_s,
                    is_exclusive=wishes.is_exclusive and call.is_anchored,
                )
                self._in[incoming] = port.request(incoming.name, spec, Ticket(self, incoming), now)
            except IrisError as exc:
                self._note(incoming, exc)
        port.wake()

    def cancel(self, incoming: Incoming) -> None:
        """Cancel a neighbour's request."""
        number = self._in.pop(incoming, None)
        if number is not None:
            self._port.cancel_request(number)
            self._on_ended(incoming, "cancelled")

    def receive_outcome(self, ticket: Ticket, outcome: bytes | IrisError) -> None:
        """Take the outcome of a neighbour's request from the node."""
        if self._in.pop(ticket.question, None) is not None:
            self._note(ticket.question, outcome)

    def _note(self, incoming: Incoming, outcome: bytes | IrisError) -> None:
        if not self._answers:
            self._port.loop.call_soon(self._tell)
        self._answers.append((incoming, outcome))

    def _tell(self) -> None:
        answers, self._answers = self._answers, []
        now = self._port.loop.time()
        for incoming, outcome in answers:
            if incoming.bundle.is_closed:
                continue  # nobody waits any more, and the neighbour may be gone
            if not isinstance(outcome, bytes):
                outcome = hide_members(outcome, partial(self._pseudonym_of, incoming.bundle.alias))
            encoded = encode_outcome(outcome)
            if incoming.rule.audit == "all":
                self._on_ended(incoming, Status(encoded[0]).name.lower())
            self._core.reply(incoming, encoded, now)
        self._driver.transmit_now()

    # --

    def _identity_of(self, incoming: Incoming) -> bytes:
        """Return the identity of a request for local members.

        The identity includes the cloud: otherwise a neighbour could guess a key and receive another caller's reply.
        """
        identity = incoming.call.identity
        if not identity:
            return b""
        cloud = self._cloud_id_of(incoming.bundle.alias)
        return hashlib.blake2b(cloud + identity, digest_size=IDENTITY_BYTES, person=b"iris fed").digest()

    def _headers_of(self, incoming: Incoming) -> Headers:
        """Return the headers for a member."""
        alias = incoming.bundle.alias
        if incoming.headers:
            return headers_for_members(incoming.headers, alias, trace=incoming.rule.trace)
        own = self._cloud_headers.get(alias)
        if own is None:
            own = self._cloud_headers[alias] = headers_for_members(b"", alias, trace=False)
        return own
