"""Calls of the functions of a service, whose annotations define the arguments and the codecs.

Theory of operation. A parameter with the type of a node gets the node, and one with the type of a start-up hook's result gets
that resource. The remaining parameter is the *input*: the request of a handler, or the message of a consumer. An input of type
``Request`` or ``Message`` is the whole request or message, any other input its payload. The payload is bytes if the annotation
is ``bytes`` or missing. Any other type defines the codec, together with the type of the result. All signatures are read before
the process joins a cluster.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Awaitable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn, TypeVar, Union, get_args, get_origin

from iris_py.api.codec import Codec, as_codec
from iris_py.api.handler import Handler, is_async_function
from iris_py.api.node import Node
from iris_py.errors import ConfigurationError
from iris_py.patterns.messages import Message, Request
from iris_py.service.signature import NOTHING, Parameter, Signature, Unresolved, read_signature, show_type
from iris_py.sync.handlers import Handler as SyncHandler
from iris_py.sync.node import Node as SyncNode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from iris_py.api.codec import AnyCodec, CodecFormat

__all__ = [
    "FunctionCall",
    "class_codec",
    "plan_construction",
    "plan_consumer",
    "plan_handler",
    "plan_hook",
    "refusal",
    "unresolved",
]

#: The payload of a message as bytes, without codec.
BYTES: Final = bytes
#: Annotations that do not tell the type of a payload: the payload is then bytes.
_UNSAID: Final = (NOTHING, Any, object)


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A function of a service, with the arguments to pass and the codec of its payloads.

    Attributes:
        function: The function, or the class of a handler.
        name: The function with its module, for errors.
        is_async: Whether the function is a coroutine function.
        input: The parameter for the request or message; None for a function without it.
        is_positional: Whether the input is passed by position.
        is_whole: Whether the input is a ``Request`` or ``Message``, and not its payload.
        given: The parameters for the node and for resources, with their types.
        codec: The codec of payloads; None for bytes.
        returns: The annotation of the result.
    """

    function: Callable[..., Any]
    name: str
    is_async: bool
    input: str | None
    is_positional: bool
    is_whole: bool
    given: tuple[tuple[str, Any], ...]
    codec: Codec[Any, Any] | None
    returns: Any

    def bind(self, values: Mapping[Any, Any]) -> Callable[..., Any]:
        """Return the function with node and resources filled in: it takes only the input, or nothing if there is no input.

        Args:
            values: The node and the resources, by their types.
        """
        function, name, is_whole = self.function, self.input, self.is_whole
        keywords = {parameter: values[kind] for parameter, kind in self.given}
        if name is None:
            return lambda: function(**keywords)
        if is_whole and self.is_positional and not keywords:
            return function

        def call(message: Request[Any] | Message[Any]) -> Any:  # noqa: ANN401 - as the function
            value = message if is_whole else message.payload
            return function(value, **keywords) if self.is_positional else function(**keywords, **{name: value})

        async def call_async(message: Request[Any] | Message[Any]) -> Any:  # noqa: ANN401 - likewise
            return await call(message)

        return call_async if self.is_async else call


def plan_handler(
    function: Callable[..., Any],
    resources: Collection[Any],
    *,
    codec: AnyCodec | None = None,
    format: CodecFormat = "json",  # noqa: A002 - the public name
    inline: bool = False,
) -> FunctionCall:
    """Read the signature of a handler function; return how to call the function.

    Args:
        function: The function.
        resources: The types returned by start-up hooks.
        codec: The codec of requests and replies; None for that of the annotations.
        format: The format of codecs made from annotations.
        inline: Whether a plain function runs in the event loop.

    Raises:
        ConfigurationError: The function cannot be called; the text names the parameter.
    """
    signature, is_async = read_signature(function), is_async_function(function)
    given, source = _split(signature, resources, in_loop=is_async or inline, what="a handler")
    if source is None:
        raise refusal(signature.name, f"it has no parameter for the request. {_ADVICE['a handler']}")
    payload, is_whole = _input_type(signature, source, Request, Message)
    if codec is None:
        reply = _reply_type(signature, payload, is_async=is_async)
        made = _codec(signature, source, payload, reply, format)
    else:
        made = as_codec(codec)
    return _call(function, signature, is_async, source, is_whole, given, made)


