"""Payloads that only the caller and the members can read: :class:`Seal` for requests and surveys, :class:`Sealed` for handlers.

Nodes on the path, such as gateways, cannot decrypt the bytes (docs/design.md 15). Payload, reply and the text of a failure are
sealed; headers, names, lengths and the fact of a failure are not.
"""

from __future__ import annotations

import base64
import threading
import time
from asyncio import CancelledError
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

from iris_py.api.handler import Handler, check_answers, check_handler
from iris_py.api.handler_exceptions import is_interrupt
from iris_py.api.hooks import NOTHING, HandlerHook, HandlerHooks, wrap
from iris_py.errors import ConfigurationError, RemoteError, SealError
from iris_py.files.secrets import parse_secrets
from iris_py.patterns.messages import execution_of, with_payload
from iris_py.wire import packets
from iris_security import AuthenticationError, Secret
from iris_security.keyring import GENERATIONS_MAX, encode_name
from iris_security.sealed_requests import SALT_BYTES, SaltTable, SealedExchange, open_request, seal_request
from iris_security.text_form import holds_secret

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from iris_py.api.handler import RequestFunction
    from iris_py.patterns.messages import Message, Request

__all__ = ["Seal", "SealLike", "Sealed", "SealedCall", "as_seal", "seal_parts"]

SecretLike: TypeAlias = "Secret | str | bytes"

#: The longest text of a failure that is sealed, in bytes of UTF-8; longer texts are cut. Together with the name of its class,
#: sealed and encoded in Base64, the text must fit into ``FAILURE_TEXT_MAX`` characters, or the caller could not decrypt it.
TEXT_BYTES_MAX: Final = 2560
#: The longest name of a failure's class that is sealed, in bytes of UTF-8; longer names are cut.
TYPE_BYTES_MAX: Final = 256
#: The methods of a handler whose patterns are not sealed in this version; a Sealed handler must not override them.
_OPEN_HOOKS: Final = {"on_broadcast": "broadcasts", "on_tunnel": "tunnels"}


class SealedFailure(Exception):
    """A failure of a handler, sealed for the caller; class, text and cause appear only in encrypted form."""


class Seal:
    """Seals requests and surveys for members with a :class:`Sealed` handler, with a secret and a name known to both sides.

    Args:
        secret: The secret, as printed by ``iris keys new``; the first of several generations encrypts. Not the network secret,
            which every node holds, including every gateway.
        name: The name of the members' :class:`Sealed`. By default the requested cluster without the cloud: ``vault`` for
            ``vault@eu``. Both sides must pass a name if the cloud exports the cluster under a different name.

    Raises:
        ConfigurationError: The secret or the name is not valid.
    """

    __slots__ = ("_name", "_secrets")

    def __init__(self, secret: SecretLike | Sequence[SecretLike], *, name: str | None = None) -> None:
        self._secrets = _parse(secret, "the secret of a seal")
        self._name = _check_name(name)

    def __repr__(self) -> str:
        return f"<Seal under {self._name or 'the name of the cluster'}>"

    @property
    def _secret(self) -> Secret:
        """The secret that encrypts: the first of the generations, all of which decrypt."""
        return self._secrets[0]

    def _label(self, cluster: str) -> str:
        return self._name or _name_of(cluster)


#: The argument ``seal=``: a seal, or a secret for a seal with the name of the cluster.
SealLike: TypeAlias = "Seal | SecretLike | Sequence[SecretLike]"


def as_seal(seal: SealLike) -> Seal:
    """Return the seal for a ``seal=`` argument.

    Raises:
        ConfigurationError: The argument is no secret.
    """
    return seal if isinstance(seal, Seal) else Seal(seal)


def seal_parts(seal: SealLike) -> tuple[str, str | None]:
    """Return the text of a seal's secret, and its name, to make the seal anew in another process.

    Raises:
        ConfigurationError: The argument is no secret.
    """
    made = as_seal(seal)
    return made._secret.text, made._name


