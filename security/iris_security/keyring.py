"""A node's secrets and all keys derived from them (docs/design.md 2).

A network has one `Secret`. A `Keyring` derives the `NetworkKeys` of links, datagrams and tokens from it, and the `GroupKeys` of
every cluster and of the realm, the name space of all topics. Each derivation has its own label, and the network name as its
salt.

Rotation: a secret has several *generations*. The primary generation encrypts; the accepted generations only decrypt. A key id,
sent in clear, names the generation of the network's secret. Each generation has its own groups (docs/design.md 2.9).
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

KEY_ID_BYTES = 8  # chooses among a keyring's few generations; the handshake proves the key
GROUP_ID_BYTES = 16  # two groups of a network collide after 2^64 names; a second key for a given group takes 2^128 tries
NODE_ID_BYTES = 16  # the size of a node id on the wire and in associated data
PROOF_BYTES = 16  # 128 bits, as an AES-GCM tag; an attacker can only guess online
NAME_BYTES_MAX = 255  # a name fits behind a length of one byte and into any log line

#: The largest number of generations of one secret at a time. A rotation needs two; two more allow rotations to overlap. Too
#: small: a rotation waits for the previous one; too large: members register once per generation.
GENERATIONS_MAX = 4

_PERMIT_LABEL = b"permit"
# Other labels than those of earlier versions, which had a group for each prefix of a topic: neither side misreads the other.
_REALM = "topics"


def encode_name(name: str) -> bytes:
    """Return the UTF-8 form of the name of a network, cluster or topic, from which all keys derive.

    Two Unicode forms of one visible name are two names.

    Raises:
        ValueError: The name is no string, empty, longer than `NAME_BYTES_MAX`, invalid Unicode, contains a zero character, or
            contains a secret.
    """
    if not isinstance(name, str) or not name:
        raise ValueError("a name must be a non-empty string")
    refuse_secret(name)
    encoded = name.encode()
    if len(encoded) > NAME_BYTES_MAX:
        raise ValueError(
            f"a name has at most {NAME_BYTES_MAX} bytes in UTF-8, this one has {len(encoded)}: choose a shorter one"
        )
    # A name is used as a salt, and HMAC pads short keys with zeros: "a" and "a\0" would be the same network.
    if b"\0" in encoded:
        raise ValueError("a name must not hold the character U+0000: leave it out")
    return encoded


#: The own secret of a cluster, or the generations of that secret, the primary first.
OwnSecret: TypeAlias = Secret | Sequence[Secret]


class NetworkKeys(KeyMaterial):
    """The keys of one generation of the network secret, for links, datagrams and tokens of doors.

    Attributes:
        network: The name of the network.
        key_id: The public name of the secret, sent in clear (docs/design.md 2.2).
        link_psk: The pre-shared key of the Noise handshake (docs/design.md 3.1).
        datagram_key: The root of the senders' datagram keys (datagram.py).
        door_key: The key that signs tokens of doors, 32 bytes (docs/design.md 2.11).
    """

    __slots__ = ("datagram_key", "door_key", "key_id", "link_psk", "network")

    network: str
    key_id: bytes
    link_psk: bytes
    datagram_key: bytes
    door_key: bytes

    def __init__(self, network: str, key_id: bytes, link_psk: bytes, datagram_key: bytes, door_key: bytes) -> None:
        object.__setattr__(self, "network", network)
        object.__setattr__(self, "key_id", key_id)
        object.__setattr__(self, "link_psk", link_psk)
        object.__setattr__(self, "datagram_key", datagram_key)
        object.__setattr__(self, "door_key", door_key)

    @classmethod
    def derive(cls, secret: Secret, network: str) -> "NetworkKeys":
        """Derive the keys of a network from its secret (docs/design.md 2.2)."""
        salt = encode_name(network)
        return cls(
            network=network,
            key_id=hkdf(secret.value, salt=salt, info=b"iris key id", length=KEY_ID_BYTES),
            link_psk=hkdf(secret.value, salt=salt, info=b"iris link"),
            datagram_key=hkdf(secret.value, salt=salt, info=b"iris datagram"),
            door_key=hkdf(secret.value, salt=salt, info=b"iris door token"),
        )

    def prove(self, handshake_hash: bytes, *, initiator: bool) -> bytes:
        """Return the proof that one side of a link holds this generation, although another generation opened the link.

        Args:
            handshake_hash: The hash of the link's handshake (docs/design.md 3.1).
            initiator: Whether the initiator proves it; the proofs of the two sides differ.
        """
        label = b"iris generation i" if initiator else b"iris generation r"
        return hmac.digest(self.link_psk, label + handshake_hash, "sha256")[:PROOF_BYTES]

    def verify(self, handshake_hash: bytes, proof: bytes, *, initiator: bool) -> bool:
        """Return whether a received proof of one side of a link is right, in constant time; see `prove`."""
        return hmac.compare_digest(self.prove(handshake_hash, initiator=initiator), proof)

    def __repr__(self) -> str:
        """Show the network name and the key id, not the keys."""
        return f"NetworkKeys(network={self.network!r}, key_id={self.key_id.hex()}, <hidden>)"


class GroupKeys(KeyMaterial):
    """The keys of a group, held by its members: to name the group, seal, prove membership and make permits.

    Attributes:
        group_id: The hash of the permit key's public half. Insiders without the keys use the id to route and to verify permits.
        key: The key from which the senders' keys derive.
        permit_seed: The private key that signs permits.
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
        """Return a permit of this group: a signature that every node with the group id can verify (docs/design.md 2.8).

        Args:
            data: The permitted action and the node it is for.
        """
        return self._permits.sign(_PERMIT_LABEL, data)

    def proof(self, node_id: bytes, statement: bytes = b"") -> bytes:
        """Return the proof that a node holds the key of this group (docs/design.md 2.4).

        The proof does not expire and does not authenticate its sender, so the receiver has to authenticate the node otherwise.

        Args:
            node_id: The node.
            statement: The node's statement about its membership; nodes without the key cannot change it.

        Raises:
            ValueError: The id has not `NODE_ID_BYTES`.
        """
        if len(node_id) != NODE_ID_BYTES:
            raise ValueError(f"a node id has {NODE_ID_BYTES} bytes, not {len(node_id)}")
        return hmac.digest(hkdf(self.key, info=b"iris member"), node_id + statement, "sha256")[:PROOF_BYTES]

    def verify_proof(self, node_id: bytes, proof: bytes, statement: bytes = b"") -> bool:
        """Return whether a received proof for a node and its statement is right, in constant time; see `proof`."""
        return len(node_id) == NODE_ID_BYTES and hmac.compare_digest(self.proof(node_id, statement), proof)

    def prove(self, handshake_hash: bytes, *, initiator: bool) -> bytes:
        """Return the proof that one side of a link holds the key of this group (docs/design.md 4.7).

        Args:
            handshake_hash: The hash of the link's handshake (docs/design.md 3.1), unique to the link, as is the proof.
            initiator: Whether the initiator proves it; the proofs of the two sides differ.
        """
        label = b"iris group i" if initiator else b"iris group r"
        return hmac.digest(hkdf(self.key, info=b"iris group link"), label + handshake_hash, "sha256")[:PROOF_BYTES]

    def interest_key(self) -> bytes:
        """Return the key of the hashes that stand for the patterns of subscriptions (docs/design.md 8.2), 32 bytes."""
        return hkdf(self.key, info=b"iris interest")

    def entry_group(self, entry: bytes) -> "GroupKeys":
        """Derive the keys of the group of one entry of interest from those of the realm (docs/design.md 8.9)."""
        return GroupKeys(
            key=hkdf(self.key, info=b"iris entry " + entry), permit_seed=hkdf(self.key, info=b"iris entry permit " + entry)
        )

    def table_group(self, path: bytes) -> "GroupKeys":
        """Derive the keys of the group of a child table of interest from those of the realm (docs/design.md 8.13).

        Args:
            path: The path of the table, not empty.
        """
        return GroupKeys(
            key=hkdf(self.key, info=b"iris table " + path), permit_seed=hkdf(self.key, info=b"iris table permit " + path)
        )

    def tunnel_psk(self) -> bytes:
        """Return the pre-shared key of the handshakes of this group's tunnels (docs/design.md 11.2)."""
        return hkdf(self.key, info=b"iris tunnel")

    def __repr__(self) -> str:
        """Show the group id, not the keys."""
        return f"GroupKeys(group_id={self.group_id.hex()}, <hidden>)"


