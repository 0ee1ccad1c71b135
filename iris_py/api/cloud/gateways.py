"""Calls to all gateways of this cloud: their states, and the clouds that they reach."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from iris_py.api.lifecycle import parts_of
from iris_py.defaults import SURVEY_TIMEOUT_S
from iris_py.errors import IrisError, NoMembers
from iris_py.federation.calls import Call, Op, decode_outcome, encode_call
from iris_py.federation.names import gateway_cluster
from iris_py.overview.clouds import cloud_lines
from iris_py.wire.headers import NO_HEADERS

if TYPE_CHECKING:
    from iris_py.api.node import Node
    from iris_py.overview.clouds import CloudLine

__all__ = ["GATEWAYS_TIMEOUT_S", "ask_clouds", "ask_gateways", "survey_gateways"]

#: Timeout for the answers of gateways (seconds). Too small: a busy gateway is left out; too large: a hung gateway delays the
#: screen for this time.
GATEWAYS_TIMEOUT_S: Final = 1.0


async def ask_gateways(node: Node, call: Call) -> list[dict[str, Any]]:
    """Send a call to all gateways of this cloud, and return their valid answers."""
    return (await survey_gateways(node, call))[0]


async def survey_gateways(node: Node, call: Call, timeout_s: float = SURVEY_TIMEOUT_S) -> tuple[list[dict[str, Any]], int]:
    """Send a call to all gateways of this cloud.

    Args:
        node: The querying node.
        call: The call.
        timeout_s: Timeout of the survey, in seconds.

    Returns:
        The valid answers, in the order of the gateways' ids, and the number of missing ones.
    """
    try:
        asked = encode_call(call)
        answers = await parts_of(node).surveys.begin(gateway_cluster(), asked, timeout_s, None, NO_HEADERS)
    except NoMembers:
        return [], 0
    found, malformed = [], 0
    for reply in answers.replies:
        content = decode_outcome(reply.payload, "", 0.0)
        try:
            found.append(msgspec.msgpack.decode(b"" if isinstance(content, IrisError) else content, type=dict[str, Any]))
        except (msgspec.MsgspecError, ValueError, RecursionError):  # the decoder accepts bad UTF-8 and deep nesting
            malformed += 1
    return sorted(found, key=lambda gateway: str(gateway.get("node"))), answers.missing_count + malformed


async def ask_clouds(node: Node) -> list[CloudLine]:
    """Query all gateways about other clouds; return a line for each pair of gateway and cloud, none without answers."""
    try:
        gateways, _missing = await survey_gateways(node, Call(op=Op.STATUS), GATEWAYS_TIMEOUT_S)
    except IrisError:
        return []
    return cloud_lines(gateways)
