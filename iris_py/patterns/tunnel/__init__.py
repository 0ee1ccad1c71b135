"""Tunnels: streams of messages between two nodes, in order and under credit."""
