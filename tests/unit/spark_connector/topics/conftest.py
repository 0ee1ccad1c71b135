"""Fixtures of queries: a network with services in this process."""

from __future__ import annotations

from tests.spark.services import options, secret, service, until

__all__ = ["options", "secret", "service", "until"]
