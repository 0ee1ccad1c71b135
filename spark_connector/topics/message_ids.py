"""Ids that the sink gives messages, by which subscribers know one that they have had before."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from iris_py import ConfigurationError
from spark_connector.dataframes.sources import is_whole

if TYPE_CHECKING:
    from iris_py import Message

__all__ = ["MESSAGE_ID", "MessageIds"]

#: The header that holds the id of a message.
MESSAGE_ID: Final = "iris-message-id"
#: Ids that are remembered; with them, some 10 MB. It should be more than one micro-batch has messages.
WINDOW: Final = 65_536


class MessageIds:
    """Remembers the ids of messages, for a subscriber of what Spark writes to a topic: Spark repeats what it is not sure of.

    Usage: ``if ids.is_new(message): ...``. Not for several threads at once.

    Args:
        window: How many ids it remembers, the latest. A task that runs again repeats what it has sent, and a query that goes on
            after a failure its last micro-batch. So it should be more than a write, or a micro-batch, has messages.

    Attributes:
        repeated: How many messages were not new.

    Raises:
        ConfigurationError: The window is no whole number, or less than 1.
    """

    def __init__(self, window: int = WINDOW) -> None:
        if not is_whole(window, 1, 1 << 31):
            raise ConfigurationError(f"window={window!r} must be a whole number, at least 1.")
        self.repeated: int = 0
        self._window = window
        self._seen: OrderedDict[str, None] = OrderedDict()

    def is_new(self, message: Message) -> bool:
        """Tell whether a message was not seen before, and remember it. One without an id is always new."""
        message_id = message.headers.get(MESSAGE_ID)
        if not isinstance(message_id, str):
            return True
        seen = self._seen
        is_new = message_id not in seen
        seen[message_id] = None
        if not is_new:
            self.repeated += 1
            seen.move_to_end(message_id)  # who repeats it once may do so again
        elif len(seen) > self._window:
            seen.popitem(last=False)
        return is_new
