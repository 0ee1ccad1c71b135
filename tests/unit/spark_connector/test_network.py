"""Values that are no list of seeds."""

from __future__ import annotations

from typing import Any

import pytest

from iris_py import ConfigurationError
from spark_connector import Network


@pytest.mark.parametrize("seeds", ["host:4711", [4711], ["host:4711", None]], ids=str)
def test_seeds_that_are_no_list_of_addresses_are_refused(seeds: Any) -> None:
    with pytest.raises(ConfigurationError, match="seeds"):
        Network(seeds=seeds)


def test_seeds_may_be_none_one_or_several() -> None:
    for seeds in ([], ["host:4711"], ["host:4711", "other:4711"]):
        assert list(Network(seeds=seeds).seeds) == seeds
