"""The options of ``format("iris")``, which Spark passes as texts by name.

Spark shows options in plans, in its user interface and in its event log. So a secret is not an option: it belongs into a file,
or into the environment of Spark's processes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar, get_args

from iris_py import ConfigurationError
from spark_connector.network import Network, field_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["ReadOptions", "WriteOptions", "read_options", "table_options", "write_options"]

#: Default bounds of the messages that have arrived and are in no micro-batch yet, as for a subscription of
#: :meth:`iris_py.Node.subscribe`.
BUFFER_MESSAGES: Final = 65_536
BUFFER_BYTES: Final = 64 * 1024 * 1024
#: Default number of tasks that read a micro-batch. More are faster only if each has enough work, because each costs some
#: milliseconds.
PARTITIONS: Final = 1
#: Far more than the number of slots is a mistake: each range is a task.
PARTITIONS_MAX: Final = 10_000
#: Default time that one message may wait for room (seconds), as for ``notify``.
TIMEOUT_S: Final = 60.0

#: The overflow policy of a query that is behind; the first is the default. With ``block`` such a query slows down all
#: publishers.
Policy: TypeAlias = Literal["drop_oldest", "block"]
POLICIES: Final[tuple[Policy, ...]] = get_args(Policy)

Number = TypeVar("Number", int, float)
Choice = TypeVar("Choice", bound=str)

_NUMBER_MAX: Final = (1 << 63) - 1

#: Fields of :class:`Network` that cannot be options: secrets, which Spark would show, and settings that each executor has for
#: itself.
_NO_OPTIONS: Final = ("secret", "secret_command", "clusters", "clusters_directory", "strict", "advertise")


def _option_of(field_name: str) -> str:
    """Return the option for a field of :class:`Network`, as ``secretFile``."""
    first, *rest = ("network" if field_name == "name" else field_name).split("_")
    return first + "".join(word.title() for word in rest)


#: The field of :class:`Network` for each option.
_NETWORK: Final = {_option_of(name): name for name in field_settings() if name not in _NO_OPTIONS}
#: The options for reading and writing, by their names in lower case: the form in which Spark passes them.
_COMMON: Final = {name.lower(): name for name in ("topic", *_NETWORK)}
_READ: Final = {
    name.lower(): name
    for name in ("maxRowsPerTrigger", "bufferMessages", "bufferBytes", "partitions", "policy", "failOnDataLoss", "group")
}
_WRITE: Final = {name.lower(): name for name in ("timeout",)}
#: Spark's own options, which it passes as well.
_OF_SPARK: Final = frozenset({"checkpointlocation", "queryname"})
#: Options that a catalog adds for a table: its provider, and each option of the table a second time with this prefix.
_PROVIDER: Final = "provider"
_OF_TABLE: Final = "option."
#: An option added by Hive's catalog.
_OF_HIVE: Final = "serialization.format"


@dataclass(frozen=True)
class ReadOptions:
    """The parsed options of a streaming query that reads a topic."""

    topic: str
    """The topic, or a pattern of topics."""
    network: Network
    """The settings of the query's nodes."""
    rows_max: int | None
    """Maximum number of rows in a micro-batch; None for all that have arrived."""
    buffer_messages: int
    """Maximum number of messages that wait for a micro-batch."""
    buffer_bytes: int
    """Maximum bytes of payloads and headers of the waiting messages together."""
    partitions: int
    """Number of tasks that read a micro-batch."""
    policy: Policy
    """The overflow policy: ``drop_oldest``, or ``block`` to slow down the publishers."""
    fails_on_data_loss: bool
    """Whether the query fails when a message was lost."""
    group: str = ""
    """The group of subscribers with which the query shares the messages; empty for none."""


@dataclass(frozen=True)
class WriteOptions:
    """The parsed options of a write that publishes rows."""

    topic: str | None
    """The topic of rows without a topic of their own."""
    network: Network = field(repr=False)
    """The settings of the publishing nodes."""
    timeout: float
    """How long one message may wait for room, in seconds."""


