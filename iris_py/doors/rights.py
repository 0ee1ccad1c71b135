"""Rights of a client at a door: every operation needs a rule.

Rules for clusters are names in which ``*`` stands for any characters but ``@``, as in ``db-*`` and ``quotes@eu``. Rules for
topics are patterns; a subscription needs a rule that covers the pattern (:func:`covers`). Rules like ``orders.>`` and ``*`` do
not concern other clouds. No rule allows the names of Iris (``iris.``).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from iris_py.patterns.topic.names import ANY_REST, ANY_TOKEN, parse_pattern
from iris_py.wire.names import CLOUD_MARK, RESERVED_NAMES
from iris_security.keyring import encode_name

if TYPE_CHECKING:
    from iris_py.patterns.topic.names import Tokens

__all__ = [
    "CLOCK_SKEW_S_MAX",
    "CLUSTER_USES",
    "LIFETIME_S_MAX",
    "SUBJECT",
    "TOPIC_USES",
    "Grant",
    "Rights",
    "check_subject",
    "covers",
    "fits_rules",
    "resolve_rules",
]

ClusterUse: TypeAlias = Literal["request", "survey", "broadcast"]
TopicUse: TypeAlias = Literal["publish", "subscribe"]

CLUSTER_USES: Final[tuple[ClusterUse, ...]] = ("request", "survey", "broadcast")
TOPIC_USES: Final[tuple[TopicUse, ...]] = ("publish", "subscribe")
#: The time from the making of a token to its end (seconds). Too small: clients fetch tokens all the time; too large: a stolen
#: token is long of use.
LIFETIME_S_MAX: Final = 24 * 3600
#: The difference of two clocks up to which new tokens are valid at once (seconds). Too small: tokens of a host with a fast
#: clock are refused at first; too large: the bound of the lifetime means less.
CLOCK_SKEW_S_MAX: Final = 60
#: Stands in a rule for the subject of the client.
SUBJECT: Final = "{sub}"
#: Bytes of a subject. It stands for the client in rules, keys and counts.
SUBJECT_BYTES_MAX: Final = 128
#: Rules of one use. Too small: a role needs a wildcard for its names; too large: each operation compares with each rule.
RULES_MAX: Final = 64
#: Compiled rules. A forgotten rule is compiled again.
COMPILED_MAX: Final = 1024

#: A subject with these would widen a rule, or change the shape of a pattern.
_UNFIT: Final = frozenset(f".{ANY_TOKEN}{ANY_REST}{CLOUD_MARK}{{}}\0")


class Rights(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The rules of a role or a token. Everything else is forbidden."""

    request: tuple[str, ...] = ()
    """The clusters that may be asked."""
    survey: tuple[str, ...] = ()
    """The clusters that may be surveyed."""
    broadcast: tuple[str, ...] = ()
    """The clusters that may get broadcasts."""
    publish: tuple[str, ...] = ()
    """Patterns of the topics that may be published to."""
    subscribe: tuple[str, ...] = ()
    """Patterns that cover the allowed subscriptions."""
    observe: bool = False
    """Whether the state of the network may be looked at."""
    remote_errors: bool = False
    """Whether the type and text of an exception of a handler are told."""

    def check(self) -> None:
        """Check the rules.

        Raises:
            ValueError: A rule is invalid; the text names the rule and suggests a correction.
        """
        for use in (*CLUSTER_USES, *TOPIC_USES):
            rules: tuple[str, ...] = getattr(self, use)
            if len(rules) > RULES_MAX:
                raise ValueError(f"{use} has {len(rules)} rules, and {RULES_MAX} are allowed. Join some with a wildcard.")
            for rule in rules:
                check_rule(use, rule)

    @property
    def names_subject(self) -> bool:
        """Whether a rule has ``{sub}``."""
        rules: tuple[str, ...] = sum((getattr(self, use) for use in (*CLUSTER_USES, *TOPIC_USES)), ())
        return any(SUBJECT in rule for rule in rules)

    def allows_cluster(self, use: ClusterUse, cluster: str, subject: str) -> bool:
        """Tell whether the rules allow a use of a cluster.

        Args:
            use: The use.
            cluster: The name, as ``databases`` or ``databases@eu``.
            subject: The subject of the client.
        """
        if cluster.startswith(RESERVED_NAMES):
            return False
        rules: tuple[str, ...] = getattr(self, use)
        return any(_cluster_rule(rule).fullmatch(cluster) for rule in resolve_rules(rules, subject))

    def allows_topic(self, use: TopicUse, pattern: str, subject: str) -> bool:
        """Tell whether the rules allow to publish to a topic or subscribe to a pattern.

        Args:
            use: The use.
            pattern: A valid topic or pattern, with ``@cloud`` for another cloud.
            subject: The subject of the client.
        """
        name, _mark, cloud = pattern.partition(CLOUD_MARK)
        if name.startswith(RESERVED_NAMES):
            return False
        rules: tuple[str, ...] = getattr(self, use)
        tokens = tuple(name.split("."))
        for rule in resolve_rules(rules, subject):
            own, _mark, of_cloud = rule.partition(CLOUD_MARK)
            if of_cloud == cloud and covers(tuple(own.split(".")), tokens):
                return True
        return False


