"""The base of objects that belong to a single process."""

from __future__ import annotations

from typing import ClassVar, NoReturn

__all__ = ["Unpicklable"]


class Unpicklable:
    """An object with sockets, tasks or threads of this process: it cannot be pickled or copied."""

    _instead: ClassVar[str] = (
        "its sockets and tasks belong to this process. "
        "Connect in the process that uses it, with iris_py.connect() or iris_py.sync.connect()."
    )

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse to be pickled or copied.

        Raises:
            TypeError: Always: pickle's convention.
        """
        raise TypeError(f"a {type(self).__name__} cannot be pickled or copied: {self._instead}")
