"""Status reports to the service manager that started the process: systemd, or any with the same protocol (sd_notify(3)).

Each message is a datagram with lines of ``NAME=VALUE`` to the socket named by ``NOTIFY_SOCKET``. systemd sets this variable for
units of ``Type=notify`` only, so no other process reports. The variables are removed from the environment when first read,
because commands run by this process are not the service.
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

#: Interval at which the status is checked, and sent if it has changed (seconds); the watchdog may require a shorter interval.
#: Too small: wake-ups of an idle service; too large: `systemctl status` is outdated.
STATUS_S: Final = 5.0

#: The longest status (characters): the limit of a readable line, which a datagram must hold.
STATUS_CHARACTERS_MAX: Final = 500


class ServiceManager:
    """Reports the status of this process to a service manager; does nothing without one.

    Args:
        address: The address of the manager's socket: a path, or a name in the abstract namespace after an ``@``. Empty
            without a manager.
        watchdog_s: Silence after which the manager kills the process as stuck; None for no limit.
    """

    def __init__(self, address: str = "", watchdog_s: float | None = None) -> None:
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._watchdog_s = watchdog_s
        self._untold: dict[str, str] = {}  # unsent values of a few names
        self._has_failed = False
        self._status = ""
        self._describe: Callable[[], str] = str
        self._telling: asyncio.Task[None] | None = None

    @classmethod
    def take(cls, environ: MutableMapping[str, str]) -> ServiceManager:
        """Return the service manager named by the environment, and remove its variables."""
        address, microseconds, pid = (environ.pop(name, "") for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"))
        if not address:
            return cls()
        if address[0] not in "/@" or len(address) < 2:  # such as vsock:, between a virtual machine and its host
            logger.warning(
                "service_manager_strange",
                "NOTIFY_SOCKET is %r, which is not a socket of this machine, so the service manager gets no status",
                address,
            )
            return cls()
        is_own = not pid or pid == str(os.getpid())
        is_number = microseconds.isascii() and microseconds.isdigit() and int(microseconds) > 0
        return cls(address, int(microseconds) / 1e6 if is_own and is_number else None)

    @property
    def is_there(self) -> bool:
        """Whether there is a service manager."""
        return bool(self._address)

    def ready(self, describe: Callable[[], str]) -> None:
        """Report the service as ready, and from now on regularly the event loop as running.

        Args:
            describe: Returns the current activity in a line for people; called repeatedly.
        """
        if not self.is_there:
            return
        self._describe = describe
        self._tell(READY="1", **self._changed_status())
        if self._telling is None or self._telling.done():
            self._telling = asyncio.get_running_loop().create_task(self._keep_told())

    def reloading(self) -> None:
        """Report that the service is reading its settings again. Call :meth:`reloaded` afterwards."""
        self._tell(RELOADING="1", MONOTONIC_USEC=str(time.monotonic_ns() // 1000))

    def reloaded(self) -> None:
        """Report that the service has read its settings again."""
        self._tell(READY="1")

    def stopping(self) -> None:
        """Report that the service is ending as intended. Reports to the watchdog continue until the event loop ends."""
        self._describe = lambda: "leaving"
        self._tell(STOPPING="1", **self._changed_status())

    async def _keep_told(self) -> None:
        """Report regularly to the watchdog, and report a changed status.

        The interval is half of the watchdog's, as sd_watchdog_enabled(3) recommends.
        """
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
        """Send values to the service manager, with earlier values that could not be sent. Never blocks and never raises."""
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
            return  # a slow reader; the values are sent again
        except OSError as exc:
            if not self._has_failed:
                self._has_failed = True
                logger.warning(
                    "service_manager_untold",
                    "the status cannot be sent to the service manager at %r: %s",
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
