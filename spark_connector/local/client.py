"""The Iris node of a Spark executor, as used by the tasks of the executor: :func:`local_agent`."""

from __future__ import annotations

import asyncio
import importlib
import math
import os
import sys
import threading
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

import msgspec

from iris_py import ConfigurationError, Member, MessageTooLarge, NodeClosed
from iris_py.connector import (
    REQUEST_TIMEOUT_S,
    SUBSCRIPTION_QUEUE_BYTES,
    SURVEY_TIMEOUT_S,
    as_codec,
    check_time,
    decode,
    encode,
    seal_parts,
)
from spark_connector.errors import AgentUnavailable
from spark_connector.local import frames
from spark_connector.local.calls import lost_if_closed
from spark_connector.local.connection import AgentConnection, NotSent
from spark_connector.local.frames import CallReturned, header_of
from spark_connector.local.handles import GRACE_S, Connected, LocalMembers, LocalSubscription, LocalSurvey
from spark_connector.local.private_directory import SOCKET_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from concurrent.futures import Future
    from pathlib import Path
    from types import TracebackType
    from typing import Self, TypeGuard, Unpack

    from iris_py import Cloud, Codec, CodecFormat, EventRecord, Health, OverflowPolicy, Retry, Statistics
    from iris_py.connector import (
        Answer,
        AnyCodec,
        BytesLike,
        CallerCodec,
        HeaderValue,
        OnFull,
        Payload,
        PublishOptions,
        Question,
        RequestOptions,
        SealLike,
        SubscribeOptions,
        SurveyOptions,
        TypeForm,
    )
    from spark_connector.local.frames import Command, Reply, Welcome

__all__ = ["LocalAgent", "local_agent"]

#: How long a task waits for an agent that has not started or was lost: longer than Spark takes to start one.
TIMEOUT_S = 10.0

Result = TypeVar("Result")


def local_agent(*, timeout: float = TIMEOUT_S) -> LocalAgent:
    """Return the Iris node of the executor that runs this task: the node of its agent, started by an :class:`ExecutorCluster`.

    All tasks of the executor use the same node, so a task needs no secret, no seeds, and no time to join the network. All tasks
    in a process share a connection.

    Args:
        timeout: Seconds to wait for an agent that has not started yet, now and after a loss of the agent.

    Raises:
        AgentUnavailable: There is no agent, or it is of another release.
        ConfigurationError: This process is not a Spark task, or ``timeout`` is not a positive and finite number.
    """
    check_time("timeout", timeout)
    return connected(_socket_path(), timeout)


