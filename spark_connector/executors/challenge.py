"""The opening of a task's connection to an agent: both sides prove knowledge of a key, without sending the key.

The agent sends a hello with its id and 32 random bytes. The task answers with 32 random bytes of its own and a *proof*:
HMAC-SHA256 over all of these. The agent checks the proof and sends its own. Only then does the task send confidential data,
which is valid only on this connection.

The key is the agent's, derived from the token of the application (:func:`.orders.agent_key`). An agent started early has no
such key yet. Until adoption, its directory has a *birth key*, a file readable only by processes of the same user.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import dataclass
from typing import Final

from spark_connector.errors import OrderRefused

__all__ = ["NONCE_BYTES", "OPENING_BYTES", "PROOF_BYTES", "AgentHello", "Talk"]

#: Random bytes from each side.
NONCE_BYTES: Final = 32
PROOF_BYTES: Final = 32
#: The first bytes from a task: its random bytes and its proof.
OPENING_BYTES: Final = NONCE_BYTES + PROOF_BYTES

_LABEL: Final = b"iris executor talk 1"
_TASK: Final = b"task"
_AGENT: Final = b"agent"
_SESSION: Final = b"session"


@dataclass(frozen=True)
class AgentHello:
    """The first line an agent sends to a task, unencrypted."""

    agent: str
    """The id of the agent, new for every agent."""
    is_waiting: bool
    """Whether the agent was started early and not adopted yet: then the key is its birth key."""
    nonce: bytes
    """Random bytes of this connection."""

    def encode(self) -> bytes:
        """Return the hello as a line of JSON."""
        return json.dumps({"agent": self.agent, "waiting": self.is_waiting, "nonce": self.nonce.hex()}).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> AgentHello:
        """Parse the hello of an agent.

        Raises:
            ValueError: The line is not a hello.
        """
        fields = json.loads(line)
        if not isinstance(fields, dict):
            raise ValueError("it does not identify itself")
        agent, is_waiting, nonce = fields.get("agent"), fields.get("waiting"), fields.get("nonce")
        if not isinstance(agent, str) or not isinstance(is_waiting, bool) or not isinstance(nonce, str):
            raise ValueError("it does not identify itself")
        return cls(agent, is_waiting, bytes.fromhex(nonce))


class Talk:
    """The proofs of one connection of a task to an agent. Both sides make the same object.

    Args:
        key: The shared key.
        hello: The hello of the agent.
        nonce: The random bytes of the task.
    """

    def __init__(self, key: bytes, hello: AgentHello, nonce: bytes) -> None:
        self._key = key
        self._hello = hello
        self._nonce = nonce

    @property
    def session(self) -> str:
        """The id of this connection, for which orders sent over it are valid; not secret."""
        return "local " + self._authenticate(_SESSION).hex()

    def opening(self) -> bytes:
        """Return the first bytes the task sends."""
        return self._nonce + self._authenticate(_TASK)

    def answer(self, opening: bytes) -> bytes:
        """Check the task's proof, and return the agent's own.

        Raises:
            OrderRefused: The task does not know the key.
        """
        if not hmac.compare_digest(opening, self.opening()):
            raise OrderRefused("it is not from the driver of this application")
        return self._authenticate(_AGENT)

    def is_proved_by(self, proof: bytes) -> bool:
        """Tell whether a proof comes from an agent that knows the key."""
        return hmac.compare_digest(proof, self._authenticate(_AGENT))

    def _authenticate(self, role: bytes) -> bytes:
        hello = self._hello
        state = b"waiting" if hello.is_waiting else b"adopted"
        parts = (
            _LABEL,
            role,
            state,
            hello.agent.encode().hex().encode(),
            hello.nonce.hex().encode(),
            self._nonce.hex().encode(),
        )
        return hmac.new(self._key, b"|".join(parts), hashlib.sha256).digest()
