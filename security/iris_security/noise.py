"""The handshake of a link: `Noise_NNpsk0_25519_AESGCM_SHA256` (docs/design.md 3.1).

Section numbers are those of the Noise Protocol Framework, revision 34.

Theory of operation. The pattern has two messages::

    -> psk, e
    <- e, ee

This is NN of section 7.5 with the modifier psk0 of section 9.4. Who lacks the pre-shared key can neither make nor read either
of them, and the ephemeral keys make every link's keys new: who learns the secret later cannot read what was recorded.

Message 1 carries nothing fresh from the responder, so it can be replayed. The responder must believe nothing, and do nothing of
consequence, before the first record opens.

There are no static keys in the pattern. A node shows which one it is by a signature over the handshake hash (identity.py),
which each side sends under the keys of the handshake: SIGMA-I of Krawczyk 2003, with the tag of Noise in the place of its MAC.

Because the pattern is fixed, this is not a general Noise engine: `_mix_first` and `_mix_second` spell the tokens out.
"""

from iris_security.symmetric import SymmetricState, TwoMessages, exchange

PROTOCOL_NAME = b"Noise_NNpsk0_25519_AESGCM_SHA256"
PSK_BYTES = 32  # section 9


class Handshake(TwoMessages):
    """One handshake, in one of its two roles; its use is that of every `TwoMessages`."""

    def __init__(self, *, initiator: bool, psk: bytes, prologue: bytes, ephemeral_private: bytes) -> None:
        """Prepare a handshake (section 5.3, Initialize).

        Args:
            initiator: Whether we write the first message.
            psk: The pre-shared key.
            prologue: What both sides have to agree on; a peer with another prologue fails.
            ephemeral_private: Fresh entropy of `DH_KEY_BYTES`. It must never be used for a second handshake.

        Raises:
            ValueError: A key has the wrong size.
        """
        if len(psk) != PSK_BYTES:
            raise ValueError(f"a pre-shared key has {PSK_BYTES} bytes, not {len(psk)}")
        symmetric = SymmetricState(PROTOCOL_NAME, prologue)
        super().__init__(initiator=initiator, ephemeral_private=ephemeral_private, symmetric=symmetric)
        # Both roles begin with the first token of message 1, `psk` (section 9.2).
        symmetric.mix_key_and_hash(psk)
        # The result of `ee`. The responder has it after message 1, and mixes it in message 2.
        self._shared: bytes | None = None

    def _mix_first(self, public: bytes) -> None:
        """Process `-> e`."""
        self._mix_ephemeral(public)

    def _prepare_second(self, remote: bytes) -> None:
        # Only now, with the tag verified: a stranger shall not make us multiply points. And not later, in our own message:
        # a point of low order is the peer's fault and has to show here.
        self._shared = exchange(self._ephemeral, remote)

    def _mix_second(self, public: bytes) -> None:
        """Process `<- e, ee`."""
        self._mix_ephemeral(public)
        if self._initiator:
            self._shared = exchange(self._ephemeral, public)
        assert self._shared is not None
        self._symmetric.mix_key(self._shared)

    def _mix_ephemeral(self, public: bytes) -> None:
        """Process token `e`, which in a handshake with a pre-shared key goes into the key too (section 9.2)."""
        self._symmetric.mix_hash(public)
        self._symmetric.mix_key(public)
