"""Checks of the arguments of public methods; the errors name the argument, the value and the valid values."""

from __future__ import annotations

import io
import math
from collections.abc import AsyncIterable, Iterable
from typing import Literal

from iris_py.defaults import WINDOW_BYTES_MAX, WINDOW_BYTES_MIN
from iris_py.errors import ConfigurationError
from iris_py.peers.member import WEIGHT_MAX, WEIGHT_MIN

__all__ = [
    "check_chunks",
    "check_count",
    "check_file",
    "check_flag",
    "check_join_options",
    "check_name",
    "check_time",
    "check_window",
]


def check_count(name: str, value: object, minimum: int) -> None:
    """Refuse a value below the minimum or of a type other than int.

    Raises:
        ConfigurationError: The value is refused.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
        raise ConfigurationError(f"{name}={value!r} must be a whole number, at least {minimum}.")


def check_flag(name: str, value: object) -> None:
    """Refuse a value other than True and False: a text such as "false" would count as True.

    Raises:
        ConfigurationError: The value is refused.
    """
    if not isinstance(value, bool):
        raise ConfigurationError(f"{name}={value!r} must be True or False.")


def check_time(name: str, value: object) -> None:
    """Refuse a negative value, or one of a type other than a number.

    Raises:
        ConfigurationError: The value is refused.
    """
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
        raise ConfigurationError(f"{name}={value!r} must be a finite number of seconds, at least 0.")


def check_name(name: str, value: object) -> None:
    """Refuse a value of a type other than str.

    Raises:
        ConfigurationError: The value is refused.
    """
    if not isinstance(value, str):
        raise ConfigurationError(f"{name}={value!r} must be text: the name of a cluster or a topic.")


def check_file(name: str, value: object, method: Literal["read", "write"]) -> None:
    """Refuse a value that is not a file in binary mode.

    Args:
        name: The argument.
        value: Its value.
        method: The method that the file must have: ``read`` or ``write``.

    Raises:
        ConfigurationError: The value is refused.
    """
    purpose, may = ("reading", "readable") if method == "read" else ("writing", "writable")
    if (
        not callable(getattr(value, method, None))
        or isinstance(value, io.TextIOBase)
        or not getattr(value, may, lambda: True)()
    ):
        raise ConfigurationError(f"{name}={value!r} must be a file opened for {purpose} in binary mode.")


def check_chunks(name: str, value: object, *, is_sync: bool = False) -> None:
    """Refuse a value that is not an iterable of chunks of bytes. A bytes object is refused, too: its items are numbers.

    Args:
        name: The argument.
        value: Its value.
        is_sync: Whether to refuse asynchronous iterators, too: the synchronous API cannot iterate over these.

    Raises:
        ConfigurationError: The value is refused.
    """
    wanted = (Iterable,) if is_sync else (Iterable, AsyncIterable)
    if not isinstance(value, wanted) or isinstance(value, str | bytes | bytearray | memoryview):
        raise ConfigurationError(f"{name}={value!r} must be an iterable of bytes, such as a list.")


def check_window(name: str, value: object) -> None:
    """Refuse the window of a tunnel (its bytes in transit) if it has a wrong type or is too small or too large.

    Raises:
        ConfigurationError: The value is refused.
    """
    if not isinstance(value, int) or not WINDOW_BYTES_MIN <= value <= WINDOW_BYTES_MAX:
        raise ConfigurationError(f"{name}={value!r} must be {WINDOW_BYTES_MIN} to {WINDOW_BYTES_MAX} bytes.")


def check_weight(weight: object) -> None:
    """Check a relative share of load.

    Raises:
        ConfigurationError: It is no number, or out of bounds.
    """
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not WEIGHT_MIN <= weight <= WEIGHT_MAX:
        raise ConfigurationError(f"weight={weight!r} must be from {WEIGHT_MIN:g} to {WEIGHT_MAX:g}; the default is 1.")


def check_join_options(
    *,
    concurrency: object,
    queue_messages: object,
    queue_bytes: object,
    weight: object,
    tunnels: object,
    tunnel_window_bytes: object,
) -> None:
    """Refuse invalid options of :meth:`Node.join`.

    Raises:
        ConfigurationError: An option is wrong.
    """
    check_count("concurrency", concurrency, 1)
    check_count("queue_messages", queue_messages, 0)
    check_count("queue_bytes", queue_bytes, 0)
    check_count("tunnels", tunnels, 0)
    check_weight(weight)
    check_window("tunnel_window_bytes", tunnel_window_bytes)
