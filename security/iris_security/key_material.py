"""Objects that hold keys.

Python cannot wipe memory: a secret lives until its last reference goes. What this module can do is to keep secrets out of every
`repr`, pickle and list of fields: no log, traceback, message to another process or dump of settings has one by accident.
"""

from typing import Any, NoReturn, Self


class KeyMaterial:
    """An object with keys: it does not change, is no dataclass whose fields `asdict` would show, and is not pickled."""

    __slots__: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        """Compare all that is in it, but for what derives from the rest."""
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__ if name[0] != "_")

    def __hash__(self) -> int:
        """Hash as equality demands."""
        return hash((type(self), *(getattr(self, name) for name in self.__slots__ if name[0] != "_")))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        """Refuse to change.

        Raises:
            AttributeError: Always.
        """
        raise AttributeError(f"{type(self).__name__} cannot be changed")

    def __delattr__(self, name: str) -> NoReturn:
        """Refuse to change, as `__setattr__` does."""
        raise AttributeError(f"{type(self).__name__} cannot be changed")

    def __copy__(self) -> Self:
        """Return the very same, for it does not change."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return the very same, for it does not change."""
        return self

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse to be pickled: a pickle is bytes that travel and are stored, and nobody would know that keys are in them.

        Raises:
            TypeError: Always.
        """
        kind = type(self).__name__
        raise TypeError(
            f"{kind} holds secret keys and is not pickled. Give the other process the secret itself, best as a file."
        )
