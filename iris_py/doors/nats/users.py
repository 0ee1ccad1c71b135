"""Users of a NATS door: their rights, and the credentials that clients show (docs/design.md 18.5)."""

from __future__ import annotations

import hmac
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from iris_py.doors.nats.nkeys import decode_user_key, is_signed
from iris_py.doors.nats.passwords import NO_HASH, hash_token
from iris_py.doors.nats.subjects import INBOX, INBOX_TOKENS, SubjectKind, is_valid_queue
from iris_py.doors.rights import SUBJECT, check_rule, covers, resolve_rules
from iris_py.federation.rules import overlaps
from iris_py.patterns.topic.names import ANY_REST, ANY_TOKEN
from iris_py.wire.names import CLOUD_MARK

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from iris_py.doors.nats.passwords import PasswordHash
    from iris_py.doors.nats.subjects import NatsSubject
    from iris_py.doors.rights import Grant, Rights, TopicUse
    from iris_py.patterns.topic.names import Tokens

__all__ = [
    "OPERATOR",
    "ClientCredentials",
    "GrantSource",
    "NatsUser",
    "PasswordQuestion",
    "SubjectRules",
    "UserDirectory",
    "check_user_rule",
    "digest_of_user",
    "read_user_rules",
    "rules_of_role",
    "user_of_grant",
]

#: Bytes of the digest of a user. Two different users of a name have the same one in one of 2^64 cases.
USER_DIGEST_BYTES: Final = 8
#: Before a pattern that is taken away from the others.
NOT: Final = "!"
#: Between a pattern and the only queue group that may subscribe to it.
QUEUE_WORD: Final = " queue "


class SubjectRule(NamedTuple):
    """A rule for subjects."""

    tokens: Tokens
    cloud: str
    """The alias of the cloud; empty for this one."""
    queue: bytes = b""
    """The only queue group; empty for all subscriptions."""

    def covers(self, tokens: Tokens, cloud: str) -> bool:
        """Return whether the rule covers a pattern or topic."""
        return self.cloud == cloud and covers(self.tokens, tokens)


class SubjectRules(NamedTuple):
    """The subjects of a use: covered by a rule, and not taken away."""

    given: tuple[SubjectRule, ...] = ()
    taken: tuple[SubjectRule, ...] = ()

    def allow(self, tokens: Tokens, cloud: str, queue: bytes = b"") -> bool:
        """Return whether a topic or pattern is allowed.

        Args:
            tokens: The tokens, without the cloud.
            cloud: The alias of the cloud; empty for this one.
            queue: The queue group of a subscription; empty for none.
        """
        if any(rule.covers(tokens, cloud) for rule in self.taken):
            return False
        return any(rule.queue in (b"", queue) and rule.covers(tokens, cloud) for rule in self.given)

    def hidden(self, tokens: Tokens, cloud: str) -> tuple[Tokens, ...]:
        """Return the patterns of topics that an allowed subscription does not hear."""
        return tuple(rule.tokens for rule in self.taken if rule.cloud == cloud and overlaps(rule.tokens, tokens))


