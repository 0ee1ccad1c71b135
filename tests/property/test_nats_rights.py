"""Rights at a NATS door: a user hears and publishes the topics that the rules give, topic by topic, and nothing else."""

from __future__ import annotations

import re
from itertools import product

from hypothesis import example, given
from hypothesis import strategies as st

from iris_py.doors.nats.encoder import Delivery
from iris_py.doors.nats.passwords import hash_token
from iris_py.doors.nats.subscription import PatternKey
from iris_py.doors.nats.users import NatsUser, UserDirectory, read_user_rules
from tests.nats.lone_door import DoorConnection, LoneDoor

OPTIONS = b'{"verbose":false,"pedantic":false,"headers":true,"no_responders":true%b}'
QUEUES = ("", "q", "other")
TOPICS = tuple(".".join(tokens) for count in (1, 2, 3) for tokens in product("ab", repeat=count))
FAR = tuple(f"{topic}@eu" for topic in TOPICS[:6])
INBOXES = ("_INBOX.x", "_INBOX.x.1", "_INBOX.y.1", "_INBOX_c.x.a")
SERVERS = ("$JS.API.INFO", "$SYS.REQ.USER.INFO", "$KV.a", "$O.a", "$G.a")

#: The end of a subscription: its pattern, and its queue group.
ENDED = re.compile(r"Permissions Violation for Subscription to \"([^\"]*)\"(?: using queue \"([^\"]*)\")?")

ALL = NatsUser("all", publish=read_user_rules([">"]), token=hash_token("all"))

TOKENS = st.sampled_from(["a", "b", "*"])
TOPIC_PATTERNS = st.builds(
    lambda tokens, rest, cloud: ".".join(tokens + rest) + cloud,
    st.lists(TOKENS, min_size=1, max_size=3),
    st.sampled_from([[], [">"]]),
    st.sampled_from(["", "", "", "@eu"]),
)
INBOX_PATTERNS = st.sampled_from(["_INBOX.>", "_INBOX.x.>", "_INBOX.x.*", "_INBOX.*", "_INBOX.*.1", "_INBOX.x", "_INBOX_c.>"])
PATTERNS = st.one_of(TOPIC_PATTERNS, st.just(">"), INBOX_PATTERNS)
RULES = st.lists(
    st.one_of(
        PATTERNS,
        PATTERNS.map("!{}".format),
        st.builds("{} queue {}".format, PATTERNS, st.sampled_from(QUEUES[1:])),
    ),
    max_size=5,
)
SUBSCRIPTIONS = st.lists(st.tuples(st.one_of(PATTERNS, st.just("$SYS.>")), st.sampled_from(QUEUES)), min_size=1, max_size=5)


def matches(pattern: str, subject: str) -> bool:
    """Return whether a pattern matches a subject: an own account, of texts."""
    wanted, _, cloud = pattern.partition("@")
    name, _, of_cloud = subject.partition("@")
    text = re.escape(wanted).replace(r"\*", r"[^.]+").replace(">", r".+")
    return cloud == of_cloud and re.fullmatch(text, name) is not None


def gives(rules: list[str], subject: str, queue: str = "", *, needs_inbox: bool = False) -> bool:
    """Return whether rules give a subject to a subscription, or to a publication.

    Args:
        rules: The rules.
        subject: The subject.
        queue: The queue group; empty for none.
        needs_inbox: Whether only rules count that name inboxes.
    """
    if any(rule[0] == "!" and matches(rule[1:], subject) for rule in rules):
        return False
    for rule in rules:
        pattern, _, only = rule.partition(" queue ")
        is_fit = pattern.startswith("_INBOX") or not needs_inbox
        if rule[0] != "!" and only in ("", queue) and is_fit and matches(pattern, subject):
            return True
    return False


def may_hear(rules: list[str], pattern: str, queue: str, subject: str) -> bool:
    """Return whether a subscription may hear a subject: own inboxes need no rule, and a rule can take them away."""
    if not subject.startswith("_INBOX"):
        return gives(rules, subject, queue)
    is_own = pattern.startswith("_INBOX") and len(tokens := pattern.split(".")) > 1 and not {"*", ">"} & {*tokens[:2]}
    if is_own and not any(rule[0] == "!" and matches(rule[1:], subject) for rule in rules):
        return True
    return gives(rules, subject, queue, needs_inbox=True)


def user(rules: list[str]) -> NatsUser:
    """Return a user with the same rules for both uses."""
    return NatsUser("ann", subscribe=read_user_rules(rules), publish=read_user_rules(r for r in rules if " queue " not in r))


def heard(client: DoorConnection) -> list[tuple[int, str]]:
    """Return the subscriptions and subjects of the messages that a client got."""
    found = re.findall(rb"^MSG (\S+) (\d+) (?:\S+ )?0\r\n", client.read(), re.MULTILINE)
    return [(int(sid), subject.decode()) for subject, sid in found]


