"""A model of a NATS server in plain dictionaries, as an oracle for doors. It shares no code with them, and knows no sockets.

A queue group gives a message to any member that may hear it. The model is told of the choice of the door, and judges it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

OPEN: Final = ([">"], [">"])
LINE_MAX: Final = 4096
MESSAGE_MAX: Final = 2**20


class UnmodelledError(Exception):
    """The model does not know the answer to these bytes."""


class Heard(NamedTuple):
    """A message in the output for a client."""

    sid: bytes
    subject: bytes
    reply: bytes
    head: bytes
    payload: bytes


#: A message or a line for a client.
Frame: TypeAlias = "Heard | bytes"


@dataclass(eq=False)
class Subscribed:
    pattern: str
    queue: str
    heard: int = 0
    most: int = 0


@dataclass(eq=False)
class ModelClient:
    """A client: its options, its subscriptions by id, and the frames for it."""

    options: dict[str, Any] = field(default_factory=lambda: {"verbose": True, "echo": True})
    rights: tuple[list[str], list[str]] | None = None
    subscriptions: dict[bytes, Subscribed] = field(default_factory=dict)
    frames: list[Frame] = field(default_factory=list)
    buffer: bytes = b""
    has_pong: bool = False
    is_over: bool = False


class ModelServer:
    """The server.

    Args:
        users: The rights to publish and to subscribe, by token; none for a server without users.
        choose: Returns the member of a queue group that gets a message: client and sid.
    """

    def __init__(
        self,
        users: dict[str, tuple[list[str], list[str]]] | None = None,
        choose: Callable[[str, bytes, list[tuple[ModelClient, bytes]]], tuple[ModelClient, bytes]] | None = None,
    ) -> None:
        self.clients: list[ModelClient] = []
        self._users = users
        self._choose = choose or (lambda _queue, _payload, members: members[0])

    def connect(self) -> ModelClient:
        client = ModelClient(rights=None if self._users else OPEN)
        self.clients.append(client)
        return client

    def close(self, client: ModelClient) -> None:
        client.is_over = True
        client.subscriptions.clear()

    def receive(self, client: ModelClient, data: bytes) -> None:
        """Execute the complete operations in the bytes of a client.

        Raises:
            UnmodelledError: The bytes are none of the usual operations.
        """
        client.buffer += data
        while not client.is_over and self._take(client):
            pass

    def hear(self, subject: str, payload: bytes) -> None:
        """Give a message of another program to all clients."""
        self._deliver(None, subject, b"", b"", payload)

    def _take(self, client: ModelClient) -> bool:
        line, end, rest = client.buffer.partition(b"\n")
        if not end:
            return False
        if line[:1].isspace() or len(line) > LINE_MAX:
            raise UnmodelledError
        word, *fields = line.removesuffix(b"\r").split() or [b""]
        word, head, payload = word.upper(), b"", b""
        if word in (b"PUB", b"HPUB"):
            if not fields[1:] or not all(size.isdigit() for size in fields[-1 - (word == b"HPUB") :]):
                raise UnmodelledError
            size = int(fields.pop())
            head_size = int(fields.pop()) if word == b"HPUB" else 0
            if len(rest) < size + 2:
                return False
            head, payload = rest[:head_size], rest[head_size:size]
            if (
                rest[size : size + 2] != b"\r\n"
                or size > MESSAGE_MAX
                or (word == b"HPUB" and not client.options.get("headers"))
            ):
                raise UnmodelledError
            rest = rest[size + 2 :]
        client.buffer = rest
        if word == b"CONNECT":
            self._connect(client, line[len(word) :])
        elif client.rights is None:
            raise UnmodelledError
        elif word in (b"PUB", b"HPUB") and len(fields) in (1, 2):
            self._publish(client, client.rights[0], fields, head, payload)
        elif word == b"SUB" and len(fields) in (2, 3):
            self._subscribe(client, client.rights[1], fields[0].decode(), b"".join(fields[1:-1]).decode(), fields[-1])
        elif word == b"UNSUB" and len(fields) in (1, 2):
            self._unsubscribe(client, fields[0], int(fields[1]) if fields[1:] and fields[1].isdigit() else 0)
        elif word == b"PING" and not fields:
            client.frames.append(b"PONG")
            if client.options.get("protocol") and not client.has_pong:
                client.frames.append(b"INFO")
            client.has_pong = True
        elif word != b"PONG" or fields:
            raise UnmodelledError
        return True

    def _connect(self, client: ModelClient, text: bytes) -> None:
        try:
            given = json.loads(text)
        except ValueError:
            raise UnmodelledError from None
        if given is not None and not isinstance(given, dict):
            raise UnmodelledError
        found = {name.lower(): value for name, value in (given or {}).items() if value is not None}
        if not isinstance(found.get("verbose", True), bool):
            raise UnmodelledError
        client.options |= found
        if client.options.get("protocol", 0) > 1 or (client.options.get("no_responders") and not client.options.get("headers")):
            raise UnmodelledError
        if self._users is not None:
            client.rights = self._users.get(str(client.options.get("auth_token")))
            if client.rights is None:
                client.frames.append(b"-ERR 'Authorization Violation'")
                self.close(client)
                return
            for sid, each in list(client.subscriptions.items()):
                if not each.pattern.startswith("_INBOX.") and not is_allowed(client.rights[1], each.pattern, each.queue):
                    del client.subscriptions[sid]
                    client.frames.append(_refusal("Subscription", each.pattern, each.queue))
        self._confirm(client)

    def _publish(self, client: ModelClient, rights: list[str], fields: list[bytes], head: bytes, payload: bytes) -> None:
        subject, reply = fields[0].decode(errors="replace"), fields[1] if fields[1:] else b""
        if not is_plain(subject):
            raise UnmodelledError
        if not subject.startswith(("_INBOX", "$")) and not is_allowed(rights, subject):
            client.frames.append(_refusal("Publish", subject))
            return
        self._confirm(client)
        if not self._deliver(client, subject, reply, head, payload) and reply and client.options.get("no_responders"):
            answer = f"NATS/1.0 503\r\nNats-Subject: {subject}\r\n\r\n".encode()
            for sid, each in list(client.subscriptions.items()):
                if matches(each.pattern, reply.decode()):
                    self._give(client, sid, Heard(sid, reply, b"", answer, b""))

    def _subscribe(self, client: ModelClient, rights: list[str], pattern: str, queue: str, sid: bytes) -> None:
        if sid in client.subscriptions:
            self._confirm(client)
        elif "" in pattern.split(".") or ">" in pattern.split(".")[:-1]:
            client.frames.append(b"-ERR 'Invalid Subject'")
        elif not is_pattern(pattern):
            raise UnmodelledError
        elif not pattern.startswith("_INBOX.") and not is_allowed(rights, pattern, queue):
            client.frames.append(_refusal("Subscription", pattern, queue))
        else:
            client.subscriptions[sid] = Subscribed(pattern, queue)
            self._confirm(client)

    def _unsubscribe(self, client: ModelClient, sid: bytes, most: int) -> None:
        found = client.subscriptions.get(sid)
        if found is not None and most > found.heard:
            found.most = most
        else:
            client.subscriptions.pop(sid, None)
        self._confirm(client)

    def _confirm(self, client: ModelClient) -> None:
        if client.options["verbose"]:
            client.frames.append(b"+OK")

    def _deliver(self, sender: ModelClient | None, subject: str, reply: bytes, head: bytes, payload: bytes) -> int:
        """Give a message to all that hear it; return their number."""
        groups: dict[tuple[str, str], list[tuple[ModelClient, bytes]]] = {}
        plain: list[tuple[ModelClient, bytes]] = []
        for client in self.clients:
            for sid, each in client.subscriptions.items():
                if not matches(each.pattern, subject) or subject.startswith("$") or is_taken(client.rights, subject):
                    continue
                if each.queue:  # at nats-server, without `echo`, of others alone
                    groups.setdefault((each.pattern, each.queue), []).append((client, sid))
                elif client is not sender or client.options["echo"]:
                    plain.append((client, sid))
        for (_pattern, queue), members in groups.items():
            plain.append(self._choose(queue, payload, members))
        for client, sid in plain:
            self._give(client, sid, Heard(sid, subject.encode(), reply, head, payload))
        return len(plain)

    def _give(self, client: ModelClient, sid: bytes, heard: Heard) -> None:
        found = client.subscriptions[sid]
        found.heard += 1
        client.frames.append(heard if client.options.get("headers") else heard._replace(head=b""))
        if found.heard == found.most:
            del client.subscriptions[sid]


def _refusal(use: str, subject: str, queue: str = "") -> bytes:
    using = f' using queue "{queue}"' if queue else ""
    return f"-ERR 'Permissions Violation for {use} to \"{subject}\"{using}'".encode()


def matches(pattern: str, subject: str) -> bool:
    """Return whether a pattern matches a subject; inboxes are heard by their own patterns alone."""
    if subject.startswith("_INBOX") and pattern[0] in "*>":
        return False
    wanted, found = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        return len(found) >= len(wanted) and matches_tokens(wanted[:-1], found[: len(wanted) - 1])
    return len(found) == len(wanted) and matches_tokens(wanted, found)


def matches_tokens(wanted: list[str], found: list[str]) -> bool:
    return all(one in ("*", other) for one, other in zip(wanted, found, strict=True))


def is_covered(rule: str, pattern: str) -> bool:
    """Return whether a rule allows all subjects of a pattern: a wildcard of the pattern needs one of the rule."""
    wanted, found = rule.split("."), pattern.split(".")
    if wanted[-1] == ">":
        return len(found) >= len(wanted) and all(
            one == other or (one == "*" and other != ">") for one, other in zip(wanted[:-1], found, strict=False)
        )
    return len(found) == len(wanted) and all(
        one == other or (one == "*" and other != ">") for one, other in zip(wanted, found, strict=True)
    )


def is_allowed(rules: list[str], pattern: str, queue: str = "") -> bool:
    given = [rule.partition(" queue ") for rule in rules if not rule.startswith("!")]
    taken = [rule[1:] for rule in rules if rule.startswith("!")]
    return not any(is_covered(rule, pattern) for rule in taken) and any(
        is_covered(rule, pattern) and name in ("", queue) for rule, _word, name in given
    )


def is_taken(rights: tuple[list[str], list[str]] | None, subject: str) -> bool:
    """Return whether a client must not hear a subject, although it may have a wider pattern."""
    return rights is None or any(matches(rule[1:], subject) for rule in rights[1] if rule.startswith("!"))


def is_plain(subject: str) -> bool:
    return subject.isascii() and not any(mark in subject for mark in "*>") and "" not in subject.split(".")


def is_pattern(pattern: str) -> bool:
    return pattern.isascii() and not any(mark in token and token != mark for token in pattern.split(".") for mark in "*>")
