"""Publish and subscribe: names of topics, publishers, subscriptions."""