def tell_all(door: LoneDoor, sender: DoorConnection, subscriptions: list[tuple[str, str]]) -> None:
    """Publish to each subject: by another client of the door, and by programs of the network."""
    for subject in (*TOPICS, *INBOXES):
        sender.send(b"PUB %b 0\r\n\r\n" % subject.encode())
    for pattern, queue in dict.fromkeys(subscriptions):
        deliveries = [
            (tuple(subject.partition("@")[0].split(".")), Delivery(subject.encode(), b"", 0, [b""]))
            for subject in (*TOPICS, *FAR)
            if matches(pattern, subject)
        ]
        door.clients.routes.receive_all(PatternKey(pattern, queue), deliveries)


@example(["a.*", "!a.b"], [("a.*", ""), ("a.>", "")], ["a.b"])
@example([">", "!*.b"], [(">", ""), ("a.*", "q"), ("_INBOX.>", "")], [">", "!a.>"])
@example(["a queue q", "_INBOX.>", "!_INBOX.x.1"], [("a", "q"), ("a", ""), ("_INBOX.>", ""), ("_INBOX.x.>", "")], [])
@given(RULES, SUBSCRIPTIONS, RULES)
def test_a_user_hears_each_topic_that_the_rules_give_and_no_other(
    rules: list[str], subscriptions: list[tuple[str, str]], later: list[str]
) -> None:
    door = LoneDoor({"ann": user(rules), "all": ALL}, no_user="ann")
    client = door.connect(OPTIONS % b"")
    sender = door.connect(OPTIONS % b',"auth_token":"all"')
    allowed = {
        sid: (pattern, queue)
        for sid, (pattern, queue) in enumerate(subscriptions)
        if not client.ask(b"SUB %b %b %d\r\n" % (pattern.encode(), queue.encode(), sid))
    }
    for current in (rules, later):
        tell_all(door, sender, subscriptions)
        messages = heard(client)
        for sid, subject in messages:
            assert matches(allowed[sid][0], subject)
            assert may_hear(current, *allowed[sid], subject), (sid, subject)
        for sid, (pattern, queue) in allowed.items():
            if not queue:  # a message for a queue group goes to any of its members
                wanted = {each for each in (*TOPICS, *FAR, *INBOXES) if matches(pattern, each)}
                if pattern == ">" or not pattern.startswith("_INBOX"):
                    wanted -= {*INBOXES}
                assert {each for its, each in messages if its == sid} == {
                    each for each in wanted if may_hear(current, pattern, queue, each)
                }
        door.clients.change_users(UserDirectory({"ann": user(later), "all": ALL}, "ann"))
        refused = ENDED.findall(client.read().decode())
        allowed = {sid: each for sid, each in allowed.items() if each not in refused}


@given(RULES, st.sampled_from((*TOPICS, *FAR, *INBOXES, *SERVERS)))
def test_a_user_publishes_what_the_rules_give_and_servers_of_nats_are_answered_at_once(rules: list[str], subject: str) -> None:
    door = LoneDoor({"ann": user(rules)}, no_user="ann")
    client = door.connect(OPTIONS % b"")
    client.ask(b"SUB _INBOX.own.* 1\r\n")
    said = client.ask(b"PUB %b _INBOX.own.1 0\r\n\r\n" % subject.encode())
    sent = [command.topic for command in door.published]
    block = b"NATS/1.0 503\r\nNats-Subject: %b\r\n\r\n" % subject.encode()
    is_own_taken = any(rule[0] == "!" and matches(rule[1:], "_INBOX.own.1") for rule in rules)
    nobody = b"" if is_own_taken else b"HMSG _INBOX.own.1 1 %d %d\r\n%b\r\n" % (len(block), len(block), block)
    if subject in SERVERS:
        assert (said, sent) == (nobody, [])
    elif subject in INBOXES:
        assert (said, sent, door.lost) == (b"", [], 1)
    elif gives([rule for rule in rules if " queue " not in rule], subject):
        assert (said, sent) == (nobody, [subject])
    else:
        assert (said, sent) == (b"-ERR 'Permissions Violation for Publish to \"%b\"'\r\n" % subject.encode(), [])


@given(RULES, st.sampled_from([b"a.b.c", b"eyJ0eXAiOiJKV1QifQ"]))
def test_a_jwt_is_refused_at_once_whatever_the_rules(rules: list[str], jwt: bytes) -> None:
    client = LoneDoor({"ann": user(rules)}, no_user="ann").connect()
    assert (
        client.ask(b"CONNECT %b\r\nPUB a 0\r\n\r\n" % (OPTIONS % b',"jwt":"%b"' % jwt)) == b"-ERR 'Authorization Violation'\r\n"
    )
