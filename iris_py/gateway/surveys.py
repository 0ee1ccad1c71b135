"""Surveys (scatter-gather) through a gateway, in both directions (docs/design.md 15.83).

*Out*: a node's tunnel continues as a channel, unread by the gateway. *In*: a neighbour's question goes to the local members
without stand-ins, and their replies go back as they come.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from iris_py.api.survey import SurveyTaker
from iris_py.errors import CloudUnavailable, IrisError, MessageTooLarge, Overloaded, RemoteError
from iris_py.federation import messages
from iris_py.federation.calls import (
    DROPPED,
    OVERHEAD_BYTES,
    Answer,
    AskedMembers,
    Ended,
    MemberPlace,
    decode_question,
    decode_stop_after,
    encode_outcome,
    encode_said,
    encode_stop_after,
)
from iris_py.federation.names import STOP_HEADER
from iris_py.gateway.duplex import Meter, Refusal
from iris_py.gateway.privacy import headers_for_members, hide_members
from iris_py.gateway.splice import pass_on, while_wanted
from iris_py.patterns.survey import SurveyAnswered, SurveyAsked
from iris_py.wire import packets

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_py.api.cloud.duplex import GatewayTunnel
    from iris_py.federation.calls import Said
    from iris_py.federation.core import FederationCore
    from iris_py.federation.events import ChannelOffer
    from iris_py.gateway.duplex import Channel, Duplexes
    from iris_py.gateway.port import GatewayPort
    from iris_py.patterns.survey import SurveyEvent
    from iris_py.wire.headers import Headers

#: Queued replies to all surveys of one neighbour, in bytes. Too small: simultaneous replies of many members are dropped; too
#: large: a neighbour that does not read holds this much memory.
REPLIES_BYTES_MAX = 64 * 1024 * 1024
#: Queued answers to one survey: one for each member of the largest cluster. Further answers are dropped.
ANSWERS_MAX = 131_072


class RelayedSurveys:
    """The surveys that cross between clouds at a gateway.

    Args:
        pseudonym_of: Returns a node's pseudonym for a neighbour.
    """

    def __init__(
        self, port: GatewayPort, core: FederationCore, duplexes: Duplexes, pseudonym_of: Callable[[str, str], str]
    ) -> None:
        self._port = port
        self._core = core
        self._duplexes = duplexes
        self._pseudonym_of = pseudonym_of
        self._rooms: dict[str, ReplyMemory] = {}  # by neighbour
        duplexes.near["survey"] = self._pass_on
        duplexes.far[messages.SURVEY] = self._serve

    async def _pass_on(self, tunnel: GatewayTunnel, alias: str) -> None:
        """Continue a node's survey as a channel to a neighbour."""
        stop_after = tunnel.core.headers.get(STOP_HEADER)
        options = encode_stop_after(max(0, stop_after) if isinstance(stop_after, int) else None)
        await pass_on(self._duplexes, self._core, tunnel, alias, messages.SURVEY, options, comes_back=True)

    async def _serve(self, offer: ChannelOffer) -> None:
        """Serve a neighbour's survey with the answers of local members."""
        rule, alias = offer.rule, offer.bundle.alias
        now = asyncio.get_running_loop().time()
        neighbour = self._core.lines.neighbours.get(alias)
        limits = None if neighbour is None else neighbour.export_limits.get(rule.number)
        if neighbour is None or limits is None:
            raise Refusal(CloudUnavailable(offer.name))
        account = neighbour.accounts.of_export(rule)
        wait_s = limits.begin_use(now)
        if wait_s is not None:
            self._core.note_refused(alias, offer.open.name, "survey", "limited")
            outcome = encode_outcome(Overloaded(offer.name, retry_after_s=wait_s))
            account.refused(outcome[0])
            raise Refusal(outcome)
        headers = headers_for_members(offer.open.headers, alias, trace=rule.trace)
        channel = self._duplexes.accept(offer)
        meter = Meter(limits, account)
        try:
            await while_wanted(channel, self._ask(channel, offer, headers, meter))
            await channel.close()
        except BaseException as exc:
            channel.break_by(exc)
            raise

    async def _ask(self, channel: Channel, offer: ChannelOffer, headers: Headers, meter: Meter) -> None:
        """Ask the local members the neighbour's question, and send the answers back."""
        alias = offer.bundle.alias
        try:
            question = await self._question_of(channel, offer, meter)
        except IrisError as exc:
            await channel.send(encode_said(Ended(encode_outcome(exc))))
            return
        room = self._rooms.setdefault(alias, ReplyMemory())
        pseudonym_of = partial(self._pseudonym_of, alias)
        taker = Taker(room, lambda node_id: bytes.fromhex(pseudonym_of(node_id)), self._port.count_drop)
        loop = asyncio.get_running_loop()
        stop_after = decode_stop_after(offer.open.options)
        left = max(offer.deadline - loop.time(), 0.001)
        survey_id = 0
        try:
            survey_id = self._port.survey_members(offer.name, question, left, stop_after, taker, headers)
        except IrisError as exc:
            taker.end(exc)
        try:
            while (said := await taker.take()) is not None:
                data = encode_said(said)
                await meter.wait_to_send(len(data))
                await channel.send(data)
        finally:
            taker.close()
            self._port.cancel_survey(survey_id)

    async def _question_of(self, channel: Channel, offer: ChannelOffer, meter: Meter) -> bytes:
        limit = self._port.max_message_bytes
        async with asyncio.timeout_at(offer.deadline):
            message = await channel.receive(max_bytes=limit + OVERHEAD_BYTES)
            await meter.wait_to_receive(len(message))
        question = decode_question(message)
        if question is None:
            raise RemoteError("", "", "ProtocolError", "the gateway does not know this kind of request")
        if len(question) > limit:
            raise MessageTooLarge(len(question), limit)
        return question


