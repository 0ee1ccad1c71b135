"""Runs: the messages of a batch of publications, as a subscription gets them."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from iris_py.patterns.messages import CountedMessage, Message
from iris_py.wire.headers import NO_HEADERS, take_headers

if TYPE_CHECKING:
    from iris_py.wire.flows import MatchesBefore
    from iris_py.wire.headers import Headers
    from iris_py.wire.imported import ImportedHead

__all__ = ["counted_run", "headed_run", "imported_run"]


def counted_run(run: list[Message], before: MatchesBefore | None) -> list[Message]:
    """Return messages with numbers among the matches of a counted pattern, if the publisher sent a COUNT.

    Args:
        run: The messages.
        before: The publisher's matches before the first message; None without a COUNT.
    """
    if before is None:
        return run
    since = before.since
    return [
        CountedMessage(
            message.payload,
            message.source,
            message.sequence,
            "",
            message.topic,
            message.gap,
            message.headers,
            "",
            message.has_unknown_gap,
            number,
            since,
        )
        for number, message in enumerate(run, before.count + 1)
    ]


def imported_run(imported: ImportedHead, topic: str, payloads: list[bytes], headers: Headers) -> list[Message]:
    """Return publications of another cloud with consecutive numbers.

    Args:
        imported: The origin of the first publication.
        topic: The topic.
        payloads: The published payloads.
        headers: The headers of every publication.
    """
    source, numbers = imported.origin.hex(), count(imported.number)
    return [Message(each, source, next(numbers), "", topic, 0, headers, imported.cloud) for each in payloads]


def headed_run(source: str, number: int, topic: str, payloads: list[bytes]) -> list[Message] | None:
    """Return publications behind their headers; None for missing or malformed headers.

    Args:
        source: The id of the publisher.
        number: The number of the first publication.
        topic: The topic.
        payloads: The headers and the payload of every publication.
    """
    run: list[Message] = []
    for each, payload in enumerate(payloads, number):
        split = take_headers(payload)
        if split is None or split[0] is NO_HEADERS:
            return None
        run.append(Message(split[1], source, each, "", topic, 0, split[0]))
    return run
