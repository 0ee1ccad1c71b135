"""The other nodes: finding and dialling them, links to them, and their liveness."""
