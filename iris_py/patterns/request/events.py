"""The events of :class:`iris_py.patterns.request.service.Service`, for the owner of a member."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from iris_py.patterns.request.registration import Execution, Registration
from iris_py.peers.peer import Peer
from iris_py.wire.headers import NO_HEADERS, Headers


class RequestsStarted(msgspec.Struct):
    """For each run the handler, then call :meth:`Service.reply`, :meth:`Service.fail` or, of a survey, :meth:`Service.decline`.

    They are of one registration, and have come together.
    """

    registration: Registration
    executions: list[Execution]


class RequestCancelled(msgspec.Struct):
    """Nobody waits for the answer of a running request any more."""

    execution: Execution


class BroadcastReceived(msgspec.Struct):
    """Hand the message to the handler; in the order of these events."""

    registration: Registration
    source: Peer
    sequence: int
    payload: bytes
    headers: Headers = NO_HEADERS


class RegistrationDrained(msgspec.Struct):
    """A closed registration has answered everything."""

    registration: Registration


ServiceEvent: TypeAlias = RequestsStarted | RequestCancelled | BroadcastReceived | RegistrationDrained
