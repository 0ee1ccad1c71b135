"""Every exception class of the packages survives pickle and copy: a class that forgets to fails here."""

from __future__ import annotations

import copy
import functools
import itertools
import pickle
import threading
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import cloudpickle

import iris_py
from iris_py.errors import UnpicklableCause, add_surroundings
from iris_security import AuthenticationError
from tests.specimens import find_error_classes, make_specimens

if TYPE_CHECKING:
    from collections.abc import Callable

CLASSES = find_error_classes()


def through_pickle(protocol: int, error: BaseException) -> Any:
    return pickle.loads(pickle.dumps(error, protocol))


def through_cloudpickle(error: BaseException) -> Any:
    return pickle.loads(cloudpickle.dumps(error))  # type: ignore[no-untyped-call]


COPIES: dict[str, Callable[[Any], Any]] = {
    **{f"pickle {each}": functools.partial(through_pickle, each) for each in range(pickle.HIGHEST_PROTOCOL + 1)},
    "cloudpickle": through_cloudpickle,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}
ROUND_TRIPS = pytest.mark.parametrize("duplicate", COPIES.values(), ids=COPIES)


def describe(error: BaseException | None) -> tuple[object, ...]:
    """Return what two errors have in common if one is a copy of the other."""
    if error is None:
        return ()
    return type(error), error.args, str(error), repr(error), vars(error), describe(error.__cause__)


def test_the_classes_of_all_packages_are_found() -> None:
    found = {kind.__module__.partition(".")[0] for kind in CLASSES}
    assert found == {"iris_overlay", "iris_security", "iris_py", "spark_connector"}
    public = {getattr(iris_py, name) for name in iris_py.__all__}
    assert {each for each in public if isinstance(each, type) and issubclass(each, Exception)} < set(CLASSES)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: f"{kind.__module__}.{kind.__qualname__}")
def test_every_error_survives(kind: type[BaseException]) -> None:
    for error in make_specimens(kind):
        error.add_note("the third of five")
        if isinstance(error, iris_py.IrisError):
            error.__cause__ = ValueError("the cause")
        for way, duplicate in COPIES.items():
            received = duplicate(error)
            assert describe(received) == describe(error), way
            assert describe(duplicate(received)) == describe(error), way


@ROUND_TRIPS
def test_what_a_node_adds_to_an_error_survives(duplicate: Callable[[Any], Any]) -> None:
    error = iris_py.NoMembers("databases", 2)
    seeds = {"192.0.2.1:1": "is silent"}
    add_surroundings(error, seeds, ["192.0.2.7"], has_own_secret=True)
    assert describe(duplicate(error)) == describe(error)
    not_connected = iris_py.NotConnected("databases", seeds, ["192.0.2.7"])
    assert describe(duplicate(not_connected)) == describe(not_connected)
    timeout = iris_py.RequestTimeout("databases", 1.5, None)
    timeout._note_own_place()
    received = duplicate(timeout)
    assert received.from_handler
    assert describe(received) == describe(timeout)


@ROUND_TRIPS
def test_an_error_of_a_program_survives(duplicate: Callable[[Any], Any]) -> None:
    class AccountUnknown(iris_py.IrisError):
        def __init__(self, account: int) -> None:
            self.account = account
            super().__init__(f"there is no account {account}")

    globals()["AccountUnknown"] = AccountUnknown
    AccountUnknown.__qualname__ = "AccountUnknown"
    error = AccountUnknown(7)
    assert describe(duplicate(error)) == describe(error)


def chain(*errors: BaseException) -> BaseException:
    """Make each error the cause of the one before it."""
    for error, cause in itertools.pairwise(errors):
        error.__cause__ = cause
    return errors[0]


@ROUND_TRIPS
def test_the_whole_chain_of_causes_survives(duplicate: Callable[[Any], Any]) -> None:
    error = chain(
        iris_py.ConfigurationError("outermost"),
        OSError(2, "No such file", "iris.toml"),
        iris_py.MemberLost("databases", "ab" * 16),
        AuthenticationError("hidden"),
        KeyError("innermost"),
    )
    assert describe(duplicate(error)) == describe(error)


class WantsTwo(Exception):
    """Pickles, and cannot be loaded: the commonest fault of exception classes."""

    def __init__(self, account: str, amount: int) -> None:
        super().__init__(f"{account} lacks {amount}")


class HasLock(Exception):
    """Cannot be pickled."""

    def __init__(self, text: str) -> None:
        self.lock = threading.Lock()
        super().__init__(text)


class Unprintable(HasLock):
    """Cannot be shown either."""

    def __str__(self) -> str:
        raise RuntimeError


class BecomesText(Exception):
    """Is loaded as something else."""

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, ("text",)


@pytest.mark.parametrize(
    ("cause", "text"),
    [
        (WantsTwo("savings", 3), "WantsTwo: savings lacks 3"),
        (HasLock("locked"), "HasLock: locked"),
        (Unprintable("locked"), "Unprintable: its text cannot be shown"),
        (BecomesText("other"), "BecomesText: other"),
    ],
    ids=["wants two", "has lock", "unprintable", "becomes text"],
)
def test_a_cause_that_cannot_be_pickled_is_told_as_text(cause: Exception, text: str) -> None:
    error = chain(iris_py.MemberLost("databases", "ab" * 16), cause)
    for copied in (copy.copy(error), copy.deepcopy(error)):
        assert copied.__cause__ is cause
    for duplicate in (functools.partial(through_pickle, 4), through_cloudpickle):
        received = duplicate(error)
        assert str(received) == str(error)
        assert isinstance(received.__cause__, UnpicklableCause)
        assert str(received.__cause__) == text
        assert str(duplicate(received).__cause__) == text


def test_a_cycle_of_causes_ends() -> None:
    error = iris_py.MemberLost("databases", "ab" * 16)
    other = ValueError("other")
    chain(error, other, error)
    received = pickle.loads(pickle.dumps(error))
    assert str(received) == str(error)
    assert isinstance(received.__cause__, ValueError | UnpicklableCause)
