"""Whether a line to another cloud still works, from what was received and from nothing else (docs/design.md 15.94).

A line is *probed* when nothing was heard for a while, sooner if something is outstanding. It is *suspect* when something is
outstanding, a probe at least, and nothing was heard for longer than a line and a busy gateway take: it gets nothing new. It is
*broken* when that goes on. What was suspect counts as sound again only after some time without a doubt, so that a line which
comes and goes does not make everybody come and go with it.

The detector is laxer than that inside a cloud (5.9), as a wide-area line is: Akka's for several data centres is so, too.
"""

from __future__ import annotations

#: Silence after which a line is probed while something is outstanding (seconds). Too small: every slow answer costs a probe.
PROBE_BUSY_S = 1.0
#: And while nothing is. Too small: idle lines cost; too large: a line that a firewall has forgotten is found when it is used.
PROBE_IDLE_S = 5.0
#: Silence with something outstanding after which a line gets nothing new (seconds), or so many smoothed round trips if that is
#: longer. Too small: a gateway that is busy for a moment, or a slow line with deep buffers, is avoided; too large: requests go
#: into a dead line for as long.
SUSPECT_S = 3.0
SUSPECT_ROUND_TRIPS = 6
#: And after which it is given up.
BROKEN_S = 10.0
#: Health (seconds) after a suspicion that makes a line count again: twice as much after each further one. Too small: a line
#: that comes and goes takes everybody along; too large: a line that is well again is not used for as long.
TRUST_S_MIN = 0.5
TRUST_S_MAX = 5.0
#: A suspicion so long ago (seconds) does not count any more.
FORGIVEN_S = 60.0
#: The share of a new round trip in the smoothed one (RFC 6298, section 2).
SMOOTHING = 1 / 8


class Health:
    """The state of one line, as far as it is known.

    Args:
        now: The time.

    Attributes:
        heard_at: When something was received last.
        round_trip_s: The smoothed round trip; None before the first one.
        is_suspect: Whether it gets nothing new.
    """

    def __init__(self, now: float) -> None:
        self.heard_at = now
        self.round_trip_s: float | None = None
        self.is_suspect = False
        self._waiting_since: float | None = None  # something is outstanding, and nothing was heard since
        self._probe = 0  # the number of the last one
        self._probed_at: float | None = None  # while it is not answered
        self._trusted_at = now  # when it counts again
        self._suspicions = 0  # of late

    def heard(self, now: float) -> None:
        """Something was received."""
        self.heard_at = now
        self._waiting_since = None
        if self.is_suspect:
            self.is_suspect = False
            self._suspicions = 0 if now >= self._trusted_at + FORGIVEN_S else self._suspicions
            self._trusted_at = now + min(TRUST_S_MAX, TRUST_S_MIN * 2.0**self._suspicions)
            self._suspicions = min(self._suspicions + 1, 16)

    def expect(self, now: float) -> None:
        """Something was sent that is to be answered."""
        if self._waiting_since is None:
            self._waiting_since = now

    def is_sound(self, now: float) -> bool:
        """Tell whether new things may go over it."""
        return not self.is_suspect and now >= self._trusted_at

    def handle_echo(self, number: int, now: float) -> None:
        """The other side has answered a probe."""
        if number == self._probe and self._probed_at is not None:
            sample = now - self._probed_at
            self._probed_at = None
            before = self.round_trip_s
            self.round_trip_s = sample if before is None else before + (sample - before) * SMOOTHING

    def probe(self, now: float) -> int:
        """Begin a probe; returns its number, which is to be sent."""
        self._probe = (self._probe + 1) & 0xFFFF_FFFF
        self._probed_at = now
        self.expect(now)
        return self._probe

    def check(self, now: float, *, is_busy: bool) -> tuple[bool, bool]:
        """Do what is due; returns whether to send a probe now, and whether the line is broken.

        Args:
            now: The time.
            is_busy: Whether something is outstanding.
        """
        since = self._waiting_since
        if since is not None:
            # Sums are compared, not differences: what was rounded otherwise than the deadline would come due for ever.
            if now >= since + BROKEN_S:
                return False, True
            if now >= since + self._suspect_s:
                self.is_suspect = True
        asks = now >= self._probe_at(is_busy=is_busy)
        return asks, False

    def deadline(self, now: float, *, is_busy: bool) -> float:
        """Return when to call :meth:`check` next."""
        times = [self._probe_at(is_busy=is_busy)]
        if self._waiting_since is not None:
            times.append(self._waiting_since + (BROKEN_S if self.is_suspect else self._suspect_s))
        if now < self._trusted_at:
            times.append(self._trusted_at)
        return min(times)

    def resume(self, now: float) -> None:
        """This side stood still: that it heard nothing meanwhile says nothing of the other side."""
        if self._waiting_since is not None:
            self._waiting_since = now
        self._probed_at = None

    @property
    def is_probed(self) -> bool:
        """Whether the other side has a probe to answer."""
        return self._probed_at is not None

    @property
    def _suspect_s(self) -> float:
        return min(BROKEN_S, max(SUSPECT_S, SUSPECT_ROUND_TRIPS * (self.round_trip_s or 0.0)))

    def _probe_at(self, *, is_busy: bool) -> float:
        last = self.heard_at if self._probed_at is None else max(self.heard_at, self._probed_at)
        return last + (PROBE_BUSY_S if is_busy or self._probed_at is not None else PROBE_IDLE_S)
