"""The servers of a gateway's clusters: they hand requests on and answer them later, with no task for any of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from iris_py.api.serving import Server
from iris_py.errors import RemoteError, TooManyMembersLost
from iris_py.federation.calls import Status, decode_outcome, is_given_up
from iris_py.wire.packets import Rejection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py.patterns.request.registration import Execution


#: Requests that a gateway has under way for one cluster at once. Too small: 10,000 requests a second take 800 at 80 ms, and a
#: slow far cluster holds ten times as many; too large: memory of the payloads that wait.
CONCURRENCY: Final = 16_384
#: Tunnels of nodes that a gateway serves at once, for one cluster: subscriptions, publishing, surveys and tunnels.
TUNNELS_MAX: Final = 1024
#: What the callers of a stand-in are told, so that they ask another member or, where it may have been executed, know that.
_REASONS: Final[dict[int, Rejection]] = {
    Status.NO_MEMBERS: Rejection.NOT_A_MEMBER,
    Status.NOT_EXPORTED: Rejection.NOT_A_MEMBER,
    Status.UNAVAILABLE: Rejection.NOT_A_MEMBER,
    Status.OVERLOADED: Rejection.OVERLOADED,
    Status.LIMITED: Rejection.OVERLOADED,
    Status.MEMBER_LOST: Rejection.LOST,
}


class Relay(Protocol):
    """Whoever gets what is asked of a gateway."""

    def relay(self, server: RelayServer, executions: Sequence[Execution]) -> None:
        """Hand requests on, and call :meth:`RelayServer.answer` once for each."""

    def relay_cancelled(self, execution: Execution) -> None:
        """Nobody waits any more for an answer."""


class RelayServer(Server):
    """Runs surveys and tunnels as other servers do, and hands requests on.

    Args:
        relay: Takes the requests.
        args: As of a :class:`Server`, and so are the options.
    """

    def __init__(self, relay: Relay, *args: Any, **options: Any) -> None:  # noqa: ANN401 - those of a Server
        super().__init__(*args, **options)
        self._relay = relay

    def start(self, executions: Sequence[Execution]) -> None:
        """Hand requests on; the rest is run."""
        surveyed = [execution for execution in executions if execution.surveyed]
        if surveyed:
            super().start(surveyed)
            executions = [execution for execution in executions if not execution.surveyed]
        if executions:
            self._relay.relay(self, executions)

    def cancel(self, execution: Execution) -> None:
        """Nobody waits any more for what an execution says."""
        if execution.surveyed:
            super().cancel(execution)
        else:
            self._relay.relay_cancelled(execution)

    def answer(self, answers: Sequence[tuple[Execution, bytes]]) -> None:
        """Answer requests that were handed on."""
        self._core.service.reply_many(answers[0][0].registration, answers, self._loop.time())
        self._driver.wake()


class StandInServer(RelayServer):
    """The server of a stand-in: its callers know nothing of a gateway, so they get the answers of a member."""

    def answer(self, answers: Sequence[tuple[Execution, bytes]]) -> None:
        """Answer requests that were handed on.

        Args:
            answers: What became of each, as :mod:`iris_py.federation.calls` has it.
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
                service.reject(execution, Rejection.LOST, now)  # another caller has joined it, who has time left
            elif status == Status.TIMEOUT:  # the caller finds that out itself
                service.drop(execution, now)
            else:
                error = decode_outcome(outcome, self._cluster, 0.0)
                service.fail_as(execution, *_failure_of(error), now)
        if done:
            super().answer(done)
        self._driver.wake()


def _failure_of(error: object) -> tuple[str, str]:
    """Return the type and the text of a failure that stands for an error; of lost members the text is their ids."""
    if isinstance(error, RemoteError):
        return error.type, error.text
    return type(error).__name__, ",".join(error.members) if isinstance(error, TooManyMembersLost) else str(error)
