"""The effective rules of a gateway, as an operator is shown them."""

from __future__ import annotations

from iris_py.federation.description import describe
from iris_py.federation.settings import parse_settings
from iris_security.cloud_key import CloudKey

KEYS = [CloudKey(bytes((number * 8,)) * 32) for number in range(1, 3)]
TEXT = f"""
[gateway]
name = "us"
identity_file = "us.identity"
listen = "0.0.0.0:7450"
[cloud.eu]
keys = ["{KEYS[0].public_text}"]
dial = ["a:1", "b:2"]
bytes_per_s = 50_000_000
[cloud.asia]
keys = ["{KEYS[1].public_text}"]
bytes_per_s = 0
[[export]]
to = ["eu"]
topic = "clicks.>"
allow = ["publish", "subscribe"]
bytes_per_s = 1000
block = true
trace = true
audit = "all"
[[export]]
to = ["eu"]
cluster = ">"
[[export]]
to = ["eu"]
cluster = "scorers-v2"
as = "scorers"
allow = ["tunnel", "request"]
requests_per_s = 2000
[[import]]
from = ["asia", "eu"]
cluster = "databases"
as = "dbs"
when = "full"
[[import]]
from = ["eu"]
cluster = "files.*"
[[import]]
from = ["eu"]
topic = "orders"
as = "eu.orders"
"""


def test_each_neighbour_has_its_rules_with_the_most_specific_first() -> None:
    eu, asia = describe(parse_settings(TEXT, "federation.toml"))
    assert (eu.alias, asia.alias) == ("eu", "asia")
    assert (eu.keys, asia.keys) == ((KEYS[0].public_text,), (KEYS[1].public_text,))
    assert eu.links == "dials a:1; dials b:2; is dialled at 0.0.0.0:7450; 50,000,000 bytes/s"
    assert asia.links == "is dialled at 0.0.0.0:7450; nothing passes (bytes_per_s = 0)"
    assert [(row.kind, row.outside, row.local, row.uses, row.limits) for row in eu.exports] == [
        ("cluster", "scorers", "scorers-v2", "request, tunnel", "2,000 requests/s, 1,024 in flight, 64 tunnels"),
        ("cluster", ">", ">", "request", "1,024 in flight"),
        ("topic", "clicks.>", "clicks.>", "subscribe, publish", "256 subscriptions, 1,000 bytes/s, block, trace, audit of all"),
    ]
    assert [row.line for row in eu.exports] == [24, 21, 13]
    assert [(row.kind, row.outside, row.local, row.uses) for row in eu.imports] == [
        ("cluster", "databases", "dbs", "stand-in 2 when all are full"),
        ("cluster", "files.*", "files.*@eu", ""),
        ("topic", "orders", "eu.orders", "republished"),
    ]
    assert asia.exports == ()
    assert [row.uses for row in asia.imports] == ["stand-in 1 when all are full"]


def test_a_stand_in_is_for_an_absent_cluster_by_default() -> None:
    settings = parse_settings(TEXT.replace('when = "full"\n', ""), "federation.toml")
    assert describe(settings)[1].imports[0].uses == "stand-in 1 when none is here"
