"""The part of a node that broadcasts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from iris_py.api.base import NodeBase
from iris_py.api.codec import as_codec, encode
from iris_py.wire import packets
from iris_py.wire.headers import encode_headers

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Unpack

    from iris_py.api.codec import AnyCodec, Codec, CodecFormat
    from iris_py.api.far_publishing import FarPublishing
    from iris_py.api.options import PublishOptions
    from iris_py.payloads import BytesLike, Payload, TypeForm
    from iris_py.wire.headers import HeaderValue


class Broadcasting(NodeBase):
    """The part of a node that broadcasts."""

    _far_publishing: FarPublishing

    @overload
    async def broadcast(
        self, cluster: str, payload: BytesLike, *, codec: None = None, **options: Unpack[PublishOptions]
    ) -> int: ...
    @overload
    async def broadcast(
        self,
        cluster: str,
        payload: Payload,
        *,
        codec: Codec[Payload, Any],
        **options: Unpack[PublishOptions],
    ) -> int: ...
    @overload
    async def broadcast(
        self,
        cluster: str,
        payload: object,
        *,
        codec: CodecFormat | TypeForm[Any],
        **options: Unpack[PublishOptions],
    ) -> int: ...
    async def broadcast(
        self,
        cluster: str,
        payload: Any,
        *,
        headers: Mapping[str, HeaderValue] | None = None,
        codec: AnyCodec | None = None,
    ) -> int:
        """Send a message to every member of a cluster; waits while a link to one of them has no room.

        Args:
            cluster: The name.
            payload: At most ``max_message_bytes``, 16 MiB by default. Bytes, or with ``codec`` a value.
            headers: Small values by name that travel beside the payload: str, bytes, int, float or bool, at most 4 KiB in all.
            codec: That of the members, of which the payload is a request; None for bytes.

        Returns:
            To how many members it was sent.

        Raises:
            MessageTooLarge: The payload is too large.
            EncodeError: The payload is none of ``codec``. Nothing was sent.
            CloudUnavailable: No gateway has a way to the other cloud that the name is of. Nothing was sent.
            NotExported: The other cloud lets this one broadcast nothing to that. Nothing was sent.
            MemberLost: A gateway went away before it had said to how many it was sent; maybe to some.
            Overloaded: The other cloud takes no more for the moment; ``retry_after_s`` says until when. Nothing was sent.
            ConfigurationError: The name or a header is wrong.
            NodeClosed: The node was closed.
        """
        self._check_open()
        if codec is not None:
            payload = encode(as_codec(codec).encode_request, payload, cluster=cluster)
        content, sent = packets.as_bytes(payload), encode_headers(headers)
        if (type(cluster) is not str or cluster not in self._own_names) and self._is_far(cluster):
            return await self._far_publishing.broadcast(cluster, content, sent)
        if self._tracing is None:
            return await self._send_to_all(self._core.broadcast, cluster, content, sent)
        with self._tracing.send("broadcast", cluster, sent, len(content)) as sent:
            return await self._send_to_all(self._core.broadcast, cluster, content, sent)
