"""Typed payloads: a codec converts values to bytes, and bytes to values, at the edge of the API (docs/codecs.md).

All layers below handle bytes only. A call without codec pays one comparison.
"""

from __future__ import annotations

import sys
from dataclasses import is_dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Protocol, TypeAlias, TypeVar, cast, get_args, overload

import msgspec

from iris_py.errors import ConfigurationError, DecodeError, EncodeError
from iris_py.payloads import Answer, Payload, Question
from iris_py.wire.packets import as_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from iris_py.patterns.messages import Message
    from iris_py.payloads import TypeForm

__all__ = [
    "UNDECODABLE",
    "AnyCodec",
    "CallerCodec",
    "Codec",
    "CodecFormat",
    "as_codec",
    "decode",
    "decode_message",
    "encode",
    "encode_some",
]

#: The format of encoded values.
CodecFormat: TypeAlias = Literal["json", "msgpack"]
FORMATS: Final = get_args(CodecFormat)
#: Cached codecs of types given as ``codec=``. Too small: a program that alternates between more types makes each codec anew,
#: which takes some 20 us; too large: types that programs make at run time stay in memory.
CODECS_MAX: Final = 256
#: The drop reason of messages that the codec cannot decode, in the counts of the node and of a subscription.
UNDECODABLE: Final = "undecodable"
#: The default of ``reply=``: replies have the type of requests. None cannot stand for this: None is a valid reply type.
_AS_REQUEST: Final = object()
#: The longest description of a mismatch between a payload and its type, in characters: enough for a dozen fields of a model.
REASON_MAX: Final = 1000

_Same = TypeVar("_Same")
_Asked = TypeVar("_Asked", contravariant=True)
_Replied = TypeVar("_Replied", covariant=True)


class Codec(Generic[Question, Answer]):
    """The types of requests and replies of a cluster, or of the messages of a topic, and their encoding.

    Both sides of a cluster or topic pass the same codec as ``codec=``. A type alone stands for ``Codec(type)``, the name of a
    format for values without types. For another format, subclass and override the four methods; their exceptions become
    :exc:`EncodeError` and :exc:`DecodeError`.

    Args:
        request: The type of requests, surveys, broadcasts and publications. Any type of :mod:`msgspec`: structs, dataclasses,
            typed dictionaries, plain types, lists and unions; also pydantic models, if pydantic is installed.
        reply: The type of replies; by default the type of requests.
        format: ``"json"`` or ``"msgpack"``.

    Attributes:
        format: The format.

    Raises:
        ConfigurationError: A type or the format is not valid.
    """

    format: CodecFormat

    @overload
    def __init__(self: Codec[_Same, _Same], request: TypeForm[_Same], *, format: CodecFormat = "json") -> None: ...
    @overload
    def __init__(self, request: TypeForm[Question], reply: TypeForm[Answer], *, format: CodecFormat = "json") -> None: ...
    def __init__(self, request: object, reply: object = _AS_REQUEST, *, format: CodecFormat = "json") -> None:  # noqa: A002 - the public name
        if format not in FORMATS:
            raise ConfigurationError(f"format={format!r} is unknown. Choose one of {', '.join(FORMATS)}.")
        self.format = format
        self._request = _Coder(request, format)
        self._reply = self._request if reply is _AS_REQUEST else _Coder(reply, format)

    def __repr__(self) -> str:
        types = self._request.name if self._reply is self._request else f"{self._request.name} -> {self._reply.name}"
        return f"<Codec {types} as {self.format}>"

    def encode_request(self, value: Question) -> bytes:
        """Return the bytes of a request, a broadcast or a publication.

        Raises:
            EncodeError: The value does not fit the format or the type.
        """
        return self._request.encode(value)

    def decode_request(self, payload: bytes) -> Question:
        """Return the request, broadcast or publication encoded in bytes.

        Raises:
            DecodeError: The bytes do not fit the format or the type.
        """
        return cast("Question", self._request.decode(payload))

    def encode_reply(self, value: Answer) -> bytes:
        """Return the bytes of a reply.

        Raises:
            EncodeError: The value does not fit the format or the type.
        """
        return self._reply.encode(value)

    def decode_reply(self, payload: bytes) -> Answer:
        """Return the reply encoded in bytes.

        Raises:
            DecodeError: The bytes do not fit the format or the type.
        """
        return cast("Answer", self._reply.decode(payload))


