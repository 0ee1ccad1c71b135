"""The events of :class:`iris_py.patterns.request.service.Service`, for the owner of a member."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from iris_py.wire.headers import NO_HEADERS

if TYPE_CHECKING:
    from iris_py.patterns.request.registration import Execution, Registration
    from iris_py.peers.peer import Peer
    from iris_py.wire.headers import Headers


@dataclass(slots=True)
class RequestsStarted:
    """For each run the handler, then call :meth:`Service.reply`, :meth:`Service.fail` or, of a survey, :meth:`Service.decline`.

    They are of one registration, and have come together.
    """

    registration: Registration
    executions: list[Execution]


@dataclass(slots=True)
class RequestCancelled:
    """Nobody waits for the answer of a running request any more."""

    execution: Execution


@dataclass(slots=True)
class BroadcastReceived:
    """Hand the message to the handler; in the order of these events."""

    registration: Registration
    source: Peer
    sequence: int
    payload: bytes
    headers: Headers = NO_HEADERS


@dataclass(slots=True)
class RegistrationDrained:
    """A closed registration has answered everything."""

    registration: Registration


ServiceEvent: TypeAlias = RequestsStarted | RequestCancelled | BroadcastReceived | RegistrationDrained
