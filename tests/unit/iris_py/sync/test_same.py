"""The synchronous API has the names, arguments, results and descriptions of the other one, and nothing is forgotten there."""

from __future__ import annotations

import inspect
import re
from typing import Any, assert_type

import pytest

import iris_py
import iris_py.sync
from iris_py.sync.counterpart import documented_as

#: What this API has beyond the other one, each for want of an `await`.
ADDED = {"Node.request_future", "Subscription.take", "Survey.wait", "Members.wait"}

#: Counts that are attributes there, and properties here.
COUNTS = {"StreamRecords.undecoded", "StreamWriter.appended"}

#: What a function takes here beside that: there it is an argument of `run`.
ADDED_PARAMETERS = {"leave_on_sigterm"}

#: What is the same class here and there: data, errors, and what only carries data.
TWINS = sorted(name for name in iris_py.sync.__all__ if getattr(iris_py.sync, name) is not getattr(iris_py, name))

#: How types read here.
TYPES = (
    (r"Opening\[(\w+(\[\w+\])?)\]", r"\1"),
    (r"\bAsyncIterator\b", "Iterator"),
    (r"\bReloading\b", "None"),
    (r"^Awaitable\[None\] \| None$", "None"),
    (r" \| Awaitable\[(?:[^\[\]]|\[[^\]]*\])*\]", ""),
    (r"\bHandler\[Any, Any\] \| RequestFunction\[Any, Any\] \| Sealed", "AnyHandler[Any, Any]"),
    (r"AsyncIterable\[BytesLike\] \| Iterable\[BytesLike\]", "Iterable[BytesLike]"),
)


def public_members(owner: type) -> dict[str, Any]:
    """Return what a class, or a base class of it in this library, shows."""
    found: dict[str, Any] = {}
    for base in reversed(owner.__mro__):
        if base.__module__.startswith("iris_py"):
            found |= {name: value for name, value in vars(base).items() if not name.startswith("_")}
    return found


def pairs() -> list[Any]:
    """Return each public attribute of each class that has a twin, with its name."""
    found = []
    for name in TWINS:
        original, twin = getattr(iris_py, name), getattr(iris_py.sync, name)
        if inspect.isfunction(original):
            found.append(pytest.param(original, twin, id=name))
            continue
        for attribute, value in public_members(original).items():
            if attribute != "handle_event":  # for the node itself
                found.append(pytest.param(value, public_members(twin).get(attribute), id=f"{name}.{attribute}"))
    return found


def parameters(function: Any) -> list[tuple[str, object, object, str]]:
    """Return name, kind, default and type of each parameter, the type in the words of the synchronous API."""
    return [
        (each.name, each.kind, each.default, translate(str(each.annotation)))
        for each in inspect.signature(function).parameters.values()
    ]


def translate(annotation: str) -> str:
    for theirs, ours in TYPES:
        annotation = re.sub(theirs, ours, annotation)
    return annotation


def test_the_names_are_those_of_the_other_api() -> None:
    assert set(iris_py.sync.__all__) == set(iris_py.__all__) - {"run"}
    assert [
        *("Handler", "Members", "Membership", "Node", "Stream", "StreamRecords", "StreamWriter", "Streams", "Subscription"),
        *("Survey", "Tunnel", "connect", "open_streams", "until_stopped"),
    ] == TWINS


def test_nothing_else_looks_public() -> None:
    visible = {name for name, value in vars(iris_py.sync).items() if not name.startswith("_") and not inspect.ismodule(value)}
    assert visible == set(iris_py.sync.__all__)


