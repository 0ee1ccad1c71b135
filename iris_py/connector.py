"""Parts of Iris for connectors to other systems, such as :mod:`spark_connector`, beside the public API.

Each part is documented at its definition. The parts may change from one release to the next, together with the connectors of
this repository; programs use :mod:`iris_py`. Names are imported at their first use, as in :mod:`iris_py`.

* Many requests at once, without a coroutine for each: :class:`Asker` sends each :class:`Asked`, and :func:`providers` shows the
  possible members.
* Handlers of :mod:`iris_py.sync`: :data:`AnyHandler`, :func:`adapt`; their functions: :class:`HandlerHook`,
  :class:`HandlerHooks`, :func:`hooks_of`; and their event loop in a thread: :class:`Background`, :func:`background`,
  :class:`DaemonThreads`.
* Settings: the table :data:`SETTINGS` of each :class:`Setting`; the defaults of the public methods, for use without repetition;
  the types :data:`OnFull` and :data:`HeaderValue`; :class:`Opening`, an awaitable context manager; :func:`read_secret_file`,
  :func:`check_path` and :func:`check_command`.
* Checks of arguments: :func:`check_count`, :func:`check_flag`, :func:`check_time`, and :func:`check_join_options`.
* :data:`SealLike`, and :func:`seal_parts`, to carry a seal to another process of the same user.
* Typed payloads: :func:`as_codec`, and :func:`encode`, :func:`decode` and :func:`decode_message`, whose errors name the cluster
  or topic; the arguments shared by overloads, as :class:`RequestOptions`; the types :data:`BytesLike`, :class:`CallerCodec` and
  :data:`TypeForm`; the type variables :data:`Payload`, :data:`Question` and :data:`Answer`.
* :class:`Unpicklable`, the base of objects of a single process; and :data:`runtime_of`, with the settings of a node.
* Counted subscriptions, for readers that count across restarts what they missed: ``parts_of(node).topics.subscribe_counted``
  (:data:`parts_of`) returns a :class:`CountedSubscription` of each :class:`CountedMessage`, with the :class:`MatchesBefore` of
  each publisher; :func:`holder_of` is the form of a node id there.
* :class:`EventLogger`, for log lines about events, limited in number.
* :class:`Fingerprinter`, to compare contents; :func:`install_command` and :func:`requirements`, the advice for missing
  packages.
"""

import typing

from iris_py.lazy import lazily

if typing.TYPE_CHECKING:
    from iris_py.api.arguments import check_count, check_flag, check_join_options, check_time
    from iris_py.api.awaitable_context import Opening, Unpicklable
    from iris_py.api.bulk_requester import Asked, Asker, providers
    from iris_py.api.codec import UNDECODABLE, AnyCodec, CallerCodec, as_codec, decode, decode_message, encode
    from iris_py.api.hooks import HandlerHook, HandlerHooks, hooks_of
    from iris_py.api.lifecycle import parts_of
    from iris_py.api.options import OnFull, PublishOptions, RequestOptions, SubscribeOptions, SurveyOptions
    from iris_py.api.runtime import runtime_of
    from iris_py.api.seal import SealLike, seal_parts
    from iris_py.api.subscription import CountedSubscription
    from iris_py.api.threads import DaemonThreads
    from iris_py.defaults import (
        GROUP_QUEUE_MESSAGES,
        HANDLER_QUEUE_BYTES,
        HANDLER_QUEUE_MESSAGES,
        REQUEST_TIMEOUT_S,
        SUBSCRIPTION_QUEUE_BYTES,
        SURVEY_TIMEOUT_S,
        TUNNEL_TIMEOUT_S,
        TUNNEL_WINDOW_BYTES,
        TUNNELS,
    )
    from iris_py.extras import install_command, requirements
    from iris_py.files.secret_command import check_command
    from iris_py.files.secrets import check_path, read_secret_file
    from iris_py.logs import EventLogger
    from iris_py.patterns.messages import CountedMessage
    from iris_py.patterns.topic.counted_patterns import holder_of
    from iris_py.payloads import Answer, BytesLike, Payload, Question, TypeForm
    from iris_py.settings.table import SETTINGS, Setting
    from iris_py.sync.background import Background, background
    from iris_py.sync.handlers import AnyHandler, adapt
    from iris_py.wire.fingerprint import Fingerprinter
    from iris_py.wire.flows import MatchesBefore
    from iris_py.wire.headers import HeaderValue