class CallerCodec(Protocol[_Asked, _Replied]):
    """The type of a :class:`Codec` as callers use it; only for annotations.

    It is contravariant in requests and covariant in replies, while ``Codec`` is invariant in both. In ``print(await
    node.request(...))`` mypy expects a reply of type ``object`` and would refuse every ``Codec``.
    """

    format: CodecFormat

    def encode_request(self, value: _Asked) -> bytes: ...
    def decode_reply(self, payload: bytes) -> _Replied: ...


#: The argument ``codec=``: a codec, a type for the codec of that type, or the name of a format.
AnyCodec: TypeAlias = "CallerCodec[Any, Any] | TypeForm[Any] | CodecFormat"


class _Coder:
    """Encodes and decodes the values of one type in one format."""

    __slots__ = ("_decode", "_encode", "_model", "name")

    def __init__(self, type_: Any, format_: CodecFormat) -> None:  # noqa: ANN401 - any argument of a program
        self.name: str = getattr(type_, "__qualname__", "") if isinstance(type_, type) else str(type_)
        if isinstance(type_, type) and not (_is_pydantic(type_) or msgspec.inspect.is_struct_type(type_)):
            _refuse_foreign(type_)
        language = msgspec.json if format_ == "json" else msgspec.msgpack
        try:
            self._decode: Callable[[bytes], object] = language.Decoder(type_, dec_hook=_decode_foreign).decode
        except Exception as exc:  # an invalid type may raise anything
            raise ConfigurationError(f"no codec can be made of {type_!r}: {_reason(exc)}.") from exc
        self._encode: Callable[[object], bytes] = language.Encoder(enc_hook=_encode_foreign).encode
        self._model = type_ if _is_model(type_) else None

    def encode(self, value: object) -> bytes:
        if self._model is not None and not isinstance(value, self._model):
            raise EncodeError(f"the value has the type {type(value).__qualname__}, not {self._model.__qualname__}")
        try:
            return self._encode(value)
        except Exception as exc:  # from methods of the value, too
            raise EncodeError(_reason(exc)) from exc

    def decode(self, payload: bytes) -> object:
        try:
            return self._decode(payload)
        except Exception as exc:  # from validators of the type, too
            raise DecodeError(_reason(exc), payload=payload) from exc


def as_codec(codec: object) -> Codec[Any, Any]:
    """Return the codec for a ``codec=`` argument.

    Raises:
        ConfigurationError: The argument is no codec, type or format.
    """
    if isinstance(codec, Codec):
        return codec
    try:
        return _codec_of(codec)
    except TypeError as exc:  # not hashable
        raise ConfigurationError(
            f"codec={codec!r} cannot be used: {exc}. Pass a type, an iris_py.Codec, or {_FORMATS}."
        ) from None


@lru_cache(CODECS_MAX)
def _codec_of(codec: Any) -> Codec[Any, Any]:  # noqa: ANN401 - any argument of a program
    if isinstance(codec, str):
        if codec not in FORMATS:
            raise ConfigurationError(
                f"codec={codec!r} is unknown. Choose one of {_FORMATS}, or pass a type or an iris_py.Codec."
            )
        return Codec(cast("type[Any]", Any), format=cast("CodecFormat", codec))
    return Codec(codec)


_FORMATS: Final = " or ".join(f'"{name}"' for name in FORMATS)


# -- with the names for errors


def encode(encode_: Callable[[Any], bytes], value: object, *, cluster: str = "", topic: str = "") -> bytes:
    """Encode a value for a cluster or a topic.

    Raises:
        EncodeError: The value cannot be encoded. Nothing was sent.
    """
    try:
        return as_bytes(encode_(value))
    except Exception as exc:
        raise EncodeError(_reason(exc), cluster=cluster, topic=topic) from exc