def plan_consumer(
    function: Callable[..., Any],
    resources: Collection[Any],
    *,
    codec: AnyCodec | None = None,
    format: CodecFormat = "json",  # noqa: A002 - the public name
) -> FunctionCall:
    """Read the signature of a consumer of topics, as :func:`plan_handler` does; return how to call the consumer."""
    signature, is_async = read_signature(function), is_async_function(function)
    given, source = _split(signature, resources, in_loop=is_async, what="a consumer")
    if source is None:
        raise refusal(signature.name, f"it has no parameter for the message. {_ADVICE['a consumer']}")
    payload, is_whole = _input_type(signature, source, Message, Request)
    made = _codec(signature, source, payload, BYTES, format) if codec is None else as_codec(codec)
    return _call(function, signature, is_async, source, is_whole, given, made)


def plan_hook(function: Callable[..., Any], resources: Collection[Any], *, what: str) -> FunctionCall:
    """Read the signature of a start-up or shut-down hook; return how to call the hook.

    Args:
        function: The function; it may be a generator.
        resources: The types returned by the hooks before it.
        what: The kind of the hook, for errors: "a start-up hook".

    Raises:
        ConfigurationError: The hook cannot be called; the text names the parameter.
    """
    signature = read_signature(function)
    in_loop = is_async_function(function) or inspect.isasyncgenfunction(function)
    given, source = _split(signature, resources, in_loop=in_loop, what=what)
    if source is not None and source.is_required:
        raise _unknown(signature, source, what)
    return _call(function, signature, in_loop, None, False, given, None)


def plan_construction(kind: type[Handler[Any, Any] | SyncHandler[Any, Any]], resources: Collection[Any]) -> FunctionCall:
    """Read the signature of a handler class, as :func:`plan_hook` does; return the call that makes an object."""
    what = "the class of a handler"
    signature = read_signature(kind)
    given, source = _split(signature, resources, in_loop=issubclass(kind, Handler), what=what)
    if source is not None and source.is_required:
        raise _unknown(signature, source, what)
    return _call(kind, signature, False, None, False, given, None)


def class_codec(kind: type, format_: CodecFormat) -> Codec[Any, Any] | None:
    """Return the codec of a handler class from the types of its base, as in ``Handler[Find, User]``; None for bytes.

    Raises:
        ConfigurationError: No codec can be made of these types.
    """
    bases = [each for owner in kind.__mro__ for each in vars(owner).get("__orig_bases__", ())]
    types_ = next((get_args(each) for each in bases if get_origin(each) in (Handler, SyncHandler)), ())
    if not types_ or any(isinstance(each, TypeVar) for each in types_):
        return None
    request, reply = (BYTES if each in _UNSAID or _is_bytes_like(each) else each for each in types_)
    if request is reply is BYTES:
        return None
    try:
        return _AnnotatedCodec(request, reply, format_)
    except ConfigurationError as exc:
        raise refusal(f"{kind.__module__}.{kind.__qualname__}", str(exc)) from None


def refusal(name: str, why: str) -> ConfigurationError:
    """Return the error for a function that the service cannot call."""
    return ConfigurationError(f"{name} cannot be served: {why}")


# -- parameters

_ADVICE: Final = {
    "a handler": (
        "A handler has one parameter for the request: an iris_py.Request, bytes, or a type for which a codec can be made. "
        "Other parameters get the node (iris_py.Node) or a resource (a type that a start-up hook returns), or have defaults."
    ),
    "a consumer": (
        "A consumer has one parameter for the message: an iris_py.Message, bytes, or a type for which a codec can be made. "
        "Other parameters get the node (iris_py.Node) or a resource (a type that a start-up hook returns), or have defaults."
    ),
    "a start-up hook": (
        "A start-up hook can take the node (iris_py.Node) and resources (types that hooks before it return); other "
        "parameters have defaults."
    ),
    "a shut-down hook": (
        "A shut-down hook can take the node (iris_py.Node) and resources (types that start-up hooks before it return); other "
        "parameters have defaults."
    ),
    "the class of a handler": (
        "The class of a handler can take the node (iris_py.Node) and resources (types that start-up hooks return); other "
        "parameters have defaults."
    ),
}


