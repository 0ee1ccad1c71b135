"""The handshake between gateways of two clouds: `Noise_KK_25519_AESGCM_SHA256` (docs/design.md 15.2).

Section numbers are those of the Noise Protocol Framework, revision 34. Each side knows the static public key of the other in
advance. The pattern has two messages::

    -> s
    <- s
    ...
    -> e, es, ss
    <- e, ee, se

This is KK of section 7.5. Without the private key of either side neither message can be made or read. The ephemeral keys make
the keys of every link new, so a later thief of both private keys cannot decrypt recorded traffic. A thief of one cloud's
private key can impersonate that cloud, but cannot impersonate another cloud to it in any record (key compromise impersonation):
section 7.7 gives authentication 2 to the responder's messages and all following ones.

Message 1 contains nothing fresh from the responder, so an attacker can replay it, and a thief of the responder's private key
can forge it. The responder must trust nothing and change nothing before the first record decrypts.

The pattern is fixed, so this is no general Noise engine: `_mix_first` and `_mix_second` process the tokens directly.
"""

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from iris_security.errors import AuthenticationError
from iris_security.symmetric import DH_KEY_BYTES, SymmetricState, TwoMessages, exchange

PROTOCOL_NAME = b"Noise_KK_25519_AESGCM_SHA256"


class KnownKeysHandshake(TwoMessages):
    """One handshake between gateways of two clouds, as initiator or responder; see `TwoMessages` for its use."""

    def __init__(
        self, *, initiator: bool, static_private: bytes, peer_static_public: bytes, prologue: bytes, ephemeral_private: bytes
    ) -> None:
        """Prepare one side of a handshake (section 5.3, Initialize).

        Args:
            initiator: Whether the local side writes the first message.
            static_private: The private half of the local static key, `DH_KEY_BYTES`.
            peer_static_public: The public half of the expected peer's static key, `DH_KEY_BYTES`.
            prologue: Data equal on both sides; with different prologues the handshake fails.
            ephemeral_private: Fresh entropy of `DH_KEY_BYTES`. Never use it for a second handshake.

        Raises:
            ValueError: A key has the wrong size, or the peer's key is a point of low order.
        """
        for key in (static_private, peer_static_public):
            if len(key) != DH_KEY_BYTES:
                raise ValueError(f"a static key has {DH_KEY_BYTES} bytes, not {len(key)}")
        symmetric = SymmetricState(PROTOCOL_NAME, prologue)
        super().__init__(initiator=initiator, ephemeral_private=ephemeral_private, symmetric=symmetric)
        self._static = X25519PrivateKey.from_private_bytes(static_private)
        self._peer_static = peer_static_public
        try:
            self._static_shared = exchange(self._static, peer_static_public)  # `ss`
        except AuthenticationError:
            raise ValueError("the static key of the peer is a point of low order") from None
        # The results of `ee` and `se`. The responder computes them after message 1 and mixes them in with message 2.
        self._prepared: tuple[bytes, bytes] | None = None
        # The pre-messages: the initiator's key first (section 5.3).
        own_public = self._static.public_key().public_bytes_raw()
        for public in (own_public, peer_static_public) if initiator else (peer_static_public, own_public):
            symmetric.mix_hash(public)

    def _mix_first(self, public: bytes) -> None:
        """Process the tokens of message 1, `-> e, es, ss`."""
        symmetric = self._symmetric
        symmetric.mix_hash(public)
        # An ephemeral key of low order fails here, because its product with every key is zero.
        symmetric.mix_key(exchange(self._ephemeral, self._peer_static) if self._initiator else exchange(self._static, public))
        symmetric.mix_key(self._static_shared)

    def _prepare_second(self, remote: bytes) -> None:
        # Only after the tag is verified: a stranger can cause no computation beyond `es` and `ss`.
        self._prepared = exchange(self._ephemeral, remote), exchange(self._ephemeral, self._peer_static)

    def _mix_second(self, public: bytes) -> None:
        """Process the tokens of message 2, `<- e, ee, se`."""
        self._symmetric.mix_hash(public)
        if self._initiator:
            self._prepared = exchange(self._ephemeral, public), exchange(self._static, public)
        assert self._prepared is not None
        for shared in self._prepared:
            self._symmetric.mix_key(shared)
