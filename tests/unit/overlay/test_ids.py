from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from iris_overlay.ids import DIGITS, ID_BYTES, RING, clockwise, digit, is_nearer, position, ring_distance, shared_digits

PLACES = st.integers(0, RING - 1)


@given(PLACES, PLACES)
def test_the_distance_is_the_shorter_way(a: int, b: int) -> None:
    assert ring_distance(a, b) == min((a - b) % RING, (b - a) % RING)
    assert ring_distance(a, b) == ring_distance(b, a)
    assert (a + clockwise(a, b)) % RING == b


@given(PLACES, PLACES)
@example(0, RING - 1)
@example(5, 5)
def test_digits_are_those_of_the_hexadecimal_form(a: int, b: int) -> None:
    text_a, text_b = a.to_bytes(ID_BYTES, "big").hex(), b.to_bytes(ID_BYTES, "big").hex()
    assert [digit(a, row) for row in range(DIGITS)] == [int(char, 16) for char in text_a]
    assert shared_digits(a, b) == next((row for row in range(DIGITS) if text_a[row] != text_b[row]), DIGITS)
    assert position(bytes.fromhex(text_a)) == a


@given(PLACES, PLACES, PLACES)
@example(0, 1, RING - 1)
def test_of_two_different_places_exactly_one_is_nearer(key: int, a: int, b: int) -> None:
    assert is_nearer(key, a, b) + is_nearer(key, b, a) == (a != b)


def test_on_a_tie_the_smaller_position_is_nearer() -> None:
    assert is_nearer(10, 7, 13)
    assert not is_nearer(10, 13, 7)
    assert is_nearer(0, 1, RING - 1)
