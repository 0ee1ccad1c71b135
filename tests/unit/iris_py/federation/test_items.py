"""The messages of subscriptions and of publishing between clouds: what goes in comes out, and nothing else is taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_py.federation import items
from iris_py.federation.items import Item, ItemError

if TYPE_CHECKING:
    from collections.abc import Callable

names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=60)
publications = st.builds(
    Item,
    topic=names,
    payload=st.binary(max_size=100),
    number=st.integers(0, 2**64 - 1),
    origin=st.binary(min_size=16, max_size=16),
    stream=st.binary(min_size=4, max_size=4),
    gap=st.integers(0, 2**32 - 1),
    headers=st.binary(max_size=50),
    flags=st.integers(0, 7),
)
DECODERS: tuple[Callable[[bytes], object], ...] = (
    items.decode_items,
    items.decode_add,
    items.decode_added,
    items.decode_remove,
    items.decode_lost,
    items.decode_said,
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


@given(publications, st.binary(min_size=1, max_size=20), st.integers(0, 2**32 - 1))
def test_what_became_of_something_comes_out_as_it_went_in(item: Item, outcome: bytes, count: int) -> None:
    assert items.decode_said(items.encode_said(item, outcome)) == (item.origin, item.stream, item.number, outcome)
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
    small = Item("t", b"", 1)
    assert len(items.decode_items(items.encode_items(items.ITEM, [small] * items.ITEMS_MAX))) == items.ITEMS_MAX
    for message in (
        items.encode_items(items.ITEM, [small] * (items.ITEMS_MAX + 1)),
        items.encode_items(items.ITEM, [Item("t", b"", 1, headers=bytes(4097))]),
        bytes(items.ITEMS_BYTES_MAX + 1),
    ):
        with pytest.raises(ItemError):
            items.decode_items(message)
    with pytest.raises(ItemError):
        items.decode_add(items.encode_add(1, ["a"] * (items.PATTERNS_MAX + 1)))
    with pytest.raises(ItemError):
        items.decode_remove(items.encode_remove([]))
    with pytest.raises(ItemError):
        items.decode_remove(items.encode_remove(["a"]) + b"x")
    (read,) = items.decode_items(items.encode_items(items.ITEM, [Item("t", b"", 1, gap=2**40)]))
    assert read.gap == items.GAP_MAX


@given(st.lists(st.integers(0, 40_000), min_size=1, max_size=30))
def test_batches_are_as_large_as_they_may_be(sizes: list[int]) -> None:
    sent = [Item("t", bytes(size), number) for number, size in enumerate(sizes)]
    begin = 0
    while begin < len(sent):
        end = items.take_batch(sent, begin)
        size = sum(item.size for item in sent[begin:end])
        assert end > begin
        assert size <= items.ITEM_MESSAGE_BYTES or end == begin + 1
        assert end == len(sent) or size + sent[end].size > items.ITEM_MESSAGE_BYTES
        begin = end
    assert items.take_batch([Item("t", b"", 1)] * 2000) <= items.ITEMS_MAX
