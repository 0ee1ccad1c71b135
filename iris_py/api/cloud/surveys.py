"""Surveys of a node to other clouds, at the calling node: ``survey("sensors@eu", ...)`` (docs/design.md 15.83)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from iris_py.api.cloud.duplex import DuplexRequest, open_in_time
from iris_py.api.info import Member
from iris_py.errors import IrisError, MemberLost, NodeClosed, RequestTimeout, TunnelBroken, TunnelClosed
from iris_py.federation.calls import DROPPED, OVERHEAD_BYTES, Answer, AskedMembers, decode_outcome, decode_said, encode_question
from iris_py.federation.names import STOP_HEADER
from iris_py.wire.packets import MESSAGE_BYTES_LIMIT

if TYPE_CHECKING:
    from iris_py.api.cloud.duplex import GatewayTunnel
    from iris_py.api.runtime import Runtime
    from iris_py.api.survey import Gathering
    from iris_py.federation.calls import MemberPlace, Said
    from iris_py.wire.headers import Headers

#: The size limit of a gateway's message about a survey: the largest reply of any node, with overhead.
_SAID_BYTES_MAX: Final = MESSAGE_BYTES_LIMIT + OVERHEAD_BYTES


class FarSurveys:
    """Surveys clusters of other clouds for one node, each survey over a tunnel to a gateway.

    Args:
        runtime: The node.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._under_way: dict[asyncio.Task[None], Gathering] = {}

    def begin(
        self, gathering: Gathering, cluster: str, question: bytes, timeout: float, stop_after: int | None, headers: Headers
    ) -> asyncio.Task[None]:
        """Begin a survey of a cluster of another cloud. Cancelling the returned task ends the survey at all members."""
        request = DuplexRequest(
            op="survey",
            name=cluster,
            headers=headers,
            further={STOP_HEADER: stop_after or 0},
            timeout_s=timeout,
            waits=True,
        )
        task = self._runtime.loop.create_task(self._run(gathering, request, question))
        self._under_way[task] = gathering
        task.add_done_callback(self._under_way.pop)
        return task

    def close(self) -> None:
        """End all surveys at the end of the node."""
        for task, gathering in list(self._under_way.items()):
            gathering.end(NodeClosed())
            task.cancel()

    async def _run(self, gathering: Gathering, request: DuplexRequest, question: bytes) -> None:
        ends_at = self._runtime.loop.time() + request.timeout_s
        try:
            tunnel = await open_in_time(self._runtime, request)
        except IrisError as exc:
            gathering.end(exc)
            return
        try:
            async with asyncio.timeout_at(ends_at):
                await tunnel.send(encode_question(question))
                while not gathering.is_over:
                    _take(gathering, decode_said(await tunnel.receive(max_bytes=_SAID_BYTES_MAX)), tunnel)
        except TimeoutError as exc:
            timed_out = RequestTimeout(request.name, request.timeout_s, None, gateway=tunnel.member)
            gathering.end(None if gathering.is_asked else timed_out)
            tunnel.break_by(exc)
        except asyncio.CancelledError as exc:
            tunnel.break_by(exc)
            raise
        except IrisError as exc:  # no further answers come
            gathering.end(None if gathering.is_asked else MemberLost(request.name, "", gateway=tunnel.member))
            tunnel.break_by(exc)
        else:
            with suppress(TunnelBroken):
                await tunnel.close()


def _take(gathering: Gathering, said: Said | None, tunnel: GatewayTunnel) -> None:
    """Decode a gateway's message about a survey, and give its content to the survey."""
    if said is None:
        raise TunnelClosed(tunnel.cluster, tunnel.member)  # a gateway of another version, or a faulty one
    if isinstance(said, AskedMembers):
        gathering.handle_asked(said.expected, [_member_of(place) for place in said.members])
    elif not isinstance(said, Answer):
        outcome = decode_outcome(said.outcome, tunnel.cluster, 0.0, tunnel.member)
        gathering.end(outcome if isinstance(outcome, IrisError) else None)
    elif said.kind == DROPPED:
        gathering.handle_dropped(_member_of(said.member), is_last=said.is_last)
    else:
        gathering.handle_answer(_member_of(said.member), said.kind, said.payload, is_last=said.is_last)


def _member_of(place: MemberPlace) -> Member:
    return Member(id=place.pseudonym.hex(), address="", zone=place.zone)
