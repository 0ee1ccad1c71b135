"""Tokens of doors: JSON Web Tokens (RFC 7519), signed with a key that derives from the secret of the network.

Every holder of the secret can make tokens, without a running node (docs/design.md 2.11). The algorithm is HS256 alone. The
header names the generation of the secret, so tokens outlive a rotation.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, Literal

import jwt
import msgspec
from msgspec import UNSET, UnsetType

from iris_py.doors.problems import DoorRefusal
from iris_py.doors.revocations import RevocationTable
from iris_py.doors.rights import CLOCK_SKEW_S_MAX, LIFETIME_S_MAX, Grant, Rights, check_subject, fits_rules
from iris_py.errors import ConfigurationError
from iris_security.text_form import refuse_secret

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from iris_security import Keyring, NetworkKeys

__all__ = [
    "CLOCK_SKEW_S_MAX",
    "LIFETIME_S_MAX",
    "TOKEN_BYTES_MAX",
    "TOKEN_ID_BYTES",
    "Claims",
    "Token",
    "TokenVerifier",
    "make_token",
    "read_token",
]

#: Characters of a token. Too small: a token with many rules does not fit; too large: headers of HTTP requests are full.
TOKEN_BYTES_MAX: Final = 8192
#: Bytes of the id of a token, which nobody can guess.
TOKEN_ID_BYTES: Final = 16
#: Verified tokens that a verifier remembers. Too small: tokens of busy clients are verified at each request; too large: memory,
#: up to some 10 KiB for each.
VERIFIED_MAX: Final = 4096
#: The latest time in a token: a day before the end of the year 9999, so that every time zone has a date for it.
TIME_S_MAX: Final = 253_402_214_399

#: The only algorithm (RFC 7518, section 3.2). A verifier that reads the algorithm from the token lets the client choose it.
ALGORITHM: Final = "HS256"
_JWS: Final = jwt.PyJWS(algorithms=[ALGORITHM])
#: Header, claims and signature in URL-safe base64. A signature has 32 bytes.
_TOKEN: Final = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]{43})")
_TOKEN_ID: Final = re.compile(f"[0-9a-f]{{{2 * TOKEN_ID_BYTES}}}")

_Time = Annotated[float, msgspec.Meta(ge=0, le=TIME_S_MAX)]


class TokenHeader(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The header of a token. Other parameters are refused: they would name keys (``jwk``) or change the form (``crit``)."""

    alg: Literal["HS256"]
    """The algorithm."""
    kid: str
    """The id of the generation of the secret that signed the token, in hexadecimal digits."""
    typ: Literal["JWT"] | UnsetType = UNSET
    """The type."""


