"""Cursors: equal at all doors of a network, and unknown to everybody else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_py.doors.web import cursors
from iris_py.doors.web.cursors import CURSOR_CHARACTERS, ELAPSED_MS_MAX, Cursor, CursorKeys

if TYPE_CHECKING:
    import pytest

KEY = bytes(range(32))
CURSOR = Cursor(b"12345678", 2**64 - 1, 17)


def test_a_cursor_is_understood_at_each_door_with_the_key() -> None:
    here, there = CursorKeys(KEY), CursorKeys(KEY)
    text = here.encode(CURSOR)
    assert text == there.encode(CURSOR)
    assert len(text) == CURSOR_CHARACTERS <= 64
    assert text.isalnum()
    assert text == text.lower()
    assert there.decode(text) == CURSOR
    assert there.decode(text.upper()) == CURSOR


def test_the_text_shows_nothing_of_the_cursor() -> None:
    keys = CursorKeys(KEY)
    one, other = (keys.encode(Cursor(b"12345678", number)) for number in (1, 2))
    assert sum(left == right for left, right in zip(one, other, strict=True)) < CURSOR_CHARACTERS / 3


def test_any_other_text_is_unknown() -> None:
    keys = CursorKeys(KEY)
    text = keys.encode(CURSOR)
    foreign = [
        "",
        "1",
        "0" * 58,
        "a" * 58,
        "=" * 58,
        "\N{SNOWMAN}" * 58,
        text + "a",
        text[:-1],
        CursorKeys(bytes(32)).encode(CURSOR),
    ]
    changed = [text[:place] + ("b" if text[place] == "a" else "a") + text[place + 1 :] for place in range(0, 57, 7)]
    assert [keys.decode(each) for each in foreign + changed] == [None] * (len(foreign) + len(changed))


def test_a_longer_time_than_fits_is_cut() -> None:
    keys = CursorKeys(KEY)
    assert keys.decode(keys.encode(CURSOR._replace(elapsed_ms=2**40))) == CURSOR._replace(elapsed_ms=ELAPSED_MS_MAX)


def test_publishers_have_pseudonyms_of_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cursors, "PSEUDONYMS_MAX", 2)
    here, there = CursorKeys(KEY), CursorKeys(KEY)
    sources = [f"{number:032x}" for number in range(5)]
    assert [here.pseudonym(each) for each in sources] == [there.pseudonym(each) for each in reversed(sources)][::-1]
    assert len({here.pseudonym(each) for each in sources}) == 5
    assert CursorKeys(bytes(32)).pseudonym(sources[0]) != here.pseudonym(sources[0])
