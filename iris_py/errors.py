"""The error classes of Iris, as a tree.

* :exc:`IrisError`

  * :exc:`ConfigurationError`: an argument, a setting or the calling context is wrong; nothing was started.
  * :exc:`HandshakeError`: the other side answers, but has a different secret.
  * :exc:`NoMembers`: the cluster has no members; surely not executed.

    * :exc:`CloudUnavailable`: no gateway of this network reaches the other cloud; surely not executed.
    * :exc:`NotExported`: the other cloud does not export the name to this one; surely not executed.

  * :exc:`NotConnected`: this node reaches no other node of its network and knows no members; surely not executed.
  * :exc:`RequestTimeout` (also a :exc:`TimeoutError`): the time ran out; the request may have been executed.
  * :exc:`Overloaded`: every tried member was full, or a publisher had to wait; surely not executed.
  * :exc:`MemberLost`: the member was lost while it held the request, which may have been executed.

    * :exc:`TooManyMembersLost`: several members were lost one after the other; the request is not tried again.

  * :exc:`RemoteError`: the handler at the member failed.
  * :exc:`EncodeError`: the codec cannot encode a payload; nothing was sent.
  * :exc:`DecodeError`: the codec cannot decode a reply or a message; a request with such a reply was executed.
  * :exc:`MessageTooLarge`: larger than ``max_message_bytes``; nothing was sent.
  * :exc:`TunnelClosed`: a tunnel has ended cleanly; all data sent before was delivered.
  * :exc:`TunnelBroken`: a tunnel has broken; the last data sent may be missing.
  * :exc:`SlowSubscriber`: a subscription was too slow and was ended by its overflow policy.
  * :exc:`SealError`: the seal of a request cannot decrypt its reply; the request may have been executed.
  * :exc:`RotationIncomplete`: linked nodes have not taken a step of a rotation of the network's secret.
  * errors of streams, in :mod:`iris_py.streams.errors`.
  * :exc:`NodeClosed`: the program has closed this node.

Facts are attributes; the text contains them and ends with the remedy.

Errors can be pickled and copied, and also cross process pools. The copy has the type, text, attributes, notes and cause of the
original. As with every Python exception, the traceback and the context stay behind. A cause that cannot be pickled, or that
cannot be loaded where the error arrives, is replaced by an :exc:`UnpicklableCause`.
"""

from __future__ import annotations

from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Self

__all__ = [
    "CloudUnavailable",
    "ConfigurationError",
    "DecodeError",
    "EncodeError",
    "HandshakeError",
    "IrisError",
    "MemberLost",
    "MessageTooLarge",
    "NoMembers",
    "NodeClosed",
    "NotConnected",
    "NotExported",
    "Overloaded",
    "RemoteError",
    "RequestTimeout",
    "RotationIncomplete",
    "SealError",
    "SlowSubscriber",
    "TooManyMembersLost",
    "TunnelBroken",
    "TunnelClosed",
    "UnpicklableCause",
]


class IrisError(Exception):
    """Base of all errors that Iris raises.

    Attributes:
        of_plain_request: Whether a request without ``idempotent`` raised the error, and an idempotent request would have
            continued.
    """

    of_plain_request: bool = False
    #: Advice for the text: how an idempotent request would have continued after this error. Empty without advice.
    _idempotent_advice: str = ""

    def _note_plain_request(self) -> None:
        """Advise the caller to declare the request idempotent."""
        if self._idempotent_advice:
            self.of_plain_request = True
            self._advise(self._idempotent_advice)

    def _advise(self, text: str) -> None:
        """Append a sentence to the text of the error."""
        self.args: tuple[Any, ...] = (f"{self.args[0]} {text}",)

    def __reduce__(self) -> tuple[Callable[..., IrisError], tuple[type[IrisError], tuple[Any, ...]], dict[str, Any]]:
        # Exception.__reduce__ calls the class with the text, but subclasses build the text from other arguments.
        cause = None if self.__cause__ is None else _CauseCarrier(self.__cause__)
        return _new_error, (type(self), self.args), {**vars(self), "__cause__": cause}

    def __setstate__(self, state: dict[str, Any] | None) -> None:
        attributes = dict(state or {})
        carrier: _CauseCarrier | None = attributes.pop("__cause__", None)
        vars(self).update(attributes)
        if carrier is not None:
            self.__cause__ = carrier.cause


