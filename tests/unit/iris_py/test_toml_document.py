"""The lines of keys, in texts that say them in every way that TOML has."""

from __future__ import annotations

import json
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_py.toml_document import find_lines

TEXT = r'''# a comment with [brackets] = and "quotes"
[gateway] # [not.this]
name = "a # is \" no comment ["
path = 'C:\[dir]\'
text = """
[no] table
key = "none" \""" still
""" # the end
literal = \'\'\'
[[export]]
x = 1\'\'\'
"quoted key" = 1
'literal.key' = 2
"caf\u00e9" = 3
dotted . "inner" = 4

[cloud."e.u"]
keys = [
    "a]", # ] a comment
    # another
    'b',
]
dial = [["x",
 "y"], []]
[[export]]
to = ["eu"]
inline = { a = 1, b = { c = [1,
2] }, "d e" = "}" }
[export.table]
time = 1979-05-27 07:32:00Z
number = +1_000
[[export]]
to = []
[[export.deep]]
x = true
[[export.deep]]
x = false
[[import]]
end = """quotes at the end"""""
last = inf'''.replace("\\'", "'")


def test_every_key_has_its_line() -> None:
    tomllib.loads(TEXT)
    lines = find_lines(TEXT)
    expected = {
        ("gateway",): 2,
        ("gateway", "name"): 3,
        ("gateway", "path"): 4,
        ("gateway", "text"): 5,
        ("gateway", "literal"): 9,
        ("gateway", "quoted key"): 12,
        ("gateway", "literal.key"): 13,
        ("gateway", "café"): 14,
        ("gateway", "dotted"): 15,
        ("gateway", "dotted", "inner"): 15,
        ("cloud",): 17,
        ("cloud", "e.u"): 17,
        ("cloud", "e.u", "keys"): 18,
        ("cloud", "e.u", "keys", 0): 19,
        ("cloud", "e.u", "keys", 1): 21,
        ("cloud", "e.u", "dial"): 23,
        ("cloud", "e.u", "dial", 0): 23,
        ("cloud", "e.u", "dial", 0, 0): 23,
        ("cloud", "e.u", "dial", 0, 1): 24,
        ("cloud", "e.u", "dial", 1): 24,
        ("export",): 25,
        ("export", 0): 25,
        ("export", 0, "to"): 26,
        ("export", 0, "to", 0): 26,
        ("export", 0, "inline"): 27,
        ("export", 0, "inline", "a"): 27,
        ("export", 0, "inline", "b"): 27,
        ("export", 0, "inline", "b", "c"): 27,
        ("export", 0, "inline", "b", "c", 0): 27,
        ("export", 0, "inline", "b", "c", 1): 28,
        ("export", 0, "inline", "d e"): 28,
        ("export", 0, "table"): 29,
        ("export", 0, "table", "time"): 30,
        ("export", 0, "table", "number"): 31,
        ("export", 1): 32,
        ("export", 1, "to"): 33,
        ("export", 1, "deep"): 34,
        ("export", 1, "deep", 0): 34,
        ("export", 1, "deep", 0, "x"): 35,
        ("export", 1, "deep", 1): 36,
        ("export", 1, "deep", 1, "x"): 37,
        ("import",): 38,
        ("import", 0): 38,
        ("import", 0, "end"): 39,
        ("import", 0, "last"): 40,
    }
    assert lines == expected


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing", "\r\n# nothing\r\n"])
def test_nothing_has_no_lines(text: str) -> None:
    assert find_lines(text) == {}


def test_lines_may_end_as_on_windows() -> None:
    text = '[a]\r\nb = """\r\n\r\n"""\r\nc = [\r\n1]\r\n'
    tomllib.loads(text)
    assert find_lines(text) == {("a",): 1, ("a", "b"): 2, ("a", "c"): 5, ("a", "c", 0): 6}


def paths(value: object, path: tuple[str | int, ...] = ()) -> set[tuple[str | int, ...]]:
    """Return the places of everything in a document."""
    if isinstance(value, dict):
        parts = list(value.items())
    elif isinstance(value, list):
        parts = list(enumerate(value))
    else:
        return {path}
    return {path}.union(*(paths(part, (*path, key)) for key, part in parts))


TEXTS = st.text(st.sampled_from("ab\"'\\#[]{}=,.\n\té"), max_size=8)
VALUES = st.recursive(
    st.integers(0, 99) | st.booleans() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


def write(value: object) -> str:
    """Return a value as an inline one."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {write(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + "".join(f"\n{write(part)} , # ]\n" for part in value) + "]"
    return json.dumps(value)


@given(st.lists(st.dictionaries(TEXTS, VALUES, max_size=3), max_size=3), st.dictionaries(TEXTS, VALUES, max_size=3))
def test_every_place_of_any_document_has_a_line(rules: list[dict[str, object]], table: dict[str, object]) -> None:
    blocks = [("[table]", ("table",), table), *(("[[rule]]", ("rule", number), rule) for number, rule in enumerate(rules))]
    text, expected = "", {}
    for header, path, values in blocks:
        text += f"\n# {header}\n{header}\n"
        expected[path] = text.count("\n")
        for key, value in values.items():
            text += f"{json.dumps(key)} = {write(value)}\n"
            expected[*path, key] = text.count("\n") - write(value).count("\n")
    lines = find_lines(text)
    assert lines.keys() == paths(tomllib.loads(text)) - {()}
    assert {path: lines[path] for path in expected} == expected
