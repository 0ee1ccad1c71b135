"""Every table that is keyed by what a peer says has a named bound, and keeps it whatever peers say.

`tables.toml` has them all. The first half compares it with the source. In the second, insiders flood nodes with well-formed
messages of ever new nodes, groups and numbers; afterwards every container that a node holds is counted.
"""

from __future__ import annotations

import pytest

from tests.tables import DECLARED_IN, Table, bound_of, declarations, number_of, tables_of_source, tables_of_text

# What the source has is what is declared


def test_every_table_says_what_bounds_it() -> None:
    undeclared = sorted(map(str, set(tables_of_source()) - declarations().keys()))
    assert not undeclared, (
        f"these attributes hold containers, and nothing says how large they become: {', '.join(undeclared)}. Read the code "
        f"that adds to each, give it a named bound if peers decide how much that is, and add a line to {DECLARED_IN.name}; its "
        "first lines say how."
    )


def test_nothing_is_declared_that_is_gone() -> None:
    gone = sorted(map(str, declarations().keys() - set(tables_of_source())))
    assert not gone, f"{DECLARED_IN.name} declares tables that no class has any more, take them out: {', '.join(gone)}"


def test_every_bound_is_a_number_that_some_module_has() -> None:
    for table in declarations():
        bound = bound_of(table)
        assert bound is None or bound > 0, table


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("def __init__(self): self.a: dict[int, str] = {}", ["C.a"]),
        ("def __init__(self): self.a: dict[int, dict[int, int]] = {}", ["C.a", "C.a[]"]),
        ("def __init__(self): self.a: deque[tuple[int, list[int]]] | None = None", ["C.a", "C.a[]"]),
        ("def later(self): self.a, self.b = [], 0", ["C.a"]),
        ("def __init__(self, given: dict[int, int]): self.a = given", ["C.a"]),
        ("def __init__(self): self.a = DeadlineTable()", ["C.a"]),
        ("def __init__(self): self.a = asyncio.Queue(3)", ["C.a"]),
        ("def __init__(self): self.a = dict.fromkeys(range(3))", ["C.a"]),
        ("def __init__(self): self.a = [0] * 9", ["C.a"]),
        ("a: list[int] = field(default_factory=list)", ["C.a"]),
        ("a: 'set[int]'", ["C.a"]),
        ("a: Annotated[list[int], Meta(max_length=3)]", []),
        ("a: Callable[[list[int]], int]", []),
        ("def __init__(self): self.a: tuple[int, ...] = ()", []),
        ("__slots__ = ['a']", []),
    ],
)
def test_a_table_is_found_however_it_is_made(text: str, names: list[str]) -> None:
    assert [table.name for table in tables_of_text("m", f"class C:\n    {text}\n")] == names


@pytest.mark.parametrize("said", ["unbounded", "local", "within", "", "NO_SUCH_MAX", "iris_py.config.IDLE_S", "A - B"])
def test_what_is_no_bound_is_refused(said: str) -> None:
    with pytest.raises(ValueError, match="of iris_py"):
        number_of("iris_py.config", said)


def test_a_bound_may_be_put_together() -> None:
    assert number_of("iris_py.config", "SEEDS_MAX + 2 * iris_py.peers.peers.HANDSHAKES_MAX // 4") == 64 + 2 * 256 // 4
    assert bound_of(Table("iris_overlay.ring.leafset", "LeafSet._infos")) == 16
