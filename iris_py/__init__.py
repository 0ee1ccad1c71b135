"""Iris: decentralized, cluster-addressed messaging. Address a cluster by its name, never a host.

Everything public is here; see :func:`connect` and :class:`Node`.

Names are imported when they are first used: a process that only passes an error on, as a task of Spark that talks to the node
of another process, needs none of the rest, and that is a quarter of a second.
"""

import importlib
import typing

if typing.TYPE_CHECKING:
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
    from iris_py.handler import Handler
    from iris_py.membership import Membership
    from iris_py.messages import Message, Request
    from iris_py.runner import run
    from iris_py.starting import connect
    from iris_py.stopping import until_stopped
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
    "until_stopped",
]

__version__ = "0.1.0"

_MODULES = {
    "Answers": "surveys",
    "Config": "config",
    "ConfigurationError": "errors",
    "Handler": "handler",
    "HandshakeError": "errors",
    "IrisError": "errors",
    "Member": "views",
    "MemberLost": "errors",
    "Members": "views",
    "Membership": "membership",
    "Message": "messages",
    "MessageTooLarge": "errors",
    "NoMembers": "errors",
    "Node": "client",
    "NodeClosed": "errors",
    "Overloaded": "errors",
    "RemoteError": "errors",
    "Request": "messages",
    "RequestTimeout": "errors",
    "SlowSubscriber": "errors",
    "Statistics": "views",
    "Subscription": "subscriptions",
    "Survey": "surveys",
    "SurveyFailure": "surveys",
    "SurveyReply": "surveys",
    "Tunnel": "tunnels",
    "TunnelBroken": "errors",
    "TunnelClosed": "errors",
    "connect": "starting",
    "run": "runner",
    "until_stopped": "stopping",
}

if not typing.TYPE_CHECKING:  # or every wrong name would be an object, and no error

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
