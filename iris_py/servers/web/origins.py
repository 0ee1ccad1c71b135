"""Hosts and origins: which names a door answers to, and which pages may use it.

A request must name the door by a host of its own, which protects against DNS rebinding. A page of another origin may use the
door if the file names the origin (Fetch, section 3.2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from iris_py.doors.problems import DoorRefusal
from iris_py.net.addresses import is_loopback, parse_address

if TYPE_CHECKING:
    from collections.abc import Mapping

    from iris_py.doors.settings import WebSettings

__all__ = ["Origins"]

#: Request headers that pages of other origins may set, besides those that begin with ``iris-``.
_HEADERS: Final = frozenset(("accept", "authorization", "content-type", "idempotency-key", "last-event-id"))
#: Response headers that pages of other origins may read.
_EXPOSED: Final = "Iris-Seconds, Retry-After"
_METHODS: Final = "DELETE, GET, HEAD, POST"
#: Time for which browsers remember the answer to a preflight (seconds). Too large: a removed origin still works for that time.
PREFLIGHT_S: Final = 600
_LOCAL_NAMES: Final = frozenset(("localhost", "127.0.0.1", "[::1]"))


class Origins:
    """The hosts and origins of a door.

    Args:
        settings: The settings; ``listen`` and ``public_url`` name the hosts.
    """

    def __init__(self, settings: WebSettings) -> None:
        host, _port = parse_address(settings.listen)
        self._accepts_local = is_loopback(host)
        self._hosts = {f"[{host}]" if ":" in host else host.lower()} - {"0.0.0.0", "[::]"}  # noqa: S104 - compared only
        if settings.public_url:
            parts = urlsplit(settings.public_url)
            self._hosts.add(parts.netloc.lower())
        self._origins = frozenset(settings.origins)

    def check(self, host: str, origin: str, scheme: str) -> bool:
        """Check the host and the origin of a request.

        Args:
            host: The header ``Host``.
            origin: The header ``Origin``; empty for none.
            scheme: ``http`` or ``https``.

        Returns:
            Whether the page has another origin than the door.

        Raises:
            DoorRefusal: The host or the origin is foreign.
        """
        host = host.lower()
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() and not host.endswith("]") else host
        if not (host in self._hosts or name in self._hosts or (self._accepts_local and name in _LOCAL_NAMES)):
            raise DoorRefusal("foreign-host", field="Host")
        if not origin or origin == f"{scheme}://{host}":
            return False
        if origin not in self._origins:
            raise DoorRefusal("foreign-origin", field="Origin")
        return True

    @staticmethod
    def headers_for(origin: str) -> Mapping[str, str]:
        """Return the headers of an answer to a page of another, allowed origin."""
        return {"access-control-allow-origin": origin, "access-control-expose-headers": _EXPOSED, "vary": "Origin"}

    @staticmethod
    def preflight(origin: str, wanted: str) -> Mapping[str, str]:
        """Return the headers of the answer to a preflight of an allowed origin.

        Args:
            origin: The origin.
            wanted: The header ``Access-Control-Request-Headers``.
        """
        names = [name.strip().lower() for name in wanted.split(",")]
        allowed = [name for name in names if name in _HEADERS or name.startswith("iris-")]
        return {
            "access-control-allow-origin": origin,
            "access-control-allow-methods": _METHODS,
            "access-control-allow-headers": ", ".join(allowed),
            "access-control-max-age": str(PREFLIGHT_S),
            "vary": "Origin",
        }
