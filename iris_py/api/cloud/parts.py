"""The parts of a node for other clouds, each loaded and made at its first use.

Most nodes use their own cloud alone, and their processes need no memory for the code of these parts. So this module imports the
parts where it makes them, and a node imports them from nowhere else (tests/guard/test_imports.py).
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from iris_py.api.cloud.publications import FarPublications
    from iris_py.api.cloud.surveys import FarSurveys
    from iris_py.api.cloud.topics import FarTopics
    from iris_py.api.runtime import Runtime
    from iris_py.api.survey import Gathering
    from iris_py.api.tunnel import Tunnel
    from iris_py.wire.headers import Headers


class CloudParts:
    """The parts of one node that publish to other clouds, subscribe and survey there, and open tunnels.

    Requests to other clouds are at :attr:`iris_py.api.request.Requests.crossings`.

    Args:
        runtime: The node.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    @cached_property
    def publications(self) -> FarPublications:
        """The publications and broadcasts to other clouds."""
        from iris_py.api.cloud.publications import FarPublications

        return FarPublications(self._runtime)

    @cached_property
    def topics(self) -> FarTopics:
        """The subscriptions to topics of other clouds."""
        from iris_py.api.cloud.topics import FarTopics

        return FarTopics(self._runtime)

    @cached_property
    def surveys(self) -> FarSurveys:
        """The surveys of clusters of other clouds."""
        from iris_py.api.cloud.surveys import FarSurveys

        return FarSurveys(self._runtime)

    def begin_survey(
        self, gathering: Gathering, cluster: str, question: bytes, timeout: float, stop_after: int | None, headers: Headers
    ) -> asyncio.Task[None]:
        """Begin a survey of a cluster of another cloud. Cancelling the returned task ends the survey at all members."""
        return self.surveys.begin(gathering, cluster, question, timeout, stop_after, headers)

    async def open_tunnel(self, cluster: str, timeout: float, window_bytes: int, headers: Headers, waits: bool) -> Tunnel:
        """Open a tunnel to a cluster of another cloud.

        Raises:
            IrisError: The tunnel cannot be opened.
        """
        from iris_py.api.cloud.duplex import open_far_tunnel

        return await open_far_tunnel(self._runtime, cluster, timeout, window_bytes, headers, waits)

    # -- the end of the node; a part that was never used has nothing to end

    def close_topics(self) -> None:
        """End the tunnels of the subscriptions; the subscriptions are ended elsewhere."""
        if "topics" in vars(self):
            self.topics.close()

    async def close_publications(self, timeout: float) -> None:
        """Pass the pending messages to the gateways, at most for the timeout."""
        if "publications" in vars(self):
            await self.publications.close(timeout)

    def abort_publications(self) -> None:
        """End the publications at once."""
        if "publications" in vars(self):
            self.publications.abort()

    def close_surveys(self) -> None:
        """End all surveys."""
        if "surveys" in vars(self):
            self.surveys.close()
