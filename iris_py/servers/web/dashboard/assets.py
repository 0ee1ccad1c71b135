"""The files of pages, read once, with the headers that keep scripts and frames of others out."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import TYPE_CHECKING, Final, NamedTuple

from starlette.responses import Response

from iris_py.doors.problems import DoorRefusal

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Assets"]

_TYPES: Final[Mapping[str, str]] = {
    "css": "text/css",
    "html": "text/html",
    "js": "text/javascript",
    "svg": "image/svg+xml",
}
#: No script, style or connection but the door's own; no frame around the page (CSP 3).
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'self'; require-trusted-types-for 'script'"
)


class Asset(NamedTuple):
    """A file."""

    content: bytes
    media_type: str
    tag: str
    """A strong ETag."""


class Assets:
    """The files of pages: those in the folder ``static`` of a package.

    Args:
        package: The name of the package.
    """

    def __init__(self, package: str) -> None:
        self._assets: dict[str, Asset] = {}
        for path in files(package).joinpath("static").iterdir():
            media_type = _TYPES.get(path.name.rpartition(".")[2])
            if media_type is not None:
                content = path.read_bytes()
                tag = f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"'
                self._assets[path.name] = Asset(content, media_type, tag)

    def answer(self, name: str, known_tag: str) -> Response:
        """Return a file; without content if the client has the file.

        Args:
            name: The name of the file.
            known_tag: The header ``If-None-Match``.

        Raises:
            DoorRefusal: The name is unknown.
        """
        asset = self._assets.get(name)
        if asset is None:
            raise DoorRefusal("unknown-path")
        headers = {"etag": asset.tag, "cache-control": "no-cache", "content-security-policy": POLICY}
        if known_tag == asset.tag:
            return Response(status_code=304, headers=headers)
        return Response(asset.content, media_type=asset.media_type, headers=headers)
