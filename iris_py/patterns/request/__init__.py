"""Requests: the caller, and the member that answers."""
