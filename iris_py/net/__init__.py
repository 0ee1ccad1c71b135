"""Sockets, and the driver that runs a node on them. Nothing else touches sockets."""
