"""The boundary at which a refusal of names, keys, topics and the overlay becomes an error of the caller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_overlay.errors import OverlayError
from iris_py.errors import ConfigurationError

if TYPE_CHECKING:
    from types import TracebackType


class Refusals:
    """Raises what is refused within its ``with`` block as :class:`~iris_py.errors.ConfigurationError`, with the same text."""

    __slots__ = ()

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Translate.

        Raises:
            ConfigurationError: The block was left with a :exc:`ValueError` or an error of the overlay.
        """
        if isinstance(error, ValueError | OverlayError):
            raise ConfigurationError(str(error)) from error


refusals = Refusals()
