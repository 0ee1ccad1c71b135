"""Wait for a lock and for signals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import threading

#: How often who waits for a lock looks whether a signal has come (seconds). The system wakes the main thread for a signal, but
#: not where the signal came in the moment before it began to wait, or was given to another thread. Too small: turns for
#: nothing; too large: Ctrl-C seems to do nothing for so long.
SIGNALS_LOOK_S: Final = 0.5


def acquire(lock: threading.Lock) -> None:
    """Acquire a lock; in the main thread, run the handlers of signals that come meanwhile.

    Args:
        lock: The lock.

    Raises:
        KeyboardInterrupt: It was interrupted, as by any other handler that raises. The lock is not acquired then, as a rule.
    """
    while not lock.acquire(timeout=SIGNALS_LOOK_S):
        pass
