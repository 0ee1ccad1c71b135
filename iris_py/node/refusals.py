"""The conversion of errors about names, keys, topics and the overlay into errors for the caller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_overlay.errors import OverlayError
from iris_py.errors import ConfigurationError

if TYPE_CHECKING:
    from types import TracebackType


#: The errors that are converted.
REFUSED: Final = (ValueError, OverlayError)


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