class LocalAgent(Connected):
    """The node of this executor, as returned by :func:`local_agent`. All methods are thread-safe.

    The methods are those of :class:`iris_py.sync.Node`, with the same arguments and errors, with these exceptions: a task
    serves no cluster (``join``), opens no tunnel, and subscribes without a callback. Methods block, so do not call them in a
    thread with a running event loop; only :meth:`request_future` returns at once. There are two further errors.
    :exc:`AgentLost` is raised by calls in progress when the agent ends; the next call waits for a new agent.
    :exc:`AgentUnavailable` is raised if none came.

    A forked process starts afresh, with a connection of its own, and without the subscriptions, surveys and futures of its
    parent.
    """

    def __init__(self, path: Path, timeout: float = TIMEOUT_S) -> None:
        """Prepare to use the agent at a socket found by :func:`local_agent`. The first use connects."""
        self._path = path
        self._timeout = timeout
        self._lock = threading.Lock()
        self._connection: AgentConnection | None = None
        _all.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<LocalAgent at {self._path}>"

    # -- properties

    @property
    def id(self) -> str:
        """The id of the node: 32 hexadecimal digits."""
        return self._welcome().id

    @property
    def name(self) -> str:
        """The label of the node; empty if it has none."""
        return self._welcome().name

    @property
    def address(self) -> str:
        """The ``host:port`` other nodes dial."""
        return self._welcome().address

    @property
    def zone(self) -> str:
        """The zone of the node."""
        return self._welcome().zone

    @property
    def network(self) -> str:
        """The name of the network."""
        return self._welcome().network

    @property
    def max_message_bytes(self) -> int:
        """The largest payload the node sends."""
        return self._welcome().max_message_bytes

    def nodes(self) -> tuple[Member, ...]:
        """Return the known nodes of the network, the own node first. See :meth:`iris_py.Node.nodes`."""
        return cast("tuple[Member, ...]", self._use("nodes"))

    @property
    def network_size(self) -> int:
        """The estimated number of nodes in the network. See :attr:`iris_py.Node.network_size`."""
        return cast("int", self._use("network_size"))

    def unreached_seeds(self) -> dict[str, str]:
        """Return the seeds at which no node of the network answers. See :meth:`iris_py.Node.unreached_seeds`."""
        return cast("dict[str, str]", self._use("unreached_seeds"))

    def statistics(self) -> Statistics:
        """Return the node's statistics since its start, over all tasks. See :meth:`iris_py.Node.statistics`."""
        return cast("Statistics", self._use("statistics"))

    def recent_events(self, since: int = 0) -> tuple[EventRecord, ...]:
        """Return the events of the node after an event's number. See :meth:`iris_py.Node.recent_events`."""
        return cast("tuple[EventRecord, ...]", self._use("recent_events", since=since))

    def health(self, cluster: str | None = None) -> Health:
        """Return whether the node is ready for work, or the reasons why not. See :meth:`iris_py.Node.health`."""
        return cast("Health", self._use("health", cluster=cluster))

    def clouds(self, *, timeout: float = SURVEY_TIMEOUT_S) -> tuple[Cloud, ...]:
        """Return the other clouds known to the gateways, with their reachability. See :meth:`iris_py.Node.clouds`."""
        return cast("tuple[Cloud, ...]", self._use("clouds", _limit(timeout), timeout=timeout))

    def members(self, cluster: str) -> LocalMembers:
        """Return the live membership view of a cluster; ``wait`` waits until the first view has arrived.

        Raises:
            ConfigurationError: The name is wrong.
        """

        def look(waits: bool) -> tuple[Member, ...]:
            found = self._value(frames.MembersCall(cluster, waits), None if waits else GRACE_S)
            return tuple(Member(**each) for each in found)

        members = LocalMembers(cluster, look)
        len(members)  # this raises if the name is wrong, and otherwise begins to watch the cluster
        return members

    # -- clusters

    @overload
    def request(self, cluster: str, payload: BytesLike, *, codec: None = None, **options: Unpack[RequestOptions]) -> bytes: ...
    @overload
    def request(
        self,
        cluster: str,
        payload: Question,
        *,
        codec: CallerCodec[Question, Answer],
        **options: Unpack[RequestOptions],
    ) -> Answer: ...
    @overload
    def request(self, cluster: str, payload: object, *, codec: CodecFormat, **options: Unpack[RequestOptions]) -> Any: ...  # noqa: ANN401 - whatever was said
    @overload
    def request(
        self,
        cluster: str,
        payload: object,
        *,
        codec: TypeForm[Answer],
        **options: Unpack[RequestOptions],
    ) -> Answer: ...
    def request(
        self,
        cluster: str,
        payload: Any,
        *,
        timeout: float = REQUEST_TIMEOUT_S,
        idempotent: bool = False,
        key: str | bytes | None = None,
        prefer: str | None = None,
        require: str | None = None,
        headers: Mapping[str, HeaderValue] | None = None,
        on_full: OnFull = "wait",
        retry_failed: bool = False,
        retry: Retry | None = None,
        wait_for_members: float | None = None,
        seal: SealLike | None = None,
        codec: AnyCodec | None = None,
    ) -> Any:
        """Send a request to a member of a cluster, and return the reply. See :meth:`iris_py.Node.request`.

        Waiting for a lost agent counts towards ``timeout``. Payloads are encoded and decoded in this process, so a decoding
        error does not name the member.
        """
        command = frames.RequestCall(
            cluster,
            timeout,
            idempotent,
            key,
            prefer,
            require,
            _plain(headers),
            on_full,
            retry_failed,
            _plain_seal(seal),
            retry,
            wait_for_members,
        )
        content, read = _coded(codec, payload, cluster)
        reply = self._call(command, content, timeout)[1]
        return reply if read is None else read(reply)

    @overload
    def request_future(
        self, cluster: str, payload: BytesLike, *, codec: None = None, **options: Unpack[RequestOptions]
    ) -> Future[bytes]: ...
    @overload
    def request_future(
        self,
        cluster: str,
        payload: Question,
        *,
        codec: CallerCodec[Question, Answer],
        **options: Unpack[RequestOptions],
    ) -> Future[Answer]: ...
    @overload
    def request_future(
        self, cluster: str, payload: object, *, codec: CodecFormat, **options: Unpack[RequestOptions]
    ) -> Future[Any]: ...
    @overload
    def request_future(
        self,
        cluster: str,
        payload: object,
        *,
        codec: TypeForm[Answer],
        **options: Unpack[RequestOptions],
    ) -> Future[Answer]: ...
    def request_future(
        self,
        cluster: str,
        payload: Any,
        *,
        timeout: float = REQUEST_TIMEOUT_S,
        idempotent: bool = False,
        key: str | bytes | None = None,
        prefer: str | None = None,
        require: str | None = None,
        headers: Mapping[str, HeaderValue] | None = None,
        on_full: OnFull = "wait",
        retry_failed: bool = False,
        retry: Retry | None = None,
        wait_for_members: float | None = None,
        seal: SealLike | None = None,
        codec: AnyCodec | None = None,
    ) -> Future[Any]:
        """Send a request as :meth:`request` does, without waiting for the reply, so that many requests can be in flight.

        It blocks while the process has as many requests in flight as the agent accepts, 1,024. Waiting for a single future
        costs more time than :meth:`request`, because another thread reads its reply.

        Returns:
            A future of the reply; cancelling it cancels the request. It holds every error of the node. Errors of sending, such
            as :exc:`MessageTooLarge`, are raised here.
        """
        command = frames.RequestCall(
            cluster,
            timeout,
            idempotent,
            key,
            prefer,
            require,
            _plain(headers),
            on_full,
            retry_failed,
            _plain_seal(seal),
            retry,
            wait_for_members,
        )
        payload, read = _coded(codec, payload, cluster)
        header, content, limit_s = _header(command), _content(payload), _limit(timeout)
        return self._with_connection(lambda connection: connection.submit(header, content, limit_s, read), timeout, content)

    @overload
    def broadcast(self, cluster: str, payload: BytesLike, *, codec: None = None, **options: Unpack[PublishOptions]) -> int: ...
    @overload
    def broadcast(
        self,
        cluster: str,
        payload: Payload,
        *,
        codec: Codec[Payload, Any],
        **options: Unpack[PublishOptions],
    ) -> int: ...
    @overload
    def broadcast(
        self,
        cluster: str,
        payload: object,
        *,
        codec: CodecFormat | TypeForm[Any],
        **options: Unpack[PublishOptions],
    ) -> int: ...
    def broadcast(
        self,
        cluster: str,
        payload: Any,
        *,
        headers: Mapping[str, HeaderValue] | None = None,
        codec: AnyCodec | None = None,
    ) -> int:
        """Send a message to every member of a cluster; return the number of members. See :meth:`iris_py.Node.broadcast`."""
        content, _read = _coded(codec, payload, cluster)
        return cast("int", self._use("broadcast", None, content, cluster=cluster, headers=_plain(headers)))

    @overload
    def survey(
        self, cluster: str, payload: BytesLike, *, codec: None = None, **options: Unpack[SurveyOptions]
    ) -> LocalSurvey: ...
    @overload
    def survey(
        self,
        cluster: str,
        payload: Question,
        *,
        codec: CallerCodec[Question, Answer],
        **options: Unpack[SurveyOptions],
    ) -> LocalSurvey[Answer]: ...
    @overload
    def survey(
        self, cluster: str, payload: object, *, codec: CodecFormat, **options: Unpack[SurveyOptions]
    ) -> LocalSurvey[Any]: ...
    @overload
    def survey(
        self,
        cluster: str,
        payload: object,
        *,
        codec: TypeForm[Answer],
        **options: Unpack[SurveyOptions],
    ) -> LocalSurvey[Answer]: ...
    def survey(
        self,
        cluster: str,
        payload: Any,
        *,
        timeout: float = SURVEY_TIMEOUT_S,
        stop_after: int | None = None,
        headers: Mapping[str, HeaderValue] | None = None,
        seal: SealLike | None = None,
        codec: AnyCodec | None = None,
    ) -> LocalSurvey[Any]:
        """Send a request to every member of a cluster and collect the replies until the timeout. See
        :meth:`iris_py.Node.survey`.
        """
        command = frames.SurveyCall(cluster, timeout, stop_after, _plain(headers), _plain_seal(seal))
        payload, read = _coded(codec, payload, cluster)
        header, content = _header(command), bytes(_content(payload))  # sent later
        limit_s = _limit(timeout)

        def begin() -> tuple[AgentConnection, int]:
            _refuse_event_loops()
            return self._with_connection(
                lambda connection: (connection, connection.open(header, content, limit_s)), timeout, content
            )

        return LocalSurvey(begin, limit_s, read)

    # -- topics

    @overload
    def publish(self, topic: str, payload: BytesLike, *, codec: None = None, **options: Unpack[PublishOptions]) -> int: ...
    @overload
    def publish(
        self,
        topic: str,
        payload: Payload,
        *,
        codec: Codec[Payload, Any],
        **options: Unpack[PublishOptions],
    ) -> int: ...
    @overload
    def publish(
        self,
        topic: str,
        payload: object,
        *,
        codec: CodecFormat | TypeForm[Any],
        **options: Unpack[PublishOptions],
    ) -> int: ...
    def publish(
        self,
        topic: str,
        payload: Any,
        *,
        headers: Mapping[str, HeaderValue] | None = None,
        codec: AnyCodec | None = None,
    ) -> int:
        """Send a message to every subscriber of a topic, waiting for room. See :meth:`iris_py.Node.publish`."""
        content = payload if codec is None else encode(as_codec(codec).encode_request, payload, topic=topic)
        return cast("int", self._use("publish", None, content, topic=topic, headers=_plain(headers)))

    @overload
    def publish_many(
        self, topic: str, payloads: Iterable[BytesLike], *, codec: None = None, **options: Unpack[PublishOptions]
    ) -> int: ...
    @overload
    def publish_many(
        self,
        topic: str,
        payloads: Iterable[Payload],
        *,
        codec: Codec[Payload, Any],
        **options: Unpack[PublishOptions],
    ) -> int: ...
    @overload
    def publish_many(
        self,
        topic: str,
        payloads: Iterable[object],
        *,
        codec: CodecFormat | TypeForm[Any],
        **options: Unpack[PublishOptions],
    ) -> int: ...
    def publish_many(
        self,
        topic: str,
        payloads: Iterable[Any],
        *,
        headers: Mapping[str, HeaderValue] | None = None,
        codec: AnyCodec | None = None,
    ) -> int:
        """Send messages to every subscriber of a topic, in their order. See :meth:`iris_py.Node.publish_many`."""
        count = 0
        for payload in payloads:
            count = self.publish(topic, payload, headers=headers, codec=cast("Any", codec))
        return count

    @overload
    def try_publish(
        self, topic: str, payload: BytesLike, *, codec: None = None, **options: Unpack[PublishOptions]
    ) -> int | None: ...
    @overload
    def try_publish(
        self,
        topic: str,
        payload: Payload,
        *,
        codec: Codec[Payload, Any],
        **options: Unpack[PublishOptions],
    ) -> int | None: ...
    @overload
    def try_publish(
        self,
        topic: str,
        payload: object,
        *,
        codec: CodecFormat | TypeForm[Any],
        **options: Unpack[PublishOptions],
    ) -> int | None: ...
    def try_publish(
        self,
        topic: str,
        payload: Any,
        *,
        headers: Mapping[str, HeaderValue] | None = None,
        codec: AnyCodec | None = None,
    ) -> int | None:
        """Send a message to every subscriber of a topic at once, or not at all. See :meth:`iris_py.Node.try_publish`."""
        content = payload if codec is None else encode(as_codec(codec).encode_request, payload, topic=topic)
        return cast("int | None", self._use("try_publish", GRACE_S, content, topic=topic, headers=_plain(headers)))

    @overload
    def subscribe(self, pattern: str, *, codec: None = None, **options: Unpack[SubscribeOptions]) -> LocalSubscription: ...
    @overload
    def subscribe(
        self,
        pattern: str,
        *,
        codec: Codec[Payload, Any],
        **options: Unpack[SubscribeOptions],
    ) -> LocalSubscription[Payload]: ...
    @overload
    def subscribe(
        self,
        pattern: str,
        *,
        codec: CodecFormat,
        **options: Unpack[SubscribeOptions],
    ) -> LocalSubscription[Any]: ...
    @overload
    def subscribe(
        self,
        pattern: str,
        *,
        codec: TypeForm[Payload],
        **options: Unpack[SubscribeOptions],
    ) -> LocalSubscription[Payload]: ...
    def subscribe(
        self,
        pattern: str,
        *,
        policy: OverflowPolicy = "drop_oldest",
        queue_messages: int | None = None,
        queue_bytes: int = SUBSCRIPTION_QUEUE_BYTES,
        codec: AnyCodec | None = None,
        group: str = "",
        weight: float = 1.0,
    ) -> LocalSubscription[Any]:
        """Subscribe to topics. The agent has the queue and applies its policy. See :meth:`iris_py.Node.subscribe`."""
        _refuse_event_loops()
        coded = None if codec is None else as_codec(codec)
        header = _header(frames.Subscribe(pattern, policy, queue_messages, queue_bytes, group, weight))
        connection, number = self._with_connection(
            lambda connection: (connection, connection.open(header, b"", None)), None, b""
        )
        return LocalSubscription(connection, number, pattern, policy, coded)

    # -- the end

    def close(self) -> None:
        """Close the connection: calls in progress are cancelled and subscriptions end. A later call connects again."""
        with self._lock:
            if self._connection is not None:
                self._connection.close("this process has closed the connection")
                self._connection = None

    # -- internal

    def _disown(self) -> None:
        self._lock = threading.Lock()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disown()

    def _connect(self, timeout: object = None) -> AgentConnection:
        """Return the connection; open a new one if necessary."""
        connection = self._connection
        if connection is not None and not connection.is_over:
            return connection
        limit_s = min(self._timeout, timeout) if _is_time(timeout) else self._timeout
        if not self._lock.acquire(timeout=limit_s):
            raise AgentUnavailable(str(self._path), f"another thread still waits for it after {limit_s:g} s")
        try:
            connection = self._connection
            if connection is None or connection.is_over:
                connection = self._connection = AgentConnection(self._path, limit_s)
            return connection
        finally:
            self._lock.release()

    def _with_connection(
        self, use: Callable[[AgentConnection], Result], timeout: object, content: bytes | memoryview
    ) -> Result:
        """Call ``use`` with the connection to the agent; if it ended before the call was sent, use a new connection."""
        for _ in range(2):
            connection = self._connect(timeout)
            limit = connection.welcome.max_message_bytes
            if len(content) > limit:
                raise MessageTooLarge(len(content), limit)
            try:
                return use(connection)
            except NotSent:
                continue
            except NodeClosed as exc:
                raise lost_if_closed(exc, self._path) from None
        raise AgentUnavailable(str(self._path), "it ends again and again")

    def _call(self, command: Command, payload: bytes, timeout: object) -> tuple[Reply, bytes]:
        _refuse_event_loops()
        header, content, limit_s = _header(command), _content(payload), _limit(timeout)
        return self._with_connection(lambda connection: connection.call(header, content, limit_s), timeout, content)

    def _value(self, command: Command, timeout: float | None, payload: bytes = b"") -> Any:  # noqa: ANN401 - of any type
        reply, _payload = self._call(command, payload, timeout)
        assert isinstance(reply, CallReturned)
        return reply.value

    def _use(self, method: str, timeout: float | None = GRACE_S, content: bytes = b"", /, **arguments: object) -> Any:  # noqa: ANN401 - of any type
        """Call a method of the agent's node, or read a property; return the result with its type in `METHODS`."""
        value = self._value(frames.MethodCall(method, arguments), timeout, content)
        return msgspec.convert(value, frames.METHODS[method].result)

    def _welcome(self) -> Welcome:
        return self._look().welcome

    def _look(self) -> AgentConnection:
        """Return the connection; connect again if the agent has ended since the last use.

        Calls need no such check, because sending them shows the end.
        """
        connection = self._connection
        if connection is not None:
            connection.look()
        return self._connect()


