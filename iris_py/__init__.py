"""Iris: decentralized, cluster-addressed messaging. Address a cluster by its name, never a host.

Everything public is here; see :func:`connect` and :class:`Node`.

Names are imported at their first use. This saves a quarter of a second in a process with few names, such as a Spark task that
only passes on errors.
"""

import typing

from iris_py.lazy import lazily as _lazily

if typing.TYPE_CHECKING:
    from iris_py.api.codec import Codec, CodecFormat
    from iris_py.api.handler import Handler
    from iris_py.api.info import Cloud, Member, Members
    from iris_py.api.keys import RotationStatus
    from iris_py.api.membership import Membership
    from iris_py.api.node import Node, connect
    from iris_py.api.options import OnFull
    from iris_py.api.run import run, until_stopped
    from iris_py.api.seal import Seal, Sealed
    from iris_py.api.status import Health
    from iris_py.api.streams.directory import Streams
    from iris_py.api.streams.info import AppendReceipt, PartitionInfo, StreamInfo, StreamRecord
    from iris_py.api.streams.records import StreamRecords
    from iris_py.api.streams.stream import Stream, StreamWriter
    from iris_py.api.subscription import Subscription
    from iris_py.api.survey import Answers, Survey, SurveyFailure, SurveyReply
    from iris_py.api.tunnel import Tunnel
    from iris_py.config import Config
    from iris_py.errors import (
        CloudUnavailable,
        ConfigurationError,
        DecodeError,
        EncodeError,
        HandshakeError,
        IrisError,
        MemberLost,
        MessageTooLarge,
        NodeClosed,
        NoMembers,
        NotConnected,
        NotExported,
        Overloaded,
        RemoteError,
        RequestTimeout,
        RotationIncomplete,
        SealError,
        SlowSubscriber,
        TooManyMembersLost,
        TunnelBroken,
        TunnelClosed,
    )
    from iris_py.observe.journal import EventRecord
    from iris_py.observe.node_name import NodeName
    from iris_py.observe.reports import NodeReport, NodeReports, Route, Trace
    from iris_py.observe.statistics import Statistics
    from iris_py.patterns.messages import Message, Request
    from iris_py.patterns.request.retry import HedgeAfter, Retry, RetryReason
    from iris_py.patterns.topic.queue import OverflowPolicy
    from iris_py.store.embedded import open_streams
    from iris_py.streams.errors import (
        AppendUncertain,
        NoStream,
        StreamDamaged,
        StreamFull,
        StreamTruncated,
        StreamUnavailable,
    )
    from iris_security import AdministrationKey, Keyring, Secret

__all__ = [
    "AdministrationKey",
    "Answers",
    "AppendReceipt",
    "AppendUncertain",
    "Cloud",
    "CloudUnavailable",
    "Codec",
    "CodecFormat",
    "Config",
    "ConfigurationError",
    "DecodeError",
    "EncodeError",
    "EventRecord",
    "Handler",
    "HandshakeError",
    "Health",
    "HedgeAfter",
    "IrisError",
    "Keyring",
    "Member",
    "MemberLost",
    "Members",
    "Membership",
    "Message",
    "MessageTooLarge",
    "NoMembers",
    "NoStream",
    "Node",
    "NodeClosed",
    "NodeName",
    "NodeReport",
    "NodeReports",
    "NotConnected",
    "NotExported",
    "OnFull",
    "OverflowPolicy",
    "Overloaded",
    "PartitionInfo",
    "RemoteError",
    "Request",
    "RequestTimeout",
    "Retry",
    "RetryReason",
    "RotationIncomplete",
    "RotationStatus",
    "Route",
    "Seal",
    "SealError",
    "Sealed",
    "Secret",
    "SlowSubscriber",
    "Statistics",
    "Stream",
    "StreamDamaged",
    "StreamFull",
    "StreamInfo",
    "StreamRecord",
    "StreamRecords",
    "StreamTruncated",
    "StreamUnavailable",
    "StreamWriter",
    "Streams",
    "Subscription",
    "Survey",
    "SurveyFailure",
    "SurveyReply",
    "TooManyMembersLost",
    "Trace",
    "Tunnel",
    "TunnelBroken",
    "TunnelClosed",
    "connect",
    "open_streams",
    "run",
    "until_stopped",
]

__version__ = "0.1.0"

_MODULES = {
    "AdministrationKey": "api.keys",
    "Answers": "api.survey",
    "AppendReceipt": "api.streams.info",
    "AppendUncertain": "streams.errors",
    "Cloud": "api.info",
    "CloudUnavailable": "errors",
    "Codec": "api.codec",
    "CodecFormat": "api.codec",
    "Config": "config",
    "ConfigurationError": "errors",
    "DecodeError": "errors",
    "EncodeError": "errors",
    "EventRecord": "observe.journal",
    "Handler": "api.handler",
    "HandshakeError": "errors",
    "Health": "api.status",
    "HedgeAfter": "patterns.request.retry",
    "IrisError": "errors",
    "Keyring": "config",
    "Member": "api.info",
    "MemberLost": "errors",
    "Members": "api.info",
    "Membership": "api.membership",
    "Message": "patterns.messages",
    "MessageTooLarge": "errors",
    "NoMembers": "errors",
    "NoStream": "streams.errors",
    "Node": "api.node",
    "NodeClosed": "errors",
    "NodeName": "observe.node_name",
    "NodeReport": "observe.reports",
    "NodeReports": "observe.reports",
    "NotConnected": "errors",
    "NotExported": "errors",
    "OnFull": "api.options",
    "OverflowPolicy": "patterns.topic.queue",
    "Overloaded": "errors",
    "PartitionInfo": "api.streams.info",
    "RemoteError": "errors",
    "Request": "patterns.messages",
    "RequestTimeout": "errors",
    "Retry": "patterns.request.retry",
    "RetryReason": "patterns.request.retry",
    "RotationIncomplete": "errors",
    "RotationStatus": "api.keys",
    "Route": "observe.reports",
    "Seal": "api.seal",
    "SealError": "errors",
    "Sealed": "api.seal",
    "Secret": "config",
    "SlowSubscriber": "errors",
    "Statistics": "observe.statistics",
    "Stream": "api.streams.stream",
    "StreamDamaged": "streams.errors",
    "StreamFull": "streams.errors",
    "StreamInfo": "api.streams.info",
    "StreamRecord": "api.streams.info",
    "StreamRecords": "api.streams.records",
    "StreamTruncated": "streams.errors",
    "StreamUnavailable": "streams.errors",
    "StreamWriter": "api.streams.stream",
    "Streams": "api.streams.directory",
    "Subscription": "api.subscription",
    "Survey": "api.survey",
    "SurveyFailure": "api.survey",
    "SurveyReply": "api.survey",
    "TooManyMembersLost": "errors",
    "Trace": "observe.reports",
    "Tunnel": "api.tunnel",
    "TunnelBroken": "errors",
    "TunnelClosed": "errors",
    "connect": "api.node",
    "open_streams": "store.embedded",
    "run": "api.run",
    "until_stopped": "api.run",
}

if not typing.TYPE_CHECKING:
    __getattr__ = _lazily(globals(), _MODULES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