def _new_error(kind: type[IrisError], arguments: tuple[Any, ...]) -> IrisError:
    """Make an error with a given text, without ``__init__``, which would build the text again."""
    error = kind.__new__(kind)
    error.args = arguments
    return error


def _shown(node_id: str, name: str) -> str:
    """Return a node as error texts show it: the first digits of its id, and its label if known."""
    return f"{node_id[:8]} ({name})" if name else node_id[:8]


class ConfigurationError(IrisError):
    """An argument, environment variable or configuration file is wrong, or a call comes from another event loop or a fork.

    Nothing was started.
    """


class HandshakeError(IrisError):
    """The node at an address could not be authenticated.

    Attributes:
        address: The dialled ``host:port``.
    """

    def __init__(self, address: str, reason: str) -> None:
        self.address = address
        self.reason = reason
        super().__init__(
            f"{address} is not a node of this network: {reason}. "
            "Check that both sides use the same secret (IRIS_SECRET or IRIS_SECRET_FILE) and the same network name."
        )


class NoMembers(IrisError):
    """The cluster has no members, or none in the required zone; the request was not executed.

    Attributes:
        cluster: The requested name.
        nodes: The number of other nodes known in the network; 0 for a cluster of another cloud.
        zone: The required zone; empty for none.
        elsewhere: The number of members known in other zones, if a zone was required.
        without_tunnels: For a tunnel, the number of members whose handlers serve no tunnels; else 0.
        seeds: The seeds without an answering node of the network, each with its state.
        strangers: Hosts of nodes of other networks heard in the last minute, as a rule of other users.
        has_own_secret: Whether this node has a secret for the cluster; None if unknown. Members with a different cluster secret
            are invisible to this node.
    """

    elsewhere: int = 0
    has_own_secret: bool | None = None
    seeds: Mapping[str, str] = MappingProxyType({})
    strangers: Sequence[str] = ()

    def __init__(self, cluster: str, nodes: int, zone: str = "", elsewhere: int = 0, *, without_tunnels: int = 0) -> None:
        self.cluster = cluster
        self.nodes = nodes
        self.without_tunnels = without_tunnels
        self.zone = zone
        known = "no other node of the network is known" if nodes == 0 else f"{nodes} other node{'s' * (nodes != 1)} known"
        if "@" in cluster:  # another cloud does not tell its size
            known = f"according to the cloud {cluster.rpartition('@')[2]!r}"
        if without_tunnels:
            super().__init__(
                f"no member of {cluster!r} serves tunnels ({without_tunnels} asked; {known}). "
                "Give Node.join() a handler with an on_tunnel() method."
            )
            return
        if not zone or not elsewhere:
            super().__init__(f"nobody serves the cluster {cluster!r} ({known}). Start a member with node.join().")
            return
        self.elsewhere = elsewhere
        members = f"{elsewhere} member{'s' * (elsewhere != 1)} in other zones"
        super().__init__(
            f"nobody in the zone {zone!r} serves the cluster {cluster!r} ({members}, {known}). "
            "Start a member there, or use prefer= in place of require=."
        )

    _idempotent_advice = "A request with idempotent=True waits for a member within its timeout."

    def _note_plain_request(self) -> None:
        if not self.elsewhere and not self.without_tunnels:  # waiting would not help here
            super()._note_plain_request()

    @property
    def surroundings(self) -> str:
        """The possible reasons: a secret, unanswered seeds, nodes of other networks; empty if nothing is known."""
        key = ""
        if self.nodes and not (self.elsewhere or self.without_tunnels) and self.has_own_secret is not None:
            key = " If members are running, their cluster secret may differ from the one of this node (clusters=)."
            if not self.has_own_secret:
                key = " If members are running, the cluster may have its own secret, which this node lacks (clusters=)."
        seeds = f" No node of this network answers at the seeds: {_join_seeds(self.seeds)}." if self.seeds else ""
        return key + seeds + _describe_strangers(self.strangers)