class Keyring:
    """All secrets of a node in one network, and the keys derived from them. A keyring cannot be pickled.

    Attributes:
        administrator: The public half of the administrator key, which rotates the network's secret; None without rotation.
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
        """Derive the keys of the network from its secret.

        Args:
            primary: The secret with which this node encrypts.
            network: The name of the network. One secret with two names makes two networks.
            accepted: Other generations, older or future ones, which only decrypt.
            clusters: The cluster secrets by cluster name; only holders of a cluster secret can name, read or join the cluster.
                Of several secrets the first is the primary one, and the others are accepted. Or a function from the name of a
                cluster to its secret, or to None for the network's; each derivation calls the function, so it has to be quick.
            strict: Whether the use of a cluster without its own secret is an error.
            administrator: The public half of the administrator key, which rotates the secret of a running network
                (administration.py), `PUBLIC_KEY_BYTES`; None without rotation.

        Raises:
            ValueError: A name is not valid, see `encode_name`; a cluster has an empty list of secrets; a secret has more
                generations than `GENERATIONS_MAX`; or `administrator` has another size.
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
        """Return a copy of the keyring with other generations of the network secret.

        Args:
            secrets: The generations, the primary first.

        Raises:
            ValueError: There are more than `GENERATIONS_MAX` secrets.
            IndexError: There are no secrets.
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
        """The generations of the network's secret, the primary first."""
        return self._secrets

    @property
    def primary(self) -> NetworkKeys:
        """The keys with which this node encrypts."""
        return self._primary

    def find(self, key_id: bytes) -> NetworkKeys | None:
        """Return the keys of the generation named by a peer's key id; None for an unknown key id.

        A key id is public, so a match proves nothing about the peer.
        """
        return self._generations.get(key_id)

    @property
    def generations(self) -> tuple[NetworkKeys, ...]:
        """The keys of every generation of the network's secret, the primary first."""
        return tuple(self._generations.values())

    @property
    def own_secrets(self) -> Mapping[str, tuple[bytes, ...]]:
        """The ids of the generations of each configured cluster secret, by cluster name, the primary first.

        An id is public: it identifies a generation and does not reveal the secret. Secrets returned by a function are not
        included.
        """
        return {
            name: tuple(hkdf(secret.value, salt=self._salt, info=b"iris key id", length=KEY_ID_BYTES) for secret in secrets)
            for name, secrets in self._clusters.items()
        }

    def cluster(self, name: str) -> GroupKeys:
        """Derive the primary keys of a cluster, from its own secret if configured (docs/design.md 2.3).

        The keyring caches nothing, so no table grows; keep the result.

        Raises:
            ValueError: The name is not valid, see `encode_name`; or `strict` is set and the cluster has no secret.
        """
        return self._derive_group(self._secrets_of(name)[0], "cluster", name)

    def realm(self) -> GroupKeys:
        """Derive the primary keys of the realm, the name space of all topics, from the network's secret."""
        return self._derive_group(self._secrets[0], "realm", _REALM)

    def accepted_realms(self) -> list[GroupKeys]:
        """Derive the keys of the realm from the accepted generations of the network's secret."""
        return [self._derive_group(secret, "realm", _REALM) for secret in self._secrets[1:]]

    def accepted(self, name: str) -> list[GroupKeys]:
        """Derive the keys of a cluster from the accepted generations of its secret.

        Raises:
            ValueError: The name is not valid, see `encode_name`.
        """
        return [self._derive_group(secret, "cluster", name) for secret in self._secrets_of(name)[1:]]

    def internal(self, name: str) -> list[GroupKeys]:
        """Derive the keys of a cluster that every node joins without the program's request, the primary first.

        The keys derive from the network secret, unless the mapping `clusters` has a secret for this cluster. `strict` does not
        apply, because it concerns the clusters of the program. A function is not called, because it knows only the program's
        names.
        """
        secrets = self._clusters.get(name, self._secrets)
        return [self._derive_group(secret, "cluster", name) for secret in secrets]

    def is_own(self, cluster: str, keys: GroupKeys) -> bool:
        """Return whether the keys of a cluster derive from the cluster's own secret rather than the network's.

        Args:
            cluster: The name of the cluster.
            keys: Keys returned by `cluster` or `accepted`.
        """
        return all(self._derive_group(secret, "cluster", cluster).group_id != keys.group_id for secret in self._secrets)

    def has_own_secret(self, cluster: str) -> bool | None:
        """Return whether a cluster has its own secret; None if `clusters` is a function, which is not called for this."""
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
                f"the cluster {cluster!r} has no cluster secret here, but strict requires one: set it with clusters="
            )
        return self._secrets if own is None else own

    def _derive_group(self, secret: Secret, kind: Literal["cluster", "realm"], name: str) -> GroupKeys:
        label = kind.encode() + b" " + encode_name(name)
        return GroupKeys(
            key=hkdf(secret.value, salt=self._salt, info=b"iris " + label),
            permit_seed=hkdf(secret.value, salt=self._salt, info=b"iris permit " + label),
        )

    def __repr__(self) -> str:
        """Show the network name, the primary key id and the count of generations, not the keys."""
        return f"Keyring(network={self.network!r}, key_id={self._primary.key_id.hex()}, generations={len(self._generations)})"


