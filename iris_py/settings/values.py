"""Parsers and checks of the values of settings, and the default name. An error names the setting and source, and no secret."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, cast, get_args

from iris_overlay.node_info import ADDRESSES_MAX
from iris_py.errors import ConfigurationError
from iris_py.logs import EventLogger
from iris_py.net.addresses import LISTENED, is_loopback, parse_address, parse_advertised
from iris_py.observe.journal import Observe
from iris_py.wire.facts import NAME_LENGTH_MAX, is_name
from iris_py.wire.packets import MESSAGE_BYTES_LIMIT
from iris_security import SecretFormatError, parse_administrator
from iris_security.keyring import NAME_BYTES_MAX
from iris_security.secret import TEXT_PREFIX
from iris_security.text_form import holds_secret

if TYPE_CHECKING:
    from iris_py.tracing import TracingSetting

__all__ = [
    "MESSAGE_BYTES_MIN",
    "SEEDS_MAX",
    "check_zone",
    "default_name",
    "looks_secret",
    "parse_administrator_setting",
    "parse_advertise",
    "parse_boolean",
    "parse_message_bytes",
    "parse_name",
    "parse_node_name",
    "parse_observe",
    "parse_seeds",
    "parse_text",
    "parse_tracing",
    "parse_zone",
    "refuse_secret_value",
]

logger = EventLogger("iris_py.config")

ZONE_BYTES_MAX: Final = 64
SEEDS_MAX: Final = 64  # the overlay's limit: all are dialled at every start, and a single one suffices
MESSAGE_BYTES_MIN: Final = 1024  # less is a mistake in the unit
_TRUE: Final = frozenset({"1", "true", "yes", "on"})
_FALSE: Final = frozenset({"0", "false", "no", "off"})

#: Characters of the host, so that the program fits after it.
HOST_LENGTH_MAX: Final = 32

_UNUSUAL: Final = re.compile(r"[^!-~]+")


def parse_text(value: object, origin: str) -> str:
    """Check that a value is text, and return it."""
    if not isinstance(value, str):
        raise ConfigurationError(f"{origin} must be text, not {type(value).__name__}. Correct it.")
    return value


def parse_name(value: object, origin: str, bytes_max: int = NAME_BYTES_MAX, *, may_be_empty: bool = False) -> str:
    """Check the name of a network, a cluster or a zone, and return the name."""
    text = parse_text(value, origin)
    refuse_secret_value(text, origin)
    if not text and not may_be_empty:
        raise ConfigurationError(f"{origin} is empty. Give it a name, or leave it out.")
    if not text.isprintable() or text != text.strip():  # a lone surrogate, impossible in UTF-8, is not printable either
        raise ConfigurationError(f"{origin} {text!r} has blanks at its ends or unprintable characters. Remove them.")
    if len(text.encode()) > bytes_max:
        raise ConfigurationError(f"{origin} is {len(text.encode())} bytes long, and {bytes_max} are allowed. Shorten it.")
    return text


def parse_zone(value: object, origin: str) -> str:
    """Check the zone of a node, which may be empty, and return the zone."""
    return parse_name(value, origin, ZONE_BYTES_MAX, may_be_empty=True)


def parse_node_name(value: object, origin: str) -> str:
    """Check the label of a node, which may be empty, and return the label."""
    text = parse_text(value, origin)
    if text and not is_name(text):
        raise ConfigurationError(
            f"{origin} {text!r} is not a valid name of a node. Use 1 to {NAME_LENGTH_MAX} printable ASCII characters, "
            "without blanks at the ends. With an empty name the node has no label."
        )
    return text


def default_name() -> str:
    """Return the host, up to its first dot, a slash, and the program: ``web-1/orders.py``.

    The program is the started file, or with ``-m`` the module, without directory and arguments: arguments can hold secrets.
    Characters other than printable ASCII become underscores.
    """
    host = _plain(os.uname().nodename.partition(".")[0])[:HOST_LENGTH_MAX] or "host"
    return f"{host}/{_plain(_program())}"[:NAME_LENGTH_MAX]


def _program() -> str:
    specification = getattr(sys.modules.get("__main__"), "__spec__", None)
    if specification is not None:  # started by -m
        return str(specification.name).removesuffix(".__main__") or "python"
    name = os.path.basename(sys.argv[0]) if sys.argv else ""
    return "python" if name in ("", "-c", "-") else name


def _plain(text: str) -> str:
    return _UNUSUAL.sub("_", text)


def check_zone(zone: str | None, origin: str) -> str:
    """Check the zone of ``prefer=`` or ``require=``, and return the zone; empty for None.

    Raises:
        ConfigurationError: No node could be in this zone.
    """
    return "" if zone is None else parse_name(zone, origin, ZONE_BYTES_MAX)


def parse_tracing(value: object, origin: str) -> TracingSetting:
    """Parse the setting ``tracing``: whether to make spans, or the provider of tracers."""
    if value is None:
        return None
    if hasattr(value, "get_tracer"):
        return cast("TracingSetting", value)
    return parse_boolean(value, origin)


def parse_observe(value: object, origin: str) -> Observe:
    """Parse the setting ``observe``: the node's answers to questions of other nodes."""
    for known in get_args(Observe):
        if value == known:
            return cast("Observe", known)
    raise ConfigurationError(f"{origin} is {value!r}. Use one of {', '.join(get_args(Observe))}.")


