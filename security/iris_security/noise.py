"""The handshake of a link: `Noise_NNpsk0_25519_AESGCM_SHA256` (docs/design.md 3.1).

Section numbers are those of the Noise Protocol Framework, revision 34. The pattern has two messages::

    -> psk, e
    <- e, ee

This is NN of section 7.5 with the modifier psk0 of section 9.4. Without the pre-shared key neither message can be made or read.
The ephemeral keys make the keys of every link new, so a later thief of the secret cannot decrypt recorded traffic.

Message 1 contains nothing fresh from the responder, so an attacker can replay it. The responder must trust nothing and change
nothing before the first record decrypts.

The pattern has no static keys. A node authenticates by a signature over the handshake hash (identity.py), sent encrypted with
the keys of the handshake. This is SIGMA-I of Krawczyk 2003, with the tag of Noise in place of the MAC.

The pattern is fixed, so this is no general Noise engine: `_mix_first` and `_mix_second` process the tokens directly.
"""

from iris_security.symmetric import SymmetricState, TwoMessages, exchange

PROTOCOL_NAME = b"Noise_NNpsk0_25519_AESGCM_SHA256"
PSK_BYTES = 32  # section 9


class Handshake(TwoMessages):
    """One handshake of a link between nodes of a network, as initiator or responder; see `TwoMessages` for its use."""

    def __init__(self, *, initiator: bool, psk: bytes, prologue: bytes, ephemeral_private: bytes) -> None:
        """Prepare one side of a handshake (section 5.3, Initialize).

        Args:
            initiator: Whether the local side writes the first message.
            psk: The pre-shared key, `PSK_BYTES`.
            prologue: Data equal on both sides; with different prologues the handshake fails.
            ephemeral_private: Fresh entropy of `DH_KEY_BYTES`. Never use it for a second handshake.

        Raises:
            ValueError: A key has the wrong size.
        """
        if len(psk) != PSK_BYTES:
            raise ValueError(f"a pre-shared key has {PSK_BYTES} bytes, not {len(psk)}")
        symmetric = SymmetricState(PROTOCOL_NAME, prologue)
        super().__init__(initiator=initiator, ephemeral_private=ephemeral_private, symmetric=symmetric)
        # Both roles begin with `psk`, the first token of message 1 (section 9.2).
        symmetric.mix_key_and_hash(psk)
        # The result of `ee`. The responder computes it after message 1 and mixes it in with message 2.
        self._shared: bytes | None = None

    def _mix_first(self, public: bytes) -> None:
        """Process the tokens of message 1, `-> e`."""
        self._mix_ephemeral(public)

    def _prepare_second(self, remote: bytes) -> None:
        # Only after the tag is verified: strangers must not cause point multiplications. And not later, in the responder's own
        # message: a point of low order is the peer's fault and has to fail here.
        self._shared = exchange(self._ephemeral, remote)

    def _mix_second(self, public: bytes) -> None:
        """Process the tokens of message 2, `<- e, ee`."""
        self._mix_ephemeral(public)
        if self._initiator:
            self._shared = exchange(self._ephemeral, public)
        assert self._shared is not None
        self._symmetric.mix_key(self._shared)

    def _mix_ephemeral(self, public: bytes) -> None:
        """Process token `e`: mix the ephemeral key into the hash and, because a pre-shared key is used, into the key."""
        self._symmetric.mix_hash(public)
        self._symmetric.mix_key(public)
