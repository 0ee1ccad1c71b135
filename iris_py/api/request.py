"""The part of a node that asks."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Literal, TypeAlias

from iris_py.api.base import NodeBase
from iris_py.api.handler import handled_cluster
from iris_py.config import check_zone
from iris_py.defaults import REQUEST_TIMEOUT_S
from iris_py.errors import ConfigurationError, Overloaded, RequestTimeout
from iris_py.wire import packets
from iris_py.wire.headers import NO_HEADERS, encode_headers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from iris_py.wire.headers import HeaderValue


#: What becomes of a request when every member is full.
OnFull: TypeAlias = Literal["wait", "raise"]


class Requesting(NodeBase):
    """The part of a node that asks."""

    async def request(
        self,
        cluster: str,
        payload: bytes,
        *,
        timeout: float = REQUEST_TIMEOUT_S,
        idempotent: bool = False,
        key: str | bytes | None = None,
        prefer: str | None = None,
        require: str | None = None,
        headers: Mapping[str, HeaderValue] | None = None,
        on_full: OnFull = "wait",
        retry_failed: bool = False,
    ) -> bytes:
        """Ask one member of a cluster, and return its reply.

        Args:
            cluster: The name.
            payload: At most ``max_message_bytes``, 16 MiB by default.
            timeout: Seconds until :exc:`RequestTimeout`.
            idempotent: Executing it twice is harmless: try other members when one is lost or silent for longer than others
                take, wait for one when there is none. A member that has executed it within the last five minutes gives the same
                reply again; another one executes it.
            key: What this request is, for members that have executed it (needs ``idempotent``): the same key asks for the same
                thing, whoever asks and whatever the payload. It also chooses the member: always the same one of the nearest
                zone, until that is lost, leaves or is full, so that what is asked again is not executed again. By default each
                call of this method is a request of its own, and load chooses.
            prefer: A zone, such as ``eu-west/a``: the nearer to it a member is, the sooner it is asked. By default the own one.
            require: A zone that nobody outside is asked. Of a cluster with more than 32 members a node sees a part only, in
                which there may be none of that zone.
            headers: Small values by name that travel beside the payload: str, bytes, int, float or bool, at most 4 KiB in all.
            on_full: What to do when every member is full, so that the request is surely not executed. ``"wait"`` waits for a
                place within the timeout, behind the requests of this node to that cluster that came before; ``"raise"`` raises
                :exc:`Overloaded` at once, for callers that have something better to do.
            retry_failed: Ask another member when the handler of one fails (needs ``idempotent``), each at most once; the last
                failure is raised when there is none left. For failures that are the member's, as those of a broken machine: a
                request that is wrong itself fails everywhere, and is executed everywhere.

        Raises:
            NoMembers: Nobody serves that name, or nobody in the zone that is required.
            NotConnected: This node reaches no other node, so it is not known who serves that name.
            Overloaded: All members are full, and were so until the time ran out unless ``on_full="raise"``.
            MemberLost: The member died while it held the request.
            RemoteError: The handler failed; with ``retry_failed``, those of all members.
            RequestTimeout: The time ran out.
            MessageTooLarge: The payload is too large.
            ConfigurationError: The name, the timeout, the key, a zone or a header is wrong.
            NodeClosed: The node was closed.
        """
        self._check_open()
        if not (isinstance(timeout, (int, float)) and 0 < timeout < math.inf):
            raise ConfigurationError(f"timeout={timeout!r} must be a positive and finite number of seconds.")
        if key is not None and not idempotent:
            raise ConfigurationError("key= is for requests that may be repeated. Pass idempotent=True with it.")
        if retry_failed and not idempotent:
            raise ConfigurationError("retry_failed= is for requests that may be repeated. Pass idempotent=True with it.")
        placement = None
        if prefer is not None or require is not None:
            placement = (check_zone(prefer, "prefer"), check_zone(require, "require"))
        if on_full != "wait":
            check_on_full(on_full)
        content = payload if type(payload) is bytes else packets.as_bytes(payload)
        sent = NO_HEADERS if headers is None else encode_headers(headers)
        call = None
        if self._tracing is not None:
            call = self._tracing.call("request", cluster, sent)
            sent = call.headers
        future: asyncio.Future[bytes] = self._loop.create_future()
        request_id = 0
        try:
            request_id = self._core.request(
                cluster,
                content,
                timeout,
                idempotent,
                future,
                self._loop.time(),
                key,
                placement,
                sent,
                waits=on_full == "wait",
                retries_failed=retry_failed,
            )
            if self._core.requester.is_alone:
                self._driver.transmit_now()
                if self._busy_poll is not None and not future.done():
                    self._busy_poll.look_for(future)
            else:
                self._driver.wake()
            if future.done():  # Who asks again and again for what this node refuses itself must not keep the loop to itself.
                await asyncio.sleep(0)
            reply = await future
        except asyncio.CancelledError as exc:
            self._cancel_request(request_id, future)
            if call is not None:
                call.end(exc)
            raise
        except BaseException as exc:
            if isinstance(exc, Overloaded | RequestTimeout) and handled_cluster.get() == cluster:
                exc._note_own_place()
            if call is not None:
                call.end(exc)
            raise
        if call is not None:
            call.end()
        return reply

    def _cancel_request(self, request_id: int, future: asyncio.Future[bytes]) -> None:
        """Forget a request whose caller waits no more."""
        if future.done() and not future.cancelled():
            future.exception()  # both happened in one turn; asyncio would log an error that nobody took
        self._core.requester.cancel(request_id)
        self._driver.wake()


def check_on_full(on_full: str) -> None:
    """Refuse what is no answer to full members.

    Raises:
        ConfigurationError: It is none.
    """
    if on_full not in ("wait", "raise"):
        raise ConfigurationError(f'on_full={on_full!r} must be "wait" or "raise".')
