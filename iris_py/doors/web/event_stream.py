"""One client's event stream: the opening, the missed messages, the new messages, and the end.

The owner adds events, asks for the bytes of a write whenever the connection takes some, and ends the stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_py.doors.web.event_text import ClosingEvent, EventForm, GapEvent, closing_text, gap_text
from iris_py.doors.web.window import WRITE_BYTES_MAX, ClientWindow

if TYPE_CHECKING:
    from iris_py.doors.web.histories import Histories
    from iris_py.doors.web.replay import Replay
    from iris_py.doors.web.window import EventBatch, WindowPolicy

__all__ = ["EventStream"]


class EventStream:
    """The events of a client.

    Args:
        histories: The histories of the door.
        form: The form of the events.
        policy: The policy beyond the bounds of the window.
        messages_max: The largest number of events that wait.
        bytes_max: The largest size of their texts.

    Attributes:
        form: As passed.
        window: The events that wait.
        has_ended: Whether the stream has given its last bytes.
    """

    def __init__(self, histories: Histories, form: EventForm, policy: WindowPolicy, messages_max: int, bytes_max: int) -> None:
        self.form = form
        self.window = ClientWindow(policy, messages_max, bytes_max)
        self.has_ended = False
        self._histories = histories
        self._bytes_max = bytes_max
        self._control = b""  # goes out before everything else
        self._replay: Replay | None = None
        self._closing: ClosingEvent | None = None
        self._is_last_closing = False

    @property
    def has_output(self) -> bool:
        """Whether :meth:`take` gives bytes now."""
        return bool(self._control) or self._replay is not None or self.window.has_output or self._closing is not None

    def resize(self, messages_max: int, bytes_max: int) -> None:
        """Set other bounds of the window.

        Args:
            messages_max: The largest number of events that wait.
            bytes_max: The largest size of their texts.
        """
        self._bytes_max = bytes_max
        self.window.resize(messages_max, bytes_max)

    def open(self, opening: bytes, now: float) -> None:
        """Begin with the messages to come.

        Args:
            opening: The bytes before the first event.
            now: The time (seconds).
        """
        self._control = opening + self._histories.position_text(self.form.format, now)

    def resume(self, opening: bytes, replay: Replay, *, is_complete: bool) -> None:
        """Begin with the messages of a replay.

        Args:
            opening: The bytes before the first event.
            replay: The messages.
            is_complete: Whether nothing is missing before them; else the client is told a gap.
        """
        self._control = opening if is_complete else opening + gap_text(GapEvent(None), self.form.format)
        self._replay = replay

    def add(self, batch: EventBatch, *, has_history: bool) -> None:
        """Add events. During a replay, those of histories are left out: the replay comes to them."""
        if has_history and self._replay is not None:
            return
        self.window.add(batch)
        if self.window.is_cut:
            self.end("window-full")

    def beat(self, now: float) -> None:
        """Tell the client its place, unless other bytes wait."""
        if not self.has_output and not self.has_ended:
            self._control = self._histories.position_text(self.form.format, now)

    def announce_end(self, reason: str, in_s: float) -> None:
        """Tell the client of the end, in a time (seconds). The owner ends the stream then."""
        self._closing = ClosingEvent(round(in_s, 3), reason)

    def end(self, reason: str = "") -> None:
        """End the stream: :meth:`take` gives the bytes of another write, and the last event.

        Args:
            reason: The name of a problem for the last event; empty if the client was told before.
        """
        if not self._is_last_closing:
            self._is_last_closing = True
            self._closing = self._closing or ClosingEvent(0.0, reason)

    def take(self, now: float) -> bytes:
        """Return the bytes of a write; empty without any.

        Args:
            now: The time (seconds).
        """
        parts = [self._control] if self._control else []
        self._control = b""
        room = WRITE_BYTES_MAX
        if self._replay is not None:
            room = self._replay.take(parts, self.form, room, self._bytes_max)
            if self._replay.is_done:
                self._replay = None
                parts.append(self._histories.position_text(self.form.format, now))
        if room > 0 and self.window.has_output:
            if self.window.missed:
                parts.append(gap_text(GapEvent(self.window.missed.take()), self.form.format))
            parts.append(self.window.take(room))
        if self._closing is not None:
            if self._closing.reason:
                parts.append(closing_text(self._closing, self.form.format))
            self._closing = None
            self.has_ended = self._is_last_closing
        return parts[0] if len(parts) == 1 else b"".join(parts)
