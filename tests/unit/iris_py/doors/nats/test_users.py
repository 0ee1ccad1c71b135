"""Users of a NATS door: rules, and credentials."""

from __future__ import annotations

from base64 import urlsafe_b64encode

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from iris_py.doors.nats.nkeys import encode_user_key
from iris_py.doors.nats.passwords import NO_HASH, hash_password, hash_token
from iris_py.doors.nats.subjects import NatsSubject, read_pattern, read_subject
from iris_py.doors.nats.users import (
    OPERATOR,
    ClientCredentials,
    NatsUser,
    PasswordQuestion,
    UserDirectory,
    check_user_rule,
    digest_of_user,
    read_user_rules,
    rules_of_role,
)
from iris_py.doors.rights import Grant, Rights, covers

SHOP = NatsUser(
    "shop",
    publish=read_user_rules(["orders.>", "!orders.internal.>", "clicks.>@eu"]),
    subscribe=read_user_rules(["prices.>", "orders.new queue workers", "!prices.secret", "bids.>@eu"]),
)


def subject(text: str) -> NatsSubject:
    found = read_subject(text.encode())
    assert isinstance(found, NatsSubject)
    return found


def pattern(text: str) -> NatsSubject:
    found = read_pattern(text.encode())
    assert isinstance(found, NatsSubject)
    return found


@pytest.mark.parametrize(
    ("text", "is_allowed"),
    [
        ("orders.new", True),
        ("orders.internal.x", False),
        ("orders", False),
        ("prices.a", False),
        ("clicks.a@eu", True),
        ("clicks.a", False),
        ("clicks.a@us", False),
        ("orders.new@eu", False),
        ("_INBOX.a.1", True),
        ("$JS.API.INFO", True),
    ],
)
def test_a_subject_needs_a_rule_that_is_not_taken_away(text: str, is_allowed: bool) -> None:
    assert SHOP.may_publish(subject(text)) is is_allowed
    assert OPERATOR.may_publish(subject(text))


@pytest.mark.parametrize(
    ("text", "queue", "is_allowed"),
    [
        ("prices.*", "", True),
        ("prices.>", "any", True),
        (">", "", False),
        ("prices.secret", "", False),
        ("orders.new", "workers", True),
        ("orders.new", "others", False),
        ("orders.new", "", False),
        ("bids.*@eu", "", True),
        ("bids.*", "", False),
        ("_INBOX.abc.*", "", True),
        ("_INBOX.abc", "", True),
        ("_INBOX_bob.abc.*", "", True),
        ("_INBOX.>", "", False),
        ("_INBOX.*", "", False),
        ("_INBOX.*.a", "", False),
        ("_INBOX", "", False),
        ("$SYS.>", "", True),
    ],
)
def test_a_subscription_needs_a_rule_that_covers_it(text: str, queue: str, is_allowed: bool) -> None:
    assert SHOP.may_subscribe(pattern(text), queue.encode()) is is_allowed
    assert OPERATOR.may_subscribe(pattern(text), queue.encode())


def test_inboxes_of_others_need_a_rule_that_names_them() -> None:
    assert not NatsUser("a", subscribe=read_user_rules([">"])).may_subscribe(pattern("_INBOX.>"), b"")
    assert NatsUser("a", subscribe=read_user_rules(["_INBOX.>"])).may_subscribe(pattern("_INBOX.>"), b"")


def test_an_overlapping_subscription_does_not_hear_what_is_taken_away() -> None:
    assert SHOP.hidden_topics(pattern("prices.*")) == (("prices", "secret"),)
    assert SHOP.hidden_topics(pattern("prices.a")) == ()
    assert SHOP.hidden_topics(pattern("prices.*@eu")) == ()


TOKENS = st.sampled_from(["a", "b", "*"])
RESTS = st.sampled_from([[], [">"]])
PATTERNS = st.builds(lambda tokens, rest: ".".join(tokens + rest), st.lists(TOKENS, min_size=1, max_size=3), RESTS)
TOPICS = st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=4).map(".".join)


@given(st.lists(st.tuples(st.sampled_from(["", "!"]), PATTERNS).map("".join), max_size=4), PATTERNS, TOPICS)
def test_a_user_hears_no_topic_that_the_rules_do_not_give(rules: list[str], wanted: str, topic: str) -> None:
    user = NatsUser("a", publish=read_user_rules(rules), subscribe=read_user_rules(rules))
    if not user.may_subscribe(pattern(wanted), b"") or not covers(pattern(wanted).tokens, subject(topic).tokens):
        return
    is_hidden = any(covers(each, subject(topic).tokens) for each in user.hidden_topics(pattern(wanted)))
    assert is_hidden is not user.may_publish(subject(topic))


@pytest.mark.parametrize("rule", ["a..b", "iris.x", "a b", "a queue", "a queue  ", "!a queue q", "a.{sub}", "!", "a queue @"])
def test_a_wrong_rule_is_refused(rule: str) -> None:
    with pytest.raises(ValueError, match=r"\."):
        check_user_rule("subscribe", rule)


def test_a_publication_has_no_queue_group() -> None:
    with pytest.raises(ValueError, match="queue group"):
        check_user_rule("publish", "a queue q")


def test_a_role_is_resolved_for_its_user() -> None:
    role = Rights(publish=("notes.{sub}", "news"), subscribe=("news",))
    assert rules_of_role(role, "publish", "ann") == read_user_rules(["notes.ann", "news"])
    assert rules_of_role(role, "publish", "a.*") == read_user_rules(["news"])
    assert rules_of_role(role, "subscribe", "ann") == read_user_rules(["news"])


KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))
PUBLIC = KEY.public_key().public_bytes_raw()
ROBOT = NatsUser("robot", nkey=PUBLIC)
TALKER = NatsUser("talker", token=hash_token("t0ken"))
ANN = NatsUser("ann", password=NO_HASH)
GUEST = NatsUser("guest")
USERS = {user.name: user for user in (ROBOT, TALKER, ANN, GUEST)}


def test_credentials_find_their_user() -> None:
    users = UserDirectory(USERS)
    signature = urlsafe_b64encode(KEY.sign(b"nonce")).decode()
    signed = ClientCredentials(nkey=encode_user_key(PUBLIC), signature=signature)
    assert users.find(signed, "nonce") is ROBOT
    assert users.find(signed, "other") is None
    assert users.find(signed._replace(nkey="U"), "nonce") is None
    assert users.find(ClientCredentials(token="t0ken"), "") is TALKER
    assert users.find(ClientCredentials(token="other"), "") is None
    assert users.find(ClientCredentials(user="ann", password="p"), "") == PasswordQuestion(ANN, NO_HASH, "p")


@pytest.mark.parametrize("name", ["nobody", "robot"])
def test_a_user_without_a_password_costs_as_much_as_a_wrong_password(name: str) -> None:
    assert UserDirectory(USERS).find(ClientCredentials(user=name, password="p"), "") == PasswordQuestion(None, NO_HASH, "p")


def test_clients_without_credentials_are_a_named_user_or_nobody() -> None:
    assert UserDirectory(USERS).find(ClientCredentials(), "") is None
    assert UserDirectory(USERS, "guest").find(ClientCredentials(), "") is GUEST
    assert UserDirectory(USERS, "guest").find(ClientCredentials(jwt="a.b.c"), "") is None


def test_a_door_without_users_is_for_its_operator() -> None:
    users = UserDirectory({})
    assert users.is_open
    assert users.find(ClientCredentials(user="any", password="p"), "") is OPERATOR


class Grants:
    """Takes tokens that begin with ``a.``, until they are ended."""

    def __init__(self, *rights: Rights) -> None:
        self.grant: Grant | None = Grant("ann", rights)

    def verify(self, token: str) -> Grant | None:
        return self.grant if token.startswith("a.") else None

    def renew(self, grant: Grant) -> Grant | None:
        return self.grant


def test_a_token_has_the_rights_of_its_role_and_of_itself_together() -> None:
    grants = Grants(
        Rights(publish=("notes.{sub}.>",), subscribe=("news.>",)), Rights(publish=("notes.>",), subscribe=("news.a.>",))
    )
    users = UserDirectory(USERS, grants=grants)
    ann = users.find(ClientCredentials(token="a.b.c"), "")
    assert isinstance(ann, NatsUser)
    assert ann.name == "ann"
    assert [ann.may_publish(subject(name)) for name in ("notes.ann.x", "notes.bob.x", "news.a")] == [True, False, False]
    assert [ann.may_subscribe(pattern(name), b"") for name in ("news.a.>", "news.>", "news.b.c")] == [True, False, False]
    assert ann.may_subscribe(pattern("_INBOX.abc.*"), b"")
    assert not ann.may_subscribe(pattern("_INBOX.>"), b"")
    assert users.find(ClientCredentials(token="t0ken"), "") is TALKER
    assert users.find(ClientCredentials(token="b.b.c"), "") is None
    assert not UserDirectory({}, grants=grants).is_open


def test_rules_of_a_token_name_topics_alone() -> None:
    grants = Grants(Rights(publish=("!a",), subscribe=("jobs queue q", "!news")))
    ann = UserDirectory({}, grants=grants).find(ClientCredentials(token="a.b.c"), "")
    assert isinstance(ann, NatsUser)
    assert ann.may_publish(subject("!a"))
    assert not ann.may_subscribe(pattern("jobs"), b"q")
    assert ann.may_subscribe(pattern("!news"), b"")


def test_a_token_is_renewed_until_its_end() -> None:
    grants = Grants(Rights(publish=("a",)))
    users = UserDirectory({}, grants=grants)
    ann = users.find(ClientCredentials(token="a.b.c"), "")
    assert isinstance(ann, NatsUser)
    assert users.renew(ann) is ann
    grants.grant = Grant("ann", (Rights(publish=("b",)),))
    renewed = users.renew(ann)
    assert renewed is not None
    assert (renewed.may_publish(subject("a")), renewed.may_publish(subject("b"))) == (False, True)
    grants.grant = None
    assert users.renew(ann) is None
    assert UserDirectory({"ann": ANN}).renew(ann) is None
    assert UserDirectory({"ann": ANN}).renew(GUEST) is None
    assert UserDirectory({}).renew(GUEST) is OPERATOR


def test_digests_tell_users_apart_and_no_credential() -> None:
    ann = NatsUser("ann", read_user_rules(["a", "b"]), read_user_rules(["c queue q"]), hash_password("pw", bytes(16)))
    others = [
        ann._replace(publish=read_user_rules(["a", "!b"])),
        ann._replace(publish=read_user_rules(["a"])),
        ann._replace(subscribe=read_user_rules(["c"])),
        ann._replace(publish=ann.subscribe, subscribe=ann.publish),
        ann._replace(password=hash_password("pw", bytes(15) + b"1")),
        ann._replace(password=None, token=hash_token("t0ken")),
        ann._replace(password=None, nkey=PUBLIC),
        ann._replace(name="bob"),
        ann._replace(remote_errors=True),
    ]
    assert len({digest_of_user(each) for each in (ann, *others)}) == 1 + len(others)
    assert digest_of_user(ann._replace(publish=read_user_rules(["b", "a"]))) == digest_of_user(ann)
    assert list(UserDirectory({"bob": ann, "ann": ann}).digests) == ["ann", "bob"]
