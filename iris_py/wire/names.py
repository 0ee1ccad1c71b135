"""Names that users write: those reserved from applications' clusters and topics (docs/design.md 15.21), advice, and refusals.

Reserved are the names of other clouds, and Iris's own. A mistyped name gets advice. `refusals` turns the errors about names,
keys, topics and groups into errors for the caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_overlay.errors import OverlayError
from iris_py.errors import ConfigurationError
from iris_security.text_form import refuse_secret

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

#: Separates a name from its cloud: ``databases@eu``.
CLOUD_MARK: Final = "@"
#: Prefix of Iris's own clusters and topics.
RESERVED_NAMES: Final = "iris."
#: The cluster of all gateways of a cloud; with a dot and an alias appended, the cluster of the gateways that reach this other
#: cloud.
GATEWAYS: Final = "iris.gateway"
#: The name whose keys encrypt the questions of nodes about each other. It has no members.
NODES: Final = "iris.nodes"

#: The errors that are converted.
REFUSED: Final = (ValueError, OverlayError)


def check_own_name(name: object) -> None:
    """Reject names of other clouds and of Iris itself. Other checks validate the form of the name.

    Raises:
        ValueError: The name belongs to another cloud or to Iris, or contains a secret; the text suggests a correction.
    """
    if not isinstance(name, str):
        return
    refuse_secret(name)
    if CLOUD_MARK in name:
        own, _mark, cloud = name.rpartition(CLOUD_MARK)
        raise ValueError(
            f"{name!r} names {own!r} of the cloud {cloud!r}, but only a name of the own cloud is allowed here. Write "
            f"{own!r}. If {CLOUD_MARK!r} is part of a name, replace it by another character."
        )
    if name.startswith(RESERVED_NAMES):
        raise ValueError(
            f"{name!r} begins with {RESERVED_NAMES!r}, which is reserved for Iris. Choose another prefix, such as "
            f"{'my-' + name!r}."
        )


def nearest_name(name: str, known: Sequence[str]) -> str:
    """Return a sentence that suggests the most similar known name, or lists all known names.

    Args:
        name: The mistyped name.
        known: The valid names, at least one.
    """
    import difflib  # imported only for the error

    near = difflib.get_close_matches(name, known, n=1)
    return f"Did you mean {near[0]!r}?" if near else f"Use one of: {', '.join(known)}."


class Refusals:
    """Converts errors of its ``with`` block to :class:`~iris_py.errors.ConfigurationError`, with the same text."""

    __slots__ = ()

    def __enter__(self) -> None:
        """Enter the block."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Convert an error of the block.

        Raises:
            ConfigurationError: The block raised a :exc:`ValueError` or an overlay error.
        """
        if isinstance(error, REFUSED):
            raise ConfigurationError(str(error)) from error


refusals = Refusals()
