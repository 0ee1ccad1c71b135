"""Types of the arguments shared by the overloads of a public method; the method's docstring describes the arguments.

Each argument is stated once here and once in the method itself; :mod:`mypy` compares both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from iris_py.api.seal import SealLike
    from iris_py.patterns.request.retry import Retry
    from iris_py.patterns.topic.queue import OverflowPolicy
    from iris_py.wire.headers import HeaderValue

__all__ = ["JoinOptions", "OnFull", "PublishOptions", "RequestOptions", "SubscribeOptions", "SurveyOptions"]

#: The behaviour of a request when every member is full: wait for a place, or raise :exc:`Overloaded`.
OnFull: TypeAlias = Literal["wait", "raise"]


class RequestOptions(TypedDict, total=False):
    """Arguments of :meth:`iris_py.Node.request`."""

    timeout: float
    idempotent: bool
    key: str | bytes | None
    prefer: str | None
    require: str | None
    headers: Mapping[str, HeaderValue] | None
    on_full: OnFull
    retry_failed: bool
    retry: Retry | None
    wait_for_members: float | None
    seal: SealLike | None


class SurveyOptions(TypedDict, total=False):
    """Arguments of :meth:`iris_py.Node.survey`."""

    timeout: float
    stop_after: int | None
    headers: Mapping[str, HeaderValue] | None
    seal: SealLike | None


class PublishOptions(TypedDict, total=False):
    """Arguments of :meth:`iris_py.Node.publish` and :meth:`iris_py.Node.broadcast`."""

    headers: Mapping[str, HeaderValue] | None


class SubscribeOptions(TypedDict, total=False):
    """Arguments of :meth:`iris_py.Node.subscribe`."""

    policy: OverflowPolicy
    queue_messages: int | None
    queue_bytes: int
    group: str
    weight: float


class JoinOptions(TypedDict, total=False):
    """Arguments of :meth:`iris_py.Node.join`."""

    concurrency: int | None
    queue_messages: int
    queue_bytes: int
    weight: float
    inline: bool
    tunnels: int
    tunnel_window_bytes: int
