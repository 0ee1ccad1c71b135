"""The base class of objects with keys.

Python cannot wipe memory: a secret lives until its last reference is gone. This module keeps secrets out of every `repr`,
pickle and list of fields. So no log, traceback, message to another process or dump of settings contains a secret by accident.
"""

from typing import Any, NoReturn, Self


class KeyMaterial:
    """The base of immutable objects with keys. They cannot be pickled, nor their fields listed by `dataclasses.asdict`."""

    __slots__: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        """Compare all attributes except derived ones."""
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__ if name[0] != "_")

    def __hash__(self) -> int:
        """Hash consistently with `__eq__`."""
        return hash((type(self), *(getattr(self, name) for name in self.__slots__ if name[0] != "_")))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        """Refuse the change.

        Raises:
            AttributeError: Always.
        """
        raise AttributeError(f"{type(self).__name__} cannot be changed")

    def __delattr__(self, name: str) -> NoReturn:
        """Refuse the change, as `__setattr__` does."""
        raise AttributeError(f"{type(self).__name__} cannot be changed")

    def __copy__(self) -> Self:
        """Return the object itself, which is immutable."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return the object itself, which is immutable."""
        return self

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse pickling: a pickle is sent and stored without a hint of the keys inside.

        Raises:
            TypeError: Always.
        """
        kind = type(self).__name__
        raise TypeError(
            f"{kind} holds secret keys and is not pickled. Give the other process the secret itself, best as a file."
        )
