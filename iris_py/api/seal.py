"""Payloads that only the caller and the members read: :class:`Seal` for requests and surveys, :class:`Sealed` for handlers.

Whoever is between them, as the gateways of a federation are, hands on bytes that it cannot open (docs/design.md 15). What is
sealed is the payload, the reply, and the text of a failure; headers, names, lengths and the fact that something failed are not.
"""

from __future__ import annotations

import base64
import threading
import time
from asyncio import CancelledError
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

from iris_py.api.failures import is_interrupt
from iris_py.api.handler import Handler, check_answers, check_handler
from iris_py.api.hooks import NOTHING, HandlerHook, HandlerHooks, wrap
from iris_py.errors import ConfigurationError, RemoteError, SealError
from iris_py.files.secrets import parse_secrets
from iris_py.patterns.messages import Request
from iris_py.wire import packets
from iris_security import AuthenticationError, Secret
from iris_security.keyring import GENERATIONS_MAX, encode_name
from iris_security.sealed import SALT_BYTES, Exchange, SaltTable, open_request, seal_request
from iris_security.text_form import holds_secret

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from iris_py.api.handler import RequestFunction
    from iris_py.patterns.messages import Message

__all__ = ["Seal", "SealLike", "Sealed", "SealedCall", "as_seal", "seal_parts"]

SecretLike: TypeAlias = "Secret | str | bytes"

#: The longest text of a failure that travels sealed, in bytes of UTF-8; what is longer is cut. Sealed, with the name of its
#: class, and as text again it has to fit into ``FAILURE_TEXT_MAX`` characters, or it would not open.
TEXT_BYTES_MAX: Final = 2560
#: The same of the name of the class.
TYPE_BYTES_MAX: Final = 256
#: The patterns that are not sealed in this version.
_OPEN_HOOKS: Final = {"on_broadcast": "broadcasts", "on_tunnel": "tunnels"}


class SealedFailure(Exception):
    """A failure of a handler, sealed for the caller: its class, its text and its cause stand nowhere else in it."""


class Seal:
    """Seals requests and surveys for members that are :class:`Sealed`: a secret, and the name that both sides give.

    Args:
        secret: The secret, as ``iris keys new`` shows it; of several generations the first seals. Not that of the network,
            which every node holds, and so every gateway.
        name: The name that the members give in :class:`Sealed`. By default that of the cluster as it is asked for, without the
            cloud: of ``vault@eu`` it is ``vault``. Where the cloud exports the cluster under another name than it has there,
            both sides have to give one.

    Raises:
        ConfigurationError: It is no secret, or the name cannot be one.
    """

    __slots__ = ("_name", "_secrets")

    def __init__(self, secret: SecretLike | Sequence[SecretLike], *, name: str | None = None) -> None:
        self._secrets = _parse(secret, "the secret of a seal")
        self._name = _check_name(name)

    def __repr__(self) -> str:
        return f"<Seal under {self._name or 'the name of the cluster'}>"

    @property
    def _secret(self) -> Secret:
        """The secret that seals; each of them opens."""
        return self._secrets[0]

    def _label(self, cluster: str) -> str:
        return self._name or _name_of(cluster)


#: A seal, or the secret of one under the name of the cluster.
SealLike: TypeAlias = "Seal | SecretLike | Sequence[SecretLike]"


def as_seal(seal: SealLike) -> Seal:
    """Return the seal that was given as ``seal=``.

    Raises:
        ConfigurationError: It is no secret.
    """
    return seal if isinstance(seal, Seal) else Seal(seal)


def seal_parts(seal: SealLike) -> tuple[str, str | None]:
    """Return what a seal is made of, for a process that has to make it anew: the text of its secret, and its name.

    Raises:
        ConfigurationError: It is no secret.
    """
    made = as_seal(seal)
    return made._secret.text, made._name


