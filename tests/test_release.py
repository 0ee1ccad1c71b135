"""The check of the interface notices what breaks programs, and nothing else; what it compares with is there."""

from __future__ import annotations

import pytest

from tests.release import api, typing_checks

OLD = "iris_py.f(a, b=, *:c=, *:d)"


@pytest.mark.parametrize(
    ("new", "is_broken"),
    [
        (OLD, False),
        ("iris_py.f(a, b=, *:d, *:c=)", False),
        ("iris_py.f(a, b=, e=, *:c=, *:d, *:g=)", False),
        ("iris_py.f(a, b=, *:c=, *:d=)", False),
        ("iris_py.f(a=, b=, *:c=, *:d)", False),
        ("iris_py.f(a, b=, *:c=)", True),
        ("iris_py.f(a, b=, *:c, *:d)", True),
        ("iris_py.f(a, b, *:c=, *:d)", True),
        ("iris_py.f(b=, a=, *:c=, *:d)", True),
        ("iris_py.f(a, b=, *:c=, *:d, *:e)", True),
        ("iris_py.f", True),
        ("iris_py.g(a)", True),
    ],
)
def test_what_breaks_a_call_is_found(new: str, is_broken: bool) -> None:
    assert api.broken([OLD], [new, "iris_py.new(x)"]) == (["iris_py.f"] if is_broken else [])


def test_a_break_has_to_be_named_where_the_changelog_says_what_changed() -> None:
    changelog = """# Changelog

## 0.2.0 (unreleased)

* `Node.request` is faster.
* **Changed**: `Node.publish()` takes a topic
  and `survey` a time; fields of `Config` have names.

## 0.1.0

* **Removed**: `broadcast`
"""
    names = ["iris_py.Node.request", "iris_py.Node.publish", "iris_py.Node.survey", "iris_py.Node.broadcast"]
    assert api.unmentioned(names, changelog, "0.2.0") == ["iris_py.Node.request", "iris_py.Node.broadcast"]
    assert api.unmentioned(names[:1], changelog, "0.3.0") == names[:1]
    calls = ["iris_py.Config.__init__", "iris_py.Retry.__init__"]
    assert api.unmentioned(calls, changelog, "0.2.0") == ["iris_py.Retry.__init__"]


def test_the_interface_of_the_last_release_is_kept_or_its_changes_are_named() -> None:
    current = api.interface()
    assert "iris_py.Node.publish(self, topic, payload, *:headers=, *:codec=)" in current
    names = api.broken(api.SNAPSHOT.read_text().splitlines(), current)
    assert api.unmentioned(names, (api.ROOT / "CHANGELOG.md").read_text(), "0.1.0") == []


def test_what_is_public_says_its_type_and_of_the_rest_none_is_unknown() -> None:
    inferred, unknown, following = (
        "Type is missing type annotation",
        "Type unknown for variable",
        "Return type is partially unknown",
    )
    symbols = [
        {"name": name, "diagnostics": [{"severity": severity, "message": said}]}
        for name, severity, said in [
            ("a.Public", "error", inferred),
            ("a.Public.field", "error", inferred),
            ("a.Public._field", "error", inferred),
            ("a.Public.method", "error", following),
            ("a.Public.told", "information", inferred),
            ("a.Other.field", "error", inferred),
            ("a.Other.strange", "error", unknown),
        ]
    ]
    found = [each.partition(":")[0] for each in typing_checks.untyped(symbols, {"a.Public"})]
    assert found == ["a.Public", "a.Public.field", "a.Other.strange"]
    names = typing_checks.public_names()
    assert {"iris_py.api.node.Node", "iris_py.sync.node.Node", "spark_connector.network.Network"} <= names
    assert not any(name.startswith("builtins") for name in names)