def encode_some(
    encode_: Callable[[Any], bytes], values: Iterable[object], topic: str
) -> tuple[list[bytes], EncodeError | None]:
    """Encode values up to the first that cannot be encoded; return the encoded values, and the error or None."""
    payloads: list[bytes] = []
    for value in values:
        try:
            payloads.append(encode(encode_, value, topic=topic))
        except EncodeError as exc:
            return payloads, exc
    return payloads, None


def decode(
    decode_: Callable[[bytes], Payload],
    payload: bytes,
    *,
    cluster: str = "",
    topic: str = "",
    member: str = "",
    is_refused: bool = False,
) -> Payload:
    """Decode a payload received from a node.

    Args:
        decode_: A method of the codec.
        payload: The received bytes.
        cluster: The cluster of the request or reply; empty for a publication.
        topic: The topic of the publication.
        member: The id (hex) of the sender; empty if unknown.
        is_refused: Whether the payload is a request: the caller then gets the error.

    Raises:
        DecodeError: The payload does not fit the codec.
    """
    try:
        return decode_(payload)
    except Exception as exc:
        raise DecodeError(
            _reason(exc), cluster=cluster, topic=topic, member=member, payload=payload, is_refused=is_refused
        ) from exc


def decode_message(codec: Codec[Any, Any], message: Message) -> Message[Any]:
    """Return a message with its decoded payload.

    Raises:
        DecodeError: The payload does not fit the codec.
    """
    value = decode(codec.decode_request, message.payload, cluster=message.cluster, topic=message.topic, member=message.source)
    return cast("Message[Any]", msgspec.structs.replace(message, payload=value))


# -- types that msgspec does not know


def _is_pydantic(type_: object) -> bool:
    """Tell whether a type is a pydantic model. A program with such a type has imported pydantic."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(type_, type) and issubclass(type_, pydantic.BaseModel)


def _is_model(type_: object) -> bool:
    """Tell whether a type accepts only its own instances as values. Any other type also accepts values convertible to it."""
    return isinstance(type_, type) and (issubclass(type_, msgspec.Struct) or is_dataclass(type_) or _is_pydantic(type_))


def _refuse_foreign(type_: type) -> None:
    """Refuse a class that msgspec cannot construct."""
    try:
        info = msgspec.inspect.type_info(type_)
    except Exception:
        return  # the decoder reports the mismatch
    if isinstance(info, msgspec.inspect.CustomType):
        raise ConfigurationError(
            f"no codec can be made of the class {type_.__qualname__}: make it a msgspec.Struct, a dataclass or a pydantic "
            "model, or override the methods of iris_py.Codec."
        )


def _encode_foreign(value: Any) -> object:  # noqa: ANN401 - of any type
    if _is_pydantic(type(value)):
        return value.model_dump(mode="json")
    raise TypeError(f"the type {type(value).__qualname__} cannot be encoded")


def _decode_foreign(type_: type[Any], value: object) -> object:
    if not _is_pydantic(type_):
        raise TypeError(f"the type {type_.__qualname__} cannot be decoded")
    try:
        return type_.model_validate_json(msgspec.json.encode(value))  # as JSON, where strict models accept dates as text
    except ValueError as exc:
        errors = getattr(exc, "errors", None)
        if errors is None:
            raise
        faults = errors(include_url=False, include_input=False, include_context=False)
        raise ValueError("; ".join(f"{'.'.join(map(str, each['loc'])) or 'it'}: {each['msg']}" for each in faults)) from None


def _reason(error: BaseException) -> str:
    """Return the text of a codec's error in one line, shortened if the error quotes long values."""
    text = error.reason if isinstance(error, EncodeError | DecodeError) else " ".join(str(error).split())
    text = (text or type(error).__qualname__).removesuffix(".")
    return text if len(text) <= REASON_MAX else text[:REASON_MAX] + "..."
