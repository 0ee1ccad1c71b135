"""The beginning of a task's talk with an agent: each side proves to the other that it knows a key, and sends no key.

The agent says hello, with its id and 32 random bytes. The task answers with 32 random bytes of its own and a *proof*:
HMAC-SHA256 over all of that. The agent checks it, and proves the same. Only then the task sends anything that is worth
something, and what it sends counts on this connection alone.

The key is that of the agent, which follows from the token of the application (:func:`.orders.agent_key`). An agent that was
started ahead has none yet. It has made a *birth key*, which is a file in its directory until it is adopted: who can read that
file is of its user.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import dataclass
from typing import Final

from spark_connector.errors import OrderRefused

__all__ = ["NONCE_BYTES", "OPENING_BYTES", "PROOF_BYTES", "Hello", "Talk"]

#: Of the random bytes that each side brings.
NONCE_BYTES: Final = 32
PROOF_BYTES: Final = 32
#: What a task sends first: its random bytes, and its proof.
OPENING_BYTES: Final = NONCE_BYTES + PROOF_BYTES

_LABEL: Final = b"iris executor talk 1"
_TASK: Final = b"task"
_AGENT: Final = b"agent"
_SESSION: Final = b"session"


@dataclass(frozen=True)
class Hello:
    """The first line of an agent, in the clear."""

    agent: str
    """Its id, which is new for every agent."""
    is_waiting: bool
    """Whether it was started ahead and nobody has adopted it: then the key is its birth key."""
    nonce: bytes
    """Random bytes of this connection."""

    def encode(self) -> bytes:
        """Return it as it is sent: a line of JSON."""
        return json.dumps({"agent": self.agent, "waiting": self.is_waiting, "nonce": self.nonce.hex()}).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> Hello:
        """Return what an agent has said.

        Raises:
            ValueError: It is no hello.
        """
        fields = json.loads(line)
        if not isinstance(fields, dict):
            raise ValueError("it does not say what it is")
        agent, is_waiting, nonce = fields.get("agent"), fields.get("waiting"), fields.get("nonce")
        if not isinstance(agent, str) or not isinstance(is_waiting, bool) or not isinstance(nonce, str):
            raise ValueError("it does not say what it is")
        return cls(agent, is_waiting, bytes.fromhex(nonce))


class Talk:
    """One connection of a task to an agent, as both sides see it.

    Args:
        key: The key that both are to know.
        hello: Of the agent.
        nonce: The random bytes of the task.
    """

    def __init__(self, key: bytes, hello: Hello, nonce: bytes) -> None:
        self._key = key
        self._hello = hello
        self._nonce = nonce

    @property
    def session(self) -> str:
        """The target of orders that count on this connection alone; nothing secret."""
        return "local " + self._authenticate(_SESSION).hex()

    def opening(self) -> bytes:
        """Return what the task sends first."""
        return self._nonce + self._authenticate(_TASK)

    def answer(self, opening: bytes) -> bytes:
        """Return the proof of the agent, for what the task has sent.

        Raises:
            OrderRefused: The task does not know the key.
        """
        if not hmac.compare_digest(opening, self.opening()):
            raise OrderRefused("it is not from the driver of this application")
        return self._authenticate(_AGENT)

    def is_proved_by(self, proof: bytes) -> bool:
        """Tell whether a proof is that of an agent that knows the key."""
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