class Grant(msgspec.Struct, frozen=True):
    """A client with its rights: each of them has to allow an operation."""

    subject: str
    """The name of the client."""
    rights: tuple[Rights, ...]
    """The rights of the role, and those of the token; at least one."""
    until: float = float("inf")
    """The end of the grant, in seconds since 1970."""
    token_id: str = ""
    """The id by which the token may be revoked; empty for none."""
    made_at: float = 0.0
    """The making of the token, in seconds since 1970."""
    role: str = ""
    """The role with the first of the rights; empty for none."""
    key_id: str = ""
    """The generation of the secret that signed the token, in hexadecimal digits; empty for none."""

    def allows_cluster(self, use: ClusterUse, cluster: str) -> bool:
        """Tell whether a use of a cluster is allowed."""
        return all(each.allows_cluster(use, cluster, self.subject) for each in self.rights)

    def allows_topic(self, use: TopicUse, pattern: str) -> bool:
        """Tell whether a topic may be published to, or a pattern subscribed to."""
        return all(each.allows_topic(use, pattern, self.subject) for each in self.rights)

    @property
    def observes(self) -> bool:
        """Whether the client may look at the state of the network."""
        return all(each.observe for each in self.rights)

    @property
    def sees_remote_errors(self) -> bool:
        """Whether the client is told the type and text of an exception of a handler."""
        return all(each.remote_errors for each in self.rights)


def covers(wide: Tokens, narrow: Tokens) -> bool:
    """Tell whether every topic that ``narrow`` matches is matched by ``wide``.

    Args:
        wide: The tokens of a valid pattern.
        narrow: The tokens of a valid pattern or topic.
    """
    if wide[-1] == ANY_REST:
        head = wide[:-1]  # `>` stands for at least one token
        return len(narrow) > len(head) and all(map(_covers_token, head, narrow))
    return len(narrow) == len(wide) and all(map(_covers_token, wide, narrow))


def _covers_token(wide: str, narrow: str) -> bool:
    return wide == narrow or (wide == ANY_TOKEN and narrow != ANY_REST)


def check_subject(subject: str) -> None:
    """Check the subject of a client.

    Raises:
        ValueError: The subject is empty, too long, or contains a character that cannot be printed.
    """
    if not subject or len(subject.encode(errors="replace")) > SUBJECT_BYTES_MAX or not subject.isprintable():
        raise ValueError(f"a subject has 1 to {SUBJECT_BYTES_MAX} printable bytes, as 'ann'")


def fits_rules(subject: str) -> bool:
    """Return whether ``{sub}`` in a rule may stand for a subject. For another subject the rule allows nothing."""
    return not _UNFIT.intersection(subject)


def check_rule(use: ClusterUse | TopicUse, rule: str) -> None:
    """Check a rule.

    Raises:
        ValueError: The rule is invalid; the text suggests a correction.
    """
    filled = rule.replace(SUBJECT, "x")
    if "{" in filled or "}" in filled:
        raise ValueError(f"{use}: {rule!r} has braces. Only {SUBJECT}, the subject of the client, may stand in braces.")
    if filled.startswith(RESERVED_NAMES):
        raise ValueError(f"{use}: {rule!r} begins with {RESERVED_NAMES!r}: the names of Iris itself are never allowed.")
    own, mark, cloud = filled.partition(CLOUD_MARK)
    if mark and (not cloud or CLOUD_MARK in cloud or ANY_TOKEN in cloud):
        raise ValueError(f"{use}: {rule!r} has no single cloud behind {CLOUD_MARK!r}. Write it like 'orders@eu'.")
    try:
        if use in CLUSTER_USES:
            encode_name(own.replace(ANY_TOKEN, "x"))
        else:
            parse_pattern(own)
    except ValueError as exc:
        raise ValueError(f"{use}: {exc}") from None


def resolve_rules(rules: tuple[str, ...], subject: str) -> list[str]:
    """Return the rules for a subject, without those that the subject does not fit into."""
    if not any(SUBJECT in rule for rule in rules):
        return list(rules)
    if not fits_rules(subject):
        return [rule for rule in rules if SUBJECT not in rule]
    return [rule.replace(SUBJECT, subject) for rule in rules]


@lru_cache(COMPILED_MAX)
def _cluster_rule(rule: str) -> re.Pattern[str]:
    parts = map(re.escape, rule.split(ANY_TOKEN))
    return re.compile(f"[^{CLOUD_MARK}]*".join(parts), re.DOTALL)
