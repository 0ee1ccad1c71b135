"""Streams: replicated logs. The pure core, without files, sockets, clocks and randomness."""
