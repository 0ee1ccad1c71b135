"""The head of what came from another cloud: read as it was written, and refused if it is anything else."""

from __future__ import annotations

import pytest

from iris_py.wire.imported import HEAD, NUMBER_MAX, ImportedHead, decode_imported

IMPORTED = ImportedHead(b"o" * 16, b"s" * 4, 7, 3, "eu-west-1")


def test_a_head_is_read_as_it_was_written_and_leaves_the_rest() -> None:
    encoded = IMPORTED.encode()
    assert encoded == b"o" * 16 + b"s" * 4 + (7).to_bytes(8, "big") + (3).to_bytes(8, "big") + b"\x09eu-west-1"
    assert decode_imported(encoded + b"topic", 1) == (IMPORTED, b"topic")
    assert decode_imported(encoded, 1) == (IMPORTED, b"")


def test_a_head_that_is_cut_is_malformed() -> None:
    encoded = IMPORTED.encode()
    for size in range(len(encoded)):
        assert decode_imported(encoded[:size], 1) is None


@pytest.mark.parametrize("cloud", ["", "-", "a-", "-a", "EU", "a.b", "a b", "ü", "a" * 33, "a\n"])
def test_a_cloud_has_a_name_that_aliases_have(cloud: str) -> None:
    name = cloud.encode()
    assert decode_imported(HEAD.pack(b"", b"", 1, 0, len(name)) + name, 1) is None


@pytest.mark.parametrize("cloud", ["a", "a-b", "0", "a" * 32, "a--b"])
def test_each_alias_is_taken(cloud: str) -> None:
    imported = ImportedHead(bytes(16), bytes(4), 1, 0, cloud)
    assert decode_imported(imported.encode(), 1) == (imported, b"")


def test_numbers_end() -> None:
    last = ImportedHead(bytes(16), bytes(4), NUMBER_MAX, NUMBER_MAX, "eu").encode()
    assert decode_imported(last, 1) is not None
    assert decode_imported(last, 2) is None


def test_behind_the_first_ones_comes_the_next() -> None:
    assert IMPORTED.after(0) is IMPORTED
    assert IMPORTED.after(2) == ImportedHead(b"o" * 16, b"s" * 4, 9, 3, "eu-west-1")