class Claims(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The claims of a token (RFC 7519, section 4.1). An unknown claim might restrict a right, so it is refused."""

    sub: str
    """The subject: the name of the client."""
    exp: _Time
    """The end, in seconds since 1970."""
    aud: str
    """The name of the network."""
    jti: str
    """The id of the token: 128 random bits in hexadecimal digits."""
    role: str | UnsetType = UNSET
    """A role of the file of the door."""
    iris: Rights | UnsetType = UNSET
    """Rules, as a role has them."""
    iat: _Time = 0.0
    """The making, in seconds since 1970. A token without it counts as made as early as its end allows."""
    nbf: _Time = 0.0
    """The beginning, in seconds since 1970."""

    @property
    def made_at(self) -> float:
        """The making, in seconds since 1970: not earlier than the end allows, whatever the claim says."""
        return max(self.iat, self.exp - LIFETIME_S_MAX - CLOCK_SKEW_S_MAX)


@dataclass(frozen=True, slots=True)
class Token:
    """A token whose signature was not verified."""

    text: str
    """The token as it was given."""
    key_id: str
    """The generation of the secret that the token names, in hexadecimal digits."""
    claims: Claims
    """The claims."""

    def is_signed_with(self, keys: NetworkKeys) -> bool:
        """Return whether a generation of the secret of a network signed the token."""
        return self.key_id == keys.key_id.hex() and _is_signed(self.text, keys)


def make_token(
    keys: NetworkKeys,
    *,
    subject: str,
    lifetime_s: float,
    role: str = "",
    rights: Rights | None = None,
    now: float,
    token_id: str,
) -> str:
    """Make a token.

    Args:
        keys: The sealing generation of the secret of the network: ``keyring.primary``.
        subject: The name of the client.
        lifetime_s: The time until the end of the token, in seconds.
        role: A role of the file of the door; empty for none.
        rights: Rules, as a role has them. With a role too, both have to allow an operation.
        now: The time, in seconds since 1970.
        token_id: `TOKEN_ID_BYTES` random bytes in hexadecimal digits.

    Returns:
        The token, printable ASCII.

    Raises:
        ConfigurationError: An argument is invalid; the text suggests a correction.
    """
    _check_arguments(subject, lifetime_s, role, rights)
    if _TOKEN_ID.fullmatch(token_id) is None:
        raise ConfigurationError(f"the id of a token has {2 * TOKEN_ID_BYTES} hexadecimal digits: use secrets.token_hex(16)")
    claims = Claims(
        sub=subject,
        exp=math.ceil(now + lifetime_s),  # whole seconds, as other programs expect them
        aud=keys.network,
        jti=token_id,
        role=role or UNSET,
        iris=UNSET if rights is None else rights,
        iat=math.floor(now * 1000) / 1000,
    )
    token = _JWS.encode(msgspec.json.encode(claims), keys.door_key, ALGORITHM, {"kid": keys.key_id.hex()})
    if len(token) > TOKEN_BYTES_MAX:
        raise ConfigurationError(
            f"the token would have {len(token)} characters, and {TOKEN_BYTES_MAX} are allowed. Write the rules into a role of "
            "the file of the door, and name the role."
        )
    return token


def read_token(text: str) -> Token:
    """Read a token without keys: its signature is not verified.

    Raises:
        DoorRefusal: The text is no token: ``token-malformed``.
    """
    _check_form(text)
    header, claims = _split(text)
    return Token(text, header.kid, _read_claims(claims))


class TokenVerifier:
    """Verifies the tokens of clients."""

    def __init__(
        self,
        keyring_source: Callable[[], Keyring],
        roles: Mapping[str, Rights],
        revocations: RevocationTable | None = None,
    ) -> None:
        """Begin with an empty memory.

        Args:
            keyring_source: Returns the keyring in use. A rotation is seen by another object.
            roles: The roles of the file of the door, by name.
            revocations: The revoked tokens; None for none.
        """
        self._revocations = RevocationTable() if revocations is None else revocations
        self._keyring_source = keyring_source
        self._keyring = keyring_source()
        self._roles = roles
        self._verified: OrderedDict[bytes, Grant] = OrderedDict()  # by digest of the token, the last used at the end

    @property
    def verified(self) -> int:
        """The number of tokens in memory."""
        return len(self._verified)

    def replace_roles(self, roles: Mapping[str, Rights]) -> None:
        """Use other roles for this and all earlier tokens."""
        self._roles = roles
        self._verified.clear()

    def verify(self, token: str, now: float) -> Grant:
        """Return the rights of the client that shows a token.

        Args:
            token: The token as the client gave it.
            now: The time, in seconds since 1970.

        Raises:
            DoorRefusal: The token is refused: ``token-malformed``, ``token-unknown-key``, ``token-of-other-network``,
                ``token-bad-signature``, ``token-not-yet-valid``, ``token-expired``, ``token-unknown-role`` or
                ``token-revoked``.
        """
        keyring = self._keyring_source()
        if keyring is not self._keyring:
            self._keyring = keyring
            self._verified.clear()
        _check_form(token)
        digest = hashlib.sha256(token.encode()).digest()
        grant = self._verified.get(digest)
        if grant is None:
            grant = self._verify_anew(token, now)
            if len(self._verified) >= VERIFIED_MAX:
                self._verified.popitem(last=False)
            self._verified[digest] = grant
        elif grant.until <= now:
            del self._verified[digest]
            raise DoorRefusal("token-expired")
        else:
            self._verified.move_to_end(digest)
        if self._revocations.includes(grant):
            raise DoorRefusal("token-revoked")
        return grant

    def renew(self, grant: Grant, now: float) -> Grant:
        """Return a grant of this verifier with its present rights.

        Args:
            grant: The client and its rights.
            now: The time, in seconds since 1970.

        Raises:
            DoorRefusal: The token would be refused now: ``token-unknown-key``, ``token-expired``, ``token-unknown-role`` or
                ``token-revoked``.
        """
        if grant.until <= now:
            raise DoorRefusal("token-expired")
        if all(keys.key_id.hex() != grant.key_id for keys in self._keyring_source().generations):
            raise DoorRefusal("token-unknown-key")
        if self._revocations.includes(grant):
            raise DoorRefusal("token-revoked")
        if not grant.role:
            return grant
        return msgspec.structs.replace(grant, rights=(self._role(grant.role), *grant.rights[1:]))

    def _verify_anew(self, token: str, now: float) -> Grant:
        header, content = _split(token)
        keys = next((keys for keys in self._keyring.generations if keys.key_id.hex() == header.kid), None)
        if keys is None:
            # Keys of other networks are never known here. Their tokens are told apart by what they say.
            is_own = _read_claims(content).aud == self._keyring.network
            raise DoorRefusal("token-unknown-key" if is_own else "token-of-other-network")
        if not _is_signed(token, keys):
            raise DoorRefusal("token-bad-signature")
        claims = _read_claims(content)
        if claims.aud != keys.network:
            raise DoorRefusal("token-of-other-network")
        _check_times(claims, now)
        role = "" if claims.role is UNSET else claims.role
        return Grant(claims.sub, self._rights_of(claims), claims.exp, claims.jti, claims.made_at, role, header.kid)

    def _rights_of(self, claims: Claims) -> tuple[Rights, ...]:
        """Return the rights of the role and those in the token."""
        found: list[Rights] = []
        if claims.role is not UNSET:
            found.append(self._role(claims.role))
        if claims.iris is not UNSET:
            found.append(claims.iris)
        return tuple(found)

    def _role(self, name: str) -> Rights:
        role = self._roles.get(name)
        if role is None:
            raise DoorRefusal("token-unknown-role")
        return role


def _check_form(text: str) -> None:
    """Refuse a text that is too long or not ASCII, before anything reads it."""
    if len(text) > TOKEN_BYTES_MAX or not text.isascii():
        raise DoorRefusal("token-malformed")


def _split(text: str) -> tuple[TokenHeader, str]:
    """Return the header of a token, and its claims as they were given."""
    match = _TOKEN.fullmatch(text)
    if match is None:
        raise DoorRefusal("token-malformed")
    try:
        _decode(match[3])
        return msgspec.convert(_read_object(match[1]), TokenHeader), match[2]
    except (ValueError, RecursionError):
        raise DoorRefusal("token-malformed") from None


def _read_claims(part: str) -> Claims:
    try:
        claims = msgspec.convert(_read_object(part), Claims)
        check_subject(claims.sub)
        if _TOKEN_ID.fullmatch(claims.jti) is None or claims.role == "" or (claims.role is UNSET and claims.iris is UNSET):
            raise ValueError
        if claims.iris is not UNSET:
            claims.iris.check()
    except (ValueError, RecursionError):
        raise DoorRefusal("token-malformed") from None
    return claims


def _check_times(claims: Claims, now: float) -> None:
    if claims.exp <= now:
        raise DoorRefusal("token-expired")
    # A token that ends too late comes from a clock that is ahead of this one.
    if max(claims.nbf, claims.iat) > now + CLOCK_SKEW_S_MAX or claims.exp > now + LIFETIME_S_MAX + CLOCK_SKEW_S_MAX:
        raise DoorRefusal("token-not-yet-valid")


def _is_signed(token: str, keys: NetworkKeys) -> bool:
    try:
        _JWS.decode(token, keys.door_key, algorithms=[ALGORITHM])
    except jwt.PyJWTError:
        return False
    return True


def _decode(part: str) -> bytes:
    """Decode URL-safe base64 without padding. A value has a single text, and a token a single digest.

    Raises:
        ValueError: The text is not in its single form.
    """
    content = urlsafe_b64decode(part + "=" * (-len(part) % 4))
    if urlsafe_b64encode(content).rstrip(b"=").decode() != part:
        raise ValueError(part)
    return content


def _read_object(part: str) -> object:
    """Parse JSON, and refuse duplicate names, of which readers take different ones.

    Raises:
        ValueError: The text is not valid.
        RecursionError: The text is nested too deeply.
    """
    return json.loads(_decode(part).decode(), object_pairs_hook=_read_pairs)


def _read_pairs(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError(pairs)
    return found


def _check_arguments(subject: str, lifetime_s: float, role: str, rights: Rights | None) -> None:
    """Check the arguments of `make_token`.

    Raises:
        ConfigurationError: An argument is invalid.
    """
    if not 0 < lifetime_s <= LIFETIME_S_MAX:
        raise ConfigurationError(
            f"a token lives {lifetime_s:g} s: choose more than 0 and at most {LIFETIME_S_MAX:g} s, which are 24 h"
        )
    if not role and rights is None:
        raise ConfigurationError("a token without a role and without rights allows nothing: give one of them, or both")
    try:
        for text in (subject, role):
            refuse_secret(text)
        check_subject(subject)
        if rights is not None:
            rights.check()
    except ValueError as exc:
        raise ConfigurationError(str(exc)) from None
    if rights is not None and rights.names_subject and not fits_rules(subject):
        raise ConfigurationError(
            f"the subject {subject!r} does not fit into rules with {{sub}}, because a subject there has no '.', '*', '>', '@' "
            "and braces: choose another one"
        )
