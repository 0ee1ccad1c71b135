"""Broadcasts sent by a node; :mod:`iris_py.api.broadcast_queue` hands received broadcasts to handlers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from iris_py.api.codec import as_codec, encode
from iris_py.wire import packets
from iris_py.wire.headers import encode_headers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from iris_py.api.cloud.parts import CloudParts
    from iris_py.api.codec import AnyCodec
    from iris_py.api.runtime import Runtime
    from iris_py.wire.headers import HeaderValue


class Broadcasts:
    """Sends the broadcasts of a node.

    Args:
        runtime: The node.
        clouds: Sends the broadcasts to clusters of other clouds.
    """

    def __init__(self, runtime: Runtime, clouds: CloudParts) -> None:
        self._runtime = runtime
        self._core = runtime.core
        self._clouds = clouds

    async def send(
        self,
        cluster: str,
        payload: Any,  # noqa: ANN401 - bytes, or any type of the codec
        headers: Mapping[str, HeaderValue] | None,
        codec: AnyCodec | None,
    ) -> int:
        """Send a broadcast, as :meth:`iris_py.Node.broadcast` describes."""
        runtime = self._runtime
        if runtime.closing is not None or not runtime.is_own_thread():
            runtime.check_open()
        if codec is not None:
            payload = encode(as_codec(codec).encode_request, payload, cluster=cluster)
        content, sent = packets.as_bytes(payload), encode_headers(headers)
        if (type(cluster) is not str or cluster not in runtime.own_names) and runtime.is_far(cluster):
            runtime.check_loop()
            return await self._clouds.publications.broadcast(cluster, content, sent)
        if runtime.tracing is None:
            return await runtime.send_to_all(self._core.broadcast, cluster, content, sent)
        with runtime.tracing.send("broadcast", cluster, sent, len(content)) as sent:
            return await runtime.send_to_all(self._core.broadcast, cluster, content, sent)
