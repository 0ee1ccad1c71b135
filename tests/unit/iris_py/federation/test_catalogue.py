"""The catalogue of a gateway of another cloud: what it lets us use, and the rule for a name."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_py.federation.messages import (
    ALLOW_BLOCK,
    ALLOW_REQUEST,
    ALLOW_SUBSCRIBE,
    ALLOW_SURVEY,
    CLUSTER,
    TOPIC,
    Catalogue,
    CatalogueEntry,
    LineError,
    decode_control,
    encode_control,
)
from iris_py.federation.rules import ReceivedCatalogue, make_catalogue
from tests.unit.iris_py.federation.pair import settings_of


def entry(rule: int, pattern: str, kind: int = CLUSTER, allow: int = ALLOW_REQUEST, rate: float = 0.0) -> CatalogueEntry:
    return CatalogueEntry(rule, kind, pattern, allow, rate, 10)


def test_the_most_specific_entry_counts_even_if_it_allows_less() -> None:
    offer = ReceivedCatalogue(
        Catalogue(3, (entry(1, "jobs.>"), entry(2, "jobs.secret", allow=ALLOW_SURVEY), entry(3, "jobs.*.x")))
    )
    assert offer.version == 3
    assert offer.find(CLUSTER, "jobs.a", ALLOW_REQUEST) == entry(1, "jobs.>")
    assert offer.find(CLUSTER, "jobs.secret", ALLOW_REQUEST) is None
    assert offer.find(CLUSTER, "jobs.secret") == offer.entries[2]
    assert offer.find(CLUSTER, "jobs.a.x", ALLOW_REQUEST) == offer.entries[3]
    assert offer.find(CLUSTER, "other") is None
    assert offer.find(TOPIC, "jobs.a") is None


def test_topics_that_overlap_with_a_pattern() -> None:
    offer = ReceivedCatalogue(
        Catalogue(1, (entry(1, "clicks.>", TOPIC, ALLOW_SUBSCRIBE), entry(2, "views", TOPIC, ALLOW_SUBSCRIBE)))
    )
    assert [each.rule for each in offer.overlapping("clicks.eu.*")] == [1]
    assert {each.rule for each in offer.overlapping(">")} == {1, 2}
    assert offer.overlapping("orders") == []


def test_kinds_of_newer_versions_are_passed_over() -> None:
    offer = ReceivedCatalogue(Catalogue(1, (entry(1, "??", kind=9), entry(2, "db"))))
    assert offer.find(CLUSTER, "db") == offer.entries[2]


@pytest.mark.parametrize(
    "entries",
    [
        (entry(1, "a"), entry(1, "b")),
        (entry(1, "a..b"),),
        (entry(1, ""),),
        (entry(1, ">.a"),),
        (entry(1, "a", rate=math.nan),),
        (entry(1, "a", rate=math.inf),),
        (entry(1, "a", rate=-math.inf),),
        (entry(1, "a", rate=-0.5),),
    ],
)
def test_a_catalogue_that_is_none(entries: tuple[CatalogueEntry, ...]) -> None:
    with pytest.raises(LineError):
        ReceivedCatalogue(Catalogue(1, entries))


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3), st.text("a.*>", max_size=6), st.floats()), max_size=8))
def test_any_catalogue_is_taken_or_an_error(rows: list[tuple[int, int, str, float]]) -> None:
    try:
        offer = ReceivedCatalogue(Catalogue(1, tuple(entry(rule, text, kind, rate=rate) for rule, kind, text, rate in rows)))
    except LineError:
        return
    for name in ("a", "a.a", "", "*"):
        found = offer.find(CLUSTER, name)
        assert found is None or found.kind == CLUSTER
        assert found is None or math.isfinite(found.requests_per_s)


def test_a_catalogue_has_what_one_neighbour_may_use_and_no_name_of_ours() -> None:
    settings = settings_of(
        "eu",
        {"us": {}, "asia": {}},
        [
            {"cluster": "scorers-v2", "as": "scorers", "requests_per_s": 5, "in_flight": 7},
            {"cluster": "secret", "to": ["asia"]},
            {"topic": "clicks.>", "block": True},
        ],
    )
    catalogue = make_catalogue(4, settings.exports_to("us"), ALLOW_BLOCK)
    assert catalogue == Catalogue(
        4,
        (
            CatalogueEntry(0, CLUSTER, "scorers", ALLOW_REQUEST, 5.0, 7),
            CatalogueEntry(2, TOPIC, "clicks.>", ALLOW_SUBSCRIBE | ALLOW_BLOCK, 0.0, catalogue.entries[1].in_flight),
        ),
    )
    data = encode_control(catalogue)
    assert decode_control(data) == catalogue
    for hidden in (b"scorers-v2", b"secret", b"asia"):
        assert hidden not in data