def add_surroundings(
    error: NoMembers, seeds: Mapping[str, str], strangers: Sequence[str], *, has_own_secret: bool | None
) -> None:
    """Add the possible reasons for missing members to an error, and to its text; the attributes describe the arguments."""
    error.seeds, error.strangers, error.has_own_secret = seeds, strangers, has_own_secret
    error.args = (error.args[0] + error.surroundings,)


class CloudUnavailable(NoMembers):
    """No gateway of this network reaches the other cloud; nothing was executed there.

    Attributes:
        cloud: The alias of the cloud.
        cluster: The requested name, as ``databases@eu``.
    """

    def __init__(self, cluster: str, nodes: int = 0) -> None:
        self.cluster = cluster
        self.cloud: str = cluster.rpartition("@")[2]
        self.nodes = nodes
        self.zone: str = ""
        self.without_tunnels: int = 0
        IrisError.__init__(
            self,
            f"no gateway of this network reaches the cloud {self.cloud!r}; nothing was sent to {cluster!r}. The cloud link "
            f"may be cut, the other cloud may be down, or no `iris gateway` with [cloud.{self.cloud}] in its configuration "
            "may run here. See `iris federation status`.",
        )

    _idempotent_advice = "A request with idempotent=True waits for a gateway within its timeout."


class NotExported(NoMembers):
    """The other cloud does not export the name to this one, whether it exists or not; nothing was executed there.

    Attributes:
        cloud: The alias of the cloud.
        cluster: The requested name, as ``databases@eu``.
    """

    def __init__(self, cluster: str) -> None:
        name, _at, cloud = cluster.rpartition("@")
        self.cloud: str = cloud
        self.cluster = cluster
        self.nodes = 0
        self.zone: str = ""
        self.without_tunnels: int = 0
        IrisError.__init__(
            self,
            f"the cloud {self.cloud!r} does not export {name!r} to this cloud for this use, or no gateway here imports it. "
            f"See `iris federation explain {cluster}`, and ask the operators of that cloud for an [[export]].",
        )

    _idempotent_advice = ""


class NotConnected(IrisError):
    """This node reaches no other node of its network and knows no members; the request was not executed.

    This error replaces :exc:`NoMembers` while a seed may be alive: a seed that does not answer yet, is silent or ends
    connections, or that cannot be dialled for want of file descriptors.

    Attributes:
        cluster: The requested name.
        seeds: The seeds without an answering node of the network, each with its state.
        strangers: Hosts of nodes of other networks heard in the last minute, as a rule of other users.
    """

    def __init__(self, cluster: str, seeds: Mapping[str, str], strangers: Sequence[str] = ()) -> None:
        self.cluster = cluster
        self.seeds = seeds
        self.strangers = strangers
        super().__init__(
            f"this node reaches no other node of its network, so it cannot know the members of the cluster {cluster!r}: "
            f"{_join_seeds(seeds)}.{_describe_strangers(strangers)} Check that a seed runs, holds the same secret, has free "
            "file descriptors, and accepts connections from this host. This node keeps dialling: try again."
        )

    _idempotent_advice = "Or wait with idempotent=True and a longer timeout."


def _join_seeds(seeds: Mapping[str, str]) -> str:
    return "; ".join(f"{address} {reason}" for address, reason in seeds.items())


def _describe_strangers(strangers: Sequence[str]) -> str:
    if not strangers:
        return ""
    return (
        f" Nodes with another secret were heard from {', '.join(strangers)}, usually of another user of this machine. To "
        "share one network, give all nodes the same IRIS_SECRET_FILE."
    )


class _Unserved(IrisError):
    """Base of the errors of a request that no member executed in time: all were full, or the time ran out."""

    cluster: str
    from_handler: bool = False

    def _note_own_place(self) -> None:
        """Note in the text that the caller is a handler of the same cluster."""
        self.from_handler = True
        hint = (
            f" The caller is itself a handler of {self.cluster!r} and occupies a place while it waits. If all its handlers "
            "wait for their own cluster, none of them finishes. Call another cluster from handlers, or raise concurrency=."
        )
        self.args: tuple[Any, ...] = (self.args[0] + hint,)


