"""The other nodes: discovery, dialling, links and liveness."""
