"""The handshake between gateways of two clouds: `Noise_KK_25519_AESGCM_SHA256` (docs/design.md 15.2).

Section numbers are those of the Noise Protocol Framework, revision 34.

Theory of operation. Each side knows the static public key of the other before, and the pattern has two messages::

    -> s
    <- s
    ...
    -> e, es, ss
    <- e, ee, se

This is KK of section 7.5. Only public keys are exchanged beforehand. Who lacks the private key of either side can neither make
nor read either message, and the ephemeral keys make the keys of every link new: who learns both private keys later cannot read
what was recorded. Who steals the private key of one cloud poses as that cloud, as everybody expects; but not as another one
towards it (key compromise impersonation), in any record: section 7.7 gives messages of the responder, and all that follows,
authentication 2.

Message 1 carries nothing fresh from the responder, so it can be replayed, and whoever has stolen the private key of the
responder can forge it. The responder must believe nothing, and do nothing of consequence, before the first record opens.

Because the pattern is fixed, this is not a general Noise engine: `_mix_first` and `_mix_second` spell the tokens out.
"""

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from iris_security.errors import AuthenticationError
from iris_security.symmetric import DH_KEY_BYTES, SymmetricState, TwoMessages, exchange

PROTOCOL_NAME = b"Noise_KK_25519_AESGCM_SHA256"


class KnownKeysHandshake(TwoMessages):
    """One handshake, in one of its two roles; its use is that of every `TwoMessages`."""

    def __init__(
        self, *, initiator: bool, static_private: bytes, peer_static_public: bytes, prologue: bytes, ephemeral_private: bytes
    ) -> None:
        """Prepare a handshake (section 5.3, Initialize).

        Args:
            initiator: Whether we write the first message.
            static_private: Our own static key, the private half.
            peer_static_public: The public half of the static key of the only peer that we shake hands with.
            prologue: What both sides have to agree on; a peer with another prologue fails.
            ephemeral_private: Fresh entropy of `DH_KEY_BYTES`. It must never be used for a second handshake.

        Raises:
            ValueError: A key has the wrong size, or the peer's is a point of low order.
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
        # The result of `ee` and of `se`. The responder has them after message 1, and mixes them in message 2.
        self._prepared: tuple[bytes, bytes] | None = None
        # The pre-messages: the initiator's key first (section 5.3).
        own_public = self._static.public_key().public_bytes_raw()
        for public in (own_public, peer_static_public) if initiator else (peer_static_public, own_public):
            symmetric.mix_hash(public)

    def _mix_first(self, public: bytes) -> None:
        """Process `-> e, es, ss`."""
        symmetric = self._symmetric
        symmetric.mix_hash(public)
        # A point of low order as an ephemeral key shows here: its product with every key is zero.
        symmetric.mix_key(exchange(self._ephemeral, self._peer_static) if self._initiator else exchange(self._static, public))
        symmetric.mix_key(self._static_shared)

    def _prepare_second(self, remote: bytes) -> None:
        # Only now, with the tag verified: a stranger makes us compute `es` and `ss`, and no more.
        self._prepared = exchange(self._ephemeral, remote), exchange(self._ephemeral, self._peer_static)

    def _mix_second(self, public: bytes) -> None:
        """Process `<- e, ee, se`."""
        self._symmetric.mix_hash(public)
        if self._initiator:
            self._prepared = exchange(self._ephemeral, public), exchange(self._static, public)
        assert self._prepared is not None
        for shared in self._prepared:
            self._symmetric.mix_key(shared)
