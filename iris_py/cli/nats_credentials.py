"""`iris door password` and `iris door nkey`: make credentials of NATS users for the settings file of a door."""

from __future__ import annotations

import getpass
import os
import secrets
import sys
from typing import TYPE_CHECKING, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from iris_py.cli.output import Output
from iris_py.doors.nats.nkeys import KEY_BYTES, encode_seed, encode_user_key
from iris_py.doors.nats.passwords import PASSWORD_BYTES_MAX, SALT_BYTES, hash_password, hash_token
from iris_py.errors import ConfigurationError
from iris_py.json_lines import Line

if TYPE_CHECKING:
    from iris_py.json_lines import Lines

__all__ = ["LINES", "make_nkey", "make_password", "make_token"]

#: Random bytes of a token.
_TOKEN_BYTES: Final = 24


class PasswordLine(Line, tag="password"):
    """The hash of a password."""

    hash: str
    """The value of ``password`` in the file of a door."""


class NatsTokenLine(Line, tag="token"):
    """A new token, and its hash."""

    token: str
    """For the client alone."""
    hash: str
    """The value of ``token`` in the file of a door."""


class NkeyLine(Line, tag="nkey"):
    """A new nkey."""

    seed: str
    """The secret half, for the client alone."""
    nkey: str
    """The public half: the value of ``nkey`` in the file of a door."""


#: The lines of `--json`, by command.
LINES: Final[Lines] = {"door password": (PasswordLine, NatsTokenLine), "door nkey": (NkeyLine,)}


async def make_password(*, as_json: bool) -> int:
    """Read a password and print its hash; return the exit code."""
    try:
        text = hash_password(_read_password(), os.urandom(SALT_BYTES)).text()
    except ValueError as exc:
        raise ConfigurationError(f"{exc}. Choose another one.") from None
    Output(as_json=as_json).line(PasswordLine(text), text)
    return 0


async def make_token(*, as_json: bool) -> int:
    """Draw a token, and print the token and its hash; return the exit code."""
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    line = NatsTokenLine(token, hash_token(token))
    Output(as_json=as_json).line(line, f'for the client:   {line.token}\nfor the door:     token = "{line.hash}"')
    return 0


async def make_nkey(*, as_json: bool) -> int:
    """Make an nkey, and print both halves; return the exit code."""
    seed = os.urandom(KEY_BYTES)
    public = Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()
    line = NkeyLine(encode_seed(seed), encode_user_key(public))
    Output(as_json=as_json).line(line, f'for the client:   {line.seed}\nfor the door:     nkey = "{line.nkey}"')
    return 0


def _read_password() -> str:
    """Return the password from standard input: typed twice at a terminal without being shown, else its first line.

    Raises:
        ConfigurationError: Standard input is closed, or is not one line of UTF-8; or the typed passwords differ.
    """
    if sys.stdin is not None and sys.stdin.isatty():
        try:
            password = getpass.getpass("password: ")
            if getpass.getpass("the same again: ") != password:
                raise ConfigurationError("the two passwords differ. Type the same one twice.")
        except EOFError:
            raise ConfigurationError("no password was typed. Type one, or give it on standard input.") from None
        return password
    if sys.stdin is None:
        raise ConfigurationError("standard input is closed. Give it a password to read.")
    content = sys.stdin.buffer.read(PASSWORD_BYTES_MAX + 2)  # one byte too many, and the end of the line
    try:
        password = content.decode().removesuffix("\n")
    except UnicodeDecodeError:
        raise ConfigurationError("the password is not UTF-8. Give text on standard input.") from None
    if "\n" in password:
        raise ConfigurationError("standard input has several lines. Give it one line, the password.")
    return password
