"""The settings ``spark.iris.*`` of a session, as old and new versions of Spark list them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from iris_py import ConfigurationError
from spark_connector import Network
from spark_connector.settings import network_of


def new(settings: dict[str, str]) -> Any:
    """Return a session of Spark 4, or of Spark Connect: it lists what it has."""
    return SimpleNamespace(conf=SimpleNamespace(getAll=settings))


def old(settings: dict[str, str]) -> Any:
    """Return a session of Spark 3.5: the application lists what it was started with, the session knows each one."""

    class Conf:
        def get(self, name: str, default: str | None) -> str | None:
            return settings.get(name, default)

    started = {name: text for name, text in settings.items() if name != "spark.iris.zone"}  # that is set later
    context = SimpleNamespace(getConf=lambda: SimpleNamespace(getAll=lambda: list(started.items())))
    return SimpleNamespace(conf=Conf(), sparkContext=context)


SESSIONS = pytest.mark.parametrize("session", [old, new])


@SESSIONS
def test_each_setting_is_a_field_of_the_network(session: Any) -> None:
    settings = {
        "spark.app.name": "another setting",
        "spark.iris.network": "prod",
        "spark.iris.secret.file": "/etc/iris/secret",
        "spark.iris.clusters.directory": "/etc/iris/clusters",
        "spark.iris.strict": "true",
        "spark.iris.seeds": "a.example.org:4711, b.example.org:4711",
        "spark.iris.listen": "0.0.0.0:0",
        "spark.iris.advertise": "203.0.113.5",
        "spark.iris.zone": "eu-west/a",
        "spark.iris.node.name": "etl-nightly",
        "spark.iris.discovery": "FALSE",
        "spark.iris.administrator": "a key",
        "spark.iris.max.message.bytes": "1048576",
    }
    assert network_of(session(settings)) == Network(
        name="prod",
        secret_file="/etc/iris/secret",
        clusters_directory="/etc/iris/clusters",
        strict=True,
        seeds=["a.example.org:4711", "b.example.org:4711"],
        listen="0.0.0.0:0",
        advertise=["203.0.113.5"],
        zone="eu-west/a",
        node_name="etl-nightly",
        discovery=False,
        administrator="a key",
        max_message_bytes=1_048_576,
    )


@SESSIONS
def test_without_a_setting_it_is_the_network_of_the_place(session: Any) -> None:
    assert network_of(session({"spark.app.name": "no setting of Iris"})) == Network()


@SESSIONS
@pytest.mark.parametrize("name", ["secret", "secret.command", "clusters"])
def test_a_secret_is_no_setting_and_is_not_repeated(session: Any, name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"is not a setting.*spark\.iris\.secret\.file") as caught:
        network_of(session({f"spark.iris.{name}": "deadbeef"}))
    assert "deadbeef" not in str(caught.value)


@SESSIONS
@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("seed", "a:1", r"spark\.iris\.seed is unknown; there are .*spark\.iris\.seeds"),
        ("discovery", "no", r"spark\.iris\.discovery='no' must be true or false"),
        ("strict", "1", r"spark\.iris\.strict='1' must be true or false"),
        ("max.message.bytes", "16MiB", r"max\.message\.bytes='16MiB' must be a whole number"),
        ("max.message.bytes", "0", r"must be a whole number, at least 1"),
        ("network", " ", r"spark\.iris\.network is empty"),
    ],
)
def test_what_cannot_be_meant_is_refused(session: Any, name: str, text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        network_of(session({f"spark.iris.{name}": text}))