def _own_generations(cluster: str, given: OwnSecret) -> tuple[Secret, ...]:
    return _generations_of(f"the cluster {cluster!r}", (given,) if isinstance(given, Secret) else given)


def _generations_of(what: str, secrets: Sequence[Secret]) -> tuple[Secret, ...]:
    """Return the generations of one secret, without duplicates, in order."""
    generations = tuple(dict.fromkeys(secrets))
    if not generations:
        raise ValueError(f"{what} has no secret: give a secret, or leave it out")
    if len(generations) > GENERATIONS_MAX:
        raise ValueError(
            f"{what} has {len(generations)} generations of its secret, and {GENERATIONS_MAX} are allowed: retire the oldest"
        )
    return generations


def is_permitted(group_id: bytes, data: bytes, permit: bytes) -> bool:
    """Return whether a permit was made with the keys of a group; only the group id is needed to tell.

    Args:
        group_id: The id of the group.
        data: The permitted action and the node it is for, as passed to `GroupKeys.permit`.
        permit: The permit as received.
    """
    try:
        return _group_id_of(verify(_PERMIT_LABEL, data, permit)) == group_id
    except AuthenticationError:
        return False


def _group_id_of(public_key: bytes) -> bytes:
    return hashlib.sha256(b"iris group id" + public_key).digest()[:GROUP_ID_BYTES]
