"""Sockets, and the driver that runs a node on them. No other package uses sockets."""