def parse_boolean(value: object, origin: str) -> bool:
    """Parse a flag: True, False, or from the environment a word such as "yes"."""
    if isinstance(value, bool):
        return value
    word = value.lower() if isinstance(value, str) else ""
    if word not in _TRUE | _FALSE:
        raise ConfigurationError(f"{origin} is {value!r}, neither yes nor no. Use true or false.")
    return word in _TRUE


def parse_message_bytes(value: object, origin: str) -> int:
    """Parse the setting ``max_message_bytes``: a whole number, or from the environment its text."""
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not MESSAGE_BYTES_MIN <= value <= MESSAGE_BYTES_LIMIT:
        raise ConfigurationError(
            f"{origin} is {value!r}, not a number of bytes from {MESSAGE_BYTES_MIN} to {MESSAGE_BYTES_LIMIT}. Correct it."
        )
    return value


def parse_advertise(value: object, origin: str, listen: str) -> tuple[str, ...]:
    """Parse the addresses for other nodes to dial; warn if they cannot lead to ``listen``."""
    advertised = _addresses(value, origin, ADDRESSES_MAX, "A node that suspects this node to be dead dials each of them.")
    host, listen_port = parse_address(listen)
    is_distant = False
    for text in advertised:
        if text == LISTENED:
            continue
        name, port = parse_advertised(text, origin)
        is_distant |= not is_loopback(name)
        if port is not None and listen_port == 0:
            raise ConfigurationError(
                f"{origin}: {text} has a port, but listen={listen} takes any free port, so nothing can forward connections "
                "to this node. Give listen a fixed port, or leave out the port of the advertised address."
            )
    if is_distant and is_loopback(host):
        logger.warning(
            "address_unreachable",
            "%s tells other machines to dial this node, but it listens on %s, which they cannot reach unless a program on "
            "this machine forwards their connections. Listen on 0.0.0.0 and a fixed port, for example",
            origin,
            listen,
        )
    return advertised


def parse_seeds(value: object, origin: str) -> tuple[str, ...]:
    """Parse the seeds: the addresses of nodes to dial at the start."""
    seeds = _addresses(value, origin, SEEDS_MAX, "A few seeds that answer are enough.")
    for seed in seeds:
        parse_address(seed, origin, port_min=1)
    return seeds


def parse_administrator_setting(value: object, origin: str) -> str | None:
    """Parse the public half of an administrator key; return None without an administrator."""
    if value is None:
        return None
    text = parse_text(value, origin)
    try:
        parse_administrator(text)
    except SecretFormatError as exc:
        raise ConfigurationError(f"{origin}: {exc}. `iris keys administrator` makes both halves.") from None
    return text.strip()


def looks_secret(text: str) -> bool:
    """Tell whether a text may be a secret, and so must not be shown."""
    return TEXT_PREFIX in text or holds_secret(text)


def refuse_secret_value(value: object, origin: str) -> None:
    """Refuse a secret given for a setting that takes none: errors and the node would show the value.

    Raises:
        ConfigurationError: The value, or one of a sequence, holds a secret or a private key. The error does not repeat it.
    """
    texts = [value] if isinstance(value, str) else value if isinstance(value, Sequence) else ()
    if any(isinstance(text, str) and holds_secret(text) for text in texts):
        raise ConfigurationError(
            f"{origin} holds a secret or a private key, but others can see this setting. Remove it there, give the secret as "
            "secret, secret_file or secret_command, and make a new one if others have seen it."
        )


def _addresses(value: object, origin: str, entries_max: int, advice: str) -> tuple[str, ...]:
    """Parse addresses: a sequence, or from the environment a text with commas between the addresses."""
    parts = [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
    if not isinstance(parts, Sequence) or isinstance(parts, bytes):
        raise ConfigurationError(f"{origin} must be a list of host:port, not {type(value).__name__}. Correct it.")
    if len(parts) > entries_max:
        raise ConfigurationError(f"{origin} has {len(parts)} entries, and {entries_max} are allowed. {advice}")
    return tuple(dict.fromkeys(parse_text(part, origin) for part in parts))
