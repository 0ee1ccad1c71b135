"""The buffers of large records: used again when nobody needs their bytes, and never before."""

from __future__ import annotations

import pytest

from iris_py.link.lanes import BODY, FRAGMENT, TUNNEL
from iris_py.link.record_buffers import (
    BUFFER_BYTES,
    BUFFERS_MAX,
    LARGE_BYTES,
    RECEIVE_BUFFERS_KEPT_MAX,
    ReceiveBuffers,
    RecordBuffers,
)
from iris_security import AuthenticationError, RecordOpener, RecordSealer
from iris_security.aead import TAG_BYTES
from iris_security.record import FILLS_BUFFERS

KEY = bytes(32)
pytestmark = pytest.mark.skipif(not FILLS_BUFFERS, reason="this version of cryptography fills no buffers")


def content(kind: int, number: int = 0, size: int = LARGE_BYTES) -> bytes:
    return bytes((kind,)) + bytes((number,)) * (size - 1)


def buffer_of(record: bytes | memoryview) -> object:
    """Return the buffer of a record; None for a record outside the buffers."""
    return record.obj if isinstance(record, memoryview) else None


def test_a_buffer_is_used_again_when_its_record_is_dropped() -> None:
    buffers, sealer, opener = RecordBuffers(), RecordSealer(KEY), RecordOpener(KEY)
    record = buffers.seal(sealer, content(BODY, 1))
    first, sealed = buffer_of(record), bytes(record)
    assert first is not None
    held = record[:100]  # as a transport that has written the rest
    del record
    assert buffer_of(buffers.seal(sealer, content(BODY, 2))) is not first
    assert bytes(held) == sealed[:100]
    assert opener.open(sealed) == content(BODY, 1)
    del held
    assert buffer_of(buffers.seal(sealer, content(BODY))) is first


def test_records_that_somebody_holds_keep_their_bytes_however_many_they_are() -> None:
    buffers, sealer, opener, plain = RecordBuffers(), RecordSealer(KEY), RecordOpener(KEY), RecordSealer(KEY)
    count = 2 * BUFFERS_MAX + 1
    sealed = [buffers.seal(sealer, content(TUNNEL, number)) for number in range(count)]
    opened = [buffers.open(opener, memoryview(each)) for each in sealed]
    assert [bytes(each) for each in sealed] == [plain.seal(content(TUNNEL, number)) for number in range(count)]
    assert [bytes(each) for each in opened] == [content(TUNNEL, number) for number in range(count)]
    assert len({id(buffer_of(each)) for each in sealed} - {id(None)}) == BUFFERS_MAX


def test_only_chunks_and_fragments_stay_in_a_buffer() -> None:
    buffers, sealer, opener = RecordBuffers(), RecordSealer(KEY), RecordOpener(KEY)
    found = []
    for kind in (TUNNEL, FRAGMENT, BODY, BODY, TUNNEL, TUNNEL):
        record = buffers.open(opener, memoryview(sealer.seal(content(kind))))
        assert record == content(kind)
        found.append(buffer_of(record) is not None)
        del record
    assert found == [False, True, False, False, False, True]


@pytest.mark.parametrize("size", [BUFFER_BYTES - TAG_BYTES, BUFFER_BYTES - TAG_BYTES + 1, BUFFER_BYTES, BUFFER_BYTES + 1])
def test_a_record_that_is_too_large_for_a_buffer_is_one_of_its_own(size: int) -> None:
    buffers, sealer, opener = RecordBuffers(), RecordSealer(KEY), RecordOpener(KEY)
    buffers.open(opener, memoryview(sealer.seal(content(TUNNEL))))
    sealed = buffers.seal(sealer, content(TUNNEL, 1, size))
    assert (buffer_of(sealed) is None) == (size + TAG_BYTES > BUFFER_BYTES)
    opened = buffers.open(opener, memoryview(sealed))
    assert (buffer_of(opened) is None) == (size > BUFFER_BYTES)
    assert opened == content(TUNNEL, 1, size)


def test_nothing_comes_out_of_a_changed_record() -> None:
    buffers, sealer, opener = RecordBuffers(), RecordSealer(KEY), RecordOpener(KEY)
    buffers.open(opener, memoryview(sealer.seal(content(TUNNEL))))
    good = sealer.seal(content(TUNNEL, 1))
    with pytest.raises(AuthenticationError):
        buffers.open(opener, memoryview(good[:-1] + bytes((good[-1] ^ 1,))))
    assert buffers.open(opener, memoryview(good)) == content(TUNNEL, 1)


def test_without_ciphers_that_fill_buffers_every_record_is_one_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iris_py.link.record_buffers.FILLS_BUFFERS", False)
    buffers, sealer, opener = RecordBuffers(), RecordSealer(KEY), RecordOpener(KEY)
    for number in range(3):
        sealed = buffers.seal(sealer, content(TUNNEL, number))
        opened = buffers.open(opener, memoryview(sealed))
        assert (buffer_of(sealed), buffer_of(opened)) == (None, None)
        assert opened == content(TUNNEL, number)


def test_a_receive_buffer_is_used_again_and_only_some_are_kept() -> None:
    buffers = ReceiveBuffers(4096)
    taken = [buffers.take() for _ in range(RECEIVE_BUFFERS_KEPT_MAX + 2)]
    for number, buffer in enumerate(taken):
        buffer[:] = bytes((number,)) * 4096
    assert [bytes(buffer) for buffer in taken] == [bytes((number,)) * 4096 for number in range(len(taken))]
    for buffer in taken:
        buffers.give_back(buffer)
    again = [buffers.take() for _ in taken]
    assert sum(any(each is buffer for buffer in taken) for each in again) == RECEIVE_BUFFERS_KEPT_MAX