class RequestTimeout(_Unserved, TimeoutError):
    """No reply came within the timeout; the request may have been executed.

    Attributes:
        cluster: The name of the cluster.
        timeout_s: The timeout in seconds.
        member: The id (hex) of the last member that held the request, a pseudonym for another cloud; None if no member held the
            request.
        from_handler: Whether the caller was a handler of the same cluster, which occupied a place while waiting.
        gateway: The id (hex) of the gateway that held the request, on the way to another cloud; else empty.
        node_name: The label of the member or gateway; empty if unknown.
    """

    def __init__(
        self,
        cluster: str,
        timeout_s: float,
        member: str | None,
        *,
        gateway: str = "",
        node_name: str = "",
        is_fixed: bool = False,
    ) -> None:
        self.cluster = cluster
        self.timeout_s = timeout_s
        self.member = member
        self.gateway = gateway
        self.node_name = node_name
        where = f"member {_shown(member, node_name)} held it" if member else "no member took it"
        if gateway and not member:
            where = f"the gateway {_shown(gateway, node_name)} held it"
        advice = "See `iris federation status`, and try again." if is_fixed else "Allow more time with timeout=."
        super().__init__(f"no reply from {cluster!r} within {timeout_s:g} s ({where}). {advice}")


class Overloaded(_Unserved):
    """Every tried member was full, so the request was surely not executed; or a publisher would have to wait.

    Attributes:
        cluster: The name of the cluster; empty for a topic.
        tried: The number of members tried.
        topic: The topic; empty for a cluster.
        from_handler: Whether the caller was a handler of the same cluster, which occupied a place while waiting.
        retry_after_s: The time until a limit of another cloud allows the use again, in seconds; None without a limit.
    """

    def __init__(self, cluster: str = "", tried: int = 0, *, topic: str = "", retry_after_s: float | None = None) -> None:
        self.cluster = cluster
        self.tried = tried
        self.topic = topic
        self.retry_after_s = retry_after_s
        if retry_after_s is not None:
            super().__init__(
                f"the limit for {cluster or topic!r} is reached; nothing was executed. Try again in {retry_after_s:g} s, "
                "send less often, or raise the limit of its rule in the configuration of the gateways."
            )
            return
        if topic:
            super().__init__(
                f"nothing can be published to {topic!r} now: a subscriber or a link to a subscriber is full, or the "
                "subscribers are not known yet. Try again later, or wait with publish()."
            )
            return
        super().__init__(
            f"all {tried} tried members of {cluster!r} are full; the request was not executed. Try again later, or add members."
        )

    def _note_no_wait(self) -> None:
        """Advise a caller that did not wait for a place."""
        if self.cluster and self.retry_after_s is None:
            self._advise('Or wait for a place with on_full="wait", which is the default.')


class MemberLost(IrisError):
    """The member, or a gateway on the path, was lost with the request, which may have been executed.

    Attributes:
        cluster: The name of the cluster.
        member: The id (hex) of the lost member; a pseudonym for another cloud. Empty if a gateway was lost.
        gateway: The id (hex) of the lost gateway of this network, on the way to another cloud; else empty.
        node_name: The label of the member or gateway; empty if unknown.
    """

    def __init__(self, cluster: str, member: str, *, gateway: str = "", node_name: str = "") -> None:
        self.cluster = cluster
        self.member = member
        self.gateway = gateway
        self.node_name = node_name
        who = f"member {_shown(member, node_name)} of {cluster!r}" if member else f"a gateway on the way to {cluster!r}"
        if gateway and not member:
            who = f"the gateway {_shown(gateway, node_name)} on the way to {cluster!r}"
        super().__init__(
            f"{who} was lost while it held the request. The request may have been executed. If executing it twice is "
            "harmless, send it again."
        )

    _idempotent_advice = "With idempotent=True a request is retried on another member."


class TooManyMembersLost(MemberLost):
    """An idempotent request has reached its limit of lost members: the request may have crashed them.

    Each lost member may have executed the request, in whole or in part.

    Attributes:
        cluster: The name of the cluster.
        members: The ids (hex) of the lost members, in the order of their loss; pseudonyms for another cloud.
        member: The id (hex) of the last lost member.
        gateway: Always empty.
    """

    def __init__(self, cluster: str, members: Sequence[str]) -> None:
        self.members: tuple[str, ...] = tuple(members)
        super().__init__(cluster, self.members[-1] if self.members else "")
        count = len(self.members)
        which = f" ({', '.join(member[:8] for member in self.members)})" if count else ""
        self.args: tuple[Any, ...] = (
            f"the request to {cluster!r} was given up after the loss of {count} member{'s' * (count != 1)} that held "
            f"it{which}. The request may have ended their processes (a crash, or a memory limit), so it is not sent to "
            "another member. See the end of their logs."
            + ("" if "@" in cluster else " To risk more members, pass retry=iris_py.Retry(members_lost_max=...)."),
        )

    _idempotent_advice = ""


