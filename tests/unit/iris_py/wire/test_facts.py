"""Tests of iris_py/wire/facts.py: what a node says of itself in a typed form."""

from __future__ import annotations

import msgspec
import pytest

from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_py.wire.facts import (
    FACTS_BYTES_MAX,
    NAME,
    NAME_LENGTH_MAX,
    TOPICS,
    decode_facts,
    decode_hello,
    encode_facts,
    encode_hello,
    is_name,
    name_in,
    named,
    topic_version_in,
)

INFO = NodeInfo(NodeId(b"n" * 16), ("127.0.0.1:1",), "eu")


def test_a_fact_is_a_type_a_length_and_a_value() -> None:
    assert encode_facts({NAME: b"web", 7: b""}) == b"\x01\x03web\x07\x00"
    assert decode_facts(b"\x01\x03web\x07\x00") == {1: b"web", 7: b""}
    assert encode_facts({}) == named("") == b""
    assert decode_facts(b"") == {}


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"", ""),
        (b"\x01\x03web", "web"),
        (b"\x02\x10" + bytes(16) + b"\x01\x03web\x09\x01x", "web"),  # types that this version does not know
        (b"\x01\x03web\x01\x02db", "web"),  # the first of a type counts
        (b"\x01\x00", ""),
        (b"\x01\x04web", ""),  # cut off
        (b"\x01", ""),
        (b"\x02\xff\x01\x03web", ""),
        (b"\x01\x05\x1b[31m", ""),  # would steer a terminal
        (b"\x01\x03w\nb", ""),
        (b"\x01\x04 web", ""),
        (b"\x01\x04web ", ""),
        (b"\x01\x04web\xc3", ""),
        (b"\x01\x03w\xc3\xbc", ""),
        (b"\x01\x07web one", "web one"),
        (b"\x01\x40" + b"x" * 64, "x" * 64),
        (b"\x01\x41" + b"x" * 65, ""),
    ],
)
def test_a_name_that_could_be_none_is_no_name(data: bytes, name: str) -> None:
    assert name_in(data) == name


@pytest.mark.parametrize(
    ("data", "version"),
    [
        (b"", 1),
        (named("web"), 1),
        (b"\x02\x01\x02", 2),
        (b"\x01\x03web\x02\x01\xff", 255),
        (b"\x02\x00", 1),
        (b"\x02\x02\x00\x02", 1),  # not one byte
        (b"\x02\x01", 1),  # cut off
        (encode_facts({TOPICS: b"\x07"}), 7),
    ],
)
def test_a_node_that_tells_no_version_of_its_topics_has_the_first(data: bytes, version: int) -> None:
    assert topic_version_in(data) == version


def test_a_name_that_a_node_may_have_is_read_as_it_was_told() -> None:
    for text in ("web-1/orders.py", "a", "x" * NAME_LENGTH_MAX, "[red]two words[/red]"):
        assert is_name(text)
        assert name_in(named(text)) == text
    assert not any(map(is_name, ("", " a", "a ", "a\x7f", "\u00e4", "x" * (NAME_LENGTH_MAX + 1))))


def test_facts_that_do_not_fit_are_not_written() -> None:
    with pytest.raises(ValueError, match="255 bytes"):
        encode_facts({2: bytes(256)})
    with pytest.raises(ValueError, match=f"larger than {FACTS_BYTES_MAX}"):
        encode_facts({2: bytes(FACTS_BYTES_MAX - 1)})
    assert len(encode_facts({2: bytes(FACTS_BYTES_MAX - 2)})) == FACTS_BYTES_MAX


def test_a_hello_has_its_facts_behind_what_every_version_reads() -> None:
    older = msgspec.msgpack.Decoder(NodeInfo)
    assert encode_hello(INFO) == msgspec.msgpack.encode([INFO.id, ["127.0.0.1:1"], "eu"])
    hello = encode_hello(INFO, named("web"))
    assert hello == msgspec.msgpack.encode([INFO.id, ["127.0.0.1:1"], "eu", b"\x01\x03web"])
    assert older.decode(hello) == INFO
    assert decode_hello(hello) == (INFO, b"\x01\x03web")
    assert decode_hello(encode_hello(INFO)) == (INFO, b"")
    assert decode_hello(msgspec.msgpack.encode([INFO.id, [], "", b"\x01\x03web", "of a newer version"])) is not None


@pytest.mark.parametrize(
    "hello",
    [
        b"",
        b"hello",
        msgspec.msgpack.encode([b"short", [], ""]),
        msgspec.msgpack.encode([INFO.id, [], "", "text"]),
        msgspec.msgpack.encode([INFO.id, [], "", bytes(FACTS_BYTES_MAX + 1)]),
    ],
)
def test_a_malformed_hello_is_none(hello: bytes) -> None:
    assert decode_hello(hello) is None
