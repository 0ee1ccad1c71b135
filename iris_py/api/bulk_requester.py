"""Bulk requests of one program to one cluster, without a task, a future and a turn of the event loop for each request.

A pipeline has hundreds of requests in flight without waiting for a particular reply. The coroutine and future of each
:meth:`iris_py.Node.request` would cost half as much as the request itself. Here questions (the requests of such
a program) are sent in lists, and outcomes are reported in lists: one call reports all outcomes of one read of a link.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from iris_py.api.lifecycle import parts_of
from iris_py.errors import ConfigurationError, IrisError
from iris_py.federation.names import gateway_cluster, split
from iris_py.patterns.request.pending import RequestSpec, Ticket
from iris_py.patterns.request.retry import IDEMPOTENT, Retry
from iris_py.wire.headers import NO_HEADERS
from iris_py.wire.names import refusals
from iris_py.wire.packets import as_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from iris_py.api.info import Members
    from iris_py.api.node import Node
    from iris_py.tracing import SenderSpan

__all__ = ["Asked", "Asker", "providers"]

#: Requests in one list: a list leaves before the next one is made, so that members already work. Too small: each list costs a
#: record and a system call; too large: members wait for the first list.
TOGETHER_MAX = 128


class Asked(Protocol):
    """A request to a cluster, as an :class:`Asker` sends it; defined by the program."""

    @property
    def key(self) -> str | bytes:
        """The idempotency key: a member that has executed a request with this key repeats its reply."""
        ...

    @property
    def payload(self) -> bytes | None:
        """The payload of the request. It must not be None while the question is sent."""
        ...


Question = TypeVar("Question", bound=Asked)


class Asker(Generic[Question]):
    """Sends many idempotent requests (questions) to a cluster, for programs that wait for no single reply.

    All methods are called in the event loop of the node.

    Args:
        node: The calling node.
        cluster: The cluster.
        timeout: Seconds until :exc:`RequestTimeout`, for each question.
        on_outcomes: Called with a list of pairs: a question, and its reply or an error of :meth:`iris_py.Node.request`. Each
            question has one outcome, unless cancelled. The call comes in the event loop, never while :meth:`ask` runs.
        on_member: Called with a question and the id (hex) of the replying member, before the outcome is reported.
        retry: How often, and after which failures, to send a question again.
        is_exclusive: Whether the questions are exclusive: a member executes one exclusive request at a time, of all callers. A
            member that is lost had therefore begun at most one of them.
    """

    def __init__(
        self,
        node: Node,
        cluster: str,
        timeout: float,
        on_outcomes: Callable[[list[tuple[Question, bytes | IrisError]]], None],
        on_member: Callable[[Question, str], None] | None = None,
        retry: Retry = IDEMPOTENT,
        *,
        is_exclusive: bool = False,
    ) -> None:
        self._runtime = parts_of(node).runtime
        self._requests = parts_of(node).requests
        self._cluster = cluster
        self._timeout = timeout
        self._on_outcomes = on_outcomes
        self._on_member = on_member
        self._retry = retry
        self._is_exclusive = is_exclusive
        self._calls: dict[Question, SenderSpan] = {}  # the spans of questions
        self._outcomes: list[tuple[Question, bytes | IrisError]] = []

    def ask(self, questions: Sequence[Question]) -> None:
        """Send all questions without waiting. A question that is still in flight must not be sent again."""
        self._runtime.check_loop()
        for first in range(0, len(questions), TOGETHER_MAX):
            self._ask_together(questions[first : first + TOGETHER_MAX])

    def cancel(self) -> None:
        """Cancel all questions in flight, at the members too; no outcome follows."""
        self._runtime.check_loop()
        self._requests.cancel_all(self._is_mine)
        self._outcomes.clear()
        for call in self._calls.values():
            call.end(asyncio.CancelledError())
        self._calls.clear()

    def receive_outcome(self, ticket: Ticket, outcome: bytes | IrisError) -> None:
        """Note the outcome of a question; called by the node."""
        if self._on_member is not None and ticket.member:
            self._on_member(ticket.question, ticket.member.hex())
        self._note(ticket.question, outcome)

    def _note(self, question: Question, outcome: bytes | IrisError) -> None:
        if not self._outcomes:
            self._runtime.loop.call_soon(self._tell)
        self._outcomes.append((question, outcome))

    # --

    def _ask_together(self, questions: Sequence[Question]) -> None:
        runtime = self._runtime
        if runtime.tracing is None and runtime.closing is None and not self._is_exclusive and self._is_own():
            try:
                asked = []
                for question in questions:
                    payload = question.payload
                    asked.append(
                        (Ticket(self, question), question.key, payload if type(payload) is bytes else as_bytes(payload))
                    )
                runtime.core.request_many(self._cluster, asked, self._timeout, runtime.loop.time(), self._retry)
            except (IrisError, TypeError):
                self._ask_one_by_one(questions)  # finds the question that caused the error
        else:
            self._ask_one_by_one(questions)
        runtime.driver.transmit_now()

    def _ask_one_by_one(self, questions: Sequence[Question]) -> None:
        runtime, now = self._runtime, self._runtime.loop.time()
        for question in questions:
            headers = NO_HEADERS
            try:
                runtime.check_open()
                content = as_bytes(question.payload)
                if runtime.tracing is not None:
                    call = self._calls[question] = runtime.tracing.call("request", self._cluster, NO_HEADERS)
                    headers = call.headers
                is_own = self._cluster in runtime.own_names or not runtime.is_far(self._cluster)
                spec = RequestSpec(
                    payload=content,
                    timeout_s=self._timeout,
                    retry=self._retry,
                    identity=runtime.core.identity_of(self._cluster, question.key),
                    is_anchored=True,
                    headers=headers,
                    waits=not (is_own and self._is_exclusive),  # an exclusive request waits at its member
                    is_exclusive=self._is_exclusive,
                )
                if is_own:
                    runtime.core.request(self._cluster, spec, Ticket(self, question), now)
                else:
                    self._requests.crossings.ask(self._cluster, spec, Ticket(self, question))
            except IrisError as exc:
                self._note(question, exc)
            except TypeError as exc:
                self._note(question, ConfigurationError(str(exc)))

    def _is_own(self) -> bool:
        """Tell whether the cluster is of this node's cloud; False for an invalid name."""
        try:
            return self._cluster in self._runtime.own_names or not self._runtime.is_far(self._cluster)
        except ConfigurationError:
            return False

    def _is_mine(self, token: object) -> bool:
        return type(token) is Ticket and token.asker is self

    def _tell(self) -> None:
        outcomes, self._outcomes = self._outcomes, []
        if self._calls:
            for question, outcome in outcomes:
                call = self._calls.pop(question, None)
                if call is not None:
                    call.end(outcome if isinstance(outcome, IrisError) else None)
        if outcomes:  # none if they were cancelled meanwhile
            self._on_outcomes(outcomes)


def providers(node: Node, cluster: str) -> Members:
    """Return the live view of the nodes that serve requests to a cluster: its members, or the gateways to the other cloud.

    Raises:
        ConfigurationError: The name is wrong.
        NodeClosed: The node was closed.
    """
    with refusals:
        _name, alias = split(cluster)
    if not alias:
        return node.members(cluster)
    parts = parts_of(node)
    parts.runtime.check_open()
    return parts.memberships.view(gateway_cluster(alias))
