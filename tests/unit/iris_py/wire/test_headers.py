"""Tests of iris_py/wire/headers.py: what is a header, and what is not."""

from __future__ import annotations

import enum
import pickle

import msgspec
import pytest

import iris_py as iris
from iris_py.wire.headers import (
    HEADERS_BYTES_MAX,
    NAME_BYTES_MAX,
    NO_HEADERS,
    Headers,
    HeaderValue,
    cloud_of,
    decode_headers,
    encode_headers,
    visible_headers,
)


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


VALUES: dict[str, HeaderValue] = {"text": "grün", "bytes": b"\x00\xff", "int": -7, "float": 0.5, "yes": True, "no": False}


def test_every_type_comes_back_as_it_was() -> None:
    headers = decode_headers(encode_headers(VALUES).encoded)
    assert headers is not None
    assert dict(headers) == VALUES
    assert [type(value) for value in headers.values()] == [str, bytes, int, float, bool, bool]
    assert repr(headers) == repr(VALUES)


def test_none_are_one_and_the_same_object() -> None:
    assert encode_headers(None) is encode_headers({}) is decode_headers(b"") is decode_headers(b"\x80") is NO_HEADERS
    assert not NO_HEADERS
    assert dict(NO_HEADERS) == {}
    assert len(encode_headers(VALUES)) == len(VALUES)
    assert encode_headers(VALUES)


def test_they_cannot_be_changed_neither_by_who_gave_them() -> None:
    given = {"a": 1}
    headers = encode_headers(given)
    given["a"] = 2
    assert headers["a"] == 1
    with pytest.raises(TypeError):
        headers["a"] = 3  # type: ignore[index] # that is the point
    with pytest.raises(AttributeError):
        headers.other = 3  # type: ignore[attr-defined] # that is the point


def test_those_of_a_message_can_be_passed_on_as_they_are() -> None:
    headers = encode_headers(VALUES)
    assert encode_headers(headers) is headers


def test_subclasses_travel_as_what_they_stand_for() -> None:
    headers = encode_headers({"colour": Colour.RED, "level": Level.HIGH, "buffer": bytearray(b"x"), "view": memoryview(b"y")})  # type: ignore[dict-item] # bytes-like ones are as welcome
    assert dict(headers) == {"colour": "red", "level": 3, "buffer": b"x", "view": b"y"}
    assert [type(value) for value in headers.values()] == [str, int, bytes, bytes]


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ({"": 1}, "not a valid name"),
        ({"a b": 1}, "not a valid name"),
        ({"ä": 1}, "not a valid name"),
        ({"a\n": 1}, "not a valid name"),
        ({"a" * (NAME_BYTES_MAX + 1): 1}, "not a valid name"),
        ({1: 1}, "not a valid name"),
        ({"a": None}, "NoneType"),
        ({"a": [1]}, "list"),
        ({"a": {"b": 1}}, "dict"),
        ({"a": 1 << 64}, "cannot be encoded"),
        ({"a": "\ud800"}, "cannot be encoded"),
        ([("a", 1)], "dictionary"),
        ({"a": bytes(HEADERS_BYTES_MAX)}, "at most 4096"),
        ({f"name-{number}": "x" * 100 for number in range(40)}, "at most 4096"),
    ],
)
def test_what_is_no_header_is_refused_and_the_error_says_what_to_do(headers: object, text: str) -> None:
    with pytest.raises(iris.ConfigurationError, match=text) as caught:
        encode_headers(headers)  # type: ignore[arg-type] # that is the point
    assert str(caught.value).endswith(".")


def test_the_largest_fit_to_the_byte() -> None:
    rest = HEADERS_BYTES_MAX - len(encode_headers({"a": bytes(1000)}).encoded)
    headers = encode_headers({"a": bytes(1000 + rest)})
    assert len(headers.encoded) == HEADERS_BYTES_MAX
    assert decode_headers(headers.encoded) == headers


@pytest.mark.parametrize(
    "head",
    [
        b"\x00",
        b"\x81",
        b"\x81\xa1a",
        b"\x81\xa1a\xc0",
        b"\x81\xa1a\x90",
        b"\x81\xa1a\x80",
        b"\x81\x01\x01",
        b"\x81\xa1\xff\x01",
        b"\x81\xa1a\xa1\xff",
        b"\x81\xa0\x01",
        b"\x81\xa1 \x01",
        b"\x81\xa1a\x01\x00",
        b"\x81\xa1a\xd6\xff\x00\x00\x00\x00",
        b"\x81\xa1a" + b"\x91" * 3000 + b"\xc0",
        b"\x81\xa1a\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xa1a",
        msgspec.msgpack.encode({"a": bytes(HEADERS_BYTES_MAX)}),
    ],
)
def test_malformed_ones_of_a_peer_are_none(head: bytes) -> None:
    assert decode_headers(head) is None


def test_messages_with_headers_can_be_compared_hashed_and_pickled() -> None:
    messages = [iris.Message(b"", "", 1, headers=encode_headers(each)) for each in ({"a": 1, "b": 2}, {"b": 2, "a": 1}, None)]
    assert messages[0] == messages[1] != messages[2]
    assert hash(messages[0]) == hash(messages[1])
    assert pickle.loads(pickle.dumps(messages[0])) == messages[0]
    assert pickle.loads(pickle.dumps(messages[0])).headers["b"] == 2


def test_what_waits_holds_no_more_than_what_came() -> None:
    headers = decode_headers(encode_headers(VALUES).encoded)
    assert isinstance(headers, Headers)
    assert headers._values is None
    assert headers["int"] == -7
    assert headers._values is not None


@pytest.mark.parametrize("name", ["iris-", "iris-cloud", "iris-op"])
def test_those_of_iris_are_not_for_applications(name: str) -> None:
    with pytest.raises(iris.ConfigurationError, match="begins with 'iris-'"):
        encode_headers({name: "x"})
    headers = encode_headers({"a": 1, name: "x", "iris-message-id": "m"}, is_internal=True)
    assert headers[name] == "x"
    assert dict(visible_headers(headers)) == {"a": 1, "iris-message-id": "m"}
    assert visible_headers(encode_headers({name: "x"}, is_internal=True)) is NO_HEADERS


def test_those_of_applications_are_seen_as_they_came() -> None:
    for headers in (NO_HEADERS, encode_headers({"iris": 1, "Iris-cloud": "x"}), encode_headers({"a": "iris-cloud"})):
        assert visible_headers(headers) is headers
        assert cloud_of(headers) == ""


def test_the_cloud_of_a_message_is_a_header_of_iris() -> None:
    assert cloud_of(encode_headers({"iris-cloud": "eu"}, is_internal=True)) == "eu"
    assert cloud_of(encode_headers({"iris-cloud": 7}, is_internal=True)) == ""
