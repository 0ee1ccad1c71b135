"""The channels of a connection, whose far side is another cloud and says any frames, while the owner uses them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_py.federation.channels import FAR_SIDE, NUMBER, QUEUED_BYTES_MAX, Channels, WindowBudget
from iris_py.link.pacing import CHUNK_BYTES_MAX, CHUNK_BYTES_MIN
from iris_py.patterns.tunnel.duplex import CREDIT, DONE, FRAME, RESET, Failure
from iris_py.wire import packets
from tests.fuzz.oracles import Memory, Turn, is_weighed
from tests.fuzz.source import Source
from tests.fuzz.target import Kind, Target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py.patterns.tunnel.duplex import Piece

STEPS_MAX: Final = 80
NUMBERS: Final = (1, 2, 3, 1 | FAR_SIDE, 2 | FAR_SIDE)
BUDGET_BYTES: Final = 4 << 20


class Wire:
    """A connection that has room for so many chunks, and forgets them."""

    def __init__(self) -> None:
        self.room = 0

    @property
    def chunk_room(self) -> int:
        return (CHUNK_BYTES_MIN, CHUNK_BYTES_MAX)[self.room % 2] if self.room > 0 else 0

    def send_tunnel(self, kind: int, tunnel_id: bytes, chunk: Sequence[Piece], size: int, now: float) -> None:
        assert len(tunnel_id) == NUMBER.size
        assert sum(map(len, chunk)) == size <= self.chunk_room + 1024
        self.room -= 1


def frames(source: Source) -> bytes:
    """Return a run of frames: most often ones that can be, with any content."""
    found = b""
    for _ in range(1 + source.byte() % 4):
        kind = source.byte() % (RESET + 2)
        if kind in (CREDIT, DONE):
            body = source.number(0, (1 << 64) - 1).to_bytes(8, "big")
        elif kind == RESET and source.flag():
            body = packets.encode_failure_of("Error", "text")
        else:
            body = source.blob()
        length = len(body) if source.byte() < 248 else source.number(0, (1 << 32) - 1)
        found += FRAME.pack(kind, length) + body
    return found


def run(data: bytes) -> None:
    """Let the far side say any frames, and the owner do anything."""
    source = Source(data)
    wire, turn, told, now = Wire(), Turn(), 0, 0.0
    budget = WindowBudget(BUDGET_BYTES, channels_max=len(NUMBERS))
    channels = Channels(wire, budget, lambda reason: None)
    channels.round_trip_s = 0.1
    for _ in range(STEPS_MAX):
        if source.is_empty:
            break
        choice, number = source.byte(), source.choose(NUMBERS)
        if choice < 128:
            body = frames(source)
            told += len(body)
            with turn:
                channels.receive(NUMBER.pack(number ^ FAR_SIDE), body, 0, len(body), now)
        elif choice < 144:
            now += source.pause()
        elif choice < 176:
            wire.room = source.byte()
            with turn:
                channels.fill(now)
            channels.changed()
        else:
            told += command(channels, number, choice, source)
        check(channels, budget)
    if is_weighed(data):
        channels.changed()
        Memory(channels).check(told)
    channels.close("the line is gone")
    assert (len(channels), budget.used_bytes, budget.channels, channels._rules, channels._ready) == (0, 0, 0, {}, {})


def command(channels: Channels, number: int, choice: int, source: Source) -> int:
    """Let the owner do something with a channel; returns how many bytes it has written."""
    end, size = channels.get(number), source.number(0, (1 << 64) - 1)
    if end is None:
        window_bytes = channels.first_window_bytes()
        if window_bytes:
            credit_bytes = size if number & FAR_SIDE or choice & 1 else None
            channels.open(number, rule=choice % 2, window_bytes=window_bytes, credit_bytes=credit_bytes)
    elif choice < 184:
        channels.opened(number, size)
    elif choice < 186:
        channels.refused(number, Failure("refused"))
    elif choice < 210:
        if not end.is_ended and end.failure is None:
            return max(0, end.write(bytes(min(size, 100_000)), is_last=bool(choice & 1)))
    elif choice < 240:
        while end.take() is not None:
            pass
    elif choice < 244:
        end.hold_done()
    elif choice < 248:
        end.release_done(is_taken=bool(choice & 1))
    elif choice < 250:
        end.tell_credit()
    elif choice < 252:
        end.stop()
    elif choice < 254 and not end.is_in_message:
        end.end()
    else:
        end.fail(Failure("ours"), is_told=True, type="Error", text="text")
    return 0


def check(channels: Channels, budget: WindowBudget) -> None:
    """Look that memory is bounded and accounted for."""
    ends = channels.ends()
    assert budget.used_bytes == sum(end.window_bytes + QUEUED_BYTES_MAX for end in ends) <= BUDGET_BYTES
    assert budget.channels == len(ends)
    for end in ends:
        assert end.failure is not None or 0 <= end.buffered_bytes <= end.window_bytes
        assert end.is_ended or end.failure is not None or 0 <= end.credit <= QUEUED_BYTES_MAX
        assert end.queued_bytes <= 2 * QUEUED_BYTES_MAX
        assert not end.is_finished


SEEDS = (
    bytes(range(256)),
    bytes(range(255, 0, -1)),
    b"".join(bytes((200, number)) for number in range(5)) + bytes(range(0, 250, 3)) * 4,
)
TARGETS = (Target("channels", run, Kind.MACHINE, SEEDS, 2000),)
