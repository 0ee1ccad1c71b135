"""The boundaries of requests in the bytes of a connection, and their agreement with the parser behind them."""

from __future__ import annotations

import httptools
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iris_py.doors.problems import DoorRefusal
from iris_py.doors.web.request_boundary import RequestBoundary
from iris_py.doors.web.request_head import CHUNKED, HEAD_BYTES_MAX, RequestHead, check_head

BODY_BYTES = 1000
GET = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"
CHUNKS = b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n"
#: Pieces of requests, right and wrong ones, from which hypothesis makes others.
PIECES = (
    *(
        b"GET",
        b"POST",
        b"/a",
        b"HTTP/1.1",
        b"HTTP/1.0",
        b" ",
        b"\r\n",
        b"\r\n\r\n",
        b"\r",
        b"\n",
        b"\0",
        b":",
        b";",
        b"\t",
        b"\x0b",
    ),
    *(
        b"Host: a\r\n",
        b"Content-Length: 5\r\n",
        b"content-length:5 \r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Upgrade: h2c\r\n",
    ),
    *(
        b"Connection: upgrade\r\n",
        b"Expect: 100-continue\r\n",
        b"0\r\n\r\n",
        b"5\r\n",
        b"hello",
        b"-1",
        b"0x1\r\n",
        b"\xff",
        b"X: y\r\n",
    ),
)


def parts_of(data: bytes, sizes: list[int] | None = None) -> tuple[list[list[object]], str]:
    """Return the parts of each request in these bytes, received in pieces, and the name of the problem that ends them."""
    boundary = RequestBoundary(BODY_BYTES)
    requests: list[list[object]] = [[]]
    try:
        for size in sizes or [len(data)]:
            boundary.receive(data[:size])
            data = data[size:]
            while True:
                while (part := boundary.next_part()) is not None:
                    last = requests[-1]
                    if isinstance(part, bytes) and last and isinstance(last[-1], bytes):
                        last[-1] += part
                    else:
                        last.append(part)
                if not boundary.is_complete:
                    break
                requests[-1].append("end")
                requests.append([])
                boundary.start_next()
    except DoorRefusal as exc:
        return requests, exc.name
    return requests, ""


def test_requests_are_told_apart() -> None:
    requests, name = parts_of(GET + POST + CHUNKS + GET)
    assert name == ""
    assert [[part if isinstance(part, bytes | str) else part.length for part in each] for each in requests[:-1]] == [  # type: ignore[attr-defined]
        [0, "end"],
        [5, b"hello", "end"],
        [CHUNKED, CHUNKS.partition(b"\r\n\r\n")[2], "end"],
        [0, "end"],
    ]


@given(st.lists(st.integers(1, 40), max_size=20))
def test_the_pieces_in_which_bytes_come_change_nothing(sizes: list[int]) -> None:
    data = POST + CHUNKS + GET + POST
    assert parts_of(data, [*sizes, len(data)]) == parts_of(data)


def test_bytes_behind_a_request_wait_for_the_next() -> None:
    boundary = RequestBoundary(BODY_BYTES)
    boundary.receive(GET + POST)
    assert isinstance(boundary.next_part(), RequestHead)
    assert boundary.is_complete
    assert boundary.next_part() is None
    assert boundary.held_bytes == len(POST)
    boundary.start_next()
    head = boundary.next_part()
    assert isinstance(head, RequestHead)
    assert head.length == 5
    assert boundary.next_part() == b"hello"
    boundary.receive(GET)
    boundary.clear()
    assert boundary.held_bytes == 0


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"GET /" + b"a" * HEAD_BYTES_MAX, "head-too-large"),
        (GET.replace(b"Host", b"X: " + b"a" * HEAD_BYTES_MAX + b"\r\nHost"), "head-too-large"),
        (POST.replace(b"Length: 5", b"Length: %d" % BODY_BYTES).removesuffix(b"hello"), ""),
        (POST.replace(b"Length: 5", b"Length: %d" % (BODY_BYTES + 1)), "body-too-large"),
        (CHUNKS.replace(b"3\r\nabc\r\n", b"3e8\r\n"), ""),
        (CHUNKS.replace(b"3\r\nabc\r\n", b"3e9\r\n"), "body-too-large"),
        (CHUNKS.replace(b"3\r\nabc\r\nA;x=y", b"3\r\nabc\r\n3e6"), "body-too-large"),
        (CHUNKS.replace(b";x=y", b";" + b"x" * 300), "invalid"),
        (CHUNKS.replace(b"\r\n3\r\n", b"\r\n;" + b"x" * 300), "invalid"),
        (b"GET /a HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 99 + b"\r\n", ""),
        (b"GET /a HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 100 + b"\r\n", "invalid"),
    ],
)
def test_bounds(data: bytes, name: str) -> None:
    assert parts_of(data)[1] == name


def test_a_head_of_single_bytes_is_looked_at_once() -> None:
    """Each byte is searched for the end of the head a few times, not once for each byte behind it."""
    data = b"GET /" + b"a" * (HEAD_BYTES_MAX - 100)
    assert parts_of(data, [1] * len(data)) == ([[]], "")


def test_an_offer_of_another_protocol_is_left_out() -> None:
    data = b"GET /a HTTP/1.1\r\nUPGRADE: h2c\r\nHost: a\r\nUpgrade: websocket\r\n\r\n"
    assert check_head(data).data == b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n"


def test_an_empty_line_before_a_request_is_left_out() -> None:
    assert check_head(b"\r\n" + GET).data == GET


def test_a_client_of_http_1_0_needs_no_host() -> None:
    assert check_head(b"GET /a HTTP/1.0\r\n\r\n").length == 0


def test_who_waits_to_send_a_body_is_noticed() -> None:
    assert check_head(b"POST /a HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\nContent-Length: 5\r\n\r\n").is_awaiting
    assert not check_head(b"POST /a HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 0\r\n\r\n").is_awaiting
    assert not check_head(b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n").is_awaiting


class Parser:
    """The parser of uvicorn, which notes when it believes that a request is complete."""

    def __init__(self) -> None:
        self.ends = 0
        self.heads = 0
        self._parser = httptools.HttpRequestParser(self)
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)

    def on_headers_complete(self) -> None:
        self.heads += 1

    def on_message_complete(self) -> None:
        self.ends += 1

    def feed(self, data: bytes) -> None:
        self._parser.feed_data(data)


@settings(max_examples=400)
@given(st.lists(st.sampled_from(PIECES), max_size=25), st.sampled_from((b"", GET, POST, CHUNKS)), st.integers(0, 120))
def test_the_parser_behind_agrees_on_the_end_of_each_request(pieces: list[bytes], whole: bytes, place: int) -> None:
    """Otherwise one of them would take a body for a request. The parser may refuse more."""
    requests, _name = parts_of(whole[:place] + b"".join(pieces) + whole[place:] + GET)
    parser = Parser()
    for number, parts in enumerate(requests):
        try:
            for part in parts:
                if part == "end":
                    assert parser.ends == parser.heads == number + 1
                    continue
                assert parser.ends == number
                parser.feed(part.data if isinstance(part, RequestHead) else part)  # type: ignore[arg-type]
                assert parser.heads == number + 1
        except httptools.HttpParserError:
            return
