"""Messages that are known again."""

from __future__ import annotations

import pytest

from iris_py import ConfigurationError, Message
from spark_connector import MessageIds


def message(message_id: object) -> Message:
    return Message(b"", "", 0, headers={"iris-message-id": message_id})  # type: ignore[dict-item]


def test_a_message_is_new_once() -> None:
    ids = MessageIds()

    assert [ids.is_new(message(each)) for each in ("a", "b", "a", "c", "b", "a")] == [True, True, False, True, False, False]
    assert ids.repeated == 3


def test_what_has_no_id_is_always_new() -> None:
    ids = MessageIds()

    assert all(ids.is_new(Message(b"", "", 0)) for _ in range(3))
    assert all(ids.is_new(message(7)) for _ in range(3)), "of somebody else"
    assert ids.repeated == 0


def test_the_latest_are_remembered() -> None:
    ids = MessageIds(window=2)

    assert [ids.is_new(message(each)) for each in ("a", "b", "a", "c")] == [True, True, False, True]
    assert [ids.is_new(message(each)) for each in ("a", "c")] == [False, False], "a was repeated, so b was the oldest"
    assert ids.is_new(message("b"))


@pytest.mark.parametrize("window", [0, -1, 1.5, True, "many", (1 << 31) + 1])
def test_a_window_that_is_none_is_told(window: int) -> None:
    with pytest.raises(ConfigurationError, match="window="):
        MessageIds(window)
