"""The messages of subscriptions and of publishing between clouds: what goes in comes out, and nothing else is taken."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_py.federation import items
from iris_py.federation.items import Item, ItemError
from iris_py.wire import packets
from iris_py.wire.imported import UNKNOWN_GAP

if TYPE_CHECKING:
    from collections.abc import Callable

names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=60)
runs = st.builds(
    Item,
    topic=names,
    payloads=st.lists(st.binary(max_size=100), min_size=1, max_size=5),
    number=st.integers(0, 2**64 - 5),
    origin=st.binary(min_size=16, max_size=16),
    sequence=st.binary(min_size=4, max_size=4),
    gap=st.integers(0, 2**32 - 1),
    headers=st.binary(max_size=50),
)
said = st.builds(
    Item,
    topic=names,
    payloads=st.lists(st.binary(max_size=100), min_size=1, max_size=1),
    number=st.integers(0, 2**64 - 1),
    headers=st.binary(max_size=50),
    flags=st.integers(0, 7),
)
publications = st.one_of(runs, said)
DECODERS: tuple[Callable[[bytes], object], ...] = (
    items.decode_items,
    items.decode_add,
    items.decode_added,
    items.decode_remove,
    items.decode_lost,
    items.decode_said,
    items.decode_flush,
    items.decode_published,
)


@given(st.lists(publications, min_size=1, max_size=5), st.sampled_from((items.ITEM, items.SAY)))
def test_publications_come_out_as_they_went_in(sent: list[Item], kind: int) -> None:
    message = items.encode_items(kind, sent)
    assert message[0] == kind
    assert items.decode_items(message) == sent


@given(st.integers(0, 2**32 - 1), st.lists(names, min_size=1, max_size=5), st.binary(min_size=1, max_size=20))
def test_wishes_and_answers_come_out_as_they_went_in(request: int, patterns: list[str], outcome: bytes) -> None:
    assert items.decode_add(items.encode_add(request, patterns)) == (request, patterns)
    assert items.decode_remove(items.encode_remove(patterns)) == patterns
    assert items.decode_added(items.encode_added(request, outcome)) == (request, outcome)
    assert items.decode_lost(items.encode_lost(patterns[0], outcome)) == (patterns[0], outcome)
    for kind in (items.FLUSH, items.FLUSHED):
        assert items.encode_flush(kind, request)[0] == kind
        assert items.decode_flush(items.encode_flush(kind, request)) == request


@given(st.dictionaries(st.binary(min_size=20, max_size=20), st.integers(0, 2**64 - 1), max_size=5))
def test_last_numbers_come_out_as_they_went_in(lasts: dict[bytes, int]) -> None:
    message = items.encode_published(list(lasts.items()))
    assert message[0] == items.PUBLISHED
    assert items.decode_published(message) == lasts


def test_too_many_last_numbers_are_refused() -> None:
    lasts = [(number.to_bytes(20, "big"), number) for number in range(items.SEQUENCES_MAX + 1)]
    assert len(items.decode_published(items.encode_published(lasts[1:]))) == items.SEQUENCES_MAX
    with pytest.raises(items.ItemError):
        items.decode_published(items.encode_published(lasts))


@given(publications, st.binary(min_size=1, max_size=20), st.integers(0, 2**32 - 1))
def test_what_became_of_something_comes_out_as_it_went_in(item: Item, outcome: bytes, count: int) -> None:
    message = items.encode_said(item.number, outcome, item.origin, item.sequence)
    assert items.decode_said(message) == (item.origin, item.sequence, item.number, outcome)
    assert items.decode_said(items.encode_said(item.number, outcome)) == (bytes(16), bytes(4), item.number, outcome)
    assert items.decode_count(items.encode_count(count)) == count


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused_or_read_but_nothing_else_is_raised(data: bytes) -> None:
    for decode in DECODERS:
        try:
            decode(data)
        except ItemError:
            pass


@given(st.lists(publications, min_size=1, max_size=3), st.data())
def test_a_message_that_is_cut_off_is_refused(sent: list[Item], data: st.DataObject) -> None:
    message = items.encode_items(items.ITEM, sent)
    ends = [len(items.encode_items(items.ITEM, sent[:count])) for count in range(1, len(sent) + 1)]
    cut = data.draw(st.integers(0, len(message) - 1).filter(lambda end: end not in ends))
    with pytest.raises(ItemError):
        items.decode_items(message[:cut])


def test_bounds_are_kept() -> None:
    most = items.PUBLICATIONS_MAX
    for fine in ([Item("t", [b""], 1)] * most, [Item("t", [b""] * most, 1)], [Item("t", [b"", b""], 2**64 - 2)]):
        assert items.decode_items(items.encode_items(items.ITEM, fine)) == fine
    for wrong in (
        [Item("t", [b""], 1)] * (most + 1),
        [Item("t", [b""] * (most + 1), 1)],
        [Item("t", [b""] * most, 1), Item("t", [b""], 1)],
        [Item("t", [b""], 1, headers=bytes(4097))],
        [Item("t", [], 1)],
        [Item("", [b""], 1)],
        [Item("t", [b"", b""], 2**64 - 1)],
        [Item("t", [b"", b""], 1, flags=items.ANSWERED)],
        [Item("t", [b"", b""], 1, flags=items.BROADCAST)],
    ):
        with pytest.raises(ItemError):
            items.decode_items(items.encode_items(items.SAY, wrong))
    with pytest.raises(ItemError):
        items.decode_items(bytes(items.ITEMS_BYTES_MAX + 1))
    with pytest.raises(ItemError):
        items.decode_add(items.encode_add(1, ["a"] * (items.PATTERNS_MAX + 1)))
    with pytest.raises(ItemError):
        items.decode_remove(items.encode_remove([]))
    with pytest.raises(ItemError):
        items.decode_remove(items.encode_remove(["a"]) + b"x")
    (read,) = items.decode_items(items.encode_items(items.ITEM, [Item("t", [b""], 1, gap=2**40)]))
    assert read.gap == UNKNOWN_GAP


def test_a_size_that_a_message_cannot_have_is_refused_before_anything_is_cut_out() -> None:
    message = bytearray(items.encode_items(items.ITEM, [Item("t", [b"ab", b"c"], 1)]))
    for size in (2**32 - 1, packets.MESSAGE_BYTES_LIMIT + 1, 4):
        struct.pack_into(">I", message, 1 + items.RECORD.size, size)
        with pytest.raises(ItemError):
            items.decode_items(bytes(message))


@given(runs, st.data())
def test_a_run_is_split_into_two_that_follow_one_another(run: Item, data: st.DataObject) -> None:
    if len(run.payloads) == 1:
        return
    count = data.draw(st.integers(1, len(run.payloads) - 1))
    first, behind = run.split(count)
    assert first.payloads + behind.payloads == run.payloads
    assert (first.number, first.gap) == (run.number, run.gap)
    assert (behind.number, behind.gap) == (run.number + count, 0)
    assert first.payload_bytes + behind.payload_bytes == run.payload_bytes


@given(st.lists(st.integers(0, 40_000), min_size=1, max_size=30), st.binary(max_size=50))
def test_messages_are_as_large_as_they_may_be(sizes: list[int], headers: bytes) -> None:
    payloads = [bytes(size) for size in sizes]
    while payloads:
        count = items.count_fitting(payloads, headers)
        item = Item("t" * items.NAME_BYTES_MAX, payloads[: max(1, count)], 1, headers=headers)
        assert len(items.encode_items(items.ITEM, [item])) == 1 + item.size
        assert item.size <= items.ITEM_MESSAGE_BYTES or not count
        more = Item("t", payloads[: count + 1], 1, headers=headers)
        assert len(payloads) == count or more.size > items.ITEM_MESSAGE_BYTES
        payloads = payloads[max(1, count) :]
    assert items.count_fitting([b""] * 2000, b"") == items.PUBLICATIONS_MAX
    assert items.count_fitting([b""] * 2000, b"", room=7) == 7
