"""Nodes under attack: the event loop and the home directory of the integration tests."""

from tests.integration.conftest import home, loop

__all__ = ["home", "loop"]