class RemoteError(IrisError):
    """The handler at the member raised an exception.

    Attributes:
        cluster: The name of the cluster.
        member: The id (hex) of the member whose handler failed; for another cloud a pseudonym, or empty.
        type: The name of the exception's class.
        text: The exception's text, shortened to ``FAILURE_TEXT_MAX`` characters.
        node_name: The label of that member; empty if unknown.
    """

    def __init__(
        self,
        cluster: str,
        member: str,
        type: str,  # noqa: A002 - the attribute of DESIGN's error tree
        text: str,
        *,
        node_name: str = "",
    ) -> None:
        self.cluster = cluster
        self.member = member
        self.type = type
        self.text = text
        self.node_name = node_name
        where = f" at member {_shown(member, node_name)}" if member else ""
        super().__init__(f"the handler of {cluster!r}{where} failed with {type}: {text}")


class SealError(IrisError):
    """A sealed payload cannot be decrypted. At a caller this is a reply; the request may have been executed.

    A member with a :class:`iris_py.Sealed` handler raises this error to refuse a request. The caller then gets a
    :exc:`RemoteError` with this type, and nothing was executed.

    Attributes:
        cluster: The name of the cluster.
    """

    def __init__(self, cluster: str, *, is_refused: bool = False) -> None:
        self.cluster = cluster
        if is_refused:
            super().__init__(
                f"the members of {cluster!r} refused the request; it was not executed. They accept a request only once, "
                "within five minutes after it was sealed, and only with their secret and name. Pass seal= with that secret "
                "and name, and check that both clocks are right."
            )
            return
        super().__init__(
            f"the reply of {cluster!r} cannot be decrypted with the seal of the request. The request may have been executed. "
            "Check that the members serve it with iris_py.Sealed and the same secret. If they do, the reply was changed on "
            "the way."
        )


class EncodeError(IrisError):
    """The codec of the call cannot encode the payload; nothing was sent.

    Attributes:
        reason: The mismatch between value and codec.
        cluster: The addressed cluster; empty for a topic.
        topic: The addressed topic; empty for a cluster.
    """

    def __init__(self, reason: str, *, cluster: str = "", topic: str = "") -> None:
        self.reason = reason
        self.cluster = cluster
        self.topic = topic
        name = cluster or topic
        where = f" for {name!r}" if name else ""
        super().__init__(
            f"the payload{where} cannot be encoded, and nothing was sent: {reason}. Pass a value of the type given as codec=."
        )


class DecodeError(IrisError):
    """The codec of the call cannot decode a reply or a message; a request with such a reply was executed.

    A member that joined with a codec raises this error to refuse a request. The caller then gets a :exc:`RemoteError` with this
    type, and the handler did not run.

    Attributes:
        reason: The mismatch, and its position in the payload.
        cluster: The cluster of the reply, or the addressed cluster; empty for a topic.
        topic: The topic; empty for a cluster.
        member: The id (hex) of the sender; empty if unknown.
        payload: The received bytes.
    """

    def __init__(
        self,
        reason: str,
        *,
        cluster: str = "",
        topic: str = "",
        member: str = "",
        payload: bytes = b"",
        is_refused: bool = False,
    ) -> None:
        self.reason = reason
        self.cluster = cluster
        self.topic = topic
        self.member = member
        self.payload = payload
        if is_refused:
            super().__init__(
                f"the request to {cluster!r} does not fit the codec of its members, and was not executed: {reason}. Send it "
                "with the codec that the members joined with."
            )
            return
        node = f"node {member[:8]}" if member else "a node"
        what = f"the message of {node} to the topic {topic!r}" if topic else f"the message of {node}"
        if cluster:
            what = f"the message of {node} for {cluster!r}"
        super().__init__(f"{what} does not fit the codec: {reason}. Check that both sides give the same codec=.")