class ReplyMemory:
    """The memory for queued replies to one neighbour's surveys.

    Attributes:
        used_bytes: The memory in use. Invariant: at most ``REPLIES_BYTES_MAX`` and the largest reply of each survey.
    """

    def __init__(self) -> None:
        self.used_bytes = 0


class Taker(SurveyTaker):
    """Queues the events of a neighbour's survey for the sending task.

    Args:
        room: The memory of the neighbour's surveys.
        pseudonym_of: Returns a node's pseudonym for the neighbour.
        count_drop: Counts replies dropped for lack of memory.
    """

    def __init__(self, room: ReplyMemory, pseudonym_of: Callable[[str], bytes], count_drop: Callable[[str], object]) -> None:
        self._room = room
        self._count_drop = count_drop
        self._pseudonym_of = pseudonym_of
        self._said: deque[Said] = deque()
        self._held_bytes = 0
        self._changed = asyncio.Event()
        self._is_over = False

    def handle_event(self, event: SurveyEvent) -> None:
        if self._is_over:
            return
        if isinstance(event, SurveyAsked):
            places = [self._place(peer.info.id.hex(), peer.info.zone) for peer in event.members or ()]
            self._put(AskedMembers(event.count, tuple(places)))
        elif isinstance(event, SurveyAnswered):
            info = event.peer.info
            self._put_answer(Answer(self._place(info.id.hex(), info.zone), event.kind, event.is_last, event.payload))
        else:
            self.end(event.error)

    def end(self, error: IrisError | None) -> None:
        """End the survey, with the error if no member was asked."""
        outcome = b"" if error is None else hide_members(error, lambda node_id: self._pseudonym_of(node_id).hex())
        self._put(Ended(encode_outcome(outcome)))
        self._is_over = True

    async def take(self) -> Said | None:
        """Wait for the survey's next message and return it; None after the last."""
        while not self._said:
            if self._is_over:
                return None
            self._changed.clear()
            await self._changed.wait()
        said = self._said.popleft()
        if isinstance(said, Answer):
            self._give_back(len(said.payload))
        return said

    def close(self) -> None:
        """Stop queueing, and give back all memory."""
        self._is_over = True
        self._said.clear()
        self._give_back(self._held_bytes)

    # --

    def _put_answer(self, answer: Answer) -> None:
        size = len(answer.payload)
        if len(self._said) >= ANSWERS_MAX:
            self._count_drop("survey_replies_full")
            return
        if self._held_bytes and self._room.used_bytes + size > REPLIES_BYTES_MAX and answer.kind == packets.REPLY:
            answer, size = answer._replace(kind=DROPPED, payload=b""), 0
            self._count_drop("survey_replies_full")
        self._held_bytes += size
        self._room.used_bytes += size
        self._put(answer)

    def _put(self, said: Said) -> None:
        self._said.append(said)
        self._changed.set()

    def _give_back(self, size: int) -> None:
        self._held_bytes -= size
        self._room.used_bytes -= size

    def _place(self, node_id: str, zone: str) -> MemberPlace:
        return MemberPlace(self._pseudonym_of(node_id), zone)
