"""Secrets, and all keys that derive from them (docs/design.md 2).

A network has one `Secret`. A `Keyring` derives from it what goes out into the other modules: the `NetworkKeys` of links and
datagrams, and the `GroupKeys` of every cluster and topic. Each derivation has a label of its own, and the network name as its
salt.

Rotation: of several *generations* of a secret the primary one seals, and the accepted ones still open. A key id, in clear on
the wire, names the generation of the network's secret in use; each generation has groups of its own (docs/design.md 2.9).
"""

import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias

from iris_security.errors import AuthenticationError
from iris_security.hkdf import hkdf
from iris_security.key_material import KeyMaterial
from iris_security.secret import Secret
from iris_security.signature import PUBLIC_KEY_BYTES, SigningKey, verify
from iris_security.text_form import refuse_secret

KEY_ID_BYTES = 8  # it only chooses among a keyring's few generations; the handshake proves the key
GROUP_ID_BYTES = 16  # two groups of one network meet after 2^64 names, and nobody finds a second key for one of them
NODE_ID_BYTES = 16  # the width of a node id on the wire, and in associated data
PROOF_BYTES = 16  # 128 bits, as an AES-GCM tag: guessing works online only
NAME_BYTES_MAX = 255  # a name fits behind a length of one byte, and into any log line

#: Generations of one secret at once. A rotation has two, and two more are left for those that overlap. Too small: a rotation
#: has to wait for the one before; too large: members register once for each.
GENERATIONS_MAX = 4

_PERMIT_LABEL = b"permit"


def encode_name(name: str) -> bytes:
    """Return the UTF-8 form of the name of a network, cluster or topic, as every derivation takes it.

    Two Unicode forms of one visible name are two names.

    Raises:
        ValueError: The name is no string, empty, longer than `NAME_BYTES_MAX`, no valid Unicode, has a zero character, or holds
            a secret.
    """
    if not isinstance(name, str) or not name:
        raise ValueError("a name has to be a non-empty string")
    refuse_secret(name)
    encoded = name.encode()
    if len(encoded) > NAME_BYTES_MAX:
        raise ValueError(
            f"a name has at most {NAME_BYTES_MAX} bytes in UTF-8, this one has {len(encoded)}: choose a shorter one"
        )
    # A name is used as a salt, and HMAC fills short keys up with zeros: "a" and "a\0" would be the same network.
    if b"\0" in encoded:
        raise ValueError("a name must not hold the character U+0000: leave it out")
    return encoded


#: The secret of a cluster: one, or its generations, the primary one first.
OwnSecret: TypeAlias = Secret | Sequence[Secret]


class NetworkKeys(KeyMaterial):
    """The keys of one generation of the network secret, for links and datagrams.

    Attributes:
        network: The name of the network.
        key_id: Public: it travels in clear and names the secret (docs/design.md 2.2).
        link_psk: The pre-shared key of the Noise handshake (docs/design.md 3.1).
        datagram_key: The root of the senders' datagram keys (datagram.py).
    """

    __slots__ = ("datagram_key", "key_id", "link_psk", "network")

    network: str
    key_id: bytes
    link_psk: bytes
    datagram_key: bytes

    def __init__(self, network: str, key_id: bytes, link_psk: bytes, datagram_key: bytes) -> None:
        for name, value in (("network", network), ("key_id", key_id), ("link_psk", link_psk), ("datagram_key", datagram_key)):
            object.__setattr__(self, name, value)

    @classmethod
    def derive(cls, secret: Secret, network: str) -> "NetworkKeys":
        """Derive the keys of a network from its secret (docs/design.md 2.2)."""
        salt = encode_name(network)
        return cls(
            network=network,
            key_id=hkdf(secret.value, salt=salt, info=b"iris key id", length=KEY_ID_BYTES),
            link_psk=hkdf(secret.value, salt=salt, info=b"iris link"),
            datagram_key=hkdf(secret.value, salt=salt, info=b"iris datagram"),
        )

    def prove(self, handshake_hash: bytes, *, initiator: bool) -> bytes:
        """Return the proof that one side of a link holds this generation, though the link began under another one.

        Args:
            handshake_hash: Of the link (docs/design.md 3.1).
            initiator: Which side proves it: the proof of the one is none of the other.
        """
        label = b"iris generation i" if initiator else b"iris generation r"
        return hmac.digest(self.link_psk, label + handshake_hash, "sha256")[:PROOF_BYTES]

    def verify(self, handshake_hash: bytes, proof: bytes, *, initiator: bool) -> bool:
        """Tell in constant time whether a proof, as it came from a peer, is that of one side of a link; see `prove`."""
        return hmac.compare_digest(self.prove(handshake_hash, initiator=initiator), proof)

    def __repr__(self) -> str:
        """Show what is public."""
        return f"NetworkKeys(network={self.network!r}, key_id={self.key_id.hex()}, <hidden>)"