def _split(
    signature: Signature, resources: Collection[Any], *, in_loop: bool, what: str
) -> tuple[tuple[tuple[str, Any], ...], Parameter | None]:
    """Split the parameters: return those for the node and the resources, and the one for the input or None."""
    given, rest = [], []
    for parameter in signature.parameters:
        kind = _kind_of(parameter.annotation, resources)
        if kind is None:
            rest.append(parameter)
            continue
        if parameter.is_positional_only:
            raise refusal(
                signature.name, f"its parameter {parameter.name!r} is positional-only. Allow it to be passed by name."
            )
        if kind in (Node, SyncNode) and (kind is Node) is not in_loop:
            raise _wrong_node(signature, parameter, in_loop=in_loop)
        given.append((parameter.name, kind))
    required = [each for each in rest if each.is_required]
    if len(required) > 1:
        raise _unknown(signature, _least_likely(required), what)
    if required or not rest:
        source = required[0] if required else None
    else:  # one with a default is the input only if a positional call reaches it
        source = rest[0] if rest[0] is signature.parameters[0] and not rest[0].is_keyword_only else None
    if source is None and not rest and signature.takes_any and not given:
        source = Parameter("request", NOTHING, True, True, False)
    return tuple(given), source


def _kind_of(annotation: Any, resources: Collection[Any]) -> Any:  # noqa: ANN401 - annotations are of any type
    """Return the type of an annotation if it is a node or a known resource, also as an optional type; otherwise None."""
    if get_origin(annotation) is Annotated:
        annotation = annotation.__origin__
    known = (Node, SyncNode, *resources)
    if annotation in known:
        return known[known.index(annotation)]
    if get_origin(annotation) in (Union, types.UnionType):  # Node | None
        members = [each for each in get_args(annotation) if each is not types.NoneType]
        if len(members) == 1 and members[0] in known:
            return members[0]
    return None


def _least_likely(parameters: list[Parameter]) -> Parameter:
    """Return the parameter to report as unknown: one without a possible codec, or else the last."""
    for parameter in parameters:
        if get_origin(parameter.annotation) in (Request, Message) or parameter.annotation in (Request, Message, *_UNSAID):
            continue
        try:
            Codec(parameter.annotation)
        except ConfigurationError:
            return parameter
    return parameters[-1]


def _unknown(signature: Signature, parameter: Parameter, what: str) -> ConfigurationError:
    annotation = parameter.annotation
    if isinstance(annotation, Unresolved):
        return unresolved(signature.name, f"its parameter {parameter.name!r}", annotation)
    said = "has no annotation" if annotation is NOTHING else f"is annotated {show_type(annotation)}"
    return refusal(signature.name, f"its parameter {parameter.name!r} {said}, and no value for it is known. {_ADVICE[what]}")


def unresolved(name: str, where: str, annotation: Unresolved) -> ConfigurationError:
    """Return the error for an annotation that cannot be evaluated at run time."""
    return refusal(
        name,
        f"{where} is annotated {annotation.text}, which cannot be read when the program runs: {annotation.reason}. Define or "
        "import it at the top of the module, and not under `if TYPE_CHECKING:`.",
    )


def _wrong_node(signature: Signature, parameter: Parameter, *, in_loop: bool) -> ConfigurationError:
    if in_loop:
        why = "is an iris_py.sync.Node, whose methods would stop the event loop. Annotate it iris_py.Node"
    else:
        why = (
            "is an iris_py.Node, which cannot be used in the thread that a plain function runs in. Make the function async, or "
            "annotate iris_py.sync.Node"
        )
    return refusal(signature.name, f"its parameter {parameter.name!r} {why}.")


# -- payloads


def _input_type(signature: Signature, source: Parameter, whole: type, other: type) -> tuple[Any, bool]:
    """Return the type of the payload, and whether the input is the whole message.

    Args:
        signature: The signature.
        source: The parameter for the input.
        whole: The class of a whole input: ``Request`` for a handler, ``Message`` for a consumer.
        other: The class for the other kind of function, which is refused.
    """
    annotation = source.annotation
    if isinstance(annotation, Unresolved):
        raise unresolved(signature.name, f"its parameter {source.name!r}", annotation)
    if annotation is other or get_origin(annotation) is other:
        raise refusal(
            signature.name,
            f"its parameter {source.name!r} is an iris_py.{other.__name__}. Handlers of clusters take an iris_py.Request, "
            "consumers of topics an iris_py.Message.",
        )
    if annotation in _UNSAID or annotation is whole:
        return BYTES, True
    if get_origin(annotation) is whole:
        (payload,) = get_args(annotation)
        is_unsaid = payload in _UNSAID or payload is BYTES or isinstance(payload, TypeVar)
        return (BYTES if is_unsaid else payload), True
    if annotation is not BYTES and _is_bytes_like(annotation):
        raise refusal(
            signature.name, f"its parameter {source.name!r} is annotated {show_type(annotation)}. Payloads arrive as bytes."
        )
    return annotation, False


