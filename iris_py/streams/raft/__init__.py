"""Raft with a replicated log as the data: the pure core of one partition, without files, sockets, clocks and randomness."""
