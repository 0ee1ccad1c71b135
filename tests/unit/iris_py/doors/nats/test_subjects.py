"""Subjects of NATS clients as topics: names that only one side has are refused, and forge nothing."""

from __future__ import annotations

import pytest

from iris_py.doors.nats.subjects import (
    NatsSubject,
    SubjectFault,
    SubjectKind,
    is_valid_queue,
    read_pattern,
    read_subject,
    subject_of_topic,
)


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (b"orders.eu", SubjectKind.TOPIC),
        (b"Orders.\xc3\xa9", SubjectKind.TOPIC),
        (b"orders@eu", SubjectKind.TOPIC),
        (b"$SRV.PING", SubjectKind.TOPIC),
        (b"_INBOX.abc.1", SubjectKind.INBOX),
        (b"_INBOX_bob.abc." + b".".join([b"x"] * 30), SubjectKind.INBOX),
        (b"$JS.API.INFO", SubjectKind.SERVER),
        (b"$SYS.REQ.USER.INFO", SubjectKind.SERVER),
    ],
)
def test_a_subject_has_one_way(raw: bytes, kind: SubjectKind) -> None:
    for found in (read_subject(raw), read_pattern(raw)):
        assert isinstance(found, NatsSubject)
        assert (found.kind, found.name.encode(), found.raw) == (kind, raw, raw)


@pytest.mark.parametrize("raw", [b"a..b", b".a", b"a.", b"."])
def test_an_empty_token_is_no_subject(raw: bytes) -> None:
    assert read_subject(raw) is read_pattern(raw) is SubjectFault.INVALID


@pytest.mark.parametrize("raw", [b"a.*", b">", b"a.>"])
def test_a_wildcard_is_for_patterns(raw: bytes) -> None:
    assert read_subject(raw) is SubjectFault.INVALID
    assert isinstance(read_pattern(raw), NatsSubject)


def test_the_rest_ends_a_pattern() -> None:
    assert read_pattern(b"a.>.b") is SubjectFault.INVALID


@pytest.mark.parametrize(
    "raw",
    [
        b"x" * 256,
        b".".join([b"x"] * 17),
        b"iris.doors",
        b"a@",
        b"@eu",
        b"a@eu@us",
        b"a@eu.b",
        b"a\xff",
        b"a\x01",
        b"a\x0bb",
        b"a\x7f",
        b"a\0",
        b"a*b.c",
        b"_INBOX." + b"x" * 600,
    ],
)
def test_what_iris_cannot_carry_is_unfit(raw: bytes) -> None:
    assert read_subject(raw) is read_pattern(raw) is SubjectFault.UNFIT


@pytest.mark.parametrize("topic", ["a b", "a\tb", "a\r\nMSG bank.transfer 1 5\r\n50000", "a\x7f", "a\x00"])
def test_a_native_name_that_would_forge_protocol_is_told_to_no_client(topic: str) -> None:
    assert subject_of_topic(topic) is None


def test_a_topic_of_another_cloud_names_it() -> None:
    assert subject_of_topic("orders.é", "eu") == "orders.é@eu".encode()
    assert subject_of_topic("orders") == b"orders"


def test_a_queue_group_is_a_group_of_iris() -> None:
    assert is_valid_queue(b"workers")
    assert [name for name in (b"iris.x", b"a@eu", b"a\xff", b"a\x01", b"x" * 300) if is_valid_queue(name)] == []


def test_the_key_of_an_inbox_is_its_client() -> None:
    for found in (read_subject(b"_INBOX.abc.7"), read_pattern(b"_INBOX.abc.*")):
        assert isinstance(found, NatsSubject)
        assert found.key == ("_INBOX", "abc")
