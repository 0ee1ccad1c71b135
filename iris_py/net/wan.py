"""Sockets for lines between sites: far apart, shared with others, and lossy.

A stream over such a line holds as much on its way as the line does, and what the kernel holds besides is only delay. So the
socket keeps little that was not sent yet, and who writes learns early that the line is full; the buffer itself stays to the
kernel, which finds its size by itself as long as nobody sets it.
"""

from __future__ import annotations

import socket
import sys

from iris_py.logs import EventLogger
from iris_py.net.sockets import SocketNetwork
from iris_py.net.tcp_info import round_trip_s

logger = EventLogger("iris_py.net")

#: What the kernel may hold that was not sent yet, of each stream. Too small: the line rests while the next bytes are made; too
#: large: what is urgent waits behind it, for a second on a line of 1 Mbit/s.
NOTSENT_BYTES_MAX = 128 * 1024

#: For how long (seconds) sent bytes may stay unacknowledged before the kernel breaks the stream. Too small: a line that is cut
#: for a moment costs all its streams; too large: streams of which no end is heard hold their descriptors for longer. Above the
#: timeout of a silent link, so links end with a reason that says more.
USER_TIMEOUT_S = 20

#: The algorithm of congestion control. One that takes losses for a full line carries 0.2 MB/s at 80 ms and a loss of 1 %.
CONGESTION = "bbr"

#: A line with a shorter round trip (seconds) keeps the algorithm of the system. BBR paces what it sends by timers, which on one
#: machine or rack costs half of the requests per second, and such lines lose nothing. Too small: as said; too large: a line
#: between sites suffers from losses.
SHORT_S = 0.002


class WanNetwork(SocketNetwork):
    """Streams with the options for long lines; everything else is as in a :class:`SocketNetwork`.

    Where the system lacks an option, the stream goes without it.
    """

    def __init__(self, *, congestion: str = CONGESTION) -> None:
        """Create a network.

        Args:
            congestion: The algorithm of congestion control (TCP_CONGESTION), as the kernel calls it. "" for that which the
                system is set to, which is also taken if this one is unknown or not allowed; that is logged once.
        """
        self._congestion = congestion

    def _configure(self, sock: socket.socket) -> None:
        super()._configure(sock)
        if sys.platform == "linux":
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, NOTSENT_BYTES_MAX)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_S * 1_000)
            self._control_congestion(sock)

    def _control_congestion(self, sock: socket.socket) -> None:
        if not self._congestion or sys.platform != "linux":
            return
        if self._congestion == CONGESTION and round_trip_s(sock) < SHORT_S:
            return
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, self._congestion.encode())
        except OSError as exc:
            logger.warning(
                "congestion_missing",
                "congestion control %r cannot be had (%s): lines with losses will be slow. As root: modprobe tcp_%s, and "
                "add it to net.ipv4.tcp_allowed_congestion_control",
                self._congestion,
                exc.strerror,
                self._congestion,
                congestion=self._congestion,
            )
            self._congestion = ""
