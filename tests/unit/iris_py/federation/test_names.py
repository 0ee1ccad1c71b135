"""Names of what other clouds have."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_py.federation.names import check_own_name, gateway_cluster, split


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("databases", ("databases", "")),
        ("databases@eu", ("databases", "eu")),
        ("data bases.v2@eu-west-1", ("data bases.v2", "eu-west-1")),
        ("clicks.>@a", ("clicks.>", "a")),
        ("ümlaut@9", ("ümlaut", "9")),
        ("x@" + "a" * 32, ("x", "a" * 32)),
        ("iris@eu", ("iris", "eu")),
        ("irises.here", ("irises.here", "")),
    ],
)
def test_a_name_is_split(name: str, parts: tuple[str, str]) -> None:
    assert split(name) == parts


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("", "non-empty"),
        ("@eu", "lacks a name before the '@'"),
        ("x@", "'' , in 'x@', is not a valid alias".replace(" ,", ",")),
        ("x@EU", "'EU', in 'x@EU', is not a valid alias of a cloud. Use 1 to 32 of a-z"),
        ("x@-eu", "no '-' at either end"),
        ("x@eu-", "no '-' at either end"),
        ("x@e_u", "is not a valid alias"),
        ("x@eu\n", "is not a valid alias"),
        ("x@" + "a" * 33, "is not a valid alias"),
        ("x@٣", "is not a valid alias"),
        ("x@asia@eu", "names two clouds"),
        ("iris.gateway@eu", "begins with 'iris.'"),
        ("iris.gateway", "begins with 'iris.'"),
        ("x" * 256 + "@eu", "at most 255 bytes"),
        ("a\0@eu", "U+0000"),
    ],
)
def test_what_is_no_such_name_is_refused_with_what_to_write(name: str, advice: str) -> None:
    with pytest.raises(ValueError, match=re.escape(advice)):
        split(name)


def test_an_own_name_has_no_cloud_and_is_not_ours() -> None:
    check_own_name("databases")
    check_own_name("iris")
    with pytest.raises(ValueError, match=r"'databases' of the cloud 'eu'.*Write 'databases'"):
        check_own_name("databases@eu")
    with pytest.raises(ValueError, match=r"Choose another prefix, such as 'my-iris\.gateway'"):
        check_own_name("iris.gateway")


def test_gateways_have_a_cluster_for_each_cloud() -> None:
    assert (gateway_cluster(), gateway_cluster("eu")) == ("iris.gateway", "iris.gateway.eu")


@given(st.text())
def test_any_text_is_split_or_refused(name: str) -> None:
    try:
        inner, alias = split(name)
    except ValueError:
        return
    assert (f"{inner}@{alias}" if alias else inner) == name
    check_own_name(inner)