@pytest.mark.parametrize(("original", "twin"), pairs())
def test_each_has_a_twin_of_the_same_signature(original: Any, twin: Any) -> None:
    assert twin is not None
    if isinstance(original, property):
        assert isinstance(twin, property)
        assert original.fget is not None
        assert twin.fget is not None
        assert inspect.signature(original.fget).return_annotation == inspect.signature(twin.fget).return_annotation
        return
    assert parameters(original) == [each for each in parameters(twin) if each[0] not in ADDED_PARAMETERS]
    assert not inspect.iscoroutinefunction(twin)
    returned, expected = (inspect.signature(each).return_annotation for each in (twin, original))
    assert returned == translate(expected)


@pytest.mark.parametrize(("original", "twin"), pairs())
def test_each_is_described_without_await(original: Any, twin: Any) -> None:
    text = inspect.getdoc(twin)
    assert text
    assert "await" not in text
    assert "async" not in text
    if not re.search("on_request|on_survey|on_tunnel", str(original)):  # these say what threads change
        added = "".join(f" *{name}: .*" for name in ADDED_PARAMETERS if name in text)
        text = re.sub(rf"\n{added}(?=\n\nRaises:)", "", text, flags=re.DOTALL) if added else text
        assert text == inspect.getdoc(documented_as(original)(lambda: None))


def test_classes_and_additions_are_described() -> None:
    added = set()
    for name in TWINS:
        twin = getattr(iris_py.sync, name)
        text = inspect.getdoc(twin)
        assert text
        assert not re.search(r"await\b|async ", text), text
        if inspect.isclass(twin):
            more = public_members(twin).keys() - public_members(getattr(iris_py, name)).keys()
            added |= {f"{name}.{attribute}" for attribute in more}
            assert all(inspect.getdoc(getattr(twin, attribute)) for attribute in more)
    assert added == ADDED | COUNTS


def test_the_words_of_the_other_api_are_replaced() -> None:
    def original() -> None:
        """Use with ``await`` or ``async with``. Take it with ``async for x in y``."""

    @documented_as(original)
    def twin() -> None: ...

    assert twin.__doc__ == "Use what it returns as it is, or in a ``with`` statement. Take it with ``for x in y``."


def check_types(node: iris_py.sync.Node) -> None:  # never called: mypy reads it
    """The types are precise: what `mypy --strict` infers of every call."""
    assert_type(iris_py.sync.connect(zone="eu"), iris_py.sync.Node)
    with iris_py.sync.connect() as connected:
        assert_type(connected, iris_py.sync.Node)
    assert_type(node.request("a", b"", timeout=1.0), bytes)
    assert_type(node.request_future("a", b"").result(), bytes)
    assert_type(node.broadcast("a", b""), int)
    assert_type(node.publish("a", b""), int)
    codec = iris_py.Codec(dict[str, int], list[int])
    assert_type(codec, iris_py.Codec[dict[str, int], list[int]])
    assert_type(node.request("a", {"b": 1}, codec=codec), list[int])
    assert_type(node.request("a", [1], codec=list[int]), list[int])
    assert_type(node.request_future("a", {"b": 1}, codec=codec).result(), list[int])
    assert_type(node.survey("a", {"b": 1}, codec=codec).wait(), iris_py.Answers[list[int]])
    assert_type(node.subscribe("a", codec=codec), iris_py.sync.Subscription[dict[str, int]])
    assert_type(node.members("a"), iris_py.sync.Members)
    assert_type(node.members("a").wait(), tuple[iris_py.Member, ...])
    assert_type(node.survey("a", b"").wait(), iris_py.Answers)
    assert_type(list(node.survey("a", b"")), list[iris_py.SurveyReply])
    with node.subscribe("a.*") as subscription:
        assert_type(subscription, iris_py.sync.Subscription)
        assert_type(next(subscription), iris_py.Message)
        assert_type(next(subscription.batches()), list[iris_py.Message])
        assert_type(subscription.take(timeout=0.0), list[iris_py.Message])
    with node.join("a", lambda request: request.payload) as membership:
        assert_type(membership, iris_py.sync.Membership)
    node.join("a", print)  # type: ignore[arg-type] # prints nothing that could be a reply
