"""Subjects of NATS clients, and the topics of the same name (docs/design.md 18.2).

Clients and nodes have different rules for names. A subject that nats-server refuses, too, is *invalid*. A subject that only
Iris cannot carry is *unfit*, and refused as a subject without a right: clients stay connected after no other error.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

import msgspec

from iris_py.patterns.topic.names import ANY_REST, ANY_TOKEN, Tokens, parse_pattern, parse_topic
from iris_py.patterns.topic.share_entries import check_group
from iris_py.wire.names import CLOUD_MARK

__all__ = [
    "INBOX",
    "NatsSubject",
    "SubjectFault",
    "SubjectKind",
    "is_valid_queue",
    "is_valid_subject",
    "read_pattern",
    "read_subject",
    "subject_of_topic",
]

#: The beginning of the first token of a subject for replies.
INBOX: Final = "_INBOX"
#: First tokens of the subjects that NATS servers answer themselves. They never leave the door.
SERVER_TOKENS: Final = frozenset(("$JS", "$KV", "$O", "$SYS", "$G"))
#: Tokens of the name of an inbox: the client's prefix, and its own one.
INBOX_TOKENS: Final = 2
#: Tokens and bytes of an inbox, which is no topic.
INBOX_BYTES_MAX: Final = 512

#: The usual subject; others are checked token by token.
_USUAL: Final = re.compile(rb"[\w-]+(?:\.[\w-]+)*", re.ASCII)
#: The usual inbox, of which a client makes one for each request.
_USUAL_INBOX: Final = re.compile(rb"_INBOX[\w-]*(?:\.[\w-]+)*", re.ASCII)
_INBOX: Final = INBOX.encode()
#: Bytes that no subject has: they divide the fields of a control line, or may move the cursor of a terminal.
_UNSPEAKABLE: Final = re.compile(r"[\x00-\x20\x7f]")


class SubjectKind(Enum):
    """The ways of a message."""

    TOPIC = "topic"
    """To the subscribers of the topic."""
    INBOX = "inbox"
    """To the client that waits for replies."""
    SERVER = "server"
    """To the server; a door has no such services."""


#: Looked up once: to look up a member of an enumeration is slow.
_KIND_TOPIC: Final = SubjectKind.TOPIC
_KIND_INBOX: Final = SubjectKind.INBOX


class SubjectFault(Enum):
    """The reasons for which a subject is refused."""

    INVALID = "invalid"
    """An empty token, or a wildcard at a wrong place."""
    UNFIT = "unfit"
    """Too long, too many tokens, not UTF-8, a control character, or a name of Iris itself."""


class NatsSubject(msgspec.Struct, frozen=True, gc=False):
    """A subject to publish to, or the pattern of a subscription."""

    raw: bytes
    """The subject, as the client wrote it."""
    kind: SubjectKind
    name: str
    """The topic or pattern, with ``@cloud`` for another cloud."""
    tokens: Tokens
    """The tokens; the last token may end with the cloud."""

    @property
    def key(self) -> Tokens:
        """The tokens that name the client of an inbox."""
        return self.tokens[:INBOX_TOKENS]


def read_subject(raw: bytes) -> NatsSubject | SubjectFault:
    """Return the subject of a message.

    Args:
        raw: A field of a control line: not empty, without blanks and line breaks.
    """
    if _USUAL.fullmatch(raw) is not None:
        name = raw.decode()
        if raw.startswith(_INBOX):
            is_short = len(raw) <= INBOX_BYTES_MAX
            return NatsSubject(raw, _KIND_INBOX, name, tuple(name.split("."))) if is_short else SubjectFault.UNFIT
        try:
            return NatsSubject(raw, _KIND_TOPIC, name, parse_topic(name))
        except ValueError:
            return SubjectFault.UNFIT
    tokens = tuple(raw.decode(errors="replace").split("."))
    if "" in tokens or ANY_TOKEN in tokens or ANY_REST in tokens:
        return SubjectFault.INVALID
    return _classify(raw, tokens, is_pattern=False)


def is_valid_subject(raw: bytes) -> bool:
    """Return whether a field of a control line is a subject of messages."""
    is_usual = _USUAL_INBOX.fullmatch(raw) is not None and len(raw) <= INBOX_BYTES_MAX
    return is_usual or isinstance(read_subject(raw), NatsSubject)


def read_pattern(raw: bytes) -> NatsSubject | SubjectFault:
    """Return the pattern of a subscription.

    Args:
        raw: A field of a control line: not empty, without blanks and line breaks.
    """
    tokens = tuple(raw.decode(errors="replace").split("."))
    if "" in tokens or ANY_REST in tokens[:-1]:
        return SubjectFault.INVALID
    return _classify(raw, tokens, is_pattern=True)


def is_valid_queue(queue: bytes) -> bool:
    """Return whether Iris can carry the name of a queue group."""
    try:
        name = queue.decode()
        check_group(name)
    except ValueError:
        return False
    return _UNSPEAKABLE.search(name) is None


def subject_of_topic(topic: str, cloud: str = "") -> bytes | None:
    """Return the subject of a topic; None for a topic that no client can be told.

    Topics of nodes may have blanks and line breaks, which would become operations in the connection of a client.

    Args:
        topic: The topic.
        cloud: The alias of its cloud; empty for this cloud.
    """
    if _UNSPEAKABLE.search(topic) is not None:
        return None
    return (f"{topic}{CLOUD_MARK}{cloud}" if cloud else topic).encode()


def _classify(raw: bytes, tokens: Tokens, *, is_pattern: bool) -> NatsSubject | SubjectFault:
    try:
        name = raw.decode()
    except UnicodeDecodeError:
        return SubjectFault.UNFIT
    if _UNSPEAKABLE.search(name) is not None:
        return SubjectFault.UNFIT
    first = tokens[0]
    if first.startswith(INBOX):
        return NatsSubject(raw, SubjectKind.INBOX, name, tokens) if len(raw) <= INBOX_BYTES_MAX else SubjectFault.UNFIT
    if first in SERVER_TOKENS:
        return NatsSubject(raw, SubjectKind.SERVER, name, tokens)
    inner, mark, cloud = name.rpartition(CLOUD_MARK)
    if not mark:
        inner = name
    elif not cloud or "." in cloud:
        return SubjectFault.UNFIT
    try:
        (parse_pattern if is_pattern else parse_topic)(inner)
    except ValueError:
        return SubjectFault.UNFIT
    return NatsSubject(raw, SubjectKind.TOPIC, name, tokens)
