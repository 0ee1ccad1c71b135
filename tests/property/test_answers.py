"""The messages of a survey of another cloud: each comes back as it was, and whatever else comes is refused or bounded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from iris_overlay.node_info import ZONE_LENGTH_MAX
from iris_py.federation.calls import (
    ANSWER,
    ASKED,
    DROPPED,
    ENDED,
    OVERHEAD_BYTES,
    PSEUDONYM_BYTES,
    Answer,
    AskedMembers,
    Ended,
    MemberPlace,
    decode_question,
    decode_said,
    decode_stop_after,
    encode_question,
    encode_said,
    encode_stop_after,
)
from iris_py.peers.group import DIRECT_MEMBERS_MAX
from iris_py.wire import packets

KINDS = st.sampled_from([packets.REPLY, packets.FAILURE, packets.DECLINE, packets.REJECTION, DROPPED])
PLACES = st.builds(
    MemberPlace,
    st.binary(min_size=PSEUDONYM_BYTES, max_size=PSEUDONYM_BYTES),
    st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=ZONE_LENGTH_MAX),
)
ASKEDS = st.lists(PLACES, max_size=DIRECT_MEMBERS_MAX).flatmap(
    lambda places: st.builds(AskedMembers, st.integers(len(places), 0xFFFF_FFFF), st.just(tuple(places)))
)
MESSAGES = st.one_of(
    ASKEDS,
    st.builds(Answer, PLACES, KINDS, st.booleans(), st.binary(max_size=100)),
    st.builds(Ended, st.binary(min_size=1, max_size=100)),
)
#: What begins as a message does, and goes on as it likes.
NEARLY = st.builds(bytes.__add__, st.sampled_from([bytes((kind,)) for kind in (ASKED, ANSWER, ENDED)]), st.binary(max_size=200))


@given(MESSAGES)
def test_a_message_comes_back_as_it_was(message: AskedMembers | Answer | Ended) -> None:
    data = encode_said(message)
    assert decode_said(data) == message
    if isinstance(message, Answer):
        assert len(data) <= OVERHEAD_BYTES + len(message.payload)


@given(
    st.binary(max_size=200)
    | NEARLY
    | MESSAGES.map(encode_said).flatmap(lambda data: st.integers(0, len(data)).map(lambda size: data[:size]))
)
def test_what_is_taken_is_bounded_and_encodes_to_the_same(data: bytes) -> None:
    said = decode_said(data)
    if said is None:
        return
    assert encode_said(said) == data
    for place in said.members if isinstance(said, AskedMembers) else [said.member] if isinstance(said, Answer) else []:
        assert len(place.pseudonym) == PSEUDONYM_BYTES
        assert len(place.zone) <= ZONE_LENGTH_MAX
    if isinstance(said, AskedMembers):
        assert len(said.members) <= min(said.expected, DIRECT_MEMBERS_MAX)


@given(st.binary(max_size=100))
def test_a_question_comes_back_as_it_was(payload: bytes) -> None:
    assert decode_question(encode_question(payload)) == payload
    assert decode_question(b"\x02" + payload) is None


@given(st.none() | st.integers(1, 0xFFFF_FFFF))
def test_how_many_replies_are_enough_comes_back_as_it_was(stop_after: int | None) -> None:
    assert decode_stop_after(encode_stop_after(stop_after)) == stop_after


@given(st.binary(max_size=8))
def test_any_options_are_taken(options: bytes) -> None:
    stop_after = decode_stop_after(options)
    assert stop_after is None or 1 <= stop_after <= 0xFFFF_FFFF


def test_too_many_members_are_told_by_number() -> None:
    places = tuple(MemberPlace(number.to_bytes(PSEUDONYM_BYTES, "big"), "") for number in range(DIRECT_MEMBERS_MAX + 1))
    assert decode_said(encode_said(AskedMembers(1 << 40, places))) == AskedMembers(0xFFFF_FFFF)
