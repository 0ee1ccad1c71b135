"""Iris: decentralized, cluster-addressed messaging. Address a cluster by its name, never a host.

Everything public is here; see :func:`connect` and :class:`Node`.

Names are imported when they are first used: a process that only passes an error on, as a task of Spark that talks to the node
of another process, needs none of the rest, and that is a quarter of a second.
"""

import typing

from iris_py.lazy import lazily as _lazily

if typing.TYPE_CHECKING:
    from iris_py.api.connect import connect
    from iris_py.api.handler import Handler
    from iris_py.api.info import Member, Members, Statistics
    from iris_py.api.membership import Membership
    from iris_py.api.node import Node
    from iris_py.api.rekeying import RotationStatus
    from iris_py.api.runner import run
    from iris_py.api.stopping import until_stopped
    from iris_py.api.subscription import Subscription
    from iris_py.api.survey import Answers, Survey, SurveyFailure, SurveyReply
    from iris_py.api.tunnel import Tunnel
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
    "run",
    "until_stopped",
]

__version__ = "0.1.0"

_MODULES = {
    "AdministrationKey": "api.rekeying",
    "Answers": "api.survey",
    "Config": "config",
    "ConfigurationError": "errors",
    "Handler": "api.handler",
    "HandshakeError": "errors",
    "IrisError": "errors",
    "Keyring": "config",
    "Member": "api.info",
    "MemberLost": "errors",
    "Members": "api.info",
    "Membership": "api.membership",
    "Message": "patterns.messages",
    "MessageTooLarge": "errors",
    "NoMembers": "errors",
    "Node": "api.node",
    "NodeClosed": "errors",
    "NotConnected": "errors",
    "Overloaded": "errors",
    "RemoteError": "errors",
    "Request": "patterns.messages",
    "RequestTimeout": "errors",
    "RotationIncomplete": "errors",
    "RotationStatus": "api.rekeying",
    "Secret": "config",
    "SlowSubscriber": "errors",
    "Statistics": "api.info",
    "Subscription": "api.subscription",
    "Survey": "api.survey",
    "SurveyFailure": "api.survey",
    "SurveyReply": "api.survey",
    "Tunnel": "api.tunnel",
    "TunnelBroken": "errors",
    "TunnelClosed": "errors",
    "connect": "api.connect",
    "run": "api.runner",
    "until_stopped": "api.stopping",
}

if not typing.TYPE_CHECKING:
    __getattr__ = _lazily(globals(), _MODULES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
