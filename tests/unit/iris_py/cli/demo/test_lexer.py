"""Any text is counted, in linear time, and what is Python is counted as the standard library's tokenizer does."""

from __future__ import annotations

import io
import keyword
import sysconfig
import time
import tokenize
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_py.cli.demo.lexer import TokenTotals, count

# Where expressions like the lexer's go wrong: quotes, escapes, prefixes, line ends, digits with and without points.
nasty = st.text(alphabet="rbfu\"'\\\n\r #0123._eExXjaß\x00\u0663²+=!.", max_size=200)


def tokens(text: str) -> dict[str, int]:
    return {kind: number for kind, number in count(text.encode()).tokens.items() if number}


@given(st.binary(max_size=500))
def test_any_bytes(content: bytes) -> None:
    totals = count(content)
    assert totals.files == 1
    assert totals.size_bytes == len(content)


@given(nasty | st.text(max_size=200))
def test_every_character_that_is_no_space_belongs_to_a_token(text: str) -> None:
    totals = count(text.encode())
    assert sum(totals.tokens.values()) <= len(text)
    assert (sum(totals.tokens.values()) == 0) == (not text.strip())
    assert totals.lines == len(text.split("\n")) - (text[-1:] in ("", "\n"))


@given(st.lists(st.text(alphabet="rbfu #0123._eExXjaß\x00\u0663²+=!.\n", max_size=50), max_size=5))
def test_lines_and_tokens_add_up(parts: list[str]) -> None:
    """Without quotes, which join lines into one token, the whole has what its lines have."""
    lines = [f"{part}\n" for part in parts]
    added = TokenTotals()
    for line in lines:
        added.add(count(line.encode()))
    whole = count("".join(lines).encode())
    assert added.tokens == whole.tokens
    assert added.lines == whole.lines
    assert added.size_bytes == whole.size_bytes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("if x:\n", {"keywords": 1, "names": 1, "operators": 1}),
        ("x**=y//z>>1", {"names": 3, "operators": 3, "numbers": 1}),
        ("a->b:=c...", {"names": 3, "operators": 3}),
        ("1 1.5 .5 5. 1e-3 0x_ff 0b1 0o7 1_000 2j 1.e5J", {"numbers": 11}),
        ("a.5", {"names": 1, "numbers": 1}),
        ("1..real", {"numbers": 1, "operators": 1, "names": 1}),
        ("rb'x' Rb\"y\" u'' f'''a\nb''' '' \"\"\"\"\"\"", {"strings": 6}),
        ("'it''s'", {"strings": 2}),
        (r"'a\'b' '\\'", {"strings": 2}),
        ("'continued\\\nhere'", {"strings": 1}),
        ("bur'x'", {"names": 1, "strings": 1}),
        ("print'x'", {"names": 1, "strings": 1}),
        ("x # 'no string'\n#y", {"names": 1, "comments": 2}),
        ("'# no comment'", {"strings": 1}),
        ("'open\nnext", {"strings": 1, "names": 1}),
        ("'''open\nto the end\\", {"strings": 1}),
        ("'a\\", {"strings": 1, "others": 1}),
        ("größe = µ", {"names": 2, "operators": 1}),
        ("$ ? ! `", {"others": 4}),
        ("a != b", {"names": 2, "operators": 1}),
        ("\u0663", {"others": 1}),
    ],
)
def test_examples(text: str, expected: dict[str, int]) -> None:
    assert tokens(text) == expected


def test_what_is_no_utf8_is_latin1() -> None:
    assert count(b"caf\xe9 = 1").tokens["names"] == 1


@pytest.mark.parametrize(
    "text",
    [
        '"""' + '\\"""' * 200_000,
        "'''" + "\\'''" * 200_000,
        '"\\\n' * 200_000,
        "'" * 600_001,
        "r" * 600_000 + "'",
        "0" * 600_000 + "x",
        "1_" * 300_000,
        "\\" * 600_000,
        '"""' + "''" * 200_000 + "\\",
    ],
)
def test_hostile_text_takes_linear_time(text: str) -> None:
    started = time.process_time()  # not what others on this machine take
    count(text.encode())
    # Measured 0.01 to 0.15 s; what is quadratic takes minutes.
    assert time.process_time() - started < 10


def count_with_tokenize(content: bytes) -> dict[str, int]:
    kinds = {tokenize.OP: "operators", tokenize.NUMBER: "numbers", tokenize.STRING: "strings", tokenize.COMMENT: "comments"}
    found: Counter[str] = Counter()
    for token in tokenize.tokenize(io.BytesIO(content).readline):
        if token.type == tokenize.NAME:
            found["keywords" if keyword.iskeyword(token.string) else "names"] += 1
        elif token.type in kinds:
            found[kinds[token.type]] += 1
    return dict(found)


# Without f-strings: since Python 3.12 their parts are tokens of their own.
@pytest.mark.parametrize("name", ["heapq.py", "bisect.py", "tokenize.py", "keyword.py", "textwrap.py", "json/decoder.py"])
def test_agrees_with_the_standard_library(name: str) -> None:
    content = Path(sysconfig.get_path("stdlib"), name).read_bytes()
    found = tokens(content.decode())
    found.pop("others", None)  # line continuations, of which tokenize says nothing
    assert found == count_with_tokenize(content)


def test_totals_travel() -> None:
    totals = count(b"x = 1  # one\n")
    assert TokenTotals.decode(totals.encode()) == totals
    with pytest.raises(ValueError, match="not 3"):
        TokenTotals.decode(b"abc")
