"""The answers to a survey of a neighbour while they wait for the line: in order, in bounded memory."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_py.errors import NoMembers
from iris_py.federation.calls import DROPPED, Answer, AskedMembers, Ended, MemberPlace, encode_outcome
from iris_py.gateway import surveys
from iris_py.gateway.surveys import ReplyMemory, Taker
from iris_py.patterns.survey import SurveyAnswered, SurveyAsked, SurveyEnded
from iris_py.peers.peer import Peer
from iris_py.wire.packets import DECLINE, REPLY

if TYPE_CHECKING:
    import pytest

PEERS = [Peer(NodeInfo(NodeId(bytes((number,)) * 16), (f"host:{number}",), "zone"), None) for number in range(1, 4)]
PLACES = [MemberPlace(bytes((number + 100,)) * 16, "zone") for number in range(1, 4)]


def pseudonym_of(node_id: str) -> bytes:
    return bytes(byte + 100 for byte in bytes.fromhex(node_id))


#: What takers could not tell.
LOST: list[str] = []


def answer(taker: Taker, peer: int, payload: bytes, kind: int = REPLY) -> None:
    taker.handle_event(SurveyAnswered(taker, PEERS[peer], kind, payload, True))


async def rest(taker: Taker) -> list[object]:
    said: list[object] = []
    while (one := await taker.take()) is not None:
        said.append(one)
    return said


def test_all_is_told_in_order_and_members_by_pseudonyms() -> None:
    async def scenario() -> None:
        taker = Taker(ReplyMemory(), pseudonym_of, LOST.append)
        taking = asyncio.ensure_future(rest(taker))
        await asyncio.sleep(0)
        taker.handle_event(SurveyAsked(taker, PEERS, 3))
        answer(taker, 0, b"reply")
        answer(taker, 1, b"", DECLINE)
        taker.handle_event(SurveyEnded(taker, None))
        answer(taker, 2, b"late")
        assert await taking == [
            AskedMembers(3, tuple(PLACES)),
            Answer(PLACES[0], REPLY, True, b"reply"),
            Answer(PLACES[1], DECLINE, True, b""),
            Ended(encode_outcome(b"")),
        ]

    asyncio.run(scenario())


def test_of_many_members_only_the_number_is_told() -> None:
    async def scenario() -> None:
        taker = Taker(ReplyMemory(), pseudonym_of, LOST.append)
        taker.handle_event(SurveyAsked(taker, None, 100))
        taker.handle_event(SurveyEnded(taker, NoMembers("store", 3)))
        assert await rest(taker) == [AskedMembers(100), Ended(encode_outcome(NoMembers("store", 3)))]

    asyncio.run(scenario())


def test_replies_that_find_no_memory_are_dropped_and_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surveys, "REPLIES_BYTES_MAX", 100)

    async def scenario() -> None:
        room = ReplyMemory()
        drops: list[str] = []
        first, second = (Taker(room, pseudonym_of, drops.append) for _ in range(2))
        answer(first, 0, bytes(90))
        answer(first, 1, bytes(20))
        answer(first, 2, bytes(10))
        assert room.used_bytes == 100
        answer(second, 0, bytes(50))  # each may hold one, or a survey could starve for others
        answer(second, 1, bytes(1))
        assert room.used_bytes == 150
        taken = [await first.take() for _ in range(3)]
        assert taken[1] == Answer(PLACES[1], DROPPED, True, b"")
        assert room.used_bytes == 50
        second.close()
        assert room.used_bytes == 0
        assert await second.take() is None
        answer(second, 2, b"late")
        assert room.used_bytes == 0
        assert drops == ["survey_replies_full"] * 2

    asyncio.run(scenario())