class SealedCall:
    """A sealed request or survey, and the keys to the answers.

    Args:
        seal: The seal.
        cluster: The cluster, as named by the caller.
        payload: The payload in clear.
        key: The idempotency key, if any.
        entropy: Randomness for the salt.

    Attributes:
        payload: The sealed payload.

    Raises:
        ConfigurationError: The name of the cluster is not valid.
    """

    __slots__ = ("_cluster", "_exchange", "payload")

    payload: bytes

    def __init__(
        self, seal: Seal, cluster: str, payload: bytes, key: str | bytes | None, entropy: Callable[[int], bytes]
    ) -> None:
        self._cluster = cluster
        name = _check_name(seal._label(cluster)) or ""
        bound = key.encode(errors="surrogatepass") if isinstance(key, str) else key
        if not isinstance(bound, bytes):
            bound = None  # an invalid key is refused by the request itself
        self.payload, self._exchange = seal_request(
            seal._secret, name, payload, salt=entropy(SALT_BYTES), sealed_ms=_unix_ms(), key=bound
        )

    async def ask(self, asking: Awaitable[bytes]) -> bytes:
        """Await a sealed reply, and return it decrypted; decrypt the failure of the handler likewise.

        Raises:
            SealError: The reply cannot be decrypted.
            RemoteError: The handler failed.
        """
        try:
            reply = await asking
        except RemoteError as exc:
            failure = self.open_failure(exc.type, exc.text)
            if failure is None:
                raise
            raise RemoteError(exc.cluster, exc.member, *failure, node_name=exc.node_name) from None
        return self.open_reply(reply)

    def open_reply(self, reply: bytes) -> bytes:
        """Return a decrypted reply.

        Raises:
            SealError: The reply cannot be decrypted.
        """
        try:
            return self._exchange.open_reply(reply)
        except AuthenticationError:
            raise SealError(self._cluster) from None

    def open_failure(self, type_: str, text: str) -> tuple[str, str] | None:
        """Return the decrypted class and text of a handler's failure, or None if the failure was sent in clear.

        Raises:
            SealError: The failure cannot be decrypted.
        """
        if type_ != SealedFailure.__qualname__:
            return None
        try:
            return packets.decode_failure(self._exchange.open_failure(base64.b64decode(text, validate=True)))
        except (AuthenticationError, ValueError):
            raise SealError(self._cluster) from None


class Sealed:
    """A handler for sealed requests only: pass it to :meth:`iris_py.Node.join` in place of the handler itself.

    The inner handler gets decrypted requests and surveys, with ``request.is_sealed``. Its replies and exceptions are sealed for
    the caller. Callers pass the same secret as ``seal=``. Broadcasts and tunnels are not sealed in this version: a handler with
    methods for them is refused, and broadcasts are dropped and logged.

    Each joined handler accepts a request once, if it was sealed at most five minutes ago by the clock of this machine. A member
    does not know the requests accepted by other members.

    Args:
        handler: A :class:`Handler`, or a function, as for :meth:`iris_py.Node.join`.
        secret: The secret, as printed by ``iris keys new``. Each of several generations decrypts. To rotate the secret, give
            both generations to the members, then the new one to the callers, then only the new one to the members. Not the
            network secret.
        name: The name of the callers' :class:`Seal`; by default that of the cluster. Clusters with the same secret need
            different names: otherwise a gateway could deliver a request of one to the other.

    Raises:
        ConfigurationError: The handler is not valid or serves broadcasts or tunnels, or the secret or the name is not valid.
    """

    __slots__ = ("_handler", "_name", "_secrets")

    _handler: Any  # also of the synchronous API, which adapts it

    def __init__(
        self,
        handler: Handler | RequestFunction | object,
        secret: SecretLike | Sequence[SecretLike],
        *,
        name: str | None = None,
    ) -> None:
        check_handler(handler)
        if isinstance(handler, Sealed) or not (callable(handler) or hasattr(type(handler), "on_request")):
            raise ConfigurationError(f"Sealed() takes a Handler or a function, not {type(handler).__qualname__}.")
        for hook, what in _OPEN_HOOKS.items():
            if _is_overridden(handler, hook):
                raise ConfigurationError(
                    f"{type(handler).__qualname__}.{hook}() cannot be sealed: {what} are not sealed in this version. Remove "
                    f"the method, or join a second cluster with a separate handler for {what}."
                )
        self._handler = handler
        self._secrets = _parse(secret, "the secret of a sealed handler")
        self._name = _check_name(name)

    def __repr__(self) -> str:
        return f"<Sealed {self._handler!r} under {self._name or 'the name of the cluster'}>"

    def _over(self, handler: Handler | RequestFunction) -> Sealed:
        """Return a copy with another handler, which wraps the present one."""
        other = object.__new__(Sealed)
        other._handler, other._secrets, other._name = handler, self._secrets, self._name
        return other

    def _seal_hooks(self, hooks: HandlerHooks, cluster: str, entropy: Callable[[int], bytes]) -> HandlerHooks:
        """Return hooks for a cluster that decrypt requests, call the handler's hooks, and encrypt replies."""
        door = _Door(cluster, self._name or cluster, self._secrets, entropy)
        return HandlerHooks(
            on_request=wrap(hooks.on_request, door.open, door.seal, door.fail),
            on_survey=wrap(hooks.on_survey, door.open, door.seal, door.fail),
            on_requests=hooks.on_requests and wrap(hooks.on_requests, door.open_all, door.seal_all, door.fail_all),
            on_broadcast=hooks.on_broadcast and HandlerHook(_refuse_broadcast, True, None),
        )


