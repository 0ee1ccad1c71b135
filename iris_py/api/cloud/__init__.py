"""Requests, topics and tunnels of a node to clusters of other clouds."""
