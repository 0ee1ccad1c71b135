"""Names that clusters and topics of one's own cannot have: those of other clouds, and Iris's own (docs/design.md 15.21)."""

from __future__ import annotations

from typing import Final

from iris_security.text_form import refuse_secret

#: Between a name and the cloud that it is a name of: ``databases@eu``.
CLOUD_MARK: Final = "@"
#: Names of clusters and topics that begin so are Iris's own.
RESERVED_NAMES: Final = "iris."
#: The cluster of all gateways of a cloud; behind it and a dot stands the alias of a cloud that a gateway has a way to.
GATEWAYS: Final = "iris.gateway"
#: The name under whose keys nodes ask each other about themselves. Nobody joins it.
NODES: Final = "iris.nodes"


def check_own_name(name: object) -> None:
    """Refuse what is no name of a cluster or topic of one's own cloud. Whether it is a name at all is for others to say.

    Raises:
        ValueError: It is one of another cloud, or of Iris itself, or holds a secret; the text says what to write.
    """
    if not isinstance(name, str):
        return
    refuse_secret(name)
    if CLOUD_MARK in name:
        own, _mark, cloud = name.rpartition(CLOUD_MARK)
        raise ValueError(
            f"{name!r} names {own!r} of the cloud {cloud!r}, and here a name of the own cloud is meant. Write {own!r}; "
            f"or, if {CLOUD_MARK!r} is part of a name, replace it by another sign."
        )
    if name.startswith(RESERVED_NAMES):
        raise ValueError(
            f"{name!r} begins with {RESERVED_NAMES!r}, as Iris's own names do. Write another beginning, "
            f"such as {'my-' + name!r}."
        )
