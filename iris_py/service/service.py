"""A service: handlers, consumers and hooks, as registered by a program and as run on a node."""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast

from iris_py.api.codec import as_codec
from iris_py.api.handler import Handler
from iris_py.api.node import Node
from iris_py.api.seal import Sealed, as_seal, sealed_over, sealed_with, unsealed
from iris_py.errors import ConfigurationError
from iris_py.federation.names import split_pattern
from iris_py.patterns.topic.names import parse_pattern
from iris_py.service.handler_calls import class_codec, plan_construction, plan_consumer, plan_handler, refusal
from iris_py.service.hooks import Hook, Hooks, plan_hooks
from iris_py.sync import handlers as sync_handlers
from iris_py.sync.background import Background
from iris_py.sync.node import Node as SyncNode
from iris_py.wire.names import check_own_name, refusals
from iris_security.keyring import encode_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Sequence
    from types import TracebackType
    from typing import Self, Unpack

    from iris_py.api.codec import AnyCodec, Codec, CodecFormat
    from iris_py.api.membership import Membership
    from iris_py.api.options import JoinOptions, SubscribeOptions
    from iris_py.api.seal import Seal, SealLike
    from iris_py.api.subscription import Subscription
    from iris_py.service.hooks import HookPlan

__all__ = ["Running", "Service"]

#: Seconds for the end of a service: handlers and consumers have 30 of them, hooks have the rest. Less than the 40 s after which
#: `iris serve` kills a worker. Too small: slow hooks are cut off; too large: hooks are killed.
STOP_S: Final = 35.0
#: The least time in seconds for shut-down hooks, even when the handlers have used up their time.
HOOKS_MIN_S: Final = 5.0

_Registered = TypeVar("_Registered")
_Function = TypeVar("_Function", bound="Callable[..., Any]")
#: The node and the resources, by their types.
_Values: TypeAlias = dict[Any, Any]
#: The codec of a handler or consumer, and a function that makes the handler or consumer from the node and the resources.
_Made: TypeAlias = "tuple[Codec[Any, Any] | None, Callable[[_Values], Any]]"
#: Classes of handlers, of both APIs.
_HANDLERS: Final = (Handler, sync_handlers.Handler)


@dataclass(frozen=True, slots=True)
class _HandlerEntry:
    """A handler that a program has registered for a cluster."""

    cluster: str
    handler: Any
    codec: AnyCodec | None
    format: CodecFormat
    seal: Seal | None
    options: JoinOptions


@dataclass(frozen=True, slots=True)
class _ConsumerEntry:
    """A consumer that a program has registered for topics."""

    pattern: str
    function: Callable[..., Any]
    codec: AnyCodec | None
    format: CodecFormat
    options: SubscribeOptions


@dataclass(frozen=True, slots=True)
class _ServicePlan:
    """A service after the signatures of all its functions have been read.

    Attributes:
        hooks: The hooks.
        handlers: Each handler with its codec, and a function to make it from the node and the resources.
        consumers: Each consumer, likewise with codec and function.
    """

    hooks: Sequence[HookPlan]
    handlers: Sequence[tuple[_HandlerEntry, _Made]]
    consumers: Sequence[tuple[_ConsumerEntry, _Made]]


