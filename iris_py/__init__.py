"""Iris: decentralized, cluster-addressed messaging. Address a cluster by its name, never a host.

Everything public is here; see :func:`connect` and :class:`Node`.
"""

from iris_py.client import Node
from iris_py.config import Config
from iris_py.errors import (
    ConfigurationError,
    HandshakeError,
    IrisError,
    MemberLost,
    MessageTooLarge,
    NodeClosed,
    NoMembers,
    Overloaded,
    RemoteError,
    RequestTimeout,
    SlowSubscriber,
    TunnelBroken,
    TunnelClosed,
)
from iris_py.membership import Membership
from iris_py.messages import Message, Request
from iris_py.runner import run
from iris_py.serving import Handler
from iris_py.starting import connect
from iris_py.subscriptions import Subscription
from iris_py.surveys import Answers, Survey, SurveyFailure, SurveyReply
from iris_py.tunnels import Tunnel
from iris_py.views import Member, Members, Statistics

__all__ = [
    "Answers",
    "Config",
    "ConfigurationError",
    "Handler",
    "HandshakeError",
    "IrisError",
    "Member",
    "MemberLost",
    "Members",
    "Membership",
    "Message",
    "MessageTooLarge",
    "NoMembers",
    "Node",
    "NodeClosed",
    "Overloaded",
    "RemoteError",
    "Request",
    "RequestTimeout",
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
    "run",
]

__version__ = "0.1.0"