class NatsUser(NamedTuple):
    """A user in the file of a door."""

    name: str
    publish: SubjectRules = SubjectRules()
    subscribe: SubjectRules = SubjectRules()
    password: PasswordHash | None = None
    token: str = ""
    """The hash of the token; empty for none."""
    nkey: bytes = b""
    """The public key; empty for none."""
    is_operator: bool = False
    """Whether everything is allowed."""
    grant: Grant | None = None
    """The grant of a token of `iris token new`; None for a user in the file."""
    also: NatsUser | None = None
    """The further rights, which have to allow everything too; None without."""
    remote_errors: bool = False
    """Whether the type and text of an exception of a native handler are told."""

    @property
    def sees_remote_errors(self) -> bool:
        """Whether all rights of the user include ``remote_errors``."""
        return self.remote_errors and (self.also is None or self.also.sees_remote_errors)

    def may_publish(self, subject: NatsSubject) -> bool:
        """Return whether the user may publish to a subject. Subjects for replies cannot be guessed, and need no right."""
        if self.is_operator or subject.kind is not SubjectKind.TOPIC:
            return True
        return self.publish.allow(*_split_cloud(subject.tokens)) and (self.also is None or self.also.may_publish(subject))

    def may_subscribe(self, pattern: NatsSubject, queue: bytes) -> bool:
        """Return whether the user may subscribe to a pattern.

        The own inbox needs no right. A pattern for foreign inboxes needs a rule that begins with ``_INBOX``.

        Args:
            pattern: The pattern.
            queue: The queue group; empty for none.
        """
        if self.is_operator or pattern.kind is SubjectKind.SERVER:
            return True
        if self.also is not None and not self.also.may_subscribe(pattern, queue):
            return False
        if pattern.kind is SubjectKind.INBOX:
            if len(pattern.tokens) >= INBOX_TOKENS and not {ANY_TOKEN, ANY_REST} & {*pattern.key}:
                return True
            inboxes = tuple(rule for rule in self.subscribe.given if rule.tokens[0].startswith(INBOX))
            return SubjectRules(inboxes, self.subscribe.taken).allow(pattern.tokens, "", queue)
        return self.subscribe.allow(*_split_cloud(pattern.tokens), queue)

    def hidden_topics(self, pattern: NatsSubject) -> tuple[Tokens, ...]:
        """Return the patterns of topics that an allowed subscription does not hear."""
        if not self.subscribe.taken or pattern.kind is SubjectKind.SERVER:
            return ()
        if pattern.kind is SubjectKind.INBOX:
            return self.subscribe.hidden(pattern.tokens, "")
        return self.subscribe.hidden(*_split_cloud(pattern.tokens))


#: The user of a door without users: any program of the operator.
OPERATOR: Final = NatsUser("", is_operator=True)


class ClientCredentials(NamedTuple):
    """The credentials in ``CONNECT``; each may be empty."""

    user: str = ""
    password: str = ""
    token: str = ""
    nkey: str = ""
    signature: str = ""
    jwt: str = ""


class PasswordQuestion(NamedTuple):
    """A password that has to be verified, outside of the event loop."""

    user: NatsUser | None
    """The user with this name; None for an unknown name, for which the answer is no."""
    password_hash: PasswordHash
    password: str


class GrantSource(Protocol):
    """Verifies the tokens of `iris token new`."""

    def verify(self, token: str) -> Grant | None:
        """Return the rights of the client that shows a token; None for a refused token."""

    def renew(self, grant: Grant) -> Grant | None:
        """Return a grant with its present rights; None after its end."""


class UserDirectory:
    """The users of a door.

    Args:
        users: The users, by name. Without users and tokens, every client is the operator.
        no_user: The name of the user for clients without credentials; empty for none.
        grants: Verifies tokens of `iris token new`; None for a door without tokens.
    """

    def __init__(self, users: Mapping[str, NatsUser], no_user: str = "", grants: GrantSource | None = None) -> None:
        self._users = users
        self._grants = grants
        self._digests: Mapping[str, bytes] | None = None
        self._no_user = users.get(no_user)
        self._by_token = {user.token: user for user in users.values() if user.token}
        self._by_nkey = {user.nkey: user for user in users.values() if user.nkey}

    @property
    def digests(self) -> Mapping[str, bytes]:
        """The digest of each user in the file, by name, in the order of the names."""
        if self._digests is None:
            self._digests = {name: digest_of_user(self._users[name]) for name in sorted(self._users)}
        return self._digests

    @property
    def is_open(self) -> bool:
        """Whether there are no users, and no tokens."""
        return not self._users and self._grants is None

    def renew(self, user: NatsUser) -> NatsUser | None:
        """Return a user of this or an earlier directory with the present rights; None for a removed user, or after its end."""
        if user.grant is None:
            return OPERATOR if self.is_open else self._users.get(user.name)
        grant = None if self._grants is None else self._grants.renew(user.grant)
        if grant is None or grant == user.grant:
            return None if grant is None else user
        return user_of_grant(grant)

    def find(self, credentials: ClientCredentials, nonce: str) -> NatsUser | PasswordQuestion | None:
        """Return the user of some credentials.

        Args:
            credentials: The credentials.
            nonce: The text that the client was asked to sign.

        Returns:
            The user, a question about the password, or None for wrong credentials. JWT are always wrong: they are for accounts
            of an operator, which a door does not have.
        """
        if self.is_open:
            return OPERATOR
        if credentials.jwt:
            return None
        if credentials.nkey:
            return self._find_nkey(credentials, nonce)
        if credentials.user:
            user = self._users.get(credentials.user)
            if user is None or user.password is None:
                return PasswordQuestion(None, NO_HASH, credentials.password)
            return PasswordQuestion(user, user.password, credentials.password)
        if credentials.token:
            given = hash_token(credentials.token)
            user = self._by_token.get(given)
            if user is not None and hmac.compare_digest(given, user.token):
                return user
            grant = None if self._grants is None else self._grants.verify(credentials.token)
            return None if grant is None else user_of_grant(grant)
        return self._no_user

    def _find_nkey(self, credentials: ClientCredentials, nonce: str) -> NatsUser | None:
        try:
            key = decode_user_key(credentials.nkey)
        except ValueError:
            return None
        user = self._by_nkey.get(key)
        return user if user is not None and is_signed(key, credentials.signature, nonce.encode()) else None


