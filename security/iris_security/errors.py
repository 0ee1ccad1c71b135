"""The errors of `iris_security`, by the party that has to act.

* `SecurityError`: the base of all
    * `SecretFormatError` (also a `ValueError`): the user has to correct a malformed secret
    * `KeyExhaustedError`: a key may encrypt no more; its owner has to open a new link or take a new id
    * `AuthenticationError`: received data is not authentic; the receiver drops the data or closes the link
        * `ReplayError`: authentic data was received before; for local counters, never reported to the peer

All failures of received data look the same. An attacker who learns *which* check failed has an oracle, so neither the text nor
the chain of causes reveals the check.
"""


class SecurityError(Exception):
    """The base of every error of this package."""


class SecretFormatError(SecurityError, ValueError):
    """The text is no valid secret. The message names the remedy and never repeats the text."""


class KeyExhaustedError(SecurityError):
    """A key has reached its safe limit. Further encryption is refused, because it would reuse a nonce."""


class AuthenticationError(SecurityError):
    """Received data is not authentic: forged, damaged, truncated or encrypted with another key."""

    def __str__(self) -> str:
        """Return the same text for every failed authentication."""
        return "the data did not authenticate"


class ReplayError(AuthenticationError):
    """Authentic data arrived a second time, or is older than the replay window."""

    def __str__(self) -> str:
        """Return the text for the local log; the peer sees a replay as any other failure."""
        return "the data was received before, or is too old to check"
