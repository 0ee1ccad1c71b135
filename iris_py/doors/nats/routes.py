"""The subscriptions of the clients of a NATS door, and the way of messages (docs/design.md 18.7).

Messages between clients of one door do not pass through the node. The node has a subscription for each distinct pattern and
queue group of all clients. The node knows no subjects for replies (:mod:`iris_py.doors.nats.inboxes`).
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeAlias

from iris_py.doors.nats.encoder import Delivery
from iris_py.doors.nats.inboxes import Inboxes
from iris_py.doors.nats.subjects import SubjectKind
from iris_py.doors.nats.subscription import PatternKey
from iris_py.patterns.topic.names import ANY_REST, ANY_TOKEN, TopicTrie
from iris_py.wire.names import CLOUD_MARK

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from iris_py.doors.nats.operations import PubLine
    from iris_py.doors.nats.subjects import NatsSubject
    from iris_py.doors.nats.subscription import ClientSubscription, DoorClient
    from iris_py.patterns.topic.names import Tokens

__all__ = ["InboxDelivery", "Routes", "TopicDelivery"]

#: Messages of the node, with the tokens of their topic.
TopicDelivery: TypeAlias = "tuple[Tokens, Delivery]"
#: A client, with its subscriptions to a topic.
_ClientMatches: TypeAlias = "tuple[DoorClient, list[ClientSubscription]]"
#: Messages to an inbox.
InboxDelivery: TypeAlias = "tuple[NatsSubject, Delivery]"

#: Subjects whose subscriptions are remembered, and these subscriptions in all. Beyond either all are forgotten. Too small: each
#: message looks for its subscriptions; too large: memory.
REMEMBERED_SUBJECTS_MAX: Final = 4096
REMEMBERED_MATCHES_MAX: Final = 65_536
#: Subscriptions of an ended client that leave the tables at a time, each in some 10 us. Too small: thousands take long, and
#: count for the limits meanwhile; too large: other clients wait.
ENDED_AT_ONCE: Final = 16


class Routes:
    """The subscriptions of all clients.

    Args:
        subscriptions_max: The largest number of subscriptions.
        patterns_max: The largest number of distinct patterns and queue groups.

    Attributes:
        bytes_in: Bytes of the messages of clients, with their header blocks.
        bytes_out: Likewise of messages given to clients.
        messages_in: Messages of clients.
        messages_out: Messages given to clients; a message for several subscriptions counts for each.
        inboxes: The subscriptions to subjects for replies.
        count: The number of subscriptions.
        changed: Patterns and queue groups since the owner has last taken this: True if the node has to subscribe, False if
            there is no subscription left.
        joined: Patterns and queue groups with a further subscription since then.
    """

    def __init__(self, subscriptions_max: int, patterns_max: int) -> None:
        self.inboxes = Inboxes()
        self.count = 0
        self.messages_in = self.messages_out = 0
        self.bytes_in = self.bytes_out = 0
        self.changed: dict[PatternKey, bool] = {}
        self.joined: dict[PatternKey, None] = {}
        self._subscriptions_max = subscriptions_max
        self._patterns_max = patterns_max
        self._by_key: dict[PatternKey, dict[ClientSubscription, None]] = {}
        self._plain: TopicTrie[ClientSubscription] = TopicTrie()
        self._remembered: dict[bytes, list[_ClientMatches]] = {}
        self._remembered_matches = 0
        self._ended: deque[ClientSubscription] = deque()

    @property
    def has_ended(self) -> bool:
        """Whether subscriptions of ended clients are still in the tables."""
        return bool(self._ended)

    @property
    def patterns(self) -> int:
        """The number of distinct patterns and queue groups."""
        return len(self._by_key)

    def change_limits(self, subscriptions_max: int, patterns_max: int) -> None:
        """Use other limits for new subscriptions."""
        self._subscriptions_max = subscriptions_max
        self._patterns_max = patterns_max

    def has_room(self, pattern: NatsSubject, queue: bytes) -> bool:
        """Return whether the door has room for a subscription."""
        if self.count >= self._subscriptions_max:
            return False
        if pattern.kind is not SubjectKind.TOPIC or len(self._by_key) < self._patterns_max:
            return True
        return PatternKey(pattern.name, queue.decode()) in self._by_key

    def add(self, subscription: ClientSubscription) -> bool:
        """Add a subscription, which hears messages of clients of this door from now on.

        Returns:
            Whether the node has to subscribe first, for messages of others, or may just be subscribing.
        """
        self.count += 1
        pattern = subscription.pattern
        if pattern.kind is SubjectKind.INBOX:
            self.inboxes.add(subscription)
        if pattern.kind is not SubjectKind.TOPIC:
            return False
        key = subscription.key
        users = self._by_key.get(key)
        if users is None:
            users = self._by_key[key] = {}
            self.changed[key] = True
        else:
            self.joined[key] = None
        users[subscription] = None
        if _is_local(subscription):
            self._plain.add(pattern.tokens, subscription)
            self._forget_matches(pattern)
        return True

    def remove(self, subscription: ClientSubscription) -> None:
        """Remove a subscription. Harmless if repeated."""
        if subscription.is_open:
            subscription.is_open = False
            self._remove(subscription)

    def end(self, subscriptions: Collection[ClientSubscription]) -> None:
        """End the subscriptions of a client at once. Beyond the first ones, `remove_ended` removes them from the tables."""
        for subscription in subscriptions:
            if subscription.is_open:
                subscription.is_open = False
                self._ended.append(subscription)
        self.remove_ended()

    def remove_ended(self) -> None:
        """Remove some ended subscriptions from the tables: a client may have had thousands."""
        for _ in range(min(ENDED_AT_ONCE, len(self._ended))):
            self._remove(self._ended.popleft())

    def _remove(self, subscription: ClientSubscription) -> None:
        self.count -= 1
        pattern = subscription.pattern
        if pattern.kind is SubjectKind.INBOX:
            self.inboxes.remove(subscription)
        if pattern.kind is not SubjectKind.TOPIC:
            return
        key = subscription.key
        users = self._by_key[key]
        del users[subscription]
        if not users:
            del self._by_key[key]
            self.changed[key] = False
        if _is_local(subscription):
            self._plain.remove(pattern.tokens, subscription)
            self._forget_matches(pattern)

    def has_users(self, key: PatternKey) -> bool:
        """Return whether clients have subscriptions with this pattern and queue group."""
        return key in self._by_key

    def count_members(self, key: PatternKey, count_max: int) -> int:
        """Return the number of subscriptions with this pattern and queue group, or a largest number: there may be thousands."""
        is_open = (each for each in self._by_key.get(key, ()) if each.is_open)
        return sum(1 for _ in islice(is_open, count_max))

    def refuse(self, key: PatternKey) -> None:
        """End all subscriptions with a pattern that the node cannot serve, as of a cloud without exports."""
        for subscription in list(self._by_key.get(key, ())):
            self.remove(subscription)
            subscription.client.refuse_subscription(subscription)

    def publish(self, sender: DoorClient, subject: NatsSubject, line: PubLine, contents: list[bytes]) -> int:
        """Give messages of a client to the subscriptions of this door without a queue group.

        Queue groups are shared by all doors, so their messages come from the node.

        Args:
            sender: The client.
            subject: The subject: a topic.
            line: The control line of the messages.
            contents: The header block and the payload of each message.

        Returns:
            The number of subscriptions with the messages.
        """
        found = self._remembered.get(subject.raw)
        if found is None:
            found = self._find(subject)
        if not found:
            return 0
        delivery = Delivery(line.subject, line.reply, line.header_bytes, contents)
        count = 0
        for client, subscriptions in found:
            if client is sender and not sender.hears_itself:
                continue
            if len(subscriptions) > 1:
                count += self._give_client(client, subscriptions, delivery)
            elif subscriptions[0].is_open:
                self._give(subscriptions[0], delivery)
                count += 1
        return count

    def reply(self, sender: DoorClient | None, subject: NatsSubject, delivery: Delivery) -> int:
        """Give messages to the subscriptions of an inbox at this door.

        Args:
            sender: The client; None for messages from another door.
            subject: The subject.
            delivery: The messages.

        Returns:
            The number of subscriptions with the messages.
        """
        if self.inboxes.answer(sender, subject.raw, delivery):
            return 1
        count = 0
        for subscription in self.inboxes.match(subject.tokens):
            if not subscription.is_open or (subscription.client is sender and not sender.hears_itself):
                continue
            count += 1
            self._give(subscription, delivery)
        return count

    def reply_all(self, replies: Sequence[InboxDelivery]) -> list[InboxDelivery]:
        """Give messages of another door to the subscriptions of their inboxes, with a single write for a client in general.

        Args:
            replies: The messages, in order, each with its inbox.

        Returns:
            The messages without a subscription.
        """
        unheard: list[InboxDelivery] = []
        hearing: ClientSubscription | None = None  # of the messages in `gathered`
        gathered: list[Delivery] = []
        for subject, delivery in replies:
            found = self.inboxes.match(subject.tokens)
            only = found[0] if len(found) == 1 else None
            is_usual = only is not None and only.is_open and not only.messages_max
            if gathered and (only is not hearing or not is_usual):
                self._give_all(hearing, gathered)
                gathered = []
            if is_usual and not self.inboxes.is_own(subject.raw):
                hearing = only
                gathered.append(delivery)
            elif not self.reply(None, subject, delivery):
                unheard.append((subject, delivery))
        if gathered:
            self._give_all(hearing, gathered)
        return unheard

    def choose(self, key: PatternKey) -> ClientSubscription | None:
        """Choose a client of a queue group for a request, in turn; None without any."""
        users = self._by_key.get(key, {})
        subscription = next((each for each in users if each.is_open), None)
        if subscription is not None:
            del users[subscription]
            users[subscription] = None
        return subscription

    def give(self, subscription: ClientSubscription, delivery: Delivery) -> None:
        """Give messages to a single subscription."""
        self._give(subscription, delivery)

    def answer(self, client: DoorClient, subject: NatsSubject, delivery: Delivery) -> None:
        """Give an answer of the door to the subscriptions of a single client."""
        find = self.inboxes.match if subject.kind is SubjectKind.INBOX else self._plain.match
        for subscription in find(subject.tokens):
            if subscription.client is client and subscription.is_open:
                self._give(subscription, delivery)

    def receive_all(self, key: PatternKey, deliveries: Sequence[TopicDelivery]) -> None:
        """Give messages of the node to the users of a subscription, as :meth:`receive` does, with a single write for a client.

        Args:
            key: The subscription of the node.
            deliveries: The messages, in order.
        """
        if key.group or len(deliveries) == 1:
            for topic, delivery in deliveries:
                self.receive(key, topic, delivery)
            return
        for subscription in list(self._by_key.get(key, ())):
            heard = [each for topic, each in deliveries if not subscription.hidden or subscription.hears(topic)]
            if subscription.messages_max:
                for delivery in heard:
                    if subscription.is_open:
                        self._give(subscription, delivery)
            elif subscription.is_open and heard:
                self._give_all(subscription, heard)

    def receive(self, key: PatternKey, topic: Tokens, delivery: Delivery) -> int:
        """Give messages of the node to its users: to all subscriptions, or to a single member of a queue group.

        Args:
            key: The subscription of the node.
            topic: The tokens of the topic.
            delivery: The messages.

        Returns:
            The number of subscriptions with the messages.
        """
        users = self._by_key.get(key)
        if users is None:
            return 0
        if len(users) == 1:
            (only,) = users
            if not only.is_open or (only.hidden and not only.hears(topic)):
                return 0
            self._give(only, delivery)
            return 1
        hearing = [each for each in users if each.is_open and (not each.hidden or each.hears(topic))]
        if key.group:
            del hearing[1:]
            for subscription in hearing:  # the next one has the next turn
                del users[subscription]
                users[subscription] = None
        for subscription in hearing:
            if subscription.is_open:
                self._give(subscription, delivery)
        return len(hearing)

    # --

    def _find(self, subject: NatsSubject) -> list[_ClientMatches]:
        """Find and remember the clients with subscriptions to a topic; those with many subscriptions get a message last."""
        if CLOUD_MARK in subject.name:
            return []
        tokens = subject.tokens
        matches = self._plain.match(tokens)
        found: list[_ClientMatches] = []
        if matches:
            matches = [each for each in matches if not each.hidden or each.hears(tokens)]
            by_client: dict[DoorClient, list[ClientSubscription]] = {}
            for each in matches:
                by_client.setdefault(each.client, []).append(each)
            found = sorted(by_client.items(), key=_count_matches)
            self._remembered_matches += len(matches)
        if len(self._remembered) >= REMEMBERED_SUBJECTS_MAX or self._remembered_matches > REMEMBERED_MATCHES_MAX:
            self._remembered.clear()
            self._remembered_matches = len(matches)
        self._remembered[subject.raw] = found
        return found

    def _forget_matches(self, pattern: NatsSubject) -> None:
        """Forget the subscriptions to the subjects that a changed pattern matches."""
        if ANY_TOKEN in pattern.tokens or pattern.tokens[-1] == ANY_REST:
            self._remembered.clear()
            self._remembered_matches = 0
        elif (found := self._remembered.pop(pattern.raw, None)) is not None:
            self._remembered_matches -= sum(map(_count_matches, found))

    def _give_client(self, client: DoorClient, subscriptions: list[ClientSubscription], delivery: Delivery) -> int:
        """Give messages to the subscriptions of a client, with a single write; return their number."""
        hearing = [each for each in subscriptions if each.is_open]
        if any(each.messages_max for each in hearing):
            for subscription in hearing:
                self._give(subscription, delivery)
        elif hearing:
            messages = len(delivery.contents)
            for subscription in hearing:
                subscription.delivered += messages
            self.messages_out += len(hearing) * messages
            self.bytes_out += len(hearing) * messages * len(delivery.contents[0])
            client.write(delivery.texts([each.sid for each in hearing], has_headers=client.has_headers))
        return len(hearing)

    def _give_all(self, subscription: ClientSubscription | None, deliveries: list[Delivery]) -> None:
        """Give messages to a subscription without a largest number."""
        if subscription is not None:
            self.messages_out += subscription.give_all(deliveries)
            self.bytes_out += sum([len(each.contents) * len(each.contents[0]) for each in deliveries])

    def _give(self, subscription: ClientSubscription, delivery: Delivery) -> None:
        before = subscription.delivered
        is_last = subscription.give(delivery)
        count = subscription.delivered - before
        self.messages_out += count
        self.bytes_out += count * len(delivery.contents[0])
        if is_last:
            self.remove(subscription)
            subscription.client.forget_subscription(subscription)


def _count_matches(matches: _ClientMatches) -> int:
    return len(matches[1])


def _is_local(subscription: ClientSubscription) -> bool:
    """Return whether messages of other clients of this door go to a subscription directly."""
    return not subscription.queue and CLOUD_MARK not in subscription.pattern.name
