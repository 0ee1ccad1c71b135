"""Properties of the NATS protocol: the same operations however the bytes are split; header blocks come back as they were."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from iris_py.doors.nats.headers import ReceivedBlock, carry, read_carried
from iris_py.doors.nats.operations import Operation, ProtocolFault, PubRun
from iris_py.doors.nats.parser import ProtocolParser
from iris_py.doors.nats.subjects import NatsSubject, is_valid_subject, read_pattern, read_subject
from iris_py.wire.headers import HEADERS_BYTES_MAX, decode_headers, encode_headers

PAYLOAD_MAX = 64
FIELDS = st.text("ab.*>_$é", min_size=1, max_size=5).map(str.encode)
BLANKS = st.sampled_from([b" ", b"\t", b"  "])
ENDS = st.sampled_from([b"\r\n", b"\n"])
CONTENTS = st.one_of(st.binary(max_size=9), st.just(b"\r\nPUB a 1\r\n"))


@st.composite
def valid_operations(draw: st.DrawFn) -> bytes:
    name = draw(st.sampled_from([b"PUB", b"pub", b"HPUB", b"SUB", b"UNSUB", b"PING", b"PONG", b"CONNECT"]))
    content = b""
    if name in (b"PUB", b"pub", b"HPUB"):
        content = draw(CONTENTS)
        fields = [*draw(st.lists(FIELDS, min_size=1, max_size=2)), b"%d" % len(content)]
        if name == b"HPUB":
            fields.insert(-1, b"%d" % draw(st.integers(0, len(content))))
        content += b"\r\n"
    else:
        fields = {
            b"SUB": [*draw(st.lists(FIELDS, min_size=1, max_size=2)), b"1"],
            b"UNSUB": [b"1", *draw(st.lists(st.just(b"3"), max_size=1))],
            b"CONNECT": [b"{}"],
        }.get(name, [])
    return draw(BLANKS).join([name, *fields]) + draw(ENDS) + content


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    return b"".join(one * draw(st.integers(1, 3)) for one in draw(st.lists(valid_operations(), max_size=6)))


def parsed(pieces: list[bytes]) -> list[Any]:
    """Return the operations in some pieces of a stream, with each message for itself."""
    parser = ProtocolParser(PAYLOAD_MAX)
    operations: list[Operation] = [operation for piece in pieces for operation in parser.receive(piece)]
    found: list[Any] = []
    for each in operations:
        found += [(each.line, content) for content in each.contents] if isinstance(each, PubRun) else [each]
    return found


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[begin:end] for begin, end in pairwise(ends)]


@given(streams(), st.lists(st.integers(0, 10**4), max_size=8))
def test_any_split_of_a_stream_gives_the_same_operations(data: bytes, places: list[int]) -> None:
    whole = parsed([data])
    assert not any(isinstance(each, ProtocolFault) for each in whole)
    assert parsed(cut(data, places)) == whole
    assert parsed([data[at : at + 1] for at in range(len(data))]) == whole


@given(streams(), st.binary(max_size=30), st.integers(0, 10**4), st.lists(st.integers(0, 10**4), max_size=4))
@example(b"", b"PUB a 9\r\n", 0, [])
def test_any_bytes_give_operations_or_one_error(data: bytes, noise: bytes, place: int, places: list[int]) -> None:
    place %= len(data) + 1
    data = data[:place] + noise + data[place:]
    whole = parsed([data])
    assert not any(isinstance(each, ProtocolFault) for each in whole[:-1])
    assert parsed(cut(data, places)) == whole


LINES = st.lists(
    st.one_of(
        st.binary(max_size=20), st.text("abN:-é \0", max_size=9).map(str.encode), st.just(b"a: b"), st.just(b"iris-a: b")
    ),
    max_size=5,
)
BLOCKS = st.one_of(
    st.binary(min_size=1, max_size=60),
    LINES.map(lambda lines: b"NATS/1.0\r\n" + b"".join(x + b"\r\n" for x in lines) + b"\r\n"),
)


@given(BLOCKS, st.binary(max_size=20), st.sampled_from([b"", b"_INBOX.a.1"]))
@example(b"NATS/1.0\r\na: " + b"x" * 3050 + b"\r\n\r\n", b"", b"_INBOX." + b"x" * 500)
@example(b"NATS/1.0\r\n" + b"".join(b"%03d:  \r\n" % number for number in range(340)) + b"\r\n", b"", b"_INBOX." + b"x" * 500)
def test_any_header_block_comes_back_as_it_was(block: bytes, payload: bytes, reply: bytes) -> None:
    carried = carry(block + payload, len(block), reply)
    encoded = encode_headers(carried.headers).encoded
    assert len(encoded) <= HEADERS_BYTES_MAX
    headers = decode_headers(encoded)
    assert headers is not None
    assert read_carried(headers, carried.payload) == ReceivedBlock(reply, len(block), block + payload, 0)


@given(st.text("_INBOXab.-é$", max_size=20).map(lambda rest: f"_INBOX{rest}".encode()))
@example(b"_INBOX." + bytes(600).replace(b"\0", b"a"))
def test_the_usual_inbox_is_read_as_any_other_subject(raw: bytes) -> None:
    """A pattern without wildcards is a subject, and takes no short cut."""
    assert read_subject(raw) == read_pattern(raw)
    assert is_valid_subject(raw) == isinstance(read_pattern(raw), NatsSubject)


@given(FIELDS, st.one_of(st.just(b""), FIELDS), CONTENTS)
def test_the_usual_control_line_is_read_as_any_other(subject: bytes, reply: bytes, content: bytes) -> None:
    fields = [b"PUB", subject, *filter(None, [reply]), b"%d" % len(content)]
    usual, other = ([b"%b\r\n%b\r\n" % (blank.join(fields), content)] for blank in (b" ", b"\t"))
    (line, text), (other_line, other_text) = parsed(usual)[0], parsed(other)[0]
    assert (replace(line, step=b""), text) == (replace(other_line, step=b""), other_text)