class MessageTooLarge(IrisError):
    """The message is over the size limit, and nothing was sent; or a message in a tunnel is over the receiver's limit.

    Attributes:
        size_bytes: The size of the message; for a received message, of the part that has arrived.
        limit_bytes: The largest size allowed: ``max_message_bytes`` of the sending node, or ``max_bytes``.
        cluster: The requested name, if the message is too large on the way to another cloud; else empty.
    """

    def __init__(self, size_bytes: int, limit_bytes: int, *, is_received: bool = False, cluster: str = "") -> None:
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes
        self.cluster = cluster
        if cluster:
            super().__init__(
                f"a message of {size_bytes} bytes is over the limit of {limit_bytes} on the way to {cluster!r}, and was not "
                "executed there. Split it, or raise max_message_bytes at the gateways (at most 64 MiB)."
            )
            return
        if is_received:
            super().__init__(
                f"a message of at least {size_bytes} bytes is over the limit of {limit_bytes} and was skipped. Receive "
                "larger messages with receive_into() or receive_chunks(), or allow more with max_bytes=."
            )
            return
        super().__init__(
            f"a message of {size_bytes} bytes is over the limit of {limit_bytes} at this node. "
            "Split it, or raise max_message_bytes (at most 64 MiB)."
        )


class SlowSubscriber(IrisError):
    """A subscription with the overflow policy ``disconnect`` was too slow and has ended.

    Attributes:
        topic: The topic or pattern.
        policy: Its overflow policy.
        queue_messages: The capacity of its queue in messages.
        queue_bytes: The capacity of its queue in bytes of payload.
    """

    def __init__(self, topic: str, policy: str, queue_messages: int, queue_bytes: int) -> None:
        self.topic = topic
        self.policy = policy
        self.queue_messages = queue_messages
        self.queue_bytes = queue_bytes
        super().__init__(
            f"the subscription to {topic!r} was too slow: more than {queue_messages} messages or {queue_bytes} bytes waited, "
            f"and its overflow policy is {policy}. Subscribe again, and take messages faster, in batches, or with a larger "
            "queue."
        )


class TunnelClosed(IrisError):
    """A tunnel has ended cleanly: all data sent before was delivered.

    Attributes:
        cluster: The name of the tunnel's cluster.
        member: The id (hex) of the node at the other end.
        is_ours: Whether this side has ended the tunnel and can send no more.
        node_name: The label of that node; empty if unknown.
    """

    def __init__(self, cluster: str, member: str, *, is_ours: bool = False, node_name: str = "") -> None:
        self.cluster = cluster
        self.member = member
        self.is_ours = is_ours
        self.node_name = node_name
        who = "this side" if is_ours else "the other side"
        super().__init__(
            f"the tunnel of {cluster!r} to {_shown(member, node_name)} was ended by {who}. "
            "Open another one with node.tunnel() to send more."
        )


class TunnelBroken(IrisError):
    """A tunnel has broken: the last data sent, in either direction, may be missing.

    Attributes:
        cluster: The name of the tunnel's cluster.
        member: The id (hex) of the node at the other end.
        reason: The cause of the break.
        type: The class name of the exception in the other side's program; empty for any other cause.
        text: The text of that exception.
        node_name: The label of that node; empty if unknown.
    """

    def __init__(
        self,
        cluster: str,
        member: str,
        reason: str,
        type: str = "",  # noqa: A002 - as RemoteError
        text: str = "",
        *,
        node_name: str = "",
    ) -> None:
        self.cluster = cluster
        self.member = member
        self.reason = reason
        self.type = type
        self.text = text
        self.node_name = node_name
        cause = f" ({type}: {text})" if type else ""
        super().__init__(
            f"the tunnel of {cluster!r} to {_shown(member, node_name)} broke: {reason}{cause}. Data in transit may be lost. "
            "Open another one with node.tunnel(), and start again, or resume at the position that the other side reports."
        )


