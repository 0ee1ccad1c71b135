"""The catalog: stores, streams and placements of a network, as a machine over the log of a group."""