class Service:
    """Handlers of clusters, consumers of topics, and hooks, run on one node by `iris serve` or :meth:`running`.

    The types of its parameters define a function's arguments: ``iris_py.Node`` for the node (``iris_py.sync.Node`` in a plain
    function, which runs in a thread), and the result type of a start-up hook for its resource. The remaining parameter is the
    request or message: an ``iris_py.Request`` or ``iris_py.Message``, or its payload. A payload is bytes if the annotation is
    ``bytes`` or missing. Any other type defines the codec, together with the type of the result.
    """

    def __init__(self) -> None:
        self._handlers: list[_HandlerEntry] = []
        self._consumers: list[_ConsumerEntry] = []
        self._hooks: list[Hook] = []

    def __repr__(self) -> str:
        return f"<Service that {self.describe()}>"

    @property
    def clusters(self) -> tuple[str, ...]:
        """The served clusters."""
        return tuple(each.cluster for each in self._handlers)

    @property
    def patterns(self) -> tuple[str, ...]:
        """The consumed topics."""
        return tuple(each.pattern for each in self._consumers)

    # -- registration

    def handler(
        self,
        cluster: str,
        *,
        codec: AnyCodec | None = None,
        format: CodecFormat = "json",  # noqa: A002 - the public name
        seal: SealLike | None = None,
        **options: Unpack[JoinOptions],
    ) -> Callable[[_Registered], _Registered]:
        """Register the handler of a cluster: use it as a decorator, or call the returned function.

        The decorator takes an async function, a plain function, a handler class or object, or :class:`iris_py.Sealed`. An
        object of a class is made at start-up; its ``__init__`` gets the node and resources like a function. The base of a class
        names its codec: ``class Users(iris_py.Handler[Find, User])``.

        Args:
            cluster: The name of the cluster.
            codec: The codec of requests and replies, instead of annotations, as for :meth:`iris_py.Node.join`.
            format: The format of a codec made from annotations: ``"json"`` or ``"msgpack"``.
            seal: The secret of the callers' ``seal=``, or a :class:`iris_py.Seal`: requests and replies are sealed end to end,
                as with :class:`iris_py.Sealed`.
            **options: As for :meth:`iris_py.Node.join`.

        Raises:
            ConfigurationError: The name is wrong, the cluster already has a handler, or the registered object is no handler.
        """
        if not isinstance(cluster, str):
            raise ConfigurationError(
                f'service.handler() takes the name of a cluster, not {cluster!r}. Write @service.handler("NAME").'
            )
        with refusals:
            check_own_name(cluster)
            encode_name(cluster)
        sealing = None if seal is None else as_seal(seal)
        if cluster in self.clusters:
            raise ConfigurationError(f"the service has a handler for the cluster {cluster!r} already.")

        def register(handler: _Registered) -> _Registered:
            _check_handler(unsealed(handler))
            self._handlers.append(_HandlerEntry(cluster, handler, codec, format, sealing, options))
            return handler

        return register

    def consumer(
        self,
        pattern: str,
        *,
        codec: AnyCodec | None = None,
        format: CodecFormat = "json",  # noqa: A002 - the public name
        **options: Unpack[SubscribeOptions],
    ) -> Callable[[_Function], _Function]:
        """Register a consumer of topics: use it as a decorator.

        The decorator takes an async or a plain function, called with one message at a time. Exceptions are logged, and results
        are dropped.

        Args:
            pattern: The topics, as for :meth:`iris_py.Node.subscribe`.
            codec: The codec of messages, instead of annotations.
            format: The format of a codec made from annotations.
            **options: As for :meth:`iris_py.Node.subscribe`.

        Raises:
            ConfigurationError: The pattern is wrong, or the registered object is no function.
        """
        if not isinstance(pattern, str):
            raise ConfigurationError(f'service.consumer() takes topics, not {pattern!r}. Write @service.consumer("PATTERN").')
        with refusals:
            parse_pattern(split_pattern(pattern)[0])

        def register(function: _Function) -> _Function:
            _check_function(function, "a consumer")
            self._consumers.append(_ConsumerEntry(pattern, function, codec, format, options))
            return function

        return register

    def on_startup(self, function: _Function) -> _Function:
        """Register a hook that runs before the service joins its clusters: use it as a decorator.

        The result of the hook is a resource, passed to functions with a parameter of its annotated type. The hook is async, or
        a plain function, which runs in a thread. A generator, async or not, yields the resource, and the rest of it runs at
        shut-down.

        Raises:
            ConfigurationError: The hook is no function.
        """
        if not callable(function) or inspect.isclass(function):
            raise ConfigurationError(f"a start-up hook must be a function, not {function!r}.")
        self._hooks.append(Hook(function, is_startup=True))
        return function

    def on_shutdown(self, function: _Function) -> _Function:
        """Register a hook that runs after the last request was answered, while the node is open: use it as a decorator.

        Shut-down hooks run in reverse order, each only if all start-up hooks registered before it have run.

        Raises:
            ConfigurationError: The hook is no function, or a generator.
        """
        _check_function(function, "a shut-down hook")
        self._hooks.append(Hook(function, is_startup=False))
        return function

    # -- running it

    def running(self, node: Node, *, weight: float = 1.0) -> Running:
        """Run the service on a node, for the time of an ``async with`` block: for tests, and for programs of your own.

        Args:
            node: The node.
            weight: The node's share of the load, a factor of the handlers' weights.

        Raises:
            ConfigurationError: A function cannot be called; see :meth:`check`.
        """
        return Running(self._plan(), node, weight)

    def check(self) -> None:
        """Check the signatures of all functions. `iris serve` does so before it connects.

        Raises:
            ConfigurationError: A function cannot be called; the text names the function and the parameter, with the remedy. Or
                the service has neither handlers nor consumers.
        """
        self._plan()

    def describe(self) -> str:
        """Return a description of the service: ``serves 'users', consumes 'clicks.>'``."""
        named = {"serves": self.clusters, "consumes": self.patterns}
        return ", ".join(f"{verb} {_listed(names)}" for verb, names in named.items() if names) or "serves nothing"

    def _plan(self) -> _ServicePlan:
        if not self._handlers and not self._consumers:
            raise ConfigurationError("the service has neither a handler nor a consumer. Register one with @service.handler().")
        hooks = plan_hooks(self._hooks)
        resources = [each.resource for each in hooks if each.resource is not None]
        return _ServicePlan(
            hooks,
            [(each, _plan_handler(each, resources)) for each in self._handlers],
            [(each, _plan_consumer(each, resources)) for each in self._consumers],
        )


