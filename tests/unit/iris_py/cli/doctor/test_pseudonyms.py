"""Pseudonyms: one for each name, the same everywhere, and words of Iris that stay."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from iris_py.cli.config import SettingLine
from iris_py.cli.doctor.pseudonyms import Pseudonyms, names_in, names_in_settings
from iris_py.cli.doctor.surroundings_recorder import SeenLine
from iris_py.cli.settings import Settings
from iris_py.doctor.surroundings import Limits
from iris_py.observe.statistics import ClusterStatistics, Statistics, SubscriptionStatistics
from tests.unit.iris_py.doctor.made_up import GATEWAYS, PEERS, WAYS, MadeUp

if TYPE_CHECKING:
    from pathlib import Path

KNOWN = ("databases", "db", "eu-west/a", "web-1/orders.py", "gw1.eu.example.com:7450", "my (own) cluster", "10.0.0.9:7400")


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("databases", "NAME"),
        ("nobody serves Databases.", "nobody serves NAME."),
        ("databases@eu goes, db-2 not", "NAME@NAME goes, NAME-2 not"),
        ("in eu-west and eu-west/a", "in NAME and NAME/NAME"),
        ("the host web-1 is down", "the host NAME is down"),
        ("asks my (own) cluster again", "asks NAME again"),
        ("a 'quoted stranger'", "a 'NAME'"),
        ("1a2b3c4d (strange node) at 10.1.2.3:7400 (other)", r"1a2b3c4d \(NAME\) at HOST:7400 \(NAME\)"),
        ("listens on [fd00::7]:7400, and fe80::1 (10.0.0.0/24)", r"listens on \[HOST\]:7400, and HOST \(HOST/24\)"),
        ("from 10.1.2.3-10.1.2.9", "from HOST-HOST"),
        ("gw2.eu.example.com is unknown", "NAME.NAME.NAME.NAME is unknown"),
        ("some-host:7400 refuses", "NAME:7400 refuses"),
        ("/home/joe/my.toml:12 is wrong: ~/x", "/PATH.toml:12 is wrong: /PATH"),
        ("--secret-file=/etc/acme/secret", "--secret-file=/PATH"),
        ("file:/etc/acme/secret", "file:/PATH"),
        ("irispublic1.abcd-ef", "NAME.NAME"),
    ],
)
def test_a_name_in_a_sentence_gets_a_pseudonym(text: str, pattern: str) -> None:
    for kind in ("name", "host", "path"):
        pattern = pattern.replace(kind.upper(), rf"{kind}-[0-9a-f]{{8}}")
    assert re.fullmatch(pattern, Pseudonyms(KNOWN)(text)), Pseudonyms(KNOWN)(text)


@pytest.mark.parametrize(
    "text",
    [
        "network 'default', listening on 127.0.0.1:0, 1 seed, also on [::1]:7 and 0.0.0.0:7400",
        "there is no setting 'listen'. Write IRIS_LISTEN, or see docs/versions.md",
        "the node's work is others' work",
        "cat /sys/fs/cgroup/cpu.stat, /proc/self, /metrics",
        "ss -ltnp 'sport = :7400'",
        "2026-11-27T17:00:00+00:00 and 17:00:12, 0.1.0.dev",
        "10 of 65536 file descriptors (3 threads), 541ea8b28adc7c04",
        "net.ipv4.ip_local_port_range",
        "iris federation explain NAME@CLOUD",
    ],
)
def test_words_of_iris_stay(text: str) -> None:
    assert Pseudonyms(KNOWN)(text) == text


def test_a_name_has_one_pseudonym_in_a_bundle_and_another_one_in_the_next() -> None:
    one, other = Pseudonyms(KNOWN), Pseudonyms(KNOWN)
    alone = one("databases")
    assert one("'databases' at 10.0.0.9:7400").startswith(f"'{alone}' at {one('10.0.0.9')}")
    assert one("to databases@eu").startswith(f"to {alone}@")
    assert one("DATABASES") == alone
    assert other("databases") != alone


def test_names_are_found_in_the_fields_that_hold_them() -> None:
    statistics = Statistics(
        clusters={"cluster-1": ClusterStatistics()}, subscriptions=(SubscriptionStatistics(pattern="topic.*", policy="block"),)
    )
    values = [
        statistics,
        PEERS,
        GATEWAYS,
        WAYS,
        MadeUp().config,
        Limits(1, 2, 3, 4, "the control group acme.service"),
        SettingLine("zone", "zone-1", "file"),
        SettingLine("seeds", ["seed-1:1"], "file"),
        SettingLine("observe", "counts", "file"),
        SeenLine("cluster", ("asked-1",), None),
        SeenLine("resolve", ("host-1",), ("10.8.8.8",)),
    ]
    found = set(names_in(values))
    assert {"cluster-1", "topic.*", "zone-1", "seed-1:1", "asked-1", "host-1", "10.8.8.8", "acme.service"} <= found
    assert {PEERS[0].address, "eu", "db", "gw1.eu:7450", "federation.toml", "/state"} <= found
    assert not {"counts", "zone", "seeds", "block", "file", "cluster"} & found


def test_names_of_settings_are_found_where_the_settings_are_wrong(tmp_path: Path) -> None:
    file = tmp_path / "iris.toml"
    file.write_text('zone = "bad zone"\nlistne = "host-3:1"\nobserve = "counts"\n[clusters]\ndb-7 = "x"\n')
    environ = {"IRIS_CONFIG": str(file), "IRIS_SEEDS": "host-1:1,host-2:2", "HOME": "/home/joe", "IRIS_OBSERVE": "none"}
    found = set(names_in_settings(Settings({"network": "net-1", "seeds": ["host-4:1"]}), environ))
    assert {"bad zone", "host-3:1", "db-7", "host-1:1", "host-2:2", "net-1", "host-4:1", str(file), "joe"} <= found
    assert not {"none", "counts"} & found


@pytest.mark.parametrize("part", ["1:", "a:", "[a:", "a@", "/a", "a.", "a-", "'", "(1a2b3c4d (", "x", "-", ":/a", "~/"])
def test_texts_of_liars_are_rewritten_to_their_end(part: str) -> None:
    text = part * (4096 // len(part))
    assert "databases" not in Pseudonyms(KNOWN)(f"{text} databases")