class GroupKeys(KeyMaterial):
    """The keys of a group, for its members: to name it, to seal for it, to prove membership, to let nodes use it.

    Attributes:
        group_id: The hash of the public key that permits are made with. Public inside the network: nodes that lack the keys
            still route by it, and tell by it who may use the group.
        key: From which the keys of senders derive.
        permit_seed: The private key that permits are made with.
    """

    __slots__ = ("_permits", "group_id", "key", "permit_seed")

    group_id: bytes
    key: bytes
    permit_seed: bytes
    _permits: SigningKey

    def __init__(self, key: bytes, permit_seed: bytes) -> None:
        permits = SigningKey(permit_seed)
        object.__setattr__(self, "_permits", permits)
        object.__setattr__(self, "group_id", _group_id_of(permits.public_key))
        object.__setattr__(self, "key", key)
        object.__setattr__(self, "permit_seed", permit_seed)

    def permit(self, data: bytes) -> bytes:
        """Return a permit of this group: a signature that whoever knows the group id can check (docs/design.md 2.8).

        Args:
            data: What is permitted, and to which node.
        """
        return self._permits.sign(_PERMIT_LABEL, data)

    def proof(self, node_id: bytes, statement: bytes = b"") -> bytes:
        """Return the proof that a node holds the key of this group (docs/design.md 2.4).

        It does not expire and says nothing about who shows it. So the receiver also has to know that the peer is that node.

        Args:
            node_id: The node.
            statement: What the node says of its membership, which nobody without the key can change.

        Raises:
            ValueError: The id has not `NODE_ID_BYTES`.
        """
        if len(node_id) != NODE_ID_BYTES:
            raise ValueError(f"a node id has {NODE_ID_BYTES} bytes, not {len(node_id)}")
        return hmac.digest(hkdf(self.key, info=b"iris member"), node_id + statement, "sha256")[:PROOF_BYTES]

    def verify_proof(self, node_id: bytes, proof: bytes, statement: bytes = b"") -> bool:
        """Tell in constant time whether a proof, as it came from a peer, is the one of that node for that statement."""
        return len(node_id) == NODE_ID_BYTES and hmac.compare_digest(self.proof(node_id, statement), proof)

    def prove(self, handshake_hash: bytes, *, initiator: bool) -> bytes:
        """Return the proof that one side of a link holds the key of this group (docs/design.md 4.7).

        Args:
            handshake_hash: Of the link (docs/design.md 3.1): no other link has the same, so the proof is none there.
            initiator: Which side proves it: the proof of the one is none of the other.
        """
        label = b"iris group i" if initiator else b"iris group r"
        return hmac.digest(hkdf(self.key, info=b"iris group link"), label + handshake_hash, "sha256")[:PROOF_BYTES]

    def tunnel_psk(self) -> bytes:
        """Return the pre-shared key of the handshakes of this group's tunnels (docs/design.md 11.2)."""
        return hkdf(self.key, info=b"iris tunnel")

    def __repr__(self) -> str:
        """Show what is public."""
        return f"GroupKeys(group_id={self.group_id.hex()}, <hidden>)"


