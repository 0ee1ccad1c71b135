"""Executors as a cluster: an agent for each, and the driver that asks them."""