def check_user_rule(use: TopicUse, rule: str) -> None:
    """Check a rule of a user.

    Raises:
        ValueError: The rule is invalid; the text suggests a correction.
    """
    pattern, word, queue = rule.removeprefix(NOT).partition(QUEUE_WORD)
    if SUBJECT in rule:
        raise ValueError(f"{use}: {rule!r} has {SUBJECT}, which is for roles. Write the name of the user.")
    if word and (use == "publish" or rule.startswith(NOT)):
        raise ValueError(f"{use}: {rule!r} names a queue group. Only an allowed subscription may have one.")
    if word and not is_valid_queue(queue.encode(errors="replace")):
        raise ValueError(f"{use}: {queue!r} is no name of a queue group. Write it like 'orders.new queue workers'.")
    if " " in pattern:
        raise ValueError(f"{use}: {rule!r} has a blank. Write it like 'orders.>', '!orders.internal.>' or 'orders queue q'.")
    check_rule(use, pattern)


def read_user_rules(rules: Iterable[str]) -> SubjectRules:
    """Return the rules of some texts that `check_user_rule` has accepted."""
    given: list[SubjectRule] = []
    taken: list[SubjectRule] = []
    for rule in rules:
        pattern, _word, queue = rule.removeprefix(NOT).partition(QUEUE_WORD)
        name, _mark, cloud = pattern.partition(CLOUD_MARK)
        (taken if rule.startswith(NOT) else given).append(SubjectRule(tuple(name.split(".")), cloud, queue.encode()))
    return SubjectRules(tuple(given), tuple(taken))


def rules_of_role(role: Rights, use: TopicUse, user: str) -> SubjectRules:
    """Return the rules of a role for a user."""
    return read_user_rules(resolve_rules(role.publish if use == "publish" else role.subscribe, user))


def digest_of_user(user: NatsUser) -> bytes:
    """Return a digest of the rights and credentials of a user, which is equal at doors with an equal user.

    Nobody learns a credential from a digest by guessing: the hash of a password has 128 random bits, its salt, and the hash of
    a token stands for as many.
    """
    password = "" if user.password is None else user.password.text()
    rules = [sorted(map(repr, some)) for each in (user.publish, user.subscribe) for some in each]
    text = repr((user.name, rules, password, user.token, user.nkey.hex(), user.remote_errors))
    return sha256(text.encode()).digest()[:USER_DIGEST_BYTES]


def user_of_grant(grant: Grant) -> NatsUser:
    """Return the user of a token. Role and token both have to allow each use."""
    user: NatsUser | None = None
    for rights in reversed(grant.rights):
        user = NatsUser(
            grant.subject,
            publish=_rules_of_token(rights.publish, grant.subject),
            subscribe=_rules_of_token(rights.subscribe, grant.subject),
            grant=grant,
            also=user,
            remote_errors=rights.remote_errors,
        )
    return user or NatsUser(grant.subject, grant=grant)


def _rules_of_token(rules: tuple[str, ...], subject: str) -> SubjectRules:
    """Return the rules of a token, which name topics alone: ``!`` and ``queue`` are letters there."""
    given = []
    for rule in resolve_rules(rules, subject):
        name, _mark, cloud = rule.partition(CLOUD_MARK)
        given.append(SubjectRule(tuple(name.split(".")), cloud))
    return SubjectRules(tuple(given))


def _split_cloud(tokens: Tokens) -> tuple[Tokens, str]:
    """Return the tokens without the cloud, and the alias of the cloud."""
    last, _mark, cloud = tokens[-1].partition(CLOUD_MARK)
    return ((*tokens[:-1], last), cloud) if cloud else (tokens, "")
