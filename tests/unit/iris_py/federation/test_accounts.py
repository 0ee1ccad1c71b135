"""Accounts: what each rule has cost, with the line's own bytes split among the rules that caused them."""

from __future__ import annotations

from iris_py.federation.calls import Status
from iris_py.federation.limits import ACCOUNTS_MAX, BUCKETS_S, REASONS_MAX, Account, Accounts
from iris_py.federation.rules import ExportRule

EXPORT = ExportRule(3, "cluster", "scorers", "scorers-v2", ("eu",))


def test_requests_are_counted_by_outcome_and_direction() -> None:
    accounts = Accounts()
    ours, theirs = accounts.of_export(EXPORT), accounts.of_import("cluster", "scorers")
    assert ours is not theirs
    for account in (ours, theirs):
        account.ended(Status.DONE, 10, 200, 0.08)
        account.ended(Status.NO_MEMBERS, 5, 0, 0.002)
        account.refused(Status.LIMITED)
    snapshot = ours.snapshot()
    assert snapshot["requests"] == {"done": 1, "no_members": 1, "limited": 1}
    assert (snapshot["payload_bytes_sent"], snapshot["payload_bytes_received"]) == (200, 15), "the neighbour asked"
    assert (theirs.bytes_sent, theirs.bytes_received) == (15, 200), "we asked"
    assert (ours.messages_sent, ours.messages_received) == (2, 2)
    assert (snapshot["direction"], snapshot["kind"], snapshot["pattern"]) == ("export", "cluster", "scorers")
    assert accounts.of_export(EXPORT) is ours
    assert accounts.of_import("cluster", "scorers") is theirs


def test_times_fall_into_fixed_buckets() -> None:
    account = Account("import", "cluster", "a")
    for seconds in (0.0, 0.001, 0.0011, 0.08, 1e9):
        account.ended(Status.DONE, 0, 0, seconds)
    assert sum(account.buckets) == 5
    assert len(account.buckets) == len(BUCKETS_S) + 1
    assert (account.buckets[0], account.buckets[1], account.buckets[7], account.buckets[-1]) == (2, 1, 1, 1)
    assert account.snapshot()["seconds_buckets"] == account.buckets


def test_messages_and_drops() -> None:
    assert not Account("export", "topic", "clicks.>").is_used
    account = Account("export", "topic", "clicks.>")
    account.sent(3, 300)
    account.received(1, 7)
    account.dropped("queue_full", 4)
    account.dropped("queue_full")
    assert account.is_used
    assert account.snapshot()["dropped"] == {"queue_full": 5}
    assert (account.messages_sent, account.bytes_sent, account.messages_received, account.bytes_received) == (3, 300, 1, 7)


def test_reasons_are_bounded() -> None:
    account = Account("export", "topic", "a")
    for number in range(2 * REASONS_MAX):
        account.dropped(f"reason {number}")
    assert len(account.drops) == REASONS_MAX
    assert account.drops["other"] == REASONS_MAX + 1
    assert sum(account.drops.values()) == 2 * REASONS_MAX


def test_the_bytes_of_the_line_are_split_by_what_passed_since_the_last_time() -> None:
    accounts = Accounts()
    first, second = accounts.of_export(EXPORT), accounts.of_import("topic", "clicks.>")
    first.sent(1, 936)
    second.received(1, 936)
    accounts.add_line_bytes(1100, 1200)
    assert (first.line_bytes_sent, first.line_bytes_received) == (1100, 0)
    assert (second.line_bytes_sent, second.line_bytes_received) == (0, 1200)
    accounts.add_line_bytes(50, 50)  # keep-alives are nobody's
    first.sent(1, 936)
    second.sent(3, 2808)
    accounts.add_line_bytes(4400, 0)
    assert (first.line_bytes_sent, second.line_bytes_sent) == (1100 + 1100, 3300)
    assert (accounts.line_bytes_sent, accounts.line_bytes_received) == (5550, 1250)


def test_money_is_for_what_is_sent() -> None:
    accounts = Accounts()
    accounts.of_export(EXPORT).sent(1, 100)
    accounts.of_import("topic", "unused")
    accounts.add_line_bytes(2 * 10**9, 10**9)
    snapshot = accounts.snapshot(price_per_gb=0.05)
    assert snapshot["money"] == 0.1
    rules = snapshot["rules"]
    assert isinstance(rules, list)
    assert [rule["money"] for rule in rules] == [0.1], "rules that were never used are left out"
    assert "money" not in accounts.snapshot()


def test_accounts_are_bounded() -> None:
    """A neighbour changes its catalogue for ever."""
    accounts = Accounts()
    for number in range(2 * ACCOUNTS_MAX):
        accounts.of_import("cluster", f"a{number}").sent(1, 1)
        accounts.of_export(ExportRule(0, "topic", f"b{number}", "b", ("eu",))).sent(1, 1)
    every = list(accounts)
    assert len(every) == ACCOUNTS_MAX
    assert sum(account.messages_sent for account in every) == 4 * ACCOUNTS_MAX
    assert [(each.direction, each.kind) for each in every if not each.pattern] == [("import", ""), ("export", "")]
