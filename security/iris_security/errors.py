"""The errors of `security`, split by who must act.

* `SecurityError`: the base of all
    * `SecretFormatError` (also a `ValueError`): the user gave a malformed secret and has to correct it
    * `KeyExhaustedError`: a key may seal nothing more; its owner has to open a new link or take a new id
    * `AuthenticationError`: what came from outside is not authentic; its owner drops it, or closes the link
        * `ReplayError`: it is authentic but was seen before; for local counters, never to be told to the peer

What came from outside fails in one opaque form. Whoever learns *which* check failed holds an oracle, so neither the text nor
the chain of causes says it.
"""


class SecurityError(Exception):
    """The base of every error of this package."""


class SecretFormatError(SecurityError, ValueError):
    """The text is not a secret. The message says what to do and never repeats the text."""


class KeyExhaustedError(SecurityError):
    """A key has sealed all it safely can. Going on would use a nonce twice, so nothing more is sealed."""


class AuthenticationError(SecurityError):
    """Something from outside did not authenticate: forged, damaged, truncated, or made with another key."""

    def __str__(self) -> str:
        """Return the one text of every failed authentication."""
        return "the data did not authenticate"


class ReplayError(AuthenticationError):
    """Something authentic arrived a second time, or too late to tell."""

    def __str__(self) -> str:
        """Return the text for the local log; to the peer a replay looks like every other failure."""
        return "the data was received before, or is too old to tell"
