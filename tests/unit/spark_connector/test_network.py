"""The settings of the nodes of Spark's tasks."""

from __future__ import annotations

from typing import Any

import pytest

from iris_py import AdministrationKey, ConfigurationError
from spark_connector import Network


@pytest.mark.parametrize("seeds", ["host:4711", [4711], ["host:4711", None]], ids=str)
def test_seeds_that_are_no_list_of_addresses_are_refused(seeds: Any) -> None:
    with pytest.raises(ConfigurationError, match="seeds"):
        Network(seeds=seeds)


def test_seeds_may_be_none_one_or_several() -> None:
    for seeds in ([], ["host:4711"], ["host:4711", "other:4711"]):
        assert list(Network(seeds=seeds).seeds) == seeds


def test_nodes_of_tasks_know_the_administrator() -> None:
    administrator = AdministrationKey(b"a" * 32).administrator_text
    assert Network(administrator=administrator).arguments()["administrator"] == administrator