def unsealed(handler: object) -> Any:  # noqa: ANN401 - any handler
    """Return the inner handler of a :class:`Sealed`; return any other handler unchanged."""
    return handler._handler if isinstance(handler, Sealed) else handler


def sealed_over(sealed: Sealed, handler: Handler[Any, Any] | RequestFunction) -> Sealed:
    """Return a copy of a :class:`Sealed` with another handler, which wraps its handler."""
    return sealed._over(handler)


def sealed_hooks(handler: object, hooks: HandlerHooks, cluster: str, entropy: Callable[[int], bytes]) -> HandlerHooks:
    """Return the hooks of a handler for a cluster: sealed for a :class:`Sealed`, otherwise unchanged."""
    return handler._seal_hooks(hooks, cluster, entropy) if isinstance(handler, Sealed) else hooks


def sealed_with(handler: Handler[Any, Any] | RequestFunction, seal: Seal) -> Sealed:
    """Return a handler that serves the requests of a seal."""
    return Sealed(handler, seal._secrets, name=seal._name)


class _Door:
    """Decrypts the requests to a :class:`Sealed` handler, refuses duplicates, and encrypts the answers. Thread-safe."""

    def __init__(self, cluster: str, name: str, secrets: Sequence[Secret], entropy: Callable[[int], bytes]) -> None:
        self._cluster = cluster
        self._name = name
        self._secrets = secrets
        self._entropy = entropy
        self._salts = SaltTable()
        self._lock = threading.Lock()

    def open(self, request: Request) -> tuple[Request, SealedExchange]:
        """Return the decrypted request, and the exchange (the keys) that encrypts its answer.

        Raises:
            SealError: The request is not sealed for this handler, too old, or a duplicate; the caller is not told which.
        """
        try:
            opened = open_request(self._secrets, self._name, request.payload)
            with self._lock:
                self._salts.take(opened, execution_of(request).identity, _unix_ms())
        except AuthenticationError as exc:
            raise SealError(self._cluster, is_refused=True) from exc
        return with_payload(request, opened.payload, is_sealed=True), opened.exchange

    def seal(self, reply: object, exchange: SealedExchange) -> bytes:
        """Return the sealed reply; return None or a reply of a wrong type unchanged: the server of the handler checks it."""
        if isinstance(reply, bytes | bytearray | memoryview):
            return exchange.seal_reply(reply, self._entropy(SALT_BYTES))
        return reply  # type: ignore[return-value] # None of a survey, or a mistake

    def fail(self, error: BaseException, exchange: SealedExchange) -> NoReturn:
        """Raise the exception of a handler, sealed for the caller."""
        raise self.seal_failure(error, exchange)

    def open_all(self, requests: Sequence[Request]) -> tuple[Any, list[tuple[Request, SealedExchange] | SealError]]:
        """Return the decrypted requests; and for :meth:`seal_all` the result of each request, or its error."""
        opened: list[tuple[Request, SealedExchange] | SealError] = []
        for request in requests:
            try:
                opened.append(self.open(request))
            except SealError as exc:
                opened.append(exc)
        return [each[0] for each in opened if isinstance(each, tuple)] or NOTHING, opened

    def seal_all(
        self, answers: Sequence[object], opened: Sequence[tuple[Request, SealedExchange] | SealError]
    ) -> list[bytes | Exception]:
        """Return the sealed answer to each of several requests; the error of a request that could not be decrypted."""
        given = iter(check_answers(answers, sum(isinstance(each, tuple) for each in opened)))
        return [each if isinstance(each, SealError) else self._seal_answer(next(given), each[1]) for each in opened]

    def fail_all(
        self, error: BaseException, opened: Sequence[tuple[Request, SealedExchange] | SealError]
    ) -> list[bytes | Exception]:
        """Return an exception of the handler, sealed for the caller of each request; or the request's own error."""
        return [each if isinstance(each, SealError) else self.seal_failure(error, each[1]) for each in opened]

    def _seal_answer(self, answer: object, exchange: SealedExchange) -> bytes | Exception:
        return self.seal_failure(answer, exchange) if isinstance(answer, BaseException) else self.seal(answer, exchange)

    def seal_failure(self, error: BaseException, exchange: SealedExchange) -> SealedFailure:
        """Return the handler's exception sealed for the caller: class and text are encrypted, and the traceback stays.

        Raises:
            BaseException: The given exception, if it is a cancellation or ends the process.
        """
        if isinstance(error, CancelledError | GeneratorExit) or is_interrupt(error):
            raise error
        type_, text = packets.decode_failure(packets.encode_failure(error))
        said = packets.encode_failure_of(_shorten(type_, TYPE_BYTES_MAX), _shorten(text, TEXT_BYTES_MAX))
        sealed = exchange.seal_failure(said, self._entropy(SALT_BYTES))
        failure = SealedFailure(base64.b64encode(sealed).decode("ascii"))
        failure.add_note(f"It was a {type(error).__qualname__}. Only the caller can read its text.")
        return failure.with_traceback(error.__traceback__)


