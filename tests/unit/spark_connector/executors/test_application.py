"""An application whose JVM this program did not start, as with ``spark-submit``: nobody tells that it has ended."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any

import pytest

from spark_connector.errors import ApplicationEnded
from spark_connector.executors.application import Application
from tests.ports import dead_port


def application(port: int, error: Exception) -> Application:
    """Return an application whose JVM is at a port; each call of it fails."""

    def call() -> Any:
        raise error

    made = Application.__new__(Application)
    parameters = SimpleNamespace(address="127.0.0.1", port=port)
    made._context = SimpleNamespace(  # type: ignore[assignment]
        _jsc=SimpleNamespace(sc=call), _gateway=SimpleNamespace(gateway_parameters=parameters)
    )
    return made


@pytest.mark.parametrize("error", [ConnectionRefusedError(), RuntimeError("no answer")])
def test_a_jvm_that_is_gone_is_the_end_of_the_application(error: Exception) -> None:
    with dead_port() as port, pytest.raises(ApplicationEnded):
        application(port, error).executors()


@pytest.mark.parametrize("error", [OSError("no descriptor is left"), RuntimeError("no answer")])
def test_a_call_that_fails_is_not_the_end_while_the_jvm_lives(error: Exception) -> None:
    with socket.create_server(("127.0.0.1", 0)) as jvm, pytest.raises(type(error), match=str(error)):
        application(jvm.getsockname()[1], error).executors()
