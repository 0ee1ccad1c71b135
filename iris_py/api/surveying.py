"""The part of a node that makes surveys."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, overload

from iris_py.api.cloud.duplex import FarStreams
from iris_py.api.codec import as_codec, decode, encode
from iris_py.api.seal import SealedCall, as_seal
from iris_py.api.survey import Survey
from iris_py.defaults import SURVEY_TIMEOUT_S
from iris_py.errors import ConfigurationError
from iris_py.wire import packets
from iris_py.wire.headers import encode_headers
from iris_security.sealed import REQUEST_OVERHEAD_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Unpack

    from iris_py.api.codec import AnyCodec, CallerCodec, CodecFormat
    from iris_py.api.options import SurveyOptions
    from iris_py.api.seal import Seal, SealLike
    from iris_py.payloads import Answer, BytesLike, Question, TypeForm
    from iris_py.wire.headers import Headers, HeaderValue


class Surveying(FarStreams):
    """The part of a node that makes surveys."""

    @overload
    def survey(self, cluster: str, payload: BytesLike, *, codec: None = None, **options: Unpack[SurveyOptions]) -> Survey: ...
    @overload
    def survey(
        self,
        cluster: str,
        payload: Question,
        *,
        codec: CallerCodec[Question, Answer],
        **options: Unpack[SurveyOptions],
    ) -> Survey[Answer]: ...
    @overload
    def survey(self, cluster: str, payload: object, *, codec: CodecFormat, **options: Unpack[SurveyOptions]) -> Survey[Any]: ...
    @overload
    def survey(
        self,
        cluster: str,
        payload: object,
        *,
        codec: TypeForm[Answer],
        **options: Unpack[SurveyOptions],
    ) -> Survey[Answer]: ...
    def survey(
        self,
        cluster: str,
        payload: Any,
        *,
        timeout: float = SURVEY_TIMEOUT_S,
        stop_after: int | None = None,
        headers: Mapping[str, HeaderValue] | None = None,
        seal: SealLike | None = None,
        codec: AnyCodec | None = None,
    ) -> Survey[Any]:
        """Send a request to every member of a cluster; the result has the answers that come in time (scatter-gather).

        ``await`` it for all :class:`Answers`, or take replies as they come with ``async for reply in node.survey(...)``. The
        survey ends when every member has answered or is lost, after ``stop_after`` replies, or at its timeout. Members answer
        with :meth:`Handler.on_survey`, by default the same as :meth:`Handler.on_request`.

        Args:
            cluster: The name; ``name@cloud`` for a cluster of another cloud. Its members appear under pseudonyms, constant over
                their lifetimes, and without address.
            payload: At most ``max_message_bytes``, 16 MiB by default.
            timeout: Seconds to wait for answers.
            stop_after: The number of replies that ends the survey; None for all.
            headers: Small values by name that travel beside the payload: str, bytes, int, float or bool, at most 4 KiB in all.
            seal: As for :meth:`request`. A member with an undecryptable reply counts as failed.
            codec: As for :meth:`request`. A member with an undecodable reply counts as failed.

        Raises:
            NoMembers: The cluster has no members.
            CloudUnavailable: No gateway reaches the other cloud.
            NotExported: The other cloud does not export surveys of the cluster to this cloud.
            NotConnected: This node reaches no other node, so no members are known.
            Overloaded: A limit of the other cloud is reached.
            MemberLost: A gateway on the path to another cloud was lost before it named the members.
            RequestTimeout: The members could not be found in time. Missing answers raise no error.
            MessageTooLarge: The payload is too large.
            EncodeError: The codec cannot encode the payload.
            ConfigurationError: An argument is wrong.
            NodeClosed: The node was closed.
        """
        self._check_open()
        is_far = self._is_far(cluster)
        if not (isinstance(timeout, int | float) and 0 < timeout < math.inf):
            raise ConfigurationError(f"timeout={timeout!r} must be a positive and finite number of seconds.")
        if stop_after is not None and (not isinstance(stop_after, int) or stop_after < 1):
            raise ConfigurationError(f"stop_after={stop_after!r} must be at least 1, or None for all replies.")
        read: Callable[[bytes, str], Any] | None = None
        if codec is not None:
            coded = as_codec(codec)
            payload = encode(coded.encode_request, payload, cluster=cluster)

            def read(reply: bytes, member: str) -> Any:  # noqa: ANN401 - any type
                return decode(coded.decode_reply, reply, cluster=cluster, member=member)

        question = packets.as_bytes(payload)
        sealing = None if seal is None else as_seal(seal)
        room = self._core.max_message_bytes - (0 if sealing is None else REQUEST_OVERHEAD_BYTES)
        packets.check_size(question, room)
        return self._survey(cluster, question, timeout, stop_after, encode_headers(headers), sealing, read, is_far=is_far)

    def _survey(
        self,
        cluster: str,
        question: bytes,
        timeout: float,
        stop_after: int | None,
        given: Headers,
        sealing: Seal | None = None,
        read: Callable[[bytes, str], Any] | None = None,
        *,
        is_far: bool = False,
    ) -> Survey[Any]:
        """Make a survey of any cluster, as :meth:`survey` does, including clusters of gateways."""

        def begin(survey: Survey[Any]) -> Callable[[], object]:
            self._check_open()
            asked = question
            if sealing is not None:
                survey._sealed = SealedCall(sealing, cluster, question, None, self._entropy)
                asked = survey._sealed.payload
            call = None if self._tracing is None else self._tracing.call("survey", cluster, given)
            sent = given if call is None else call.headers
            if is_far:
                survey._call = call
                return self._begin_far_survey(survey, cluster, asked, timeout, stop_after, sent).cancel
            try:
                survey_id = self._core.survey(cluster, asked, timeout, stop_after, survey, self._loop.time(), sent)
            except ConfigurationError as exc:
                if call is not None:
                    call.end(exc)
                raise
            survey._call = call
            self._driver.wake()
            return partial(self._cancel_survey, survey_id)

        return Survey(begin, self._core.count_drop, read)

    def _cancel_survey(self, survey_id: int) -> None:
        self._core.surveyor.cancel(survey_id)
        self._driver.wake()
