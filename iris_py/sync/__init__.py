"""Iris without ``await``: the names of :mod:`iris_py`, for programs of plain functions and threads.

Names, arguments and errors are those of :mod:`iris_py`, without :func:`iris_py.run`. A coroutine there is a blocking call
here::

    import iris_py.sync as iris

    with iris.connect() as node:
        print(node.request("databases", b"SELECT 1"))

Awaitable objects, such as a survey, have a method ``wait`` here. The nodes of a process share an event loop in a separate
thread. All objects are thread-safe, and an interrupt ends a waiting call; see docs/sync.md.
"""

from iris_py.api.codec import Codec, CodecFormat
from iris_py.api.info import Cloud, Member
from iris_py.api.keys import RotationStatus
from iris_py.api.options import OnFull
from iris_py.api.seal import Seal, Sealed
from iris_py.api.status import Health
from iris_py.api.streams.info import AppendReceipt, PartitionInfo, StreamInfo, StreamRecord
from iris_py.api.survey import Answers, SurveyFailure, SurveyReply
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
from iris_py.streams.errors import (
    AppendUncertain,
    NoStream,
    StreamDamaged,
    StreamFull,
    StreamTruncated,
    StreamUnavailable,
)
from iris_py.sync.handlers import Handler
from iris_py.sync.node import Node, connect
from iris_py.sync.stop_signals import until_stopped
from iris_py.sync.streams import Stream, StreamRecords, Streams, StreamWriter, open_streams
from iris_py.sync.subscription import Subscription
from iris_py.sync.survey import Members, Membership, Survey
from iris_py.sync.tunnel import Tunnel
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
    "until_stopped",
]
