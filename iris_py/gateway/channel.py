"""Channels as a gateway holds them: streams of messages to a gateway of another cloud."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_py.api.stream import MessageStream
from iris_py.federation.channels import FAR_SIDE, ChannelEnd

if TYPE_CHECKING:
    from collections.abc import Callable


class Channel(MessageStream[ChannelEnd]):
    """An ordered two-way stream of messages between two gateways. It ends as tunnels do, and raises what they raise.

    Args:
        end: The end of it that is here.
        name: The name that it is for, as users of this cloud write it, for errors: ``databases@eu``.
        cloud: The alias of the other cloud.
        wake: Is called when there is something to send.
    """

    def __init__(self, end: ChannelEnd, name: str, cloud: str, wake: Callable[[], None]) -> None:
        super().__init__(end, wake)
        self._name = name
        self._cloud = cloud

    @property
    def cluster(self) -> str:
        """The name that it is for."""
        return self._name

    @property
    def cloud(self) -> str:
        """The alias of the other cloud."""
        return self._cloud

    @property
    def _other_side(self) -> str:
        return self._cloud

    def __repr__(self) -> str:
        side = "from" if self._core.id & FAR_SIDE else "to"
        return f"<Channel {self._core.id & ~FAR_SIDE} for {self._name!r} {side} {self._cloud}>"