def _reply_type(signature: Signature, payload: Any, *, is_async: bool) -> Any:  # noqa: ANN401 - annotations are of any type
    """Return the type of the reply: ``BYTES``, or a type for a codec."""
    annotation = signature.returns
    if not is_async and get_origin(annotation) in (Awaitable, Coroutine):
        annotation = get_args(annotation)[-1]
    if isinstance(annotation, Unresolved):
        raise unresolved(signature.name, "its result", annotation)
    if _is_bytes_like(annotation) or annotation is NoReturn:
        return BYTES
    if annotation in _UNSAID and payload is BYTES:
        return BYTES
    if annotation is NOTHING:
        raise refusal(
            signature.name,
            "its return type is not annotated. Annotate it: `-> bytes` for bytes, or any type for which a codec can be made.",
        )
    return Any if annotation in _UNSAID else annotation


def _codec(
    signature: Signature,
    source: Parameter,
    request: Any,  # noqa: ANN401 - annotations are of any type
    reply: Any,  # noqa: ANN401 - likewise
    format_: CodecFormat,
) -> Codec[Any, Any] | None:
    """Return the codec for the types of requests and replies; None if both are bytes."""
    if request is reply is BYTES:
        return None
    places = ((request, f"its parameter {source.name!r}"), (reply, "its result"))
    for annotation, place in places:
        try:
            Codec(Any if annotation is BYTES else annotation, format=format_)
        except ConfigurationError as exc:
            hint = " If it is a resource, let a start-up hook return it." if annotation is request else ""
            raise refusal(signature.name, f"{place} is annotated {show_type(annotation)}, and {exc}{hint}") from None
    return _AnnotatedCodec(request, reply, format_)


class _AnnotatedCodec(Codec[Any, Any]):
    """A codec of annotations that passes bytes through without encoding."""

    def __init__(self, request: Any, reply: Any, format_: CodecFormat) -> None:  # noqa: ANN401 - annotations
        super().__init__(*(Any if each is BYTES else each for each in (request, reply)), format=format_)
        self._has_bytes = request is BYTES, reply is BYTES

    def encode_request(self, value: Any) -> bytes:  # noqa: ANN401 - of any type
        return value if self._has_bytes[0] else super().encode_request(value)

    def decode_request(self, payload: bytes) -> Any:  # noqa: ANN401 - likewise
        return payload if self._has_bytes[0] else super().decode_request(payload)

    def encode_reply(self, value: Any) -> bytes:  # noqa: ANN401 - likewise
        return value if self._has_bytes[1] else super().encode_reply(value)

    def decode_reply(self, payload: bytes) -> Any:  # noqa: ANN401 - likewise
        return payload if self._has_bytes[1] else super().decode_reply(payload)


def _is_bytes_like(annotation: Any) -> bool:  # noqa: ANN401 - annotations are of any type
    """Tell whether all values of a type are bytes or None, which is the answer of a member that declines a survey."""
    if get_origin(annotation) in (Union, types.UnionType):
        members = [each for each in get_args(annotation) if each is not types.NoneType]
        return bool(members) and all(map(_is_bytes_like, members))
    return annotation in (bytes, bytearray, memoryview) or get_origin(annotation) is memoryview


def _call(
    function: Callable[..., Any],
    signature: Signature,
    is_async: bool,
    source: Parameter | None,
    is_whole: bool,
    given: tuple[tuple[str, Any], ...],
    codec: Codec[Any, Any] | None,
) -> FunctionCall:
    is_first = source is not None and not source.is_keyword_only
    if is_first and signature.parameters and source in signature.parameters:
        is_first = signature.parameters.index(source) == 0
        if not is_first and source.is_positional_only:
            raise refusal(signature.name, f"its parameter {source.name!r} is positional-only. Make it the first parameter.")
    return FunctionCall(
        function,
        signature.name,
        is_async,
        None if source is None else source.name,
        is_first,
        is_whole,
        given,
        codec,
        signature.returns,
    )
