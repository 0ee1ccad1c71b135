"""Codecs: what they say, what they refuse, and how they tell it."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar, assert_type

import msgspec
import pydantic
import pytest

import iris_py as iris
from iris_py.api.codec import REASON_MAX, as_codec, decode, encode, encode_some

if TYPE_CHECKING:
    from iris_py.api.codec import AnyCodec


class Ask(msgspec.Struct, tag=True):
    """A question."""

    symbol: str


class Quote(msgspec.Struct):
    """An answer."""

    price: float
    at: datetime.datetime | None = None


@dataclass
class Point:
    """A plain dataclass."""

    x: int


class Options(TypedDict):
    """A typed dictionary."""

    deep: bool


class Order(pydantic.BaseModel):
    """A model that converts nothing."""

    model_config = pydantic.ConfigDict(strict=True)

    number: int
    at: datetime.datetime
    secret: str = "unsaid"


Item = TypeVar("Item")


class Page(msgspec.Struct, Generic[Item]):
    """A generic struct."""

    items: list[Item]


class Bare:
    """A class of which nobody knows anything."""


AT = datetime.datetime(2026, 1, 2, 3, tzinfo=datetime.UTC)
VALUES: list[tuple[Any, Any]] = [
    (Quote, Quote(1.5, AT)),
    (Ask, Ask("X")),
    (Point, Point(3)),
    (Options, {"deep": True}),
    (Order, Order(number=7, at=AT)),
    (list[Order], [Order(number=7, at=AT)]),
    (dict[str, Quote], {"X": Quote(1.0)}),
    (Page[Quote], Page([Quote(2.0)])),
    (int, 3),
    (bytes, b"\x00\xff"),
    (Any, {"a": [1, None, "b"]}),
]


@pytest.mark.parametrize("format_", ["json", "msgpack"])
@pytest.mark.parametrize(("type_", "value"), VALUES, ids=lambda each: getattr(each, "__name__", "value"))
def test_a_value_comes_back_as_it_went(type_: Any, value: object, format_: iris.CodecFormat) -> None:
    codec = iris.Codec(type_, format=format_)
    payload = codec.encode_request(value)
    assert type(payload) is bytes
    assert codec.decode_request(payload) == codec.decode_reply(codec.encode_reply(value)) == value
    assert type(codec.decode_request(payload)) is type(value)
    assert payload == (msgspec.json if format_ == "json" else msgspec.msgpack).encode(value, enc_hook=_plain)


def _plain(order: Order) -> object:
    return order.model_dump(mode="json")


def test_requests_and_replies_have_types_of_their_own() -> None:
    codec = iris.Codec(Ask, Quote)
    assert_type(codec, iris.Codec[Ask, Quote])
    assert_type(codec.decode_reply(codec.encode_reply(Quote(1))), Quote)
    assert_type(iris.Codec(Ask).decode_reply(b'{"type":"Ask","symbol":"X"}'), Ask)
    with pytest.raises(iris.EncodeError, match="the value has the type Quote, not Ask"):
        codec.encode_request(Quote(1))  # type: ignore[arg-type] # that is the point
    with pytest.raises(iris.EncodeError, match="the value has the type dict, not Quote"):
        codec.encode_reply({"price": 1})  # type: ignore[arg-type] # that is the point
    assert repr(codec) == "<Codec Ask -> Quote as json>"
    assert repr(iris.Codec(Order, format="msgpack")) == "<Codec Order as msgpack>"


def test_what_stands_for_a_codec() -> None:
    assert as_codec(Quote) is as_codec(Quote)
    assert as_codec("msgpack").encode_request([1]) == b"\x91\x01"
    codec = iris.Codec(Quote)
    assert as_codec(codec) is codec
    assert as_codec(list[Quote]).decode_reply(b"[]") == []


@pytest.mark.parametrize(
    ("codec", "says"),
    [
        ("yaml", 'Choose one of "json" or "msgpack"'),
        (Bare, "class Bare: make it a msgspec.Struct"),
        (object(), "no codec can be made of"),
        ([Quote], "cannot be used"),
        (int | list[int] | set[int], "no codec can be made of"),
    ],
    ids=["format", "class", "object", "list", "ambiguous union"],
)
def test_what_is_no_codec_is_refused(codec: AnyCodec, says: str) -> None:
    with pytest.raises(iris.ConfigurationError, match=says):
        as_codec(codec)


def test_an_unknown_format_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(iris.ConfigurationError, match="Choose one of json, msgpack"):
        iris.Codec(Quote, format="xml")  # type: ignore[call-overload] # that is the point


@pytest.mark.parametrize(
    ("codec", "value"),
    [("json", object()), ("json", "\ud800"), ("msgpack", 1 << 70), ("json", Bare()), (list[Quote], [Quote(Bare())])],  # type: ignore[arg-type]
    ids=["object", "surrogate", "large number", "foreign class", "foreign class within"],
)
def test_a_value_that_cannot_be_said_is_an_error_that_names_for_whom(codec: AnyCodec, value: object) -> None:
    with pytest.raises(iris.EncodeError, match="for 'quotes' cannot be encoded, and nothing was sent") as caught:
        encode(as_codec(codec).encode_request, value, cluster="quotes")
    assert caught.value.cluster == "quotes"
    assert caught.value.reason


def test_a_value_that_refers_to_itself_is_refused() -> None:
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(iris.EncodeError):
        as_codec("json").encode_request(loop)


@pytest.mark.parametrize(
    ("codec", "payload", "reason"),
    [
        (Quote, b"not json", "malformed"),
        (Quote, b"", "truncated"),
        (Quote, b'{"price": "x"}', r"Expected `float`, got `str` - at `\$.price`"),
        (Quote, b"\xff", "malformed"),
        ("json", b"[" * 100_000, "recursion"),
        ("msgpack", b"\x91" * 100_000, "recursion"),
        ("msgpack", b"\xc1", "invalid opcode"),
        (Order, b'{"number": "7", "at": "x", "secret": "do not tell"}', "number: Input should be a valid integer; at: "),
        (list[Order], b'[{"number": 7}]', r"at: Field required - at `\$\[0\]`"),
    ],
)
def test_what_does_not_fit_is_an_error_that_says_where(codec: AnyCodec, payload: bytes, reason: str) -> None:
    with pytest.raises(iris.DecodeError, match=reason) as caught:
        decode(as_codec(codec).decode_request, payload, cluster="quotes", member="ab" * 16)
    error = caught.value
    assert (error.cluster, error.member, error.payload, error.topic) == ("quotes", "ab" * 16, payload, "")
    assert "abababab" in str(error)
    assert "do not tell" not in str(error), "what a payload holds does not belong in a log"
    assert "\n" not in str(error)


def test_a_long_reason_is_cut() -> None:
    class Wordy(iris.Codec[Any, Any]):
        """A codec that complains at length."""

        def decode_request(self, payload: bytes) -> Any:
            raise KeyError("x" * 10_000)

    with pytest.raises(iris.DecodeError) as caught:
        decode(Wordy(dict).decode_request, b"")
    assert len(caught.value.reason) == REASON_MAX + 3


def test_a_codec_may_speak_another_language() -> None:
    class Lines(iris.Codec[list[str], list[str]]):
        """Text, a line each."""

        def encode_request(self, value: list[str]) -> bytes:
            return bytearray("\n".join(value).encode())  # type: ignore[return-value] # as a node takes it

        def decode_request(self, payload: bytes) -> list[str]:
            return payload.decode("ascii").split("\n")

    codec = Lines(list[str])
    assert encode(codec.encode_request, ["a", "b"], topic="t") == b"a\nb"
    assert decode(codec.decode_request, b"a\nb") == ["a", "b"]
    with pytest.raises(iris.DecodeError, match="ascii"):
        decode(codec.decode_request, b"\xff", topic="t")
    with pytest.raises(iris.EncodeError, match="sequence item 0"):
        encode(codec.encode_request, [1], topic="t")


def test_values_are_encoded_up_to_the_first_that_cannot_be() -> None:
    payloads, error = encode_some(as_codec("json").encode_request, [1, 2, object(), 3], "t")
    assert payloads == [b"1", b"2"]
    assert error is not None
    assert error.topic == "t"
    assert encode_some(as_codec("json").encode_request, iter([1]), "t") == ([b"1"], None)
