"""`iris token revoke`: ends tokens before their time, at all doors of the network."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from iris_py.cli.outcome import ExitCode
from iris_py.cli.output import Output
from iris_py.cli.standard_error import complain
from iris_py.cli.token import find_generations, local_time, parse_token, read_given_text, require_package
from iris_py.doors.revocations import TOKEN_KEPT_S, SubjectRevocation, TokenRevocation, TotalRevocation
from iris_py.doors.rights import CLOCK_SKEW_S_MAX, LIFETIME_S_MAX, check_subject
from iris_py.errors import ConfigurationError, NoMembers, RequestTimeout
from iris_py.json_lines import Line
from iris_py.logs import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py.cli.settings import Settings
    from iris_py.doors.revocations import Revocation, RevocationOutcome
    from iris_py.json_lines import Lines
    from iris_py.servers.door_cluster import RevocationReport
    from iris_security import NetworkKeys

__all__ = ["LINES", "revoke"]

#: The id of a token, as people copy it.
_ID: Final = re.compile("[0-9A-Fa-f]{32}")


class DoorReceiptLine(Line, tag="door", kw_only=True):
    """The answer of a door to a revocation."""

    node: str
    """The node id of the door."""
    door: str
    """The kind of the door, such as ``web``."""
    address: str
    """The address for clients; empty if another server listens for the door."""
    outcome: str
    """``added``, ``known``, or ``ended`` after the end of the token; ``full`` or ``ahead`` if the door has refused."""


class RevocationSummary(Line, tag="summary", kw_only=True):
    """The result of a revocation."""

    confirmed: int
    """The number of doors with a confirmation."""
    refused: int
    """The number of doors with a refusal."""
    silent: int
    """The number of doors without an answer."""
    silent_nodes: list[str]
    """Their node ids, as far as known."""
    until: datetime
    """The end of the last of the revoked tokens, until which doors remember the revocation."""


#: The lines of `--json`, by command.
LINES: Final[Lines] = {"token revoke": (DoorReceiptLine, RevocationSummary)}

_OUTCOMES: Final[dict[RevocationOutcome, str]] = {
    "added": "revoked",
    "known": "was revoked before",
    "ended": "has ended there",
    "full": "REFUSED: the door remembers as many revocations as it can. Revoke all tokens with --all-before now.",
    "ahead": "REFUSED: the time lies ahead of the door's clock. Set the clocks of both hosts.",
}


async def revoke(
    settings: Settings,
    *,
    given: str | None,
    subject: str | None,
    all_before: str | None,
    timeout_s: float,
    as_json: bool,
) -> int:
    """Revoke tokens at all doors, and print their answers; return the exit code."""
    require_package()
    from iris_py.servers.door_cluster import revoke_tokens

    if (given is not None) + (subject is not None) + (all_before is not None) != 1:
        raise ConfigurationError("say which tokens to revoke: TOKEN, its ID, --subject or --all-before, and only one of them.")
    config = settings.load()
    generations = await find_generations(config)
    if not generations:
        raise ConfigurationError(
            "this user has no network secret yet, so no door accepts a token of this user. Run the command as the user of the "
            "door, or name the secret with --secret-file."
        )
    now = time.time()
    if given is not None:
        revocation: Revocation = _revocation_of_token(given, generations, now)
    elif subject is not None:
        revocation = _revocation_of_subject(subject, now)
    else:
        revocation = _revocation_of_all(all_before or "", now)
    try:
        async with settings.visit(config) as node:
            report = await revoke_tokens(node, [revocation], timeout_s)
    except NoMembers:
        complain(
            f"no door runs in the network {generations[0].network!r}, so nothing was revoked: doors remember revocations, and "
            "nobody else does. Start a door first, or replace the secret (docs/how-to/rotate.md), which ends all tokens."
        )
        return ExitCode.NO_MEMBERS
    except RequestTimeout:
        complain(
            f"no door has confirmed within {timeout_s:g} s, so the tokens may stay valid. Repeat the command, with a longer "
            "--timeout if the network is slow."
        )
        return ExitCode.TIMEOUT
    return _print(report, revocation, Output(as_json=as_json))


def _print(report: RevocationReport, revocation: Revocation, output: Output) -> int:
    """Print the answers of the doors; return the exit code."""
    refused = 0
    for node, receipt in report.receipts:
        door = receipt.door
        outcome = receipt.outcomes[0] if receipt.outcomes else "ended"
        refused += outcome in ("full", "ahead")
        where = one_line(f"{door.kind} door {door.address}".strip())
        line = DoorReceiptLine(node=node, door=door.kind, address=door.address, outcome=outcome)
        output.line(line, f"{where} (node {node[:8]}): {_OUTCOMES[outcome]}")
    until = datetime.fromtimestamp(revocation.until, UTC)
    confirmed = len(report.receipts) - refused
    summary = RevocationSummary(
        confirmed=confirmed,
        refused=refused,
        silent=report.silent_count,
        silent_nodes=list(report.silent),
        until=until,
    )
    doors = f"{confirmed} door{'s' * (confirmed != 1)} confirmed"
    output.line(summary, f"{doors}; the revocation ends at {local_time(until)}, as the last of its tokens does")
    if report.silent_count:
        named = f" (nodes {', '.join(each[:8] for each in report.silent)})" if report.silent else ""
        complain(
            f"{report.silent_count} door{'s' * (report.silent_count != 1)} did not confirm{named}: other doors tell them as "
            "soon as they answer. Until then they may accept the tokens. Repeat the command to be sure."
        )
    if refused:
        return ExitCode.FAILED
    return ExitCode.TIMEOUT if report.silent_count else ExitCode.OK


def _revocation_of_token(given: str, generations: Sequence[NetworkKeys], now: float) -> TokenRevocation:
    """Return the revocation of a token, given by text or id.

    Raises:
        ConfigurationError: The text is neither, or no door accepts the token anyway.
    """
    text = read_given_text(given)
    if _ID.fullmatch(text):
        return TokenRevocation(text.lower(), now + TOKEN_KEPT_S)
    token = parse_token(text, "Give the line that `iris token new` printed, or the id that `iris token show` prints")
    if not any(token.is_signed_with(keys) for keys in generations):
        raise ConfigurationError(
            "TOKEN is not signed with a secret of this network, so no door of the network accepts it. Run the command with the "
            "settings of the other network."
        )
    claims = token.claims
    if claims.exp <= now:
        until = local_time(datetime.fromtimestamp(claims.exp, UTC))
        raise ConfigurationError(f"TOKEN has ended, at {until}: no door accepts it any more.")
    return TokenRevocation(claims.jti, claims.exp)


def _revocation_of_subject(subject: str, now: float) -> SubjectRevocation:
    try:
        check_subject(subject)
    except ValueError as exc:
        raise ConfigurationError(f"--subject: {exc}") from None
    return SubjectRevocation(subject, now)


def _revocation_of_all(text: str, now: float) -> TotalRevocation:
    """Return the revocation of all tokens up to a time.

    Raises:
        ConfigurationError: The text is no time, or a time of no use.
    """
    if text.strip() == "now":
        return TotalRevocation(now)
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ConfigurationError(f"--all-before {text!r} is no time. Write now, or as 2026-05-01T12:00.") from None
    made_until = moment.timestamp()  # without a zone: the local one
    if made_until > now + CLOCK_SKEW_S_MAX:
        raise ConfigurationError(
            f"--all-before {text!r} lies ahead. New tokens would be refused until then; revoke them when they are made."
        )
    if made_until + LIFETIME_S_MAX + CLOCK_SKEW_S_MAX <= now:
        raise ConfigurationError(f"--all-before {text!r} is more than a day ago, and all tokens from before have ended.")
    return TotalRevocation(made_until)
