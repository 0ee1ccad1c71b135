"""Iris without ``await``: the names of :mod:`iris_py`, for programs of plain functions and threads.

Every name, argument and error is that of :mod:`iris_py`, less :func:`iris_py.run`; what is awaited there is called here, and
waits::

    import iris_py.sync as iris

    with iris.connect() as node:
        print(node.request("databases", b"SELECT 1"))

What is awaited there without being called, as a survey is, has a method ``wait`` here. The nodes of a process share one event
loop in a thread of its own. Everything may be used from every thread; an interrupt ends what waits; docs/sync.md has the rest.
"""

from iris_py.api.info import Member, Statistics
from iris_py.api.rekeying import RotationStatus
from iris_py.api.survey import Answers, SurveyFailure, SurveyReply
from iris_py.config import Config
from iris_py.errors import (
    ConfigurationError,
    HandshakeError,
    IrisError,
    MemberLost,
    MessageTooLarge,
    NodeClosed,
    NoMembers,
    NotConnected,
    Overloaded,
    RemoteError,
    RequestTimeout,
    RotationIncomplete,
    SlowSubscriber,
    TunnelBroken,
    TunnelClosed,
)
from iris_py.patterns.messages import Message, Request
from iris_py.sync.handlers import Handler
from iris_py.sync.members import Members
from iris_py.sync.membership import Membership
from iris_py.sync.node import Node, connect
from iris_py.sync.stopping import until_stopped
from iris_py.sync.subscription import Subscription
from iris_py.sync.survey import Survey
from iris_py.sync.tunnel import Tunnel
from iris_security import AdministrationKey, Keyring, Secret

__all__ = [
    "AdministrationKey",
    "Answers",
    "Config",
    "ConfigurationError",
    "Handler",
    "HandshakeError",
    "IrisError",
    "Keyring",
    "Member",
    "MemberLost",
    "Members",
    "Membership",
    "Message",
    "MessageTooLarge",
    "NoMembers",
    "Node",
    "NodeClosed",
    "NotConnected",
    "Overloaded",
    "RemoteError",
    "Request",
    "RequestTimeout",
    "RotationIncomplete",
    "RotationStatus",
    "Secret",
    "SlowSubscriber",
    "Statistics",
    "Subscription",
    "Survey",
    "SurveyFailure",
    "SurveyReply",
    "Tunnel",
    "TunnelBroken",
    "TunnelClosed",
    "connect",
    "until_stopped",
]
