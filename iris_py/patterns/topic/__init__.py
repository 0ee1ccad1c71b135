"""Publish and subscribe: topic names, publishers, subscriptions."""