def read_options(options: Mapping[str, str]) -> ReadOptions:
    """Parse the options for reading.

    Raises:
        ConfigurationError: An option is unknown or wrong, or the topic is missing.
    """
    given = _known(options, _READ, "reading")
    topic = given.get("topic", "")
    if not topic:
        raise ConfigurationError("no topic is named. Add .option('topic', name); a pattern such as 'sensors.*' is allowed too.")
    rows_max = given.get("maxrowspertrigger")
    return ReadOptions(
        topic=topic,
        network=_network(given),
        rows_max=None if rows_max is None else _whole("maxRowsPerTrigger", rows_max),
        buffer_messages=_whole("bufferMessages", given.get("buffermessages", str(BUFFER_MESSAGES))),
        buffer_bytes=_whole("bufferBytes", given.get("bufferbytes", str(BUFFER_BYTES))),
        partitions=_whole("partitions", given.get("partitions", str(PARTITIONS)), PARTITIONS_MAX),
        policy=_one_of("policy", given.get("policy", "drop_oldest"), POLICIES),
        fails_on_data_loss=_truth("failOnDataLoss", given.get("failondataloss", "true")),
        group=given.get("group", ""),
    )


def write_options(options: Mapping[str, str]) -> WriteOptions:
    """Parse the options for writing.

    Raises:
        ConfigurationError: An option is unknown or wrong.
    """
    given = _known(options, _WRITE, "writing")
    timeout = _parse("timeout", given.get("timeout", str(TIMEOUT_S)), float, "a positive number of seconds")
    if not 0 < timeout < math.inf:
        raise ConfigurationError(f"option timeout: {timeout:g} must be a positive and finite number of seconds.")
    return WriteOptions(topic=given.get("topic") or None, network=_network(given), timeout=timeout)


def table_options(options: Mapping[str, str]) -> dict[str, str] | None:
    """Return the options of a catalog's table, by their lower-cased names; None if there is no table.

    Raises:
        ConfigurationError: An option is unknown or wrong for a table that rows are inserted into.
    """
    given = {name.lower(): value for name, value in options.items()}
    if _PROVIDER not in given:
        return None
    of_table = {name.removeprefix(_OF_TABLE): value for name, value in given.items() if name.startswith(_OF_TABLE)}
    of_table.pop(_OF_HIVE, None)
    write_options(of_table)
    return of_table


def _known(options: Mapping[str, str], more: Mapping[str, str], use: str) -> dict[str, str]:
    """Check the options, leave out Spark's own, and return the others by their names in lower case."""
    known = {**_COMMON, **more}
    given = {name.lower(): value for name, value in options.items()}
    if "secret" in given:
        raise ConfigurationError(
            "a secret cannot be an option, because Spark shows options in plans and in its user interface. Write it into a "
            "file that only its user can read, on the driver and on every executor, and give its path with "
            ".option('secretFile', path); or set IRIS_SECRET in the environment of Spark's processes."
        )
    if "path" in given:
        raise ConfigurationError(
            f"a topic has no path, but {given['path']!r} is given. Name the topic with .option('topic', name)."
        )
    for name in given:
        if name not in known and name not in _OF_SPARK:
            raise ConfigurationError(
                f"the option {name!r} is unknown for {use} a topic; there are {', '.join(sorted(known.values()))}. Correct it."
            )
    return {name: value for name, value in given.items() if name in known}


def _network(given: Mapping[str, str]) -> Network:
    values: dict[str, Any] = {}
    for option, name in _NETWORK.items():
        text, shape = given.get(option.lower()), field_settings()[name].shape
        if text is None:
            continue
        if shape == "addresses":
            values[name] = [part.strip() for part in text.split(",") if part.strip()]
        elif shape == "flag":
            values[name] = _truth(option, text)
        else:
            values[name] = _whole(option, text) if shape == "number" else text
    return Network(**values)


def _one_of(name: str, text: str, choices: tuple[Choice, ...]) -> Choice:
    for choice in choices:
        if choice == text.lower():
            return choice
    raise ConfigurationError(f"option {name}: {text!r} must be {' or '.join(choices)}.")


def _truth(name: str, text: str) -> bool:
    return _one_of(name, text, ("true", "false")) == "true"


def _whole(name: str, text: str, most: int = _NUMBER_MAX) -> int:
    number = _parse(name, text, int, "a whole number")
    if not 1 <= number <= most:
        raise ConfigurationError(f"option {name}: {number} must be {'at least 1' if most == _NUMBER_MAX else f'1 to {most}'}.")
    return number


def _parse(name: str, text: str, kind: Callable[[str], Number], wanted: str) -> Number:
    try:
        return kind(text)
    except ValueError:
        raise ConfigurationError(f"option {name}: {text!r} must be {wanted}.") from None