# -- one for each socket and process

_agents: dict[Path, LocalAgent] = {}
_lock = threading.Lock()
_all: weakref.WeakSet[LocalAgent] = weakref.WeakSet()


def connected(path: Path, timeout: float) -> LocalAgent:
    """Return the connected agent at a socket, the same object at each call.

    Raises:
        AgentUnavailable: There is no agent.
        ConfigurationError: The timeout is wrong.
    """
    if not _is_time(timeout):
        raise ConfigurationError(f"timeout={timeout!r} must be a positive and finite number of seconds.")
    with _lock:
        agent = _agents.get(path)
        if agent is None:
            agent = _agents[path] = LocalAgent(path)
    agent._timeout = timeout
    agent._look()
    return agent


def _handle_fork() -> None:
    """Reset the state in the child of a fork, where the parent's connections must not be used and its threads do not exist."""
    global _lock
    _lock = threading.Lock()
    for agent in list(_all):
        agent._disown()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_handle_fork)


def _socket_path() -> Path:
    """Return the path of the socket of this executor's agent.

    Raises:
        ConfigurationError: This process is not a Spark task.
    """
    pyspark = sys.modules.get("pyspark")
    if pyspark is None or pyspark.TaskContext.get() is None:
        raise ConfigurationError(
            "local_agent() is only for Spark tasks, but this is not a task. On the driver use the methods of the "
            "ExecutorCluster; elsewhere make a node with iris_py.connect()."
        )
    directory: Path = importlib.import_module("spark_connector.executors.agent_files").agent_directory()
    return directory / SOCKET_NAME


