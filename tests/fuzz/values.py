"""Valid messages from a fuzzer's bytes: whatever the types of their fields and the bounds of the decoder allow."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, get_args, get_origin, get_type_hints

import msgspec

from iris_overlay.groups import entries
from iris_overlay.groups.entries import ENTRIES_BYTES_MAX
from iris_overlay.ids import GroupId, NodeId
from iris_overlay.node_info import SEQUENCE_MAX, NodeInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.fuzz.source import Source

Builder: TypeAlias = "Callable[[Source], Any]"
#: Elements of a list where there may be more: enough for a first one, a last one, and one twice.
LENGTH_MAX = 4
_UNBOUNDED = msgspec.Meta()


class Values:
    """Makes messages that speak of some nodes and groups.

    Args:
        infos: The nodes.
        groups: The groups.
    """

    def __init__(self, infos: Sequence[NodeInfo], groups: Sequence[GroupId]) -> None:
        self._infos = infos
        self._nodes = [info.id for info in infos]
        self._groups = groups
        self._keys: list[bytes] = [*groups, *self._nodes]
        self._known: dict[Any, Builder] = {}

    def message(self, kind: Any, source: Source) -> Any:
        """Return a message of a kind."""
        return self.builder(kind)(source)

    def builder(self, annotation: Any, bounds: msgspec.Meta = _UNBOUNDED) -> Builder:
        """Return what makes values of a type."""
        key = (annotation, bounds.min_length, bounds.max_length, bounds.ge, bounds.le, bounds.lt)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._build(annotation, bounds)
        return found

    def _build(self, annotation: Any, bounds: msgspec.Meta) -> Builder:
        origin, arguments = get_origin(annotation), get_args(annotation)
        if origin is Annotated:
            return self.builder(arguments[0], arguments[1])
        if annotation is NodeInfo:
            return lambda source: source.choose(self._infos)
        if annotation is NodeId:
            return lambda source: source.choose(self._nodes)
        if annotation is GroupId:
            return lambda source: source.choose(self._groups)
        if annotation is bool:
            return lambda source: source.flag()
        if annotation is int:
            return _number(bounds)
        if annotation is bytes:
            return self._bytes(bounds)
        if origin in (list, tuple):
            return self._sequence(origin, arguments, bounds)
        if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
            options = list(annotation)
            return lambda source: source.choose(options)
        return self._struct(annotation)

    def _bytes(self, bounds: msgspec.Meta) -> Builder:
        if bounds.min_length == bounds.max_length == 16:  # the key of something
            return lambda source: source.choose(self._keys)
        longest = bounds.max_length if bounds.max_length is not None else 1 << 16
        if longest == ENTRIES_BYTES_MAX:  # the entries of a table, mostly sorted
            return lambda source: entries.pack((number, 0, 0) for number in source.blob()) if source.byte() else source.blob()
        return lambda source: source.blob()[:longest]

    def _sequence(self, origin: type, arguments: tuple[Any, ...], bounds: msgspec.Meta) -> Builder:
        if origin is tuple and arguments[-1] is not Ellipsis:
            parts = [self.builder(each) for each in arguments]
            return lambda source: tuple([part(source) for part in parts])
        element = self.builder(arguments[0])
        shortest = bounds.min_length or 0
        longest = bounds.max_length if bounds.max_length is not None else LENGTH_MAX

        def make(source: Source) -> Any:
            choice = source.byte()
            if choice == 255:  # as long as it may be, all of it the same
                return origin([element(source)] * min(longest, 256))
            return origin([element(source) for _ in range(max(shortest, min(choice % (LENGTH_MAX + 1), longest)))])

        return make

    def _struct(self, kind: Any) -> Builder:
        hints = get_type_hints(kind, include_extras=True)
        parts = [self.builder(hints[name]) for name in kind.__struct_fields__]
        return lambda source: kind(*[part(source) for part in parts])


def _number(bounds: msgspec.Meta) -> Builder:
    low = int(bounds.ge) if bounds.ge is not None else 0
    below = int(bounds.lt) - 1 if bounds.lt is not None else SEQUENCE_MAX
    high = int(bounds.le) if bounds.le is not None else below
    return lambda source: source.number(low, high)
