"""The settings of the nodes of Spark's tasks."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from iris_py import AdministrationKey, ConfigurationError
from iris_security import Secret
from spark_connector import Network


@pytest.mark.parametrize("seeds", ["host:4711", [4711], ["host:4711", None]], ids=str)
def test_seeds_that_are_no_list_of_addresses_are_refused(seeds: Any) -> None:
    with pytest.raises(ConfigurationError, match="seeds"):
        Network(seeds=seeds)


def test_seeds_may_be_none_one_or_several() -> None:
    for seeds in ([], ["host:4711"], ["host:4711", "other:4711"]):
        assert list(Network(seeds=seeds).seeds) == seeds


def test_nodes_of_tasks_advertise_what_the_settings_say() -> None:
    assert Network(advertise=["203.0.113.5"]).arguments()["advertise"] == ("203.0.113.5",)
    assert Network().arguments()["advertise"] is None
    with pytest.raises(ConfigurationError, match="advertise"):
        Network(advertise="203.0.113.5")


def test_nodes_of_tasks_know_the_administrator() -> None:
    administrator = AdministrationKey(b"a" * 32).administrator_text
    assert Network(administrator=administrator).arguments()["administrator"] == administrator


def test_secrets_of_clusters_are_a_table_that_is_not_shown_and_may_be_sent() -> None:
    own = Secret(b"o" * 32).text
    network = Network(clusters={"vault": own, "bank": [own]}, clusters_directory="/etc/iris/clusters", strict=True)
    arguments = network.arguments()
    assert arguments["clusters"] == {"vault": own, "bank": [own]}
    assert (arguments["clusters_directory"], arguments["strict"]) == ("/etc/iris/clusters", True)
    assert own not in repr(network)
    again = pickle.loads(pickle.dumps(network))
    assert again == network
    assert hash(again) == hash(network), "agents find the node of a network by it"
    with pytest.raises(ConfigurationError, match="clusters"):
        Network(clusters=lambda _name: own)  # type: ignore[arg-type]