__all__ = [
    "GROUP_QUEUE_MESSAGES",
    "HANDLER_QUEUE_BYTES",
    "HANDLER_QUEUE_MESSAGES",
    "REQUEST_TIMEOUT_S",
    "SETTINGS",
    "SUBSCRIPTION_QUEUE_BYTES",
    "SURVEY_TIMEOUT_S",
    "TUNNELS",
    "TUNNEL_TIMEOUT_S",
    "TUNNEL_WINDOW_BYTES",
    "UNDECODABLE",
    "Answer",
    "AnyCodec",
    "AnyHandler",
    "Asked",
    "Asker",
    "Background",
    "BytesLike",
    "CallerCodec",
    "CountedMessage",
    "CountedSubscription",
    "DaemonThreads",
    "EventLogger",
    "Fingerprinter",
    "HandlerHook",
    "HandlerHooks",
    "HeaderValue",
    "MatchesBefore",
    "OnFull",
    "Opening",
    "Payload",
    "PublishOptions",
    "Question",
    "RequestOptions",
    "SealLike",
    "Setting",
    "SubscribeOptions",
    "SurveyOptions",
    "TypeForm",
    "Unpicklable",
    "adapt",
    "as_codec",
    "background",
    "check_command",
    "check_count",
    "check_flag",
    "check_join_options",
    "check_path",
    "check_time",
    "decode",
    "decode_message",
    "encode",
    "holder_of",
    "hooks_of",
    "install_command",
    "parts_of",
    "providers",
    "read_secret_file",
    "requirements",
    "runtime_of",
    "seal_parts",
]

_MODULES = {
    "GROUP_QUEUE_MESSAGES": "defaults",
    "HANDLER_QUEUE_BYTES": "defaults",
    "HANDLER_QUEUE_MESSAGES": "defaults",
    "REQUEST_TIMEOUT_S": "defaults",
    "SETTINGS": "settings.table",
    "SUBSCRIPTION_QUEUE_BYTES": "defaults",
    "SURVEY_TIMEOUT_S": "defaults",
    "TUNNELS": "defaults",
    "TUNNEL_TIMEOUT_S": "defaults",
    "TUNNEL_WINDOW_BYTES": "defaults",
    "UNDECODABLE": "api.codec",
    "Answer": "payloads",
    "AnyCodec": "api.codec",
    "AnyHandler": "sync.handlers",
    "Asked": "api.bulk_requester",
    "Asker": "api.bulk_requester",
    "Background": "sync.background",
    "BytesLike": "payloads",
    "CallerCodec": "api.codec",
    "CountedMessage": "patterns.messages",
    "CountedSubscription": "api.subscription",
    "DaemonThreads": "api.threads",
    "EventLogger": "logs",
    "Fingerprinter": "wire.fingerprint",
    "HeaderValue": "wire.headers",
    "MatchesBefore": "wire.flows",
    "HandlerHook": "api.hooks",
    "HandlerHooks": "api.hooks",
    "OnFull": "api.options",
    "Opening": "api.awaitable_context",
    "Payload": "payloads",
    "PublishOptions": "api.options",
    "Question": "payloads",
    "RequestOptions": "api.options",
    "SealLike": "api.seal",
    "Setting": "settings.table",
    "SubscribeOptions": "api.options",
    "SurveyOptions": "api.options",
    "TypeForm": "payloads",
    "Unpicklable": "api.awaitable_context",
    "adapt": "sync.handlers",
    "as_codec": "api.codec",
    "background": "sync.background",
    "check_count": "api.arguments",
    "check_flag": "api.arguments",
    "check_join_options": "api.arguments",
    "check_time": "api.arguments",
    "check_command": "files.secret_command",
    "check_path": "files.secrets",
    "decode": "api.codec",
    "decode_message": "api.codec",
    "encode": "api.codec",
    "holder_of": "patterns.topic.counted_patterns",
    "hooks_of": "api.hooks",
    "install_command": "extras",
    "parts_of": "api.lifecycle",
    "providers": "api.bulk_requester",
    "read_secret_file": "files.secrets",
    "requirements": "extras",
    "runtime_of": "api.runtime",
    "seal_parts": "api.seal",
}

if not typing.TYPE_CHECKING:
    __getattr__ = lazily(globals(), _MODULES)