class RotationIncomplete(IrisError):
    """Linked nodes have not taken a step of a rotation of the network's secret.

    Attributes:
        number: The number of the step in effect at this node.
        missing: The ids of the linked nodes that are behind; empty if there are no linked nodes.
        node_names: The known labels of these nodes, by id.
        is_begun: Whether this node has taken the requested step, which then continues to spread.
    """

    def __init__(
        self, number: int, missing: Sequence[str], *, is_begun: bool, node_names: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self.number = number
        self.missing: tuple[str, ...] = tuple(missing)
        self.is_begun = is_begun
        self.node_names: dict[str, str] = dict(node_names)
        shown = [f"{node} ({self.node_names[node]})" if self.node_names.get(node) else node for node in self.missing]
        who = f"linked nodes {', '.join(shown)}" if self.missing else ""
        put_out = (
            "Check these nodes: a node that misses the step, or has no administrator setting, is excluded when its "
            "generation is retired."
        )
        if is_begun and self.missing:
            text = f"step {number} was taken here, but not yet by the {who}. It continues to spread by itself. {put_out}"
        elif is_begun:
            text = (
                f"step {number} was taken here, but no other node was reached afterwards. Check whether the others have "
                "taken it."
            )
        elif self.missing:
            text = f"nothing was changed, because step {number} was not taken by the {who}. {put_out} Or continue with force."
        else:
            text = (
                f"nothing was changed after step {number}, because no other node was reached. Start one, or name it as a seed."
            )
        super().__init__(text)


class NodeClosed(IrisError):
    """The program has closed the node, which can do no more work."""

    def __init__(self) -> None:
        super().__init__("this node is closed. Make a new one with iris_py.connect().")


# -- the cause of an error, in a pickle


class UnpicklableCause(Exception):
    """Placeholder for the cause of an unpickled error, where the cause itself could not be pickled or loaded.

    Attributes:
        type: The name of the class of the cause.
        text: The text of the cause.
    """

    def __init__(self, type: str, text: str) -> None:  # noqa: A002 - as RemoteError
        self.type = type
        self.text = text
        super().__init__(type, text)

    def __str__(self) -> str:
        return f"{self.type}: {self.text}"


class _CauseCarrier:
    """Carries the cause of an error through pickle, as bytes pickled separately.

    A cause may be an exception that cannot be pickled or loaded, which must not make the error itself unusable: a
    ``multiprocessing.Pool`` waits forever for a result that fails to load.

    A copy carries the cause unchanged.

    Attributes:
        cause: The cause.
    """

    def __init__(self, cause: BaseException) -> None:
        self.cause = cause

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> tuple[Callable[[bytes, str, str], _CauseCarrier], tuple[bytes, str, str]]:
        import pickle  # few processes need pickle

        further = self.cause.__cause__ if not isinstance(self.cause, IrisError) else None  # an IrisError carries its own
        try:
            content = pickle.dumps((self.cause, further and _CauseCarrier(further)))
        except Exception:  # the cause is any object; in a cycle of causes RecursionError ends the chain
            content = b""
        return _load_cause, (content, type(self.cause).__qualname__, _text_of(self.cause))


def advise_caller(error: BaseException, *, is_own_place: bool, waits: bool, is_plain: bool, waits_for_members: bool) -> None:
    """Add to the error of a request which option would have helped its caller.

    Args:
        is_own_place: Whether a handler of the requested cluster sent the request.
        waits: Whether the request waited for a place.
        is_plain: Whether the request may not be repeated.
        waits_for_members: Whether the caller chose how long to wait for members.
    """
    if isinstance(error, _Unserved) and is_own_place:
        error._note_own_place()
    if isinstance(error, Overloaded):
        if not waits:
            error._note_no_wait()
    elif isinstance(error, IrisError) and is_plain and (not waits_for_members or isinstance(error, MemberLost)):
        error._note_plain_request()


def _load_cause(content: bytes, kind: str, text: str) -> _CauseCarrier:
    """Load the cause pickled by a :class:`_CauseCarrier`, or an :exc:`UnpicklableCause` if loading fails."""
    import pickle

    cause, further = None, None
    with suppress(Exception):  # the module may be missing here, or the class may want other arguments
        cause, further = pickle.loads(content)  # noqa: S301 - part of a pickle that is being loaded already
    if not isinstance(cause, BaseException):
        return _CauseCarrier(UnpicklableCause(kind, text))
    if further is not None:
        cause.__cause__ = further.cause
    return _CauseCarrier(cause)


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # the class may come from any program
        return "its text cannot be shown"
