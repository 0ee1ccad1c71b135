"""`iris token`: make tokens of doors with the network's secret, and show their content."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from msgspec import UNSET, UnsetType

from iris_py.api.keys import open_keyring_in_use
from iris_py.cli.options import read_duration, user_name
from iris_py.cli.output import Output
from iris_py.cli.payload_options import read_payload
from iris_py.doors.problems import DoorRefusal
from iris_py.doors.rights import CLUSTER_USES, TOPIC_USES, Rights
from iris_py.errors import ConfigurationError
from iris_py.extras import install_command
from iris_py.files.secrets import is_present
from iris_py.json_lines import Line
from iris_py.logs import one_line
from iris_py.overview.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from iris_py.cli.settings import Settings
    from iris_py.config import Config
    from iris_py.json_lines import Lines
    from iris_py.servers.tokens import Token
    from iris_security import NetworkKeys

__all__ = [
    "LINES",
    "find_generations",
    "local_time",
    "new",
    "parse_token",
    "read_given_text",
    "require_package",
    "rights_of",
    "show",
]


class NewTokenLine(Line, tag="token", kw_only=True):
    """A new token."""

    token: str
    id: str
    """The id of the token."""
    subject: str
    until: datetime
    """The end of the token."""


class TokenContentLine(Line, tag="content", kw_only=True):
    """The content of a token."""

    id: str
    """The id of the token."""
    subject: str
    network: str
    role: str | UnsetType = UNSET
    rights: Rights | UnsetType = UNSET
    """The rules in the token."""
    begin: datetime | UnsetType = UNSET
    """The beginning; unset for a token that is valid from its making."""
    until: datetime
    """The end of the token."""
    left_s: float
    """The time until the end in seconds; negative after the end."""
    key: str
    """The id of the generation of the secret that the token names."""
    signed: bool
    """Whether a generation of the secret of this network signed the token."""


#: The lines of `--json`, by command.
LINES: Final[Lines] = {"token new": (NewTokenLine,), "token show": (TokenContentLine,)}

_LABEL_WIDTH: Final = len("remote errors") + 2


def rights_of(rules: Mapping[str, Sequence[str] | None], *, observe: bool, remote_errors: bool) -> Rights | None:
    """Return the rights given by options; None if there are none."""
    given = {use: tuple(each) for use, each in rules.items() if each}
    if not given and not observe and not remote_errors:
        return None
    return Rights(**given, observe=observe, remote_errors=remote_errors)


async def new(
    settings: Settings, *, subject: str | None, role: str, lifetime: str, rights: Rights | None, as_json: bool
) -> int:
    """Make a token, and print it; return the exit code."""
    require_package()
    from iris_py.servers.tokens import TOKEN_ID_BYTES, make_token, read_token

    lifetime_s = read_duration(lifetime, "--for")
    if not role and rights is None:
        raise ConfigurationError("a token without rights is of no use. Give --request, another right, or --role.")
    name = user_name() if subject is None else subject
    if not name and subject is None:
        raise ConfigurationError("this user has no name that could be the subject. Give --sub.")
    keyring = await open_keyring_in_use(settings.load())
    text = make_token(
        keyring.primary,
        subject=name,
        lifetime_s=lifetime_s,
        role=role,
        rights=rights,
        now=time.time(),
        token_id=os.urandom(TOKEN_ID_BYTES).hex(),
    )
    claims = read_token(text).claims
    line = NewTokenLine(token=text, id=claims.jti, subject=claims.sub, until=_moment(claims.exp))
    Output(as_json=as_json).line(line, text)
    return 0


async def show(settings: Settings, given: str, *, as_json: bool) -> int:
    """Print the content of a token; return the exit code."""
    require_package()
    advice = "Give all of the line that `iris token new` printed: three parts with a dot between"
    token = parse_token(read_given_text(given), advice)
    generations = await find_generations(settings.load())
    claims = token.claims
    line = TokenContentLine(
        id=claims.jti,
        subject=claims.sub,
        network=claims.aud,
        role=claims.role,
        rights=claims.iris,
        begin=_moment(claims.nbf) if claims.nbf else UNSET,
        until=_moment(claims.exp),
        left_s=round(claims.exp - time.time(), 3),
        key=token.key_id,
        signed=any(token.is_signed_with(keys) for keys in generations),
    )
    output = Output(as_json=as_json)
    rows = [] if as_json else _rows(line, token, generations)
    output.line(line, "\n".join(f"{label:{_LABEL_WIDTH}}{one_line(text)}" for label, text in rows))
    return 0


def read_given_text(given: str) -> str:
    """Return the given text, or for ``-`` the text on standard input, without blanks at both ends.

    Raises:
        ConfigurationError: The text on standard input is too long.
    """
    from iris_py.servers.tokens import TOKEN_BYTES_MAX

    advice = "A token has no more than one line; leave the rest out"
    content = read_payload(given, TOKEN_BYTES_MAX, advice) if given == "-" else os.fsencode(given)
    return content.decode(errors="replace").strip()


def parse_token(text: str, advice: str) -> Token:
    """Read the given token.

    Args:
        text: The text.
        advice: A sentence without full stop, for an error.

    Raises:
        ConfigurationError: The text is no token.
    """
    from iris_py.servers.tokens import read_token

    try:
        return read_token(text)
    except DoorRefusal:
        raise ConfigurationError(f"TOKEN is no token of a door. {advice}.") from None


def _rows(line: TokenContentLine, token: Token, generations: Sequence[NetworkKeys]) -> list[tuple[str, str]]:
    """Return the content of a token as rows of a label and a text."""
    rows = [("subject", line.subject), ("network", line.network)]
    if line.role is not UNSET:
        rows.append(("role", line.role))
    if line.rights is not UNSET:
        for use in (*CLUSTER_USES, *TOPIC_USES):
            rows += [(use, rule) for rule in getattr(line.rights, use)]
        rows += [("observe", "yes")] if line.rights.observe else []
        rows += [("remote errors", "yes")] if line.rights.remote_errors else []
    if line.begin is not UNSET:
        rows.append(("begin", local_time(line.begin)))
    left = f"{format_seconds(line.left_s)} left" if line.left_s > 0 else f"ended {format_seconds(-line.left_s)} ago"
    rows += [("until", f"{local_time(line.until)}, {left}"), ("id", line.id), ("signed", _signature_of(token, generations))]
    return rows


def _signature_of(token: Token, generations: Sequence[NetworkKeys]) -> str:
    """Return a text about the signature of a token."""
    for number, keys in enumerate(generations):
        if token.is_signed_with(keys):
            return f"yes, with the {'accepted' if number else 'sealing'} generation {token.key_id} of this network's secret"
    if any(keys.key_id.hex() == token.key_id for keys in generations):
        return f"no: the signature is not of the generation {token.key_id} that the token names"
    return f"no: {token.key_id} is not a generation of this network's secret"


async def find_generations(config: Config) -> Sequence[NetworkKeys]:
    """Return the generations of the network's secret; none if it is the per-user secret and was not made yet."""
    if config.is_zero_configuration and not (config.config_directory and is_present(config.config_directory / "secret")):
        return ()
    return (await open_keyring_in_use(config)).generations


def _moment(unix_s: float) -> datetime:
    return datetime.fromtimestamp(unix_s, UTC)


def local_time(moment: datetime) -> str:
    """Return a time as text, in the zone of this machine."""
    return moment.astimezone().isoformat(sep=" ", timespec="seconds")


def require_package() -> None:
    """Check the package for tokens.

    Raises:
        ConfigurationError: The package is missing.
    """
    if find_spec("jwt") is None:
        raise ConfigurationError(f"tokens need PyJWT. Run: {install_command('web')}")