class Running:
    """A service that runs on a node within an ``async with`` block; made by :meth:`Service.running`.

    Attributes:
        is_started: Whether the service has joined its clusters, and so serves.
        node: The node.
    """

    def __init__(self, plan: _ServicePlan, node: Node, weight: float) -> None:
        self.is_started = False
        self.node = node
        self._plan = plan
        self._weight = weight
        self._values: _Values = {Node: node}
        self._hooks = Hooks(plan.hooks, self._values)
        self._memberships: list[Membership] = []
        self._subscriptions: list[Subscription[Any]] = []

    @property
    def failed_hook(self) -> str:
        """The kind and name of the first failed hook; empty without a failure."""
        return self._hooks.failed

    def reasons(self) -> tuple[str, ...]:
        """The reasons for not being ready yet, shown by ``/readyz``; empty once the service serves."""
        if self.is_started:
            return ()
        return (f"{self._hooks.running} runs" if self._hooks.running else "the service is starting",)

    async def __aenter__(self) -> Self:
        """Run the start-up hooks, then subscribe and join.

        Raises:
            Exception: The error of a hook; shut-down hooks have run.
            IrisError: As for :meth:`iris_py.Node.join` and :meth:`iris_py.Node.subscribe`.
        """
        background = Background(asyncio.get_running_loop())
        self._values[SyncNode] = SyncNode(self.node, background)
        try:
            await self._hooks.start()
            for consumer, (codec, make) in self._plan.consumers:
                callback, coded = make(self._values), cast("Any", codec)
                opening: Any = self.node.subscribe(consumer.pattern, callback, codec=coded, **consumer.options)
                self._subscriptions.append(await opening)
            for handler, (codec, make) in self._plan.handlers:
                adapted: Any = sync_handlers.adapt(make(self._values), background)
                options: dict[str, Any] = {**handler.options}
                options["weight"] = handler.options.get("weight", 1.0) * self._weight
                self._memberships.append(await self.node.join(handler.cluster, adapted, codec=codec, **options))
        except BaseException:
            await self._stop()
            raise
        self.is_started = True
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leave the clusters without failing a request, close the subscriptions, and run the shut-down hooks.

        Raises:
            Exception: The first error of a shut-down hook, unless the block itself raised. All are logged.
        """
        error = await self._stop()
        if error is not None and exc is None:
            raise error

    async def _stop(self) -> BaseException | None:
        loop = asyncio.get_running_loop()
        until = loop.time() + STOP_S
        ends: list[Coroutine[Any, Any, None]] = [each.leave() for each in self._memberships]
        ends += [each.close() for each in self._subscriptions]
        await asyncio.gather(*ends, return_exceptions=True)
        return await self._hooks.stop(max(HOOKS_MIN_S, until - loop.time()))


# -- registered handlers, and how each is made


def _plan_handler(entry: _HandlerEntry, resources: Collection[Any]) -> _Made:
    """Return the codec of a handler, and a function to make the handler for the join."""
    handler, seal = entry.handler, entry.seal
    if isinstance(handler, Sealed):
        codec, make = _plan_open_handler(entry, unsealed(handler), resources)
        return codec, lambda values: sealed_over(handler, make(values))
    codec, make = _plan_open_handler(entry, handler, resources)
    if seal is None:
        return codec, make
    return codec, lambda values: sealed_with(make(values), seal)


def _plan_open_handler(
    entry: _HandlerEntry,
    handler: Any,  # noqa: ANN401 - any registered object
    resources: Collection[Any],
) -> _Made:
    given = None if entry.codec is None else as_codec(entry.codec)
    if isinstance(handler, type):
        construction = plan_construction(handler, resources)
        return given or class_codec(handler, entry.format), lambda values: construction.bind(values)()
    if isinstance(handler, _HANDLERS):
        return given or class_codec(type(handler), entry.format), lambda _values: handler
    is_inline = entry.options.get("inline", False)
    call = plan_handler(handler, resources, codec=given, format=entry.format, inline=is_inline)
    return call.codec, call.bind


def _plan_consumer(entry: _ConsumerEntry, resources: Collection[Any]) -> _Made:
    call = plan_consumer(entry.function, resources, codec=entry.codec, format=entry.format)
    return call.codec, call.bind


def _check_handler(handler: object) -> None:
    """Refuse an object that cannot answer requests.

    Raises:
        ConfigurationError: The object is neither a function nor a handler, nor a class of handlers.
    """
    if isinstance(handler, type):
        if not issubclass(handler, _HANDLERS):
            raise refusal(_name_of(handler), "it is a class, but not a subclass of iris_py.Handler.")
    elif not isinstance(handler, _HANDLERS):
        _check_function(handler, "a handler")


def _check_function(function: object, what: str) -> None:
    if not callable(function) or isinstance(function, type):
        raise ConfigurationError(f"{what} must be a function, not {function!r}.")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise refusal(_name_of(function), f"it is a generator, but {what} must return once.")


def _name_of(named: object) -> str:
    return f"{getattr(named, '__module__', '?')}.{getattr(named, '__qualname__', type(named).__qualname__)}"


def _listed(names: Sequence[str]) -> str:
    quoted = [repr(name) for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"
