"""The audit: what is told, how often, and what never is."""

from __future__ import annotations

import json
from typing import Any

from iris_py.federation.audit import BURST_S, PERIOD_S, SUBJECTS_MAX, TEXT_CHARACTERS_MAX, WAITING_MAX, Audit
from iris_py.federation.calls import Status
from iris_py.federation.limits import Account


def make() -> Audit:
    return Audit(lambda: 1_700_000_000.25)


def take(audit: Audit) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in audit.take()]
    assert all(record.pop("time") == "2023-11-14T22:13:20.250+00:00" for record in records)
    assert not audit.has_records
    return records


def test_links_catalogues_reloads_and_requests() -> None:
    audit = make()
    audit.link_up("eu", "192.0.2.1:7450", "ab" * 16)
    audit.link_down("eu", "192.0.2.1:7450", "ab" * 16, "nothing was heard", 12.34567)
    audit.catalogue("eu", "ab" * 16, 3, 17)
    audit.reload({"exports_added": ["a@eu"]})
    audit.reload({}, "federation.toml:1: wrong.")
    audit.request("eu", "scorers", "scorers", "request", 1024, "done", "7")
    assert audit.has_records
    assert take(audit) == [
        {"event": "link_up", "cloud": "eu", "address": "192.0.2.1:7450", "gateway": "ab" * 16},
        {
            "event": "link_down",
            "cloud": "eu",
            "address": "192.0.2.1:7450",
            "gateway": "ab" * 16,
            "reason": "nothing was heard",
            "seconds": 12.346,
        },
        {"event": "catalogue", "cloud": "eu", "gateway": "ab" * 16, "version": 3, "rules": 17},
        {"event": "reload", "is_applied": True, "error": "", "changes": {"exports_added": ["a@eu"]}},
        {"event": "reload", "is_applied": False, "error": "federation.toml:1: wrong.", "changes": {}},
        {
            "event": "request",
            "cloud": "eu",
            "rule": "scorers",
            "name": "scorers",
            "use": "request",
            "bytes": 1024,
            "outcome": "done",
            "id": "7",
        },
    ]


def test_a_refused_handshake_is_told_once_in_ten_seconds_for_each_host() -> None:
    audit = make()
    for now in (100.0, 101.0, 109.9):
        audit.handshake_refused("192.0.2.9", "unknown pair", now)
    audit.handshake_refused("192.0.2.8", "unknown pair", 101.0)
    assert take(audit) == [
        {"event": "handshake_refused", "host": "192.0.2.9", "reason": "unknown pair", "untold": 0},
        {"event": "handshake_refused", "host": "192.0.2.8", "reason": "unknown pair", "untold": 0},
    ]
    audit.handshake_refused("192.0.2.9", "unknown pair", 100.0 + PERIOD_S)
    assert take(audit) == [{"event": "handshake_refused", "host": "192.0.2.9", "reason": "unknown pair", "untold": 2}]


def test_strangers_with_many_addresses_fill_neither_memory_nor_disk() -> None:
    audit = make()
    for number in range(10 * SUBJECTS_MAX):
        audit.handshake_refused(f"host {number}", "unknown pair", 100.0)
    assert len(take(audit)) == SUBJECTS_MAX
    assert len(audit._refusals._clouds[""]) == SUBJECTS_MAX
    audit.handshake_refused("host 0", "unknown pair", 200.0)
    audit.handshake_refused("late host", "unknown pair", 200.0)
    assert [record["host"] for record in take(audit)] == ["host 0", "late host"], "old ones make room"


def test_a_neighbour_that_tries_many_names_hides_nothing_of_another_one() -> None:
    audit = make()
    for number in range(2 * SUBJECTS_MAX):
        audit.use_refused("noisy", f"name {number}", "request", "not exported", 5.0)
        audit.limited("noisy", f"rule {number}", "requests_per_s", 5.0)
    take(audit)
    audit.use_refused("quiet", "a", "request", "not exported", 5.0)
    audit.limited("quiet", "rule", "requests_per_s", 5.0)
    assert [(record["event"], record["cloud"], record["untold"]) for record in take(audit)] == [
        ("use_refused", "quiet", 0),
        ("limited", "quiet", 0),
    ]


def test_clouds_that_are_quiet_are_forgotten() -> None:
    audit = make()
    for number in range(100):
        audit.use_refused(f"cloud {number}", "a", "request", "not exported", number * PERIOD_S)
    assert len(audit._uses._clouds) == 1


def test_a_refused_use_is_told_once_in_ten_seconds_for_each_name() -> None:
    audit = make()
    for name in ("a", "b", "a"):
        audit.use_refused("eu", name, "request", "not exported", 5.0)
    assert [(record["name"], record["reason"]) for record in take(audit)] == [("a", "not exported"), ("b", "not exported")]


def test_a_limit_is_told_once_in_a_burst() -> None:
    audit = make()
    for second in range(100):
        audit.limited("eu", "scorers", "requests_per_s", float(second))
    assert take(audit) == [{"event": "limited", "cloud": "eu", "rule": "scorers", "limit": "requests_per_s", "untold": 0}]
    audit.limited("eu", "scorers", "requests_per_s", 99.0 + BURST_S)
    assert [record["untold"] for record in take(audit)] == [99]


def test_totals_are_those_since_the_last_time() -> None:
    audit = make()
    account, unused = Account("export", "cluster", "scorers"), Account("import", "topic", "clicks.>")
    account.ended(Status.DONE, 10, 200, 0.1)
    account.dropped("queue_full")
    audit.totals("eu", [account, unused])
    first = take(audit)
    assert first == [
        {
            "event": "totals",
            "cloud": "eu",
            "direction": "export",
            "kind": "cluster",
            "rule": "scorers",
            "requests": 1,
            "messages_sent": 1,
            "messages_received": 1,
            "bytes_sent": 200,
            "bytes_received": 10,
            "dropped": 1,
        }
    ]
    audit.totals("eu", [account, unused])
    assert take(audit) == []
    account.ended(Status.DONE, 1, 2, 0.1)
    audit.totals("eu", [account])
    assert [(record["requests"], record["bytes_sent"], record["dropped"]) for record in take(audit)] == [(1, 2, 0)]
    audit.forget("asia")
    audit.totals("eu", [account])
    assert take(audit) == []
    audit.forget("eu")
    audit.totals("eu", [account])
    assert [record["requests"] for record in take(audit)] == [2]


def test_records_that_nobody_writes_are_bounded_and_counted() -> None:
    audit = make()
    for _ in range(WAITING_MAX + 5):
        audit.catalogue("eu", "", 1, 1)
    assert len(take(audit)) == WAITING_MAX
    audit.catalogue("eu", "", 1, 1)
    audit.catalogue("eu", "", 2, 1)
    assert [record.get("records_lost") for record in take(audit)] == [5, None]


def test_texts_of_others_are_one_line_and_short() -> None:
    audit = make()
    audit.use_refused("eu", "a\nb" + "x" * 10_000, "request", "\x1b[31m", 5.0)
    (line,) = audit.take()
    assert line.isascii()
    assert line.isprintable()
    assert len(json.loads(line)["name"]) == TEXT_CHARACTERS_MAX + 3