class Keyring:
    """All secrets of a node in one network, and what derives from them. It is not pickled, for the secrets are not.

    Attributes:
        administrator: The public half of the key of who may exchange the network's secret; None if nobody may.
    """

    def __init__(
        self,
        primary: Secret,
        *,
        network: str = "default",
        accepted: Sequence[Secret] = (),
        clusters: Mapping[str, OwnSecret] | Callable[[str], OwnSecret | None] | None = None,
        strict: bool = False,
        administrator: bytes | None = None,
    ) -> None:
        """Derive the keys of the network.

        Args:
            primary: The secret with which this node seals.
            network: The name of the network. One secret under two names is two networks.
            accepted: Other generations, older or to come: what others seal with them opens, and nothing is sealed with them.
            clusters: Clusters with a secret of their own: nobody else in the network can name, read or join them. Of several
                secrets the first is the primary one, and the others are accepted. Or a function from the name of a cluster
                to its secret, None for the network's; it is asked at each derivation, and has to be quick.
            strict: Whether a cluster without a secret of its own is an error when it is used.
            administrator: The public half of the key of who may exchange the network's secret in a running network
                (administration.py), `PUBLIC_KEY_BYTES`; None if nobody may.

        Raises:
            ValueError: A name is not valid, see `encode_name`; a cluster has no secret, there are more generations than
                `GENERATIONS_MAX`, or the administrator has another size.
        """
        if administrator is not None and len(administrator) != PUBLIC_KEY_BYTES:
            raise ValueError(f"an administrator has {PUBLIC_KEY_BYTES} bytes, not {len(administrator)}")
        self.administrator = administrator
        self._salt = encode_name(network)
        self._secrets = _generations_of("the network", (primary, *accepted))
        self._is_strict = strict
        self._find_own = clusters if callable(clusters) else None
        self._clusters: dict[str, tuple[Secret, ...]] = {}
        for name, given in (clusters if isinstance(clusters, Mapping) else {}).items():
            encode_name(name)
            self._clusters[name] = _own_generations(name, given)
        self._generations = {keys.key_id: keys for keys in (NetworkKeys.derive(secret, network) for secret in self._secrets)}
        self._primary = next(iter(self._generations.values()))

    def with_generations(self, secrets: Sequence[Secret]) -> "Keyring":
        """Return a keyring that differs in the secret of the network alone.

        Args:
            secrets: The generations, the primary one first.

        Raises:
            ValueError: There are none, or more than `GENERATIONS_MAX`.
        """
        return Keyring(
            secrets[0],
            network=self.network,
            accepted=secrets[1:],
            clusters=self._find_own or self._clusters,
            strict=self._is_strict,
            administrator=self.administrator,
        )

    @property
    def network(self) -> str:
        """The name of the network."""
        return self._primary.network

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """The generations of the network's secret, the primary one first."""
        return self._secrets

    @property
    def primary(self) -> NetworkKeys:
        """The keys with which this node seals."""
        return self._primary

    def find(self, key_id: bytes) -> NetworkKeys | None:
        """Return the keys that a peer names by a key id, primary or accepted, or nothing.

        A key id is public, so finding one proves nothing about the peer.
        """
        return self._generations.get(key_id)

    @property
    def generations(self) -> tuple[NetworkKeys, ...]:
        """The keys of every generation of the network's secret, the primary one first."""
        return tuple(self._generations.values())

    @property
    def own_secrets(self) -> Mapping[str, tuple[bytes, ...]]:
        """The clusters that were named with a secret of their own: the id of each generation by name, the primary one first.

        An id is public: it tells generations apart, and nobody gets from it to the secret. Those of a function are not here.
        """
        return {
            name: tuple(hkdf(secret.value, salt=self._salt, info=b"iris key id", length=KEY_ID_BYTES) for secret in secrets)
            for name, secrets in self._clusters.items()
        }

    def cluster(self, name: str) -> GroupKeys:
        """Derive the primary keys of a cluster, from its own secret if it has one (docs/design.md 2.3).

        Nothing is remembered here, so no table grows; keep the result.

        Raises:
            ValueError: The name is not valid, see `encode_name`; or the cluster has no secret of its own, and has to have one.
        """
        return self._derive_group(self._secrets_of(name)[0], "cluster", name)

    def topic(self, name: str) -> GroupKeys:
        """Derive the primary keys of a topic.

        Raises:
            ValueError: The name is not valid, see `encode_name`.
        """
        return self._derive_group(self._secrets[0], "topic", name)

    def accepted(self, name: str, *, is_topic: bool = False) -> list[GroupKeys]:
        """Derive the keys of a cluster or topic in the other generations of its secret.

        Raises:
            ValueError: The name is not valid, see `encode_name`.
        """
        if is_topic:
            return [self._derive_group(secret, "topic", name) for secret in self._secrets[1:]]
        return [self._derive_group(secret, "cluster", name) for secret in self._secrets_of(name)[1:]]

    def internal(self, name: str) -> list[GroupKeys]:
        """Derive the keys of a cluster that every node has by itself, the primary ones first.

        They are those of the network unless `clusters` names a secret for it, also where `strict` is set, which is about the
        clusters that a program uses. A function is not asked: it knows the names of the program alone.
        """
        secrets = self._clusters.get(name, self._secrets)
        return [self._derive_group(secret, "cluster", name) for secret in secrets]

    def is_own(self, cluster: str, keys: GroupKeys) -> bool:
        """Return whether keys of a cluster come from a secret of its own, and not from one of the network.

        Args:
            cluster: The name of the cluster.
            keys: Keys that `cluster` or `accepted` returned.
        """
        return all(self._derive_group(secret, "cluster", cluster).group_id != keys.group_id for secret in self._secrets)

    def has_own_secret(self, cluster: str) -> bool | None:
        """Return whether a cluster has a secret of its own here; None where a function says so, which is not asked for this."""
        return None if self._find_own is not None else cluster in self._clusters

    def _own(self, cluster: str) -> tuple[Secret, ...] | None:
        if self._find_own is None:
            return self._clusters.get(cluster)
        given = self._find_own(cluster)
        return None if given is None else _own_generations(cluster, given)

    def _secrets_of(self, cluster: str) -> tuple[Secret, ...]:
        own = self._own(cluster)
        if own is None and self._is_strict:
            raise ValueError(
                f"the cluster {cluster!r} has no secret of its own here, and strict asks for one: give it one with clusters="
            )
        return self._secrets if own is None else own

    def _derive_group(self, secret: Secret, kind: Literal["cluster", "topic"], name: str) -> GroupKeys:
        label = kind.encode() + b" " + encode_name(name)
        return GroupKeys(
            key=hkdf(secret.value, salt=self._salt, info=b"iris " + label),
            permit_seed=hkdf(secret.value, salt=self._salt, info=b"iris permit " + label),
        )

    def __repr__(self) -> str:
        """Show what is public."""
        return f"Keyring(network={self.network!r}, key_id={self._primary.key_id.hex()}, generations={len(self._generations)})"


def _own_generations(cluster: str, given: OwnSecret) -> tuple[Secret, ...]:
    return _generations_of(f"the cluster {cluster!r}", (given,) if isinstance(given, Secret) else given)


def _generations_of(what: str, secrets: Sequence[Secret]) -> tuple[Secret, ...]:
    """Return the generations of one secret, each once, in order."""
    generations = tuple(dict.fromkeys(secrets))
    if not generations:
        raise ValueError(f"{what} has no secret: give it one, or leave it out")
    if len(generations) > GENERATIONS_MAX:
        raise ValueError(
            f"{what} has {len(generations)} generations of its secret, and {GENERATIONS_MAX} are allowed: retire the oldest"
        )
    return generations


def is_permitted(group_id: bytes, data: bytes, permit: bytes) -> bool:
    """Return whether a permit was made with the keys of a group, which the caller need not hold.

    Args:
        group_id: The group.
        data: What has to be permitted, and to which node.
        permit: As it came.
    """
    try:
        return _group_id_of(verify(_PERMIT_LABEL, data, permit)) == group_id
    except AuthenticationError:
        return False


def _group_id_of(public_key: bytes) -> bytes:
    return hashlib.sha256(b"iris group id" + public_key).digest()[:GROUP_ID_BYTES]
