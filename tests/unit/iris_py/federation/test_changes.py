"""Loading settings anew: what has come, gone and changed."""

from __future__ import annotations

from iris_py.federation.description import Changes, diff
from iris_py.federation.settings import FederationSettings, parse_settings
from iris_security.cloud_key import CloudKey

KEYS = [CloudKey(bytes((number * 8,)) * 32) for number in range(1, 5)]
TEXT = f"""
[gateway]
name = "us"
identity_file = "us.identity"
listen = "0.0.0.0:7450"
[cloud.eu]
keys = ["{KEYS[0].public_text}"]
[cloud.asia]
keys = ["{KEYS[1].public_text}"]
[[export]]
to = ["eu", "asia"]
cluster = "scorers"
[[export]]
to = ["eu"]
topic = "clicks.>"
[[import]]
from = ["eu", "asia"]
cluster = "databases"
as = "databases"
"""


def settings(*changes: tuple[str, str]) -> FederationSettings:
    text = TEXT
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    return parse_settings(text, "federation.toml")


def changed(*changes: tuple[str, str]) -> Changes:
    return diff(settings(), settings(*changes))


def test_the_same_settings_have_no_difference() -> None:
    assert not changed()
    assert changed().summary() == {}
    assert not changed(("\n[[export]]", "\n\n# moved\n\n[[export]]")), "lines do not count"


def test_another_order_of_exports_is_no_difference() -> None:
    first = '[[export]]\nto = ["eu", "asia"]\ncluster = "scorers"\n'
    assert not changed((first, ""), ("[[import]]", first + "[[import]]"))


def test_keys_come_and_go() -> None:
    both = changed((f'["{KEYS[0].public_text}"]', f'["{KEYS[0].public_text}", "{KEYS[2].public_text}"]'))
    assert (both.keys_added, both.keys_removed) == ((("eu", KEYS[2].public),), ())
    exchanged = changed((KEYS[0].public_text, KEYS[2].public_text))
    assert (exchanged.keys_added, exchanged.keys_removed) == ((("eu", KEYS[2].public),), (("eu", KEYS[0].public),))
    assert exchanged.clouds_changed == ()
    assert exchanged.summary() == {"keys_added": ["eu"], "keys_removed": ["eu"]}, "the audit shows no keys"


def test_clouds_come_and_go_with_their_rules() -> None:
    gone = changed(
        (f'[cloud.asia]\nkeys = ["{KEYS[1].public_text}"]\n', ""), ('["eu", "asia"]', '["eu"]'), ('["eu", "asia"]', '["eu"]')
    )
    assert gone.clouds_removed == ("asia",)
    assert [(alias, rule.outside) for alias, rule in gone.exports_removed] == [("asia", "scorers")]
    assert [(alias, rule.outside) for alias, rule in gone.imports_removed] == [("asia", "databases")]
    assert (gone.exports_changed, gone.keys_removed) == ((), ()), "for eu the export is as it was"
    assert [alias for alias, _rule in gone.imports_changed] == ["eu"], "its place among others counts"
    renamed = changed(("[cloud.eu]", "[cloud.europe]"), *[('"eu"', '"europe"')] * 3)
    assert (renamed.clouds_added, renamed.clouds_removed) == (("europe",), ("eu",))
    assert {alias for alias, _rule in renamed.exports_added} == {"europe"}


def test_addresses_and_limits_of_clouds_change() -> None:
    assert changed(("[cloud.asia]", 'dial = ["x:1"]\n[cloud.asia]')).clouds_changed == ("eu",)
    assert changed(("[cloud.asia]", "bytes_per_s = 5\n[cloud.asia]")).summary() == {"clouds_changed": ["eu"]}


def test_rules_change() -> None:
    limited = changed(('cluster = "scorers"', 'cluster = "scorers"\nrequests_per_s = 5'))
    assert [(alias, rule.requests_per_s) for alias, rule in limited.exports_changed] == [("eu", 5), ("asia", 5)]
    assert not limited.exports_added
    assert not limited.exports_removed
    moved = changed(('cluster = "scorers"', 'cluster = "scorers-v2"\nas = "scorers"'))
    assert [rule.local for _alias, rule in moved.exports_changed] == ["scorers-v2", "scorers-v2"]
    renamed = changed(('topic = "clicks.>"', 'topic = "clicks.web.>"'))
    assert [rule.outside for _alias, rule in renamed.exports_removed] == ["clicks.>"]
    assert renamed.summary() == {"exports_added": ["clicks.web.>@eu"], "exports_removed": ["clicks.>@eu"]}
    fuller = changed(('as = "databases"', 'as = "databases"\nwhen = "full"'))
    assert [(alias, rule.when) for alias, rule in fuller.imports_changed] == [("eu", "full"), ("asia", "full")]
    assert changed(('as = "databases"', 'as = "dbs"')).imports_changed
    assert changed(('cluster = "databases"\nas', 'cluster = "files"\nas')).imports_added


def test_what_counts_at_the_next_start_only() -> None:
    found = changed(("0.0.0.0:7450", "0.0.0.0:7451"), ("[cloud.eu]", "window_bytes = 2_000_000\n[cloud.eu]"))
    assert found.gateway == ("listen", "window_bytes")
    assert found.needs_restart == ("listen",)
