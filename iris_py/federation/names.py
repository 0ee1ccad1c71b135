"""Names in other clouds, such as ``databases@eu`` (docs/design.md 15.21), and headers of tunnels to gateways (15.81).

With these headers, a node tells the gateway which use of another cloud the tunnel is for.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from iris_py.wire.names import CLOUD_MARK, GATEWAYS, RESERVED_NAMES, check_own_name
from iris_security.keyring import encode_name
from iris_security.text_form import refuse_secret

__all__ = [
    "CLOUD_MARK",
    "GATEWAYS",
    "RESERVED_NAMES",
    "check_alias",
    "check_own_name",
    "gateway_cluster",
    "split",
    "split_pattern",
]

#: The use: "subscribe", "publish", "survey" or "tunnel".
OP_HEADER: Final = "iris-op"
#: The name of the cluster in the other cloud.
NAME_HEADER: Final = "iris-name"
#: The caller's timeout in seconds: for the opening, or for a whole survey.
TIME_HEADER: Final = "iris-time"
#: Whether to wait for a place while all members are full.
WAITS_HEADER: Final = "iris-waits"
#: The number of replies that completes a survey; 0: all.
STOP_HEADER: Final = "iris-stop"

#: The options byte of a tunnel's channel: this bit makes the opening wait for a place.
WAITS: Final = 1


#: The alias of a cloud.
_ALIAS: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?", re.ASCII)


@lru_cache(maxsize=1024)
def split(name: str) -> tuple[str, str]:
    """Split a name into the name of a cluster or topic, and the alias of its cloud.

    Args:
        name: The name in the user's form, with the alias after the last ``@``.

    Returns:
        The name in the cloud, and the alias, which is empty for a name of the local cloud.

    Raises:
        ValueError: The name is invalid; the text gives the correction.
    """
    if not isinstance(name, str) or CLOUD_MARK not in name:
        encode_name(name)
        check_own_name(name)
        return name, ""
    refuse_secret(name)
    inner, _mark, alias = name.rpartition(CLOUD_MARK)
    if not inner:
        raise ValueError(f"{name!r} lacks a name before the {CLOUD_MARK!r}. Write it there, as in 'databases@{alias}'.")
    check_alias(alias, name)
    if CLOUD_MARK in inner:
        raise ValueError(
            f"{name!r} names two clouds, but no cloud forwards to a third one. Write the name that the next cloud exports, "
            f"with one {CLOUD_MARK!r}."
        )
    encode_name(inner)
    check_own_name(inner)
    return inner, alias


def split_pattern(pattern: str) -> tuple[str, str]:
    """Split a topic or pattern into its name and the alias of the cloud; empty for the own cloud.

    Raises:
        ValueError: The name is not valid; the text has the remedy.
    """
    return split(pattern) if isinstance(pattern, str) and CLOUD_MARK in pattern else (pattern, "")


def check_alias(alias: str, name: str = "") -> None:
    """Refuse an invalid alias of a cloud.

    Args:
        name: The whole name with the alias, for the error; empty if the alias stands alone.

    Raises:
        ValueError: The alias is invalid; the text gives the correction.
    """
    refuse_secret(f"{alias} {name}")
    if not isinstance(alias, str) or _ALIAS.fullmatch(alias) is None:
        where = f", in {name!r}," if name else ""
        raise ValueError(
            f"{alias!r}{where} is not a valid alias of a cloud. Use 1 to 32 of a-z, 0-9 and '-', with no '-' at either end, "
            "as in the configuration of the gateways ([cloud.eu])."
        )


def gateway_cluster(alias: str = "") -> str:
    """Return the name of the cluster of gateways to a cloud; without an alias, of all gateways."""
    return f"{GATEWAYS}.{alias}" if alias else GATEWAYS
