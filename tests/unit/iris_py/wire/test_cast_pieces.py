"""Tests of iris_py/wire/cast_pieces.py."""

from __future__ import annotations

from collections import Counter

import pytest

from iris_overlay.groups.messages import CAST_BYTES_MAX
from iris_overlay.ids import GroupId, NodeId
from iris_py.wire import cast_pieces
from iris_py.wire.cast_pieces import PIECE, PIECE_BYTES_MAX, CastAssembler, cut

GROUP = GroupId(b"g" * 16)
NONCE, OTHER_NONCE = b"n" * 12, b"o" * 12


def source(number: int) -> NodeId:
    return NodeId(number.to_bytes(16, "big"))


class Assembly:
    """An assembler, and what it dropped."""

    def __init__(self) -> None:
        self.drops: Counter[str] = Counter()
        self.assembler = CastAssembler(lambda reason: self.drops.update([reason]))

    def receive(self, payload: bytes, number: int = 1) -> tuple[bytes, bytes] | None:
        return self.assembler.receive(GROUP, source(number), payload)


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES_MAX - 1, PIECE_BYTES_MAX, PIECE_BYTES_MAX + 1, 3 * PIECE_BYTES_MAX])
def test_what_was_cut_is_put_together(size: int) -> None:
    assembly = Assembly()
    sealed = bytes(range(256)) * (size // 256) + bytes(size % 256)
    pieces = cut(NONCE, sealed)
    assert all(len(piece) <= CAST_BYTES_MAX for piece in pieces)
    assert len(pieces) == max(1, -(-size // PIECE_BYTES_MAX))
    for piece in pieces[:-1]:
        assert assembly.receive(piece) is None
    assert assembly.receive(pieces[-1]) == (NONCE, sealed)
    assert not len(assembly.assembler)
    assert not assembly.drops


def test_a_piece_says_which_of_how_many_it_is_and_of_what() -> None:
    nonce = NONCE.hex()
    assert [piece.hex() for piece in cut(NONCE, b"sealed")] == ["00000001" + nonce + b"sealed".hex()]
    pieces = cut(NONCE, bytes(2 * PIECE_BYTES_MAX) + b"rest")
    assert [piece[:16].hex() for piece in pieces] == ["00000003" + nonce, "00010003" + nonce, "00020003" + nonce]
    assert pieces[2][16:] == b"rest"


def test_pieces_of_several_sources_mix() -> None:
    assembly = Assembly()
    sealed = bytes(2 * PIECE_BYTES_MAX)
    one, two = cut(NONCE, sealed), cut(OTHER_NONCE, sealed)
    for first, second in zip(one[:-1], two[:-1], strict=True):
        assert assembly.receive(first, 1) is assembly.receive(second, 2) is None
    assert assembly.receive(two[-1], 2) == (OTHER_NONCE, sealed)
    assert assembly.receive(one[-1], 1) == (NONCE, sealed)


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_missing_piece_costs_the_whole_and_nothing_else(missing: int) -> None:
    assembly = Assembly()
    pieces = cut(NONCE, bytes(3 * PIECE_BYTES_MAX))
    for index, piece in enumerate(pieces):
        if index != missing:
            assert assembly.receive(piece) is None
    assert assembly.receive(cut(OTHER_NONCE, b"next")[0]) == (OTHER_NONCE, b"next")
    assert assembly.drops["cast_incomplete"] >= 1
    assert set(assembly.drops) == {"cast_incomplete"}
    assert not len(assembly.assembler)


@pytest.mark.parametrize("payload", [b"", b"x" * (PIECE.size - 1)])
def test_what_is_too_short_is_malformed(payload: bytes) -> None:
    assembly = Assembly()
    assert assembly.receive(payload) is None
    assert assembly.drops == {"malformed": 1}


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    assembly = Assembly()
    monkeypatch.setattr(cast_pieces, "ASSEMBLED_BYTES_MAX", 1000)
    for number in range(10):
        assembly.receive(PIECE.pack(0, 2, NONCE) + bytes(300), number)
    assert len(assembly.assembler) == 3
    assert assembly.receive(PIECE.pack(1, 2, NONCE), 9) == (NONCE, bytes(300))  # the newest are kept
    assert assembly.drops == {"cast_incomplete": 7}
    monkeypatch.setattr(cast_pieces, "PARTIALS_MAX", 5)
    for number in range(10, 30):
        assembly.receive(PIECE.pack(0, 2, NONCE), number)
    assert len(assembly.assembler) == 5


def test_a_body_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cast_pieces, "BODY_BYTES_MAX", 1000)
    assembly = Assembly()
    for index in range(4):
        assembly.receive(PIECE.pack(index, 100, NONCE) + bytes(300))
    assert assembly.drops == {"cast_incomplete": 1}
    assert not len(assembly.assembler)
    assert assembly.assembler._bytes == 0


@pytest.mark.parametrize(("count", "nonce"), [(3, OTHER_NONCE), (4, NONCE)])
def test_a_piece_of_something_else_does_not_continue_what_is_here(count: int, nonce: bytes) -> None:
    assembly = Assembly()
    first, second, _third = cut(NONCE, bytes(3 * PIECE_BYTES_MAX))
    assert assembly.receive(first) is None
    assert assembly.receive(PIECE.pack(1, count, nonce) + second[PIECE.size :]) is None
    assert assembly.drops == {"cast_incomplete": 1}
    assert not len(assembly.assembler)
