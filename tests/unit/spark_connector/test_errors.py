"""The texts of errors, where they depend on how much there is to say."""

from __future__ import annotations

from pathlib import Path

import pytest

from iris_py import ConfigurationError
from spark_connector.errors import (
    LOSSES_SHOWN,
    AgentFailed,
    AgentNotTrusted,
    DataLost,
    DispatchError,
    PathNotPrivate,
    UpdateFailed,
)


@pytest.mark.parametrize("more", [0, 1, 4])
def test_lost_messages_are_told_for_some_publishers_and_the_others_are_counted(more: int) -> None:
    missed = {f"{number:032x}": number + 1 for number in range(LOSSES_SHOWN + more)}
    error = DataLost("ticks", 0, 0, missed, {})
    assert error.missed == missed
    assert str(error).count("did not arrive") == LOSSES_SHOWN
    assert (", and more of" in str(error)) is (more > 0)
    if more:
        assert f", and more of {more} publishers. A topic" in str(error)


def test_an_unknown_loss_names_the_publisher() -> None:
    error = DataLost("ticks", 0, 0, {"a": 1}, {"b": 2})
    assert error.unknown == {"b": 2}
    assert "'ticks': 1 of publisher a did not arrive; an unknown number of publisher b did not arrive" in str(error)


def test_a_loss_of_one_kind_tells_of_no_other() -> None:
    assert "'ticks': 3 were dropped, because the query was behind. A topic" in str(DataLost("ticks", 3, 0, {}, {}))
    assert "'ticks': 4 were in micro-batches that were not finished. A topic" in str(DataLost("ticks", 0, 4, {}, {}))


def test_a_failed_update_tells_which_generation_runs_where() -> None:
    failures = {"1": "it raised KeyError"}
    text = str(UpdateFailed("score", 3, failures, {"1": 2, "2": 3, "10": 3}, 2))
    assert (
        "everywhere (executor 1: it raised KeyError). generation 2 runs on 1; generation 3 runs on 10, 2; new executors" in text
    )
    assert "No executor is a member; new executors" in str(UpdateFailed("score", 3, failures, {}, 2))


def test_a_dispatch_tells_of_which_rows_if_it_knows() -> None:
    assert " about order_id=17 " in str(DispatchError("score", "key", "why", "order_id=17"))
    assert " about " not in str(DispatchError("score", "key", "why"))


def test_a_place_that_is_not_private_is_told_with_what_to_do() -> None:
    error = PathNotPrivate(Path("/tmp/iris-1000"), "belongs to user 1001, and this process to 1000", 1001)
    assert isinstance(error, ConfigurationError)
    assert (error.path, error.owner) == (Path("/tmp/iris-1000"), 1001)
    assert str(error).startswith("/tmp/iris-1000 belongs to user 1001, and this process to 1000; ")
    assert str(error).endswith(
        "Remove it, or set XDG_RUNTIME_DIR on the executors to a directory of their user that has mode 0700."
    )


def test_an_agent_that_is_none_is_told_with_what_to_do() -> None:
    error = AgentNotTrusted(Path("/run/control"), "it cannot prove its identity")
    assert isinstance(error, AgentFailed)
    assert error.path == Path("/run/control")
    assert str(error).startswith(
        "the process that answers at /run/control is not the agent of this executor: it cannot prove its identity. "
    )
    assert str(error) == error.reason