# -- arguments


def _is_time(timeout: object) -> TypeGuard[float]:
    return isinstance(timeout, int | float) and not isinstance(timeout, bool) and 0 < timeout < math.inf


def _limit(timeout: object) -> float | None:
    """Return how long to wait for the answer to a call (seconds).

    None for an invalid timeout, for which the agent returns an error at once.
    """
    return timeout + GRACE_S if _is_time(timeout) else None


def _plain(headers: Mapping[str, HeaderValue] | None) -> object:
    return dict(headers) if isinstance(headers, Mapping) else headers


def _plain_seal(seal: SealLike | None) -> tuple[str, str | None] | None:
    return None if seal is None else seal_parts(seal)


def _header(command: Command) -> bytes:
    try:
        header = header_of(command)
    except (TypeError, ValueError, OverflowError) as exc:
        raise ConfigurationError(f"an argument cannot be sent to the agent: {exc}. Correct it.") from None
    if len(header) > frames.HEADER_BYTES_MAX:
        raise ConfigurationError(
            f"the arguments take {len(header)} bytes beside the payload, but at most {frames.HEADER_BYTES_MAX} are allowed. "
            "Put large values into the payload."
        )
    return header


def _content(payload: object) -> bytes | memoryview:
    """Return a payload as bytes, or as a view whose length is its number of bytes, without a copy.

    Raises:
        TypeError: The payload is not bytes-like.
    """
    if isinstance(payload, bytes):
        return payload
    if isinstance(payload, bytearray | memoryview):
        view = memoryview(payload)
        return view.cast("B") if view.contiguous else bytes(view)
    raise TypeError(f"a payload is bytes, not {type(payload).__qualname__}; encode it first")


def _coded(codec: AnyCodec | None, payload: Any, cluster: str) -> tuple[Any, Callable[..., Any] | None]:  # noqa: ANN401 - of whatever type
    """Encode a payload with a codec; return it with the function that decodes replies, or None if replies are bytes.

    Raises:
        EncodeError: The codec cannot encode the payload.
    """
    if codec is None:
        return payload, None
    coded = as_codec(codec)

    def read(reply: bytes, member: str = "") -> Any:  # noqa: ANN401 - as the codec decodes
        return decode(coded.decode_reply, reply, cluster=cluster, member=member)

    return encode(coded.encode_request, payload, cluster=cluster), read


def _refuse_event_loops() -> None:
    """Raise an error if an event loop runs in this thread, because waiting would block the loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise ConfigurationError(
        "a local agent waits, which would block the event loop of this thread. Use request_future() with "
        "asyncio.wrap_future(), or call this in another thread, as with asyncio.to_thread()."
    )
