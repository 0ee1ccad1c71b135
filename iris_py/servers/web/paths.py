"""The paths of a web door, and the operation behind each.

Names are percent-encoded, and a name may contain ``/``: so paths are matched as they were sent, before decoding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import unquote_to_bytes

from iris_py.doors.problems import DoorRefusal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["PATHS", "FoundPath", "PathSpec", "find_path"]

#: Stands in a path for a name.
NAME: Final = "{name}"


class PathSpec(NamedTuple):
    """An operation, with its method and path."""

    operation: str
    """The name of the operation."""
    method: str
    """The method of HTTP."""
    path: str
    """The path; ``{name}`` stands for the name of a cluster or topic."""
    is_public: bool = False
    """Whether the operation needs no token."""


class FoundPath(NamedTuple):
    """An operation at the path of a client."""

    spec: PathSpec
    """The operation."""
    name: str
    """The decoded name in the path; empty for a path without a name."""


PATHS: Final = (
    PathSpec("request", "POST", "/v1/clusters/{name}/request"),
    PathSpec("broadcast", "POST", "/v1/clusters/{name}/broadcast"),
    PathSpec("survey", "POST", "/v1/clusters/{name}/survey"),
    PathSpec("publish", "POST", "/v1/topics/{name}"),
    PathSpec("events", "GET", "/v1/topics/events"),
    PathSpec("last", "GET", "/v1/topics/{name}/last"),
    PathSpec("watch", "GET", "/v1/watch"),
    PathSpec("page", "GET", "/v1/pages/{name}"),
    PathSpec("examine", "POST", "/v1/findings"),
    PathSpec("sign-in", "POST", "/v1/session", is_public=True),
    PathSpec("session", "GET", "/v1/session"),
    PathSpec("sign-out", "DELETE", "/v1/session", is_public=True),
    PathSpec("openapi", "GET", "/v1/openapi.json", is_public=True),
    PathSpec("healthz", "GET", "/healthz", is_public=True),
    PathSpec("readyz", "GET", "/readyz", is_public=True),
    PathSpec("metrics", "GET", "/metrics"),
    PathSpec("dashboard", "GET", "/", is_public=True),
    PathSpec("asset", "GET", "/static/{name}", is_public=True),
)


def _by_segments(paths: tuple[PathSpec, ...]) -> list[tuple[tuple[str, ...], Mapping[str, PathSpec]]]:
    """Return the operations of every path, by method, the paths without a name first: a name matches any text."""
    found: dict[tuple[str, ...], dict[str, PathSpec]] = {}
    for spec in paths:
        found.setdefault(tuple(spec.path.split("/")), {})[spec.method] = spec
    return sorted(found.items(), key=lambda item: NAME in item[0])


_PATHS: Final = _by_segments(PATHS)


def find_path(raw_path: bytes) -> Mapping[str, FoundPath]:
    """Return the operations at a path, by method.

    A topic may be called ``events``, and ``/v1/topics/events`` also has the other methods of a topic.

    Args:
        raw_path: The path as the client sent it.

    Raises:
        DoorRefusal: The path is unknown, or the name is no UTF-8.
    """
    segments = raw_path.split(b"/")
    found: dict[str, FoundPath] = {}
    for known, specs in _PATHS:
        name = _match(known, segments)
        if name is None:
            continue
        try:
            text = name.decode()
        except UnicodeDecodeError:
            raise DoorRefusal("invalid", field="name") from None
        for method, spec in specs.items():
            found.setdefault(method, FoundPath(spec, text))
    if not found:
        raise DoorRefusal("unknown-path")
    return found


def _match(known: tuple[str, ...], segments: Sequence[bytes]) -> bytes | None:
    """Return the decoded name in a path, empty for a path without a name; None for another path."""
    if len(known) != len(segments):
        return None
    name = b""
    for pattern, segment in zip(known, segments, strict=True):
        if pattern == NAME and segment:
            name = unquote_to_bytes(segment)
        elif pattern.encode() != segment:
            return None
    return name
