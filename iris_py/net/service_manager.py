"""The service manager that has started this process, told how it is: systemd, or whatever speaks its protocol (sd_notify(3)).

The protocol is one datagram for each message, lines of ``NAME=VALUE``, to the socket that ``NOTIFY_SOCKET`` names. systemd sets
that for units of ``Type=notify`` alone, so nothing is told to anybody who did not ask. The variables are taken out of the
environment when they are first read: the commands that this process runs are not the service.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from typing import TYPE_CHECKING, Final

from iris_py.logs import EventLogger

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

__all__ = ["ServiceManager", "service_manager"]

logger = EventLogger("iris_py")

#: How often the status is looked at, and told if it has changed, unless the watchdog wants to hear of the process more often.
#: Too small: wake-ups of an idle service; too large: `systemctl status` shows what was.
STATUS_S: Final = 5.0

#: The longest status (characters). Nobody reads more in a line, and a datagram has to hold it.
STATUS_CHARACTERS_MAX: Final = 500


class ServiceManager:
    """Tells a service manager how this process is; nothing if there is none.

    Args:
        address: Of its socket: a path, or a name in the abstract namespace after an ``@``. Empty for none.
        watchdog_s: How long the process may be silent before it is taken for stuck and ended; None for ever.
    """

    def __init__(self, address: str = "", watchdog_s: float | None = None) -> None:
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._watchdog_s = watchdog_s
        self._untold: dict[str, str] = {}  # of a few names
        self._has_failed = False
        self._status = ""
        self._describe: Callable[[], str] = str
        self._telling: asyncio.Task[None] | None = None

    @classmethod
    def take(cls, environ: MutableMapping[str, str]) -> ServiceManager:
        """Return the one that the environment names, and take its variables out."""
        address, microseconds, pid = (environ.pop(name, "") for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"))
        if not address:
            return cls()
        if address[0] not in "/@" or len(address) < 2:  # such as vsock:, between a virtual machine and its host
            logger.warning(
                "service_manager_strange",
                "NOTIFY_SOCKET is %r, which is not a socket of this machine: the service manager gets no status",
                address,
            )
            return cls()
        is_own = not pid or pid == str(os.getpid())
        is_number = microseconds.isascii() and microseconds.isdigit() and int(microseconds) > 0
        return cls(address, int(microseconds) / 1e6 if is_own and is_number else None)

    @property
    def is_there(self) -> bool:
        """Whether anybody is told."""
        return bool(self._address)

    def ready(self, describe: Callable[[], str]) -> None:
        """Tell that the service does what it is there for, and from now on that the event loop turns, as long as it does.

        Args:
            describe: Returns what it does, in a line for people. It is asked again and again.
        """
        if not self.is_there:
            return
        self._describe = describe
        self._tell(READY="1", **self._changed_status())
        if self._telling is None or self._telling.done():
            self._telling = asyncio.get_running_loop().create_task(self._keep_told())

    def reloading(self) -> None:
        """Tell that the service reads its settings again; :meth:`reloaded` follows."""
        self._tell(RELOADING="1", MONOTONIC_USEC=str(time.monotonic_ns() // 1000))

    def reloaded(self) -> None:
        """Tell that it has."""
        self._tell(READY="1")

    def stopping(self) -> None:
        """Tell that the service is about to end, in good order; the watchdog is fed until the event loop ends."""
        self._describe = lambda: "leaving"
        self._tell(STOPPING="1", **self._changed_status())

    async def _keep_told(self) -> None:
        """Feed the watchdog twice as often as it asks for it, as sd_watchdog_enabled(3) recommends, and renew the status."""
        interval_s = STATUS_S if self._watchdog_s is None else min(STATUS_S, self._watchdog_s / 2)
        while True:
            state = self._changed_status()
            if self._watchdog_s is not None:
                state["WATCHDOG"] = "1"
            if state or self._untold:
                self._tell(**state)
            await asyncio.sleep(interval_s)

    def _changed_status(self) -> dict[str, str]:
        status = " ".join(self._describe().split())[:STATUS_CHARACTERS_MAX]
        if status == self._status:
            return {}
        self._status = status
        return {"STATUS": status}

    def _tell(self, **state: str) -> None:
        """Send this, and what could not be sent before. Never blocks and never raises."""
        if not self.is_there:
            return
        if "READY" in state:
            self._untold.pop("RELOADING", None)
        self._untold |= state
        message = "\n".join(f"{name}={value}" for name, value in self._untold.items()).encode(errors="replace")
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
                sock.setblocking(False)
                sock.sendto(message, self._address)
        except BlockingIOError:
            return  # it reads slowly, and is told again
        except OSError as exc:
            if not self._has_failed:
                self._has_failed = True
                logger.warning(
                    "service_manager_untold",
                    "the service manager at %r cannot be told the status: %s",
                    self._address,
                    exc,
                    reason=str(exc),
                )
            return
        self._untold.clear()


_managers: dict[int, ServiceManager] = {}  # by process: a fork of the service is not the service


def service_manager() -> ServiceManager:
    """Return the service manager of this process."""
    found = _managers.get(os.getpid())
    if found is None:
        is_fork = bool(_managers)
        _managers.clear()
        found = _managers[os.getpid()] = ServiceManager() if is_fork else ServiceManager.take(os.environ)
    return found
