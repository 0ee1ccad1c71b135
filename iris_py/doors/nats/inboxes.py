"""Subjects for replies, and the doors of their clients (docs/design.md 18.8).

A client has one inbox for all requests, or a new inbox for each request. As topics, inboxes would change the table of interest
of the whole network. Instead a door knows the inboxes of its clients, and learns the homes of other clients from requests.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Protocol

from iris_py.doors.nats.subjects import INBOX_TOKENS, NatsSubject, SubjectKind, read_subject
from iris_py.patterns.topic.names import TopicTrie

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_py.doors.nats.encoder import Delivery
    from iris_py.doors.nats.subscription import ClientSubscription, DoorClient
    from iris_py.patterns.topic.names import Tokens

__all__ = ["HOMES_MAX", "AskedClient", "Inboxes"]

#: Clients of other doors whose home is remembered; the longest unused is forgotten. Too small: a reply goes to all doors; too
#: large: memory, some 250 bytes for each.
HOMES_MAX: Final = 65_536
#: Clients whose subscriptions are remembered; beyond it all are forgotten. Too small: each reply looks for its subscriptions;
#: too large: memory.
MATCHES_MAX: Final = 4096


class AskedClient(Protocol):
    """A request of a native program that a client has."""

    def answer(self, delivery: Delivery) -> None:
        """Take the client's reply."""

    def lose(self) -> None:
        """Note that the client has gone."""


class Inboxes:
    """The inboxes of the clients of a door, the homes of other clients, and the requests that clients have.

    Args:
        homes_max: The largest number of remembered homes.
    """

    def __init__(self, homes_max: int = HOMES_MAX) -> None:
        self._trie: TopicTrie[ClientSubscription] = TopicTrie()
        # By an inbox without its last token: the subscriptions, if that token does not matter.
        self._matches: dict[Tokens, list[ClientSubscription]] = {}
        self._homes: OrderedDict[Tokens, str] = OrderedDict()
        self._homes_max = homes_max
        self._noted = b"", ""  # the subject for replies without the token of the request, and the home, of the last message
        self._asked: dict[bytes, tuple[DoorClient, AskedClient]] = {}
        self._asked_of: dict[DoorClient, dict[bytes, None]] = {}
        self._idle: dict[DoorClient, Callable[[], object]] = {}  # of clients with requests

    def add(self, subscription: ClientSubscription) -> None:
        """Add a subscription to an inbox, or to a pattern of inboxes."""
        self._trie.add(subscription.pattern.tokens, subscription)
        self._matches.clear()

    def remove(self, subscription: ClientSubscription) -> None:
        """Remove a subscription."""
        self._trie.remove(subscription.pattern.tokens, subscription)
        self._matches.clear()

    def match(self, tokens: Tokens) -> list[ClientSubscription]:
        """Return the subscriptions to an inbox, a single member of each queue group."""
        remembered = self._matches.get(tokens[:-1])
        if remembered is not None:
            return remembered
        matched = self._trie.match(tokens)
        found = [each for each in matched if not each.hidden or each.hears(tokens)]
        if any(each.queue for each in found):
            chosen = {each.key if each.queue else each: each for each in found}
            return list(chosen.values())
        # More than one would be memory: each client may have thousands of equal subscriptions.
        if (
            len(matched) <= 1
            and not any(each.hidden for each in matched)
            and not self._trie.literal_bits(tokens) >> (len(tokens) - 1)
        ):
            if len(self._matches) >= MATCHES_MAX:
                self._matches.clear()
            self._matches[tokens[:-1]] = found
        return found

    def hears(self, client: DoorClient, tokens: Tokens) -> bool:
        """Return whether a client has a subscription to an inbox."""
        return any(each.client is client and each.is_open for each in self._trie.match(tokens))

    def expect(self, inbox: bytes, client: DoorClient, asked: AskedClient) -> None:
        """Expect the reply of a client to an inbox of the door itself."""
        self._asked[inbox] = client, asked
        self._asked_of.setdefault(client, {})[inbox] = None

    def forget_asked(self, inbox: bytes) -> None:
        """Expect no reply any more. Harmless if repeated."""
        found = self._asked.pop(inbox, None)
        if found is not None:
            inboxes = self._asked_of[found[0]]
            del inboxes[inbox]
            if not inboxes:
                del self._asked_of[found[0]]
                if (told := self._idle.pop(found[0], None)) is not None:
                    told()

    def tell_idle(self, client: DoorClient, told: Callable[[], object]) -> None:
        """Call a function once a client has answered all its requests: at once, or later."""
        if client in self._asked_of:
            self._idle[client] = told
        else:
            told()

    def is_own(self, inbox: bytes) -> bool:
        """Return whether an inbox is one of the door itself."""
        return inbox in self._asked

    def answer(self, sender: DoorClient | None, inbox: bytes, delivery: Delivery) -> bool:
        """Take a reply to an inbox of the door itself; return whether there is such an inbox.

        The reply of any other client than the asked one is dropped.
        """
        found = self._asked.get(inbox)
        if found is None:
            return False
        client, asked = found
        if client is sender:
            self.forget_asked(inbox)
            asked.answer(delivery)
        return True

    def lose(self, client: DoorClient) -> None:
        """Note that a client has gone, with all its requests."""
        for inbox in list(self._asked_of.get(client, ())):
            _client, asked = self._asked[inbox]
            self.forget_asked(inbox)
            asked.lose()

    def note_home(self, reply: bytes, home: str) -> None:
        """Remember the door from which a message with a subject for replies came.

        Args:
            reply: The subject for replies; any other than an inbox is ignored.
            home: The id of the door.
        """
        client, _dot, _request = reply.rpartition(b".")
        if (client, home) == self._noted:
            return
        subject = read_subject(reply)
        if isinstance(subject, NatsSubject) and subject.kind is SubjectKind.INBOX:
            self._homes[subject.key] = home
            self._homes.move_to_end(subject.key)
            if len(self._homes) > self._homes_max:
                self._homes.popitem(last=False)
            self._noted = (client, home) if len(subject.tokens) > INBOX_TOKENS else (b"", "")

    def home_of(self, key: Tokens) -> str:
        """Return the door of a client; empty if unknown."""
        home = self._homes.get(key, "")
        if home:
            self._homes.move_to_end(key)
        return home

    def forget(self, key: Tokens, home: str) -> None:
        """Forget the door of a client that the door has lost, unless the client has moved again."""
        self._noted = b"", ""
        if self._homes.get(key) == home:
            del self._homes[key]
