"""Errors for people at a command line: a line for each, with advice by options."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, TypeGuard

from iris_py.errors import (
    CloudUnavailable,
    IrisError,
    MemberLost,
    NoMembers,
    NotConnected,
    NotExported,
    Overloaded,
    RemoteError,
    RequestTimeout,
    SealError,
    TooManyMembersLost,
    TunnelBroken,
)
from iris_py.observe.node_name import short_name

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["explain", "is_refused_seal"]


def explain(error: Exception, options: Collection[str] = ()) -> str:
    """Return the text of an error. Advice for programs is replaced by advice for the command line.

    Args:
        error: The error of the command.
        options: The options of the command, the only ones in the advice.
    """
    if isinstance(error, TunnelBroken):
        cause = f" ({error.type}: {error.text})" if error.type else ""
        who = short_name(error.member, error.node_name)
        return f"the tunnel to member {who} of {error.cluster!r} broke: {error.reason}{cause}. Start again."
    if isinstance(error, CloudUnavailable):
        wait = " Or wait for a gateway with --idempotent." if _would_go_on(error, options) else ""
        return (
            f"no gateway of this network reaches the cloud {error.cloud!r}; nothing was sent to {error.cluster!r}. The cloud "
            f"link may be cut, the other cloud may be down, or no `iris gateway` with [cloud.{error.cloud}] in its "
            f"configuration may run here. See `iris federation status`.{wait}{error.surroundings}"
        )
    if isinstance(error, NotExported):
        return str(error)
    if isinstance(error, NoMembers):
        return _explain_no_members(error, options)
    if isinstance(error, NotConnected):
        seeds = "; ".join(f"{address} {reason}" for address, reason in error.seeds.items())
        wait = ", or wait with --idempotent" if _would_go_on(error, options) else ""
        return (
            f"this node reaches no other node of the network, so it cannot know the members of {error.cluster!r}: {seeds}. "
            "Check that a seed runs, holds the same secret, has free file descriptors, and accepts connections from this "
            f"host. Then try again{wait}."
        )
    if isinstance(error, RequestTimeout):
        who = short_name(error.member or error.gateway, error.node_name)
        held = f"member {who} held the request" if error.member else "no member took the request"
        if error.gateway and not error.member:
            held = f"the gateway {who} held the request"
        advice = "Allow more time with --timeout." if "--timeout" in options else "Try again."
        return f"no reply from {error.cluster!r} within {error.timeout_s:g} s ({held}). {advice}"
    if isinstance(error, Overloaded):
        if error.retry_after_s is not None:
            return f"the limit for {error.cluster!r} is reached. Try again in {error.retry_after_s:g} s."
        wait = ", or wait longer with --timeout" if "--timeout" in options else ""
        return f"all {error.tried} tried members of {error.cluster!r} are full. Try later{wait}."
    if isinstance(error, TooManyMembersLost):
        which = ", ".join(member[:8] for member in error.members)
        return (
            f"the request to {error.cluster!r} was given up after the loss of the members that held it ({which}). The "
            "request may have ended their processes. See the end of their logs before you send it again."
        )
    if isinstance(error, MemberLost):
        advice = "use --idempotent" if _would_go_on(error, options) else "send it again"
        who = f"a gateway on the way to {error.cluster!r}"
        if error.member:
            who = f"member {short_name(error.member, error.node_name)} of {error.cluster!r}"
        return (
            f"{who} was lost while it held the request. The request may have been executed. If executing it twice is "
            f"harmless, {advice}."
        )
    if is_refused_seal(error) and "--seal-file" in options:
        return (
            f"member {error.member[:8]} of {error.cluster!r} accepts only requests sealed with its secret; nothing was "
            "executed. Give the secret with --seal-file, and the name with --seal-name if it differs there. Check that both "
            "clocks are right."
        )
    if isinstance(error, SealError):
        return (
            f"the reply of {error.cluster!r} cannot be decrypted with the seal of the request. The request may have been "
            "executed. Check that its members seal with the same secret. If they do, the reply was changed on the way."
        )
    if isinstance(error, IrisError | OSError):
        return str(error)
    return f"{type(error).__name__}: {error}. This is a bug in Iris; -vv shows where."


def _would_go_on(error: IrisError, options: Collection[str]) -> bool:
    """Return whether the option ``--idempotent`` exists, is missing, and would make the command continue after the error."""
    return error.of_plain_request and "--idempotent" in options


def _explain_no_members(error: NoMembers, options: Collection[str]) -> str:
    if error.elsewhere:
        members = f"{error.elsewhere} member{'s' * (error.elsewhere != 1)}"
        return (
            f"nobody in the zone {error.zone!r} serves {error.cluster!r} ({members} in other zones). "
            f"Leave out --require, or use --prefer.{error.surroundings}"
        )
    wait = ", or wait for one with --idempotent" if _would_go_on(error, options) else ""
    if "@" in error.cluster:
        return f"nobody serves {error.cluster!r} there. Start a member in that cloud{wait}."
    start = f"`iris join {shlex.quote(error.cluster)} --exec ...`"
    if error.without_tunnels:
        return f"no member of {error.cluster!r} serves tunnels. Start one with {start}."
    others = f"{error.nodes} other node{'s' * (error.nodes != 1)} known" if error.nodes else "no other node found"
    return f"nobody serves {error.cluster!r} ({others}). Start a member with {start}{wait}.{error.surroundings}"


def is_refused_seal(error: BaseException) -> TypeGuard[RemoteError]:
    """Return whether a member has refused a request with an unsealed payload, or one sealed with another secret."""
    return isinstance(error, RemoteError) and error.type == SealError.__name__