class SealedCall:
    """One request that is sealed, or one survey, and what opens its answers.

    Args:
        seal: What seals it.
        cluster: Whom it is for, as the caller says it.
        payload: What is asked.
        key: The key of the request, if it has one.
        entropy: Randomness for its salt.

    Attributes:
        payload: What is sent.

    Raises:
        ConfigurationError: The name of the cluster cannot be one.
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
            bound = None  # what is no key, the request itself refuses
        self.payload, self._exchange = seal_request(
            seal._secret, name, payload, salt=entropy(SALT_BYTES), sealed_ms=_unix_ms(), key=bound
        )

    async def ask(self, request: Callable[[], Awaitable[bytes]]) -> bytes:
        """Make the request, and return its reply.

        Raises:
            SealError: The reply does not open.
            RemoteError: The handler failed.
        """
        try:
            reply = await request()
        except RemoteError as exc:
            failure = self.open_failure(exc.type, exc.text)
            if failure is None:
                raise
            raise RemoteError(exc.cluster, exc.member, *failure, node_name=exc.node_name) from None
        return self.open_reply(reply)

    def open_reply(self, reply: bytes) -> bytes:
        """Return a reply.

        Raises:
            SealError: It does not open.
        """
        try:
            return self._exchange.open_reply(reply)
        except AuthenticationError:
            raise SealError(self._cluster) from None

    def open_failure(self, type_: str, text: str) -> tuple[str, str] | None:
        """Return the class and the text of what a handler raised; None if they are not sealed, so what came says it all.

        Raises:
            SealError: They do not open.
        """
        if type_ != SealedFailure.__qualname__:
            return None
        try:
            return packets.decode_failure(self._exchange.open_failure(base64.b64decode(text, validate=True)))
        except (AuthenticationError, ValueError):
            raise SealError(self._cluster) from None


class Sealed:
    """A handler that takes what is sealed, and nothing else: for :meth:`iris_py.Node.join`, in place of the handler itself.

    It is given requests and surveys as they were before they were sealed, with ``request.is_sealed``. What it returns or raises
    is sealed for the caller. Callers pass the same secret as ``seal=``. Broadcasts and tunnels are not sealed in this version:
    a handler with methods for them is refused, and broadcasts that come are dropped, and logged.

    Each handler that joins takes each request once, if it was sealed at most five minutes ago by the clock of this machine. A
    member that was not asked before, as one that has just started, knows nothing of what others have taken.

    Args:
        handler: A :class:`Handler`, or a function, as for :meth:`iris_py.Node.join`.
        secret: The secret, as ``iris keys new`` shows it. Of several generations each opens: to exchange it, give both to the
            members, then the new one to the callers, then that one alone to the members. Not that of the network.
        name: The name that callers give in :class:`Seal`; by default that of the cluster. Clusters with one secret have to have
            different names, for else a gateway could give one what was meant for the other.

    Raises:
        ConfigurationError: The handler is none or serves broadcasts or tunnels, it is no secret, or the name cannot be one.
    """

    __slots__ = ("_handler", "_name", "_secrets")

    _handler: Any  # also one of the synchronous API, which that adapts

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
                    f"{type(handler).__qualname__}.{hook}() cannot be sealed: {what} are not sealed in this version. "
                    f"Take it out, or join a second cluster with a handler of its own for {what}."
                )
        self._handler = handler
        self._secrets = _parse(secret, "the secret of a sealed handler")
        self._name = _check_name(name)

    def __repr__(self) -> str:
        return f"<Sealed {self._handler!r} under {self._name or 'the name of the cluster'}>"

    def _over(self, handler: Handler | RequestFunction) -> Sealed:
        """Return the same over another handler, which calls this one."""
        other = object.__new__(Sealed)
        other._handler, other._secrets, other._name = handler, self._secrets, self._name
        return other

    def _seal_hooks(self, hooks: HandlerHooks, cluster: str, entropy: Callable[[int], bytes]) -> HandlerHooks:
        """Return the hooks that join a cluster: they open, call those of the handler, and seal."""
        door = _Door(cluster, self._name or cluster, self._secrets, entropy)
        return HandlerHooks(
            on_request=wrap(hooks.on_request, door.open, door.seal, door.fail),
            on_survey=wrap(hooks.on_survey, door.open, door.seal, door.fail),
            on_requests=hooks.on_requests and wrap(hooks.on_requests, door.open_all, door.seal_all, door.fail_all),
            on_broadcast=hooks.on_broadcast and HandlerHook(_refuse_broadcast, True, None),
        )


class _Door:
    """Opens the requests to one handler, each once, and seals its answers. Threads may share it."""

    def __init__(self, cluster: str, name: str, secrets: Sequence[Secret], entropy: Callable[[int], bytes]) -> None:
        self._cluster = cluster
        self._name = name
        self._secrets = secrets
        self._entropy = entropy
        self._salts = SaltTable()
        self._lock = threading.Lock()

    def open(self, request: Request) -> tuple[Request, Exchange]:
        """Return a request as the handler is to have it, and what seals its answer.

        Raises:
            SealError: It is not sealed for this handler, too old, or was taken before; nothing says which to the caller.
        """
        try:
            opened = open_request(self._secrets, self._name, request.payload)
            with self._lock:
                self._salts.take(opened, request._execution.identity, _unix_ms())
        except AuthenticationError as exc:
            raise SealError(self._cluster, is_refused=True) from exc
        return Request(opened.payload, request._execution, request._clock, is_sealed=True), opened.exchange

    def seal(self, reply: object, exchange: Exchange) -> bytes:
        """Return a reply, sealed; what is no reply as it is, for whoever called the handler to refuse."""
        if isinstance(reply, bytes | bytearray | memoryview):
            return exchange.seal_reply(reply, self._entropy(SALT_BYTES))
        return reply  # type: ignore[return-value] # None of a survey, or a mistake

    def fail(self, error: BaseException, exchange: Exchange) -> NoReturn:
        """Raise what :meth:`seal_failure` returns."""
        raise self.seal_failure(error, exchange)

    def open_all(self, requests: Sequence[Request]) -> tuple[Any, list[tuple[Request, Exchange] | SealError]]:
        """Return those of several requests that open, and for :meth:`seal_all` what became of each."""
        opened: list[tuple[Request, Exchange] | SealError] = []
        for request in requests:
            try:
                opened.append(self.open(request))
            except SealError as exc:
                opened.append(exc)
        return [each[0] for each in opened if isinstance(each, tuple)] or NOTHING, opened

    def seal_all(
        self, answers: Sequence[object], opened: Sequence[tuple[Request, Exchange] | SealError]
    ) -> list[bytes | Exception]:
        """Return the answers to several requests, each sealed for its caller."""
        given = iter(check_answers(answers, sum(isinstance(each, tuple) for each in opened)))
        return [each if isinstance(each, SealError) else self._seal_answer(next(given), each[1]) for each in opened]

    def fail_all(self, error: BaseException, opened: Sequence[tuple[Request, Exchange] | SealError]) -> list[bytes | Exception]:
        """Return one failure of several requests, sealed for each of their callers."""
        return [each if isinstance(each, SealError) else self.seal_failure(error, each[1]) for each in opened]

    def _seal_answer(self, answer: object, exchange: Exchange) -> bytes | Exception:
        return self.seal_failure(answer, exchange) if isinstance(answer, BaseException) else self.seal(answer, exchange)

    def seal_failure(self, error: BaseException, exchange: Exchange) -> SealedFailure:
        """Return an exception that is like one that a handler raised in nothing but the place that it comes from.

        Raises:
            BaseException: It is none of the handler: it was cancelled, or is to end the process.
        """
        if isinstance(error, CancelledError | GeneratorExit) or is_interrupt(error):
            raise error
        type_, text = packets.decode_failure(packets.encode_failure(error))
        said = packets.encode_failure_of(_shorten(type_, TYPE_BYTES_MAX), _shorten(text, TEXT_BYTES_MAX))
        sealed = exchange.seal_failure(said, self._entropy(SALT_BYTES))
        failure = SealedFailure(base64.b64encode(sealed).decode("ascii"))
        failure.add_note(f"It was a {type(error).__qualname__}, whose text the caller alone can read.")
        return failure.with_traceback(error.__traceback__)


async def _refuse_broadcast(_message: Message) -> None:
    raise NotImplementedError("broadcasts are not sealed, so a Sealed handler takes none: this one was dropped")


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
            raise ConfigurationError(f"the name{shown} of a seal cannot be one: {exc}.") from None
    return name


def _name_of(cluster: str) -> str:
    """Return the name of a cluster without that of its cloud."""
    return cluster.rpartition("@")[0] or cluster if isinstance(cluster, str) else cluster


def _is_overridden(handler: object, hook: str) -> bool:
    """Tell whether a program has written a method itself."""
    owner = next((kind for kind in type(handler).__mro__ if hook in vars(kind)), None)
    return owner is not None and not owner.__module__.startswith("iris_py.")


def _shorten(text: str, bytes_max: int) -> str:
    return text.encode()[:bytes_max].decode(errors="ignore")


def _unix_ms() -> int:
    return time.time_ns() // 1_000_000
