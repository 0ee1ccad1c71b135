"""Identifiers of nodes and groups: 128 bits, as in Pastry (Rowstron and Druschel 2001, section 2.1)."""

from __future__ import annotations

from typing import NewType

ID_BYTES = 16
"""128 bits: random ids of as many nodes as will ever run do not collide by chance."""

NodeId = NewType("NodeId", bytes)
"""A node: ID_BYTES of randomness, drawn anew by each process. An id is never used again, so a departed one stays departed."""

GroupId = NewType("GroupId", bytes)
"""A cluster or a topic: a keyed hash of its kind and name (docs/design.md 2.3). The overlay never sees the name."""
