"""Tunnels: bidirectional connections between two nodes for ordered messages, with credit."""
