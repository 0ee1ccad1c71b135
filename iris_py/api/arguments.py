"""Checks of arguments of the public methods: each error names the argument, what was given, and what is wanted."""

from __future__ import annotations

import math

from iris_py.errors import ConfigurationError

__all__ = ["check_count", "check_flag", "check_name", "check_time"]


def check_count(name: str, value: object, minimum: int) -> None:
    """Refuse what is no whole number, or too small.

    Raises:
        ConfigurationError: It is refused.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
        raise ConfigurationError(f"{name}={value!r} must be a whole number, at least {minimum}.")


def check_flag(name: str, value: object) -> None:
    """Refuse what is neither True nor False: a text such as "false" would count as True.

    Raises:
        ConfigurationError: It is refused.
    """
    if not isinstance(value, bool):
        raise ConfigurationError(f"{name}={value!r} must be True or False.")


def check_time(name: str, value: object) -> None:
    """Refuse what is no time in seconds, or negative.

    Raises:
        ConfigurationError: It is refused.
    """
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
        raise ConfigurationError(f"{name}={value!r} must be a finite number of seconds, at least 0.")


def check_name(name: str, value: object) -> None:
    """Refuse what is no text.

    Raises:
        ConfigurationError: It is refused.
    """
    if not isinstance(value, str):
        raise ConfigurationError(f"{name}={value!r} must be a text: the name of a cluster or a topic.")
