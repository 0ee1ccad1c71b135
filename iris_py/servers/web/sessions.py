"""Sessions of browsers: a cookie holds the token, and a one-time code in a link becomes a cookie.

Only pages of the door use the cookie: scripts cannot read the cookie, and other sites cannot send the cookie. A changing
request with a cookie needs the header ``Iris-Request``, which a form of another site cannot set.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

import msgspec
from starlette.responses import Response

from iris_py.doors.problems import DoorRefusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

    from iris_py.doors.rights import Grant

__all__ = ["Codes", "Sessions"]

#: The name of the cookie. With TLS the prefix forbids other hosts of the domain to set it (RFC 6265bis, section 4.1.3).
COOKIE: Final = "iris-token"
SECURE_COOKIE: Final = "__Host-iris-token"
#: Time for which a code may be used (seconds), and codes at a time. Too small: the link is dead before it is opened; too large:
#: a code in the history of a shell still opens the door.
CODE_S: Final = 600.0
CODES_MAX: Final = 16
#: Characters of a header with cookies. Cookies of other programs at the same host count, too.
COOKIES_MAX: Final = 16 * 1024
#: The largest body of a request with a code.
CODE_BODY_BYTES_MAX: Final = 1024
#: The longest time for which a browser keeps a cookie (seconds): the longest lifetime of a token.
COOKIE_S_MAX: Final = 24 * 3600
_CODE_BYTES: Final = 16


class CodeBody(msgspec.Struct, frozen=True):
    """The body of a request that signs in with a one-time code."""

    code: str


class Codes:
    """One-time codes, each for a token."""

    def __init__(self) -> None:
        self._codes: OrderedDict[str, tuple[float, str]] = OrderedDict()  # ends and tokens, the oldest code first

    def make(self, token: str, now: float) -> str:
        """Return a new code of 128 random bits for a token; beyond ``CODES_MAX`` the oldest is forgotten."""
        code = secrets.token_urlsafe(_CODE_BYTES)
        self._codes[code] = now + CODE_S, token
        while len(self._codes) > CODES_MAX:
            self._codes.popitem(last=False)
        return code

    def use(self, code: str, now: float) -> str:
        """Use a code, and return its token; empty if the code is wrong, used or too old."""
        for known in list(self._codes):
            if hmac.compare_digest(known.encode(), code.encode()):
                until, token = self._codes.pop(known)
                return token if until > now else ""
        return ""


class Sessions:
    """The sessions of browsers.

    Args:
        verify: Returns the client of a token and its rights, or raises a `DoorRefusal`.
    """

    def __init__(self, verify: Callable[[str], Grant]) -> None:
        self.codes = Codes()
        self._verify = verify

    async def sign_in(self, request: Request, _name: str) -> Response:
        """Answer with a cookie for a token, or for a one-time code in the body.

        Raises:
            DoorRefusal: The token or the code is wrong.
        """
        _check_page(request)
        header = request.headers.get("authorization", "")
        token = header.partition(" ")[2].strip() if header else self._token_for(await _read_code(request))
        grant = self._verify(token)
        left_s = int(min(grant.until - time.time(), COOKIE_S_MAX))
        answer = Response(status_code=204)
        answer.headers["set-cookie"] = _cookie(request, token, max(1, left_s))
        return answer

    async def sign_out(self, request: Request, _name: str) -> Response:
        """Answer with the removal of the cookie."""
        _check_page(request)
        answer = Response(status_code=204)
        answer.headers["set-cookie"] = _cookie(request, "", 0)
        return answer

    def token_of(self, request: Request) -> str:
        """Return the token in the cookie of a request.

        Raises:
            DoorRefusal: There is no cookie, or the request changes something and may come from another site.
        """
        token = _token_of_cookie(request)
        if not token:
            raise DoorRefusal("no-token")
        if request.method not in ("GET", "HEAD"):
            _check_page(request)
        return token

    def _token_for(self, code: str) -> str:
        token = self.codes.use(code, asyncio.get_running_loop().time())
        if not token:
            raise DoorRefusal("token-malformed", field="code")
        return token


async def _read_code(request: Request) -> str:
    """Return the code in the body of a request.

    Raises:
        DoorRefusal: The body is too large, or has none.
    """
    content = b""
    async for part in request.stream():
        content += part
        if len(content) > CODE_BODY_BYTES_MAX:
            raise DoorRefusal("body-too-large")
    if not content:
        raise DoorRefusal("no-token")
    try:
        return msgspec.json.decode(content, type=CodeBody).code
    except msgspec.DecodeError:
        raise DoorRefusal("invalid", field="code") from None


def _check_page(request: Request) -> None:
    """Refuse a request that a page of another site could have made.

    Raises:
        DoorRefusal: It lacks the header of the dashboard.
    """
    if request.headers.get("iris-request") != "1":
        raise DoorRefusal("foreign-origin", field="Iris-Request")


def _cookie(request: Request, token: str, max_age_s: int) -> str:
    """Return the header ``Set-Cookie`` that keeps a token, or with an empty one and 0 seconds removes it."""
    if request.url.scheme == "https":
        return f"{SECURE_COOKIE}={token}; Max-Age={max_age_s}; Path=/; HttpOnly; SameSite=Strict; Secure"
    path = request.scope.get("root_path", "") or "/"
    return f"{COOKIE}={token}; Max-Age={max_age_s}; Path={path}; HttpOnly; SameSite=Strict"


def _token_of_cookie(request: Request) -> str:
    header = request.headers.get("cookie", "")
    if len(header) > COOKIES_MAX:
        raise DoorRefusal("invalid", field="Cookie")
    wanted = SECURE_COOKIE if request.url.scheme == "https" else COOKIE
    for part in header.split(";"):
        name, _mark, value = part.strip().partition("=")
        if name == wanted:
            return value
    return ""