async def _refuse_broadcast(_message: Message) -> None:
    raise NotImplementedError("a broadcast was dropped: broadcasts are not sealed, so a Sealed handler does not accept them")


def _parse(secret: object, origin: str) -> tuple[Secret, ...]:
    secrets = parse_secrets(secret, origin)
    if len(secrets) > GENERATIONS_MAX:
        raise ConfigurationError(f"{origin} has {len(secrets)} generations, and {GENERATIONS_MAX} are allowed.")
    return secrets


def _check_name(name: str | None) -> str | None:
    if name is not None:
        try:
            encode_name(name)
        except ValueError as exc:
            shown = "" if isinstance(name, str) and holds_secret(name) else f" {name!r}"
            raise ConfigurationError(f"the name{shown} of a seal is not valid: {exc}.") from None
    return name


def _name_of(cluster: str) -> str:
    """Return the name of a cluster without that of its cloud."""
    return cluster.rpartition("@")[0] or cluster if isinstance(cluster, str) else cluster


def _is_overridden(handler: object, hook: str) -> bool:
    """Tell whether the program has overridden a method."""
    owner = next((kind for kind in type(handler).__mro__ if hook in vars(kind)), None)
    return owner is not None and not owner.__module__.startswith("iris_py.")


def _shorten(text: str, bytes_max: int) -> str:
    return text.encode()[:bytes_max].decode(errors="ignore")


def _unix_ms() -> int:
    return time.time_ns() // 1_000_000
