"""Objects that belong to one process refuse to travel to another one, and say what to do instead."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import cloudpickle

from iris_py import ConfigurationError, Node
from iris_py.sync import Node as SyncNode
from spark_connector import ExecutorCluster, LocalAgent
from spark_connector.local.handles import LocalMembers, LocalSubscription, LocalSurvey
from spark_connector.shipment import check_pickles

if TYPE_CHECKING:
    from collections.abc import Callable

PICKLE_OF_SPARK: Callable[[object], bytes] = cloudpickle.dumps
IN_TASKS = r"its connection belongs to this process\. Call local_agent\(\) in the task that uses it\."
AT_DRIVER = r"it belongs to the process of the driver\. In a task, send requests to executors with local_agent\(\)\.request\(\)"


@pytest.mark.parametrize("use", [pickle.dumps, copy.copy, copy.deepcopy])
@pytest.mark.parametrize(
    ("kind", "instead"),
    [
        (ExecutorCluster, AT_DRIVER),
        (LocalAgent, IN_TASKS),
        (LocalMembers, IN_TASKS),
        (LocalSubscription, IN_TASKS),
        (LocalSurvey, IN_TASKS),
    ],
)
def test_it_says_what_to_do_instead(kind: type[Any], instead: str, use: Callable[[object], object]) -> None:
    with pytest.raises(TypeError, match=rf"^a {kind.__name__} cannot be pickled or copied: {instead}"):
        use(object.__new__(kind))


@pytest.mark.parametrize("kind", [Node, SyncNode])
def test_sparks_own_pickle_refuses_a_node(kind: type[Any]) -> None:
    with pytest.raises(TypeError, match=r"^a Node cannot be pickled .* Connect in the process that uses it"):
        PICKLE_OF_SPARK(object.__new__(kind))


@pytest.mark.parametrize(("kind", "instead"), [(ExecutorCluster, AT_DRIVER), (LocalAgent, IN_TASKS)])
def test_a_function_that_holds_it_is_refused_by_the_name_of_its_argument(kind: type[Any], instead: str) -> None:
    held = object.__new__(kind)

    def ask(payload: bytes) -> object:
        return held.request(payload)

    with pytest.raises(ConfigurationError, match=rf"the function reply= cannot be sent to executors: .*{instead}"):
        check_pickles(reply=ask)
