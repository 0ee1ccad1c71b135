"""The model of a NATS server answers as nats-server, wherever it knows the answer."""

from __future__ import annotations

import pytest

from tests.nats.exchanges import EXCHANGES, Exchange
from tests.nats.model_server import Heard, ModelServer, UnmodelledError

#: Exchanges of which the model knows the answer.
MODELLED_MIN = 30


def answer_of(exchange: Exchange) -> bytes | None:
    """Return the answer of the model; None if the model does not know it."""
    server = ModelServer()
    client = server.connect()
    try:
        server.receive(client, exchange.sent)
    except UnmodelledError:
        return None
    return b"".join(_text(frame) for frame in client.frames) if not client.buffer else None


def _text(frame: Heard | bytes) -> bytes:
    if not isinstance(frame, Heard):
        return b"<INFO>" if frame == b"INFO" else frame + b"\r\n"
    fields = [frame.subject, frame.sid, *filter(None, [frame.reply]), b"%d" % len(frame.head + frame.payload)]
    if frame.head:
        fields.insert(-1, b"%d" % len(frame.head))
    return b"%b %b\r\n%b\r\n" % (b"HMSG" if frame.head else b"MSG", b" ".join(fields), frame.head + frame.payload)


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda exchange: repr(exchange.sent[-40:]))
def test_the_model_answers_as_nats_server_or_does_not_know(exchange: Exchange) -> None:
    assert answer_of(exchange) in (None, exchange.server)


def test_the_model_knows_the_usual_exchanges() -> None:
    assert sum(answer_of(exchange) is not None for exchange in EXCHANGES) >= MODELLED_MIN
