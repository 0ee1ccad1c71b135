"""Names of what other clouds have: ``databases@eu`` (docs/design.md 15.21).

The headers by which a node tells a gateway what a tunnel to it is for (docs/design.md 15.81).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from iris_py.wire.names import CLOUD_MARK, GATEWAYS, RESERVED_NAMES, check_own_name
from iris_security.keyring import encode_name
from iris_security.text_form import refuse_secret

__all__ = ["CLOUD_MARK", "GATEWAYS", "RESERVED_NAMES", "check_alias", "check_own_name", "gateway_cluster", "split"]

#: The use: "subscribe", "publish", "survey" or "tunnel".
OP_HEADER: Final = "iris-op"
#: The name of the cluster in the other cloud.
NAME_HEADER: Final = "iris-name"
#: How long its caller waits for it to open, in seconds; of a survey, how long for everything.
TIME_HEADER: Final = "iris-time"
#: Whether it waits for a place where all members are full.
WAITS_HEADER: Final = "iris-waits"
#: How many replies are enough for a survey; 0: all.
STOP_HEADER: Final = "iris-stop"

#: The options with which a channel for a tunnel is opened: one byte, in which this bit says that it waits for a place.
WAITS: Final = 1


#: What a cloud is called by its neighbour.
_ALIAS: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?", re.ASCII)


@lru_cache(maxsize=1024)
def split(name: str) -> tuple[str, str]:
    """Split a name into that of a cluster or topic, and the alias of its cloud.

    Args:
        name: As users write it; what stands behind the last ``@`` is the alias.

    Returns:
        The name there, and the alias; that is empty for a name of the own cloud.

    Raises:
        ValueError: It is no such name; the text says what to write.
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
            f"{name!r} names two clouds, and nothing is passed on by a third one. Write the name that this cloud has for "
            f"what is meant, and one {CLOUD_MARK!r}."
        )
    encode_name(inner)
    check_own_name(inner)
    return inner, alias


def check_alias(alias: str, name: str = "") -> None:
    """Refuse what no cloud can be called.

    Args:
        alias: What it is to be called.
        name: In which name that stands; empty if it stands alone.

    Raises:
        ValueError: It is no alias; the text says what to write.
    """
    refuse_secret(f"{alias} {name}")
    if not isinstance(alias, str) or _ALIAS.fullmatch(alias) is None:
        where = f", in {name!r}," if name else ""
        raise ValueError(
            f"{alias!r}{where} is no alias of a cloud. Write 1 to 32 of a-z, 0-9 and '-', with no '-' at either end, as the "
            "gateways have it in their configuration ([cloud.eu])."
        )


def gateway_cluster(alias: str = "") -> str:
    """Return the name of the cluster of the gateways that have a way to a cloud; without an alias, of all gateways."""
    return f"{GATEWAYS}.{alias}" if alias else GATEWAYS
