"""Sizes of AES-256-GCM as everything here uses it: the full tag, and nonces of 96 bits (NIST SP 800-38D, section 5.2)."""

from __future__ import annotations

NONCE_BYTES = 12
TAG_BYTES = 16
